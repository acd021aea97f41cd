"""Case lines: every case has one canonical line, and a wrong line says where it is wrong and what would be right."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import cases, leaves, likely

from harness.case import SETTINGS, Case, line_of, parse, parse_line, read_shape, write_shape
from harness.errors import CaseError, Illegal
from harness.layers import LAYERS, LEAVES
from harness.program import plan

RELAXED = settings(
    max_examples=200, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@RELAXED
@given(cases())
def test_a_case_is_its_line(case: Case) -> None:
    line = str(case)
    assert parse(line) == case
    assert str(parse(line)) == line


@RELAXED
@given(cases(most=2), st.lists(leaves(), min_size=1, max_size=3))
def test_leaves_share_a_line(case: Case, others: list) -> None:
    line = line_of(case, others)
    assert parse_line(line) == [case.alone(leaf) for leaf in others]
    assert line_of(case, [each.leaf for each in parse_line(line)]) == line


@RELAXED
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_settings_does_not_matter(case: Case, shuffle: random.Random) -> None:
    program, bar, tail = str(case).partition(" | ")
    words = tail.split()
    shuffle.shuffle(words)
    assert str(parse(program + bar + " ".join(words))) == str(case)


@RELAXED
@given(cases())
def test_defaults_written_out_are_left_out(case: Case) -> None:
    program, _, _ = str(case).partition(" | ")
    settings_ = " ".join(f"{s.key}={s.write(getattr(case, s.key))}" for s in SETTINGS)
    assert str(parse(f"{program} | {settings_}")) == str(case)


@RELAXED
@given(cases(), st.sampled_from(["", " ", "   "]))
def test_white_space_is_free(case: Case, space: str) -> None:
    program, bar, tail = str(case).partition("|")
    loose = re.sub(r"([(),>&])", rf"{space}\1{space}", program) + bar + tail.replace(" ", "  ")
    assert str(parse(f"{space}{loose}{space}")) == str(case)


def test_the_order_of_parameters_does_not_matter() -> None:
    case = parse("vmap(out=1, i:2,3, in=1) > scan(unroll=2, reverse, 3) > all_gather(tiled, axis=1, i)")
    assert str(case) == "vmap(i:2,3, in=1, out=1) > scan(3, reverse, unroll=2) > all_gather(i, axis=1, tiled)"


MALFORMED: tuple[tuple[str, int, str, str], ...] = (
    # line, column, what was found, words the message must have
    ("", 1, "nothing", "psum, pmean"),
    ("psum", 1, "psum", "psum(axis symbols such as i or i+j)"),
    ("psum(i", 5, "(i", "one pair of parentheses"),
    ("vmap(i:2) > psum((i))", 17, "((i))", "one pair of parentheses"),
    ("vmap(i:2) psum(i)", 11, "psum(i)", "'>'"),
    ("vmap(i:3) > > psum(i)", 13, "nothing", "a layer (vmap, pmap, shard_map"),
    ("Vmap(i:3) > psum(i)", 1, "Vmap(i:3)", "a layer (vmap"),
    ("vmap(i:2) > psum(i) > jit", 13, "psum", "a layer (vmap"),
    ("vmap(i:2) > jit", 13, "jit", "a collective or axis query (psum"),
    ("vmap(3) > psum(i)", 6, "3", "an axis and its sizes such as i:3 or i:2,3,2"),
    ("vmap(i) > psum(i)", 6, "i", "an axis and its sizes"),
    ("vmap(i:2,0) > psum(i)", 10, "0", "a size of 1 or more"),
    ("vmap(i:\u00b2) > psum(i)", 6, "i:\u00b2", "a size of 1 or more"),
    ("jit > shard_map(i:2,3, j:3) > psum(i)", 17, "i:2, 3, j:3", "the same number of sizes"),
    ("shard_map(i:2, i:3) > psum(i)", 11, "i:2, i:3", "distinct axes"),
    ("shard_map(i:2, in=stack) > psum(i)", 16, "in=stack", "in=SPEC such as i.j"),
    ("shard_map(i:2, check=maybe) > psum(i)", 16, "check=maybe", "check=on|off"),
    ("vmap(i:2, in=-1) > psum(i)", 11, "in=-1", "in=DIMENSION or in=none"),
    ("vmap(i:2) > scan > psum(i)", 13, "scan", "scan(a number"),
    ("vmap(i:2) > scan(2, 3) > psum(i)", 21, "3", "reverse or xs or unroll=NUMBER"),
    ("vmap(i:2) > scan(2, reverse, reverse) > psum(i)", 30, "reverse", "xs or unroll=NUMBER"),
    ("vmap(i:2) > while_loop(index) > psum(i)", 24, "index", "'index AXIS' or 'reduced AXIS'"),
    ("vmap(i:2) > jit(3) > psum(i)", 17, "3", "nothing more"),
    ("vmap(i:2) > psum(i+)", 18, "i+", "axis symbols such as i or i+j"),
    ("vmap(i:2) > psum(i) & whisper(i)", 23, "whisper", "a collective or axis query"),
    ("vmap(i:2) > ppermute(i, perm=sideways)", 25, "perm=sideways", "next|previous|reverse"),
    ("vmap(i:2) > psum(i) of", 21, "of", "' of OPERAND'"),
    ("vmap(i:2) > psum(i) of everything", 24, "everything", "closure|constant or a number"),
    ("vmap(i:2) > psum(i) | dtype", 23, "dtype", "KEY=VALUE with a key among dtype, shape"),
    ("vmap(i:2) > psum(i) | colour=red", 23, "colour=red", "dtype, shape, payload, n, names, schedule"),
    ("vmap(i:2) > psum(i) | dtype=f32", 29, "f32", "float32|bfloat16"),
    ("vmap(i:2) > psum(i) | shape=", 29, "", "dimensions such as 3x2i"),
    ("vmap(i:2) > psum(i) | n=\u00b2", 25, "\u00b2", "a number"),
    ("vmap(i:2) > psum(i) | n=1 n=2", 27, "n=2", "each key once"),
)


@pytest.mark.parametrize(("line", "column", "found", "expected"), MALFORMED)
def test_a_malformed_line_says_where_and_what(line: str, column: int, found: str, expected: str) -> None:
    with pytest.raises(CaseError) as caught:
        parse_line(line)
    message = str(caught.value)
    assert caught.value.column == column
    assert f"column {column}: found {found!r}, expected " in message
    assert expected in message and message.endswith(line)
    if found != "nothing":
        assert line[column - 1 :].replace(", ", ",").startswith(found.replace(", ", ","))


ILLEGAL: tuple[tuple[str, str], ...] = (
    ("vmap(i:2, j:2) > psum(i)", "binds one axis"),
    ("shard_map(_:2) > psum(i)", "a mesh axis has a name"),
    ("shard_map(i:2, in=k) > psum(i)", "each mesh axis of its own shard_map once"),
    ("vmap(i:2) > psum(j)", "axis j is not bound"),
    ("vmap(i:2) > psum(i+i)", "error.duplicate"),
    ("vmap(i:2) > psum(i) | shape=3k", "depends on k"),
    ("vmap(i:2, in=9) > psum(i)", "rank 9"),
    ("vmap(i:2, out=none) > all_gather(i)", "do not vary"),
    ("vmap(i:2,3) > vmap(j:2,3,4) > psum(i)", "as many sizes as the others"),
    ("shard_map(i:2) > pmap(j:2) > psum(i)", "inside a binder of devices"),
    ("pmap(i:2) > psum(i) of constant", "pmap"),
    ("jit > compiled > vmap(i:2) > psum(i)", "outermost"),
    ("vmap(i:2) > while_loop(2) > vmap(j:2,3) > all_gather(j)", "cannot name axis j"),
    ("vmap(i:2) > vjp > psum(i)", "without a dimension of its own"),
    ("vmap(i:2) > vjp > pmin(i) | payload=counting", "affine in their operand"),
    ("vmap(i:2) > jvp > psum(i) | payload=special", "finite payload"),
    ("vmap(i:2) > psum(i) | payload=wrap", "no float32 values"),
    ("vmap(i:2) > pmax(i) | dtype=complex64", "no order for complex"),
    ("vmap(i:3) > psum(i, groups=halves)", "even axis of 4 or more"),
    ("vmap(i:3) > all_to_all(i, tiled)| shape=4", "divisible by the axis size"),
    ("pmap(i:2) > psum(i) | names=int", "a mesh has no int names"),
    ("shard_map(i:2) > cond(index i) > psum(i)", "devices diverge"),
)


@pytest.mark.parametrize(("line", "words"), ILLEGAL)
def test_an_illegal_case_says_why(line: str, words: str) -> None:
    with pytest.raises(Illegal, match=re.escape(words)):
        plan(parse(line))


def test_names_are_checked_for_every_leaf_of_a_line() -> None:
    first, second = parse_line("vmap(i:2) > axis_index(i) & psum(i) | names=int")
    with pytest.raises(Illegal, match="positions, not names"):
        plan(first, (second.leaf,))


@RELAXED
@given(st.one_of(cases(), likely()))
def test_a_case_is_planned_or_illegal_and_nothing_else(case: Case) -> None:
    try:
        assert plan(case).inside.axes is not None
    except Illegal as reason:
        assert str(reason)


@RELAXED
@given(st.text(alphabet="vmapjit scn(),:>&|=x+. 0123\u00b2of", max_size=40))
def test_any_text_is_a_case_or_a_case_error(text: str) -> None:
    try:
        assert parse_line(text)
    except CaseError as error:
        assert 1 <= error.column <= len(text) + 1


@pytest.mark.parametrize("text", ["scalar", "3", "3x2", "2i", "ijx4k", "0"])
def test_shapes_are_read_as_they_are_written(text: str) -> None:
    shape = read_shape(text)
    assert shape is not None and write_shape(shape) == text


@pytest.mark.parametrize("text", ["", "x", "3x", "-1", "3.5", "I", "3*2"])
def test_other_shapes_are_refused(text: str) -> None:
    assert read_shape(text) is None


@pytest.mark.parametrize("kind", [*LAYERS.values(), *LEAVES.values()], ids=lambda kind: kind.word)
def test_every_parameter_is_a_field_and_says_what_it_expects(kind: type) -> None:
    for param in kind.params:
        assert param.name in kind.__dataclass_fields__
        assert param.expects
