"""Who communicates with whom: every textual form of groups, and what the reference expects. Imports no JAX."""

from __future__ import annotations

import pytest

from harness.aot import hlo, relations
from harness.aot.hlo import Collective
from harness.case import parse_line
from harness.errors import NotApplicable
from harness.program import Plan, plan

FORMS = {
    "{}": [[0, 1, 2, 3, 4, 5, 6, 7]],
    "{{0,4},{1,5},{2,6},{3,7}}": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "[2,4]<=[8]": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "[4,2]<=[2,4]T(1,0)": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "[2,4]<=[2,2,2]T(1,0,2)": [[0, 1, 4, 5], [2, 3, 6, 7]],
    "mesh['i'=2,'j'=4] {'i'}": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "mesh['i'=2,'j'=4] {'j'}": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "mesh['axis_0'=8] {'axis_0'}": [[0, 1, 2, 3, 4, 5, 6, 7]],
    "mesh['a long name: i'=2,'a long name: j'=4] {'a long name: i'}": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "mesh['i'=2,'j'=4] {'j','i'}": [[0, 4, 1, 5, 2, 6, 3, 7]],
}


@pytest.mark.parametrize("text", FORMS)
def test_groups_in_every_form(text: str) -> None:
    assert hlo.expand(text, 8) == FORMS[text]


@pytest.mark.parametrize("text", ["mesh['i'=8] {'i':(1)4}", "mesh['i'=8] {'k'}", "{{0,1},", "@mesh"])
def test_an_unknown_form_is_never_guessed(text: str) -> None:
    with pytest.raises(NotApplicable, match="in a form that is not known here"):
        hlo.expand(text, 8)


LINES = {
    "  %r = f32[4] all-reduce(%p), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%add": (
        "all-reduce in groups [[0, 1], [2, 3]]"
    ),
    "  %s = (f32[4]{0:T(128)}, f32[4]) all-reduce-start(%p, %q), replica_groups=[1,4]<=[4], to_apply=%add": (
        "all-reduce in groups [[0, 1, 2, 3]]"
    ),
    "  ROOT %g = f32[8] all-gather(%p), replica_groups=mesh['i'=2,'j'=2] {'i'}, dimensions={0}": (
        "all-gather in groups [[0, 2], [1, 3]]"
    ),
    "  %t = f32[8] all-to-all(%p), replica_groups={}, dimensions={0}": "all-to-all in groups [[0, 1, 2, 3]]",
    "  %c = f32[8] reduce-scatter(%p), replica_groups={{1,3},{0,2}}, dimensions={0}": (
        "reduce-scatter in groups [[0, 2], [1, 3]]"
    ),
    "  %s = (f32[2], f32[2]) collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{3,0}}": (
        "collective-permute of pairs [(0, 1), (3, 0)]"
    ),
    "  %s = f32[2] collective-permute(%p), source_target_pairs={}": "collective-permute of pairs []",
}


@pytest.mark.parametrize("line", LINES)
def test_a_collective_is_read_from_its_line(line: str) -> None:
    (found,) = hlo.collectives(line, 4)
    assert str(found) == LINES[line]


def test_what_only_ends_or_mentions_a_collective_is_none() -> None:
    text = "\n".join(
        [
            "  %d = f32[2] collective-permute-done(%s)",
            "  %e = f32[2] all-reduce-done(%s)",
            "  %f = f32[2] fusion(%all-reduce.1), calls=%fused",
            '  %g = f32[2] add(%a, %b), metadata={op_name="all-reduce(x)"}',
        ]
    )
    assert hlo.collectives(text, 4) == []


def groups(*members: list[int]) -> Collective:
    return Collective("all-reduce", groups=frozenset(map(frozenset, members)))


def permute(*table: tuple[int, int]) -> Collective:
    return Collective("collective-permute", pairs=frozenset(table), source="ppermute")


def typed(line: str) -> Plan:
    first, *others = parse_line(line)
    return plan(first, tuple(case.leaf for case in others))


EXPECTED = {
    "jit > shard_map(i:2, j:4, in=i.j) > psum(i)": [groups([0, 4], [1, 5], [2, 6], [3, 7])],
    "jit > shard_map(i:2, j:4, in=i.j) > psum(i+j)": [groups([0, 1, 2, 3, 4, 5, 6, 7])],
    "pmap(i:4) > psum(i, groups=halves)": [groups([0, 1], [2, 3])],
    "jit > shard_map(i:4) > ppermute(i, perm=previous)": [permute((1, 0), (2, 1), (3, 2), (0, 3))],
    "jit > shard_map(i:2, j:2, in=i.j) > ppermute(j)": [permute((0, 1), (1, 0), (2, 3), (3, 2))],
    "jit > shard_map(i:2, other=2) > psum(i)": [groups([0, 2], [1, 3])],
    "vmap(i:4) > jit > psum(i)": [],
    "jit > shard_map(i:4) > axis_index(i)": [],
}


@pytest.mark.parametrize("line", EXPECTED)
def test_the_reference_says_who_communicates(line: str) -> None:
    program = typed(line)
    found = relations.expected(program, program.steps[0])
    assert [(c.groups, c.pairs) for c in found] == [(c.groups, c.pairs) for c in EXPECTED[line]]


@pytest.mark.parametrize(
    "line, seen, wrong, missing",
    [
        ("jit > shard_map(i:4) > psum(i)", [groups([0, 1, 2, 3])], 0, 0),
        ("jit > shard_map(i:4) > psum(i)", [groups([0, 1], [2, 3])], 1, 1),
        ("jit > shard_map(i:4) > psum(i)", [], 0, 1),
        ("jit > shard_map(i:2, j:2, in=i.j) > psum(i)", [groups([0, 1], [2, 3])], 1, 1),
        # a sum over two axes may be taken over one after the other
        (
            "jit > shard_map(i:2, j:2, in=i.j) > psum(i+j)",
            [groups([0, 1], [2, 3]), groups([0, 2], [1, 3])],
            0,
            0,
        ),
        ("jit > shard_map(i:3) > ppermute(i)", [permute((0, 1), (1, 2), (2, 0))], 0, 0),
        ("jit > shard_map(i:3) > ppermute(i)", [permute((1, 0), (2, 1), (0, 2))], 1, 0),
        ("jit > shard_map(i:3) > ppermute(i)", [permute((0, 1), (1, 2))], 1, 0),
        ("jit > shard_map(i:4) > ppermute(i, perm=partial)", [permute((0, 1), (1, 2), (2, 3))], 0, 0),
        # the value each member has is closed over: nothing needs to be sent
        ("jit > shard_map(i:4) > psum(i) of closure", [], 0, 0),
    ],
)
def test_wrong_and_missing_communication(line: str, seen: list[Collective], wrong: int, missing: int) -> None:
    program = typed(line)
    sizes = program.steps[0]
    count = 1
    for axis in program.axes:
        count *= sizes[axis.key]
    assert len(relations.unexpected(program, sizes, seen)) == wrong
    lacking = relations.missing(program, sizes, seen, count) if relations.necessary(program, sizes) else []
    assert len(lacking) == missing


def test_a_vmap_around_leaves_the_compiler_free_to_move_arrays() -> None:
    assert relations.strict(typed("jit > shard_map(i:4) > psum(i)"))
    assert not relations.strict(typed("jit > vmap(j:2) > shard_map(i:4, check=off) > psum(i)"))
