"""The committed profiles: well formed, part of one another, and covering what they promise. Imports no JAX."""

from __future__ import annotations

import functools
import importlib
import itertools
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import judge, profiles
from harness.case import line_of, parse_line
from harness.dtypes import NAMES
from harness.errors import Illegal, UsageError
from harness.exact import inexact, operand
from harness.layers import LAYERS as WORDS
from harness.layers import LEAVES
from harness.names import NAME_KINDS
from harness.parameters import suite_of
from harness.payloads import PAYLOADS
from harness.program import plan
from harness.rules import rules
from harness.schedules import SCHEDULES
from harness.space import FACTORS, LAYERS, Row, Space

ROOT = Path(__file__).resolve().parent.parent
PROFILES = [name for name in ("quick", "standard", "full") if name in profiles.names()]
SAMPLE = 1500
"""Lines of a profile that are looked at one by one, picked by a hash of the line."""


@functools.cache
def spaces() -> dict[str, Space]:
    paths = sorted((ROOT / "suites").glob("*/test_*.py"))
    modules = [importlib.import_module(f"suites.{path.parent.name}.{path.stem}") for path in paths]
    return {module.SUITE: module.SPACE for module in modules}


def combined() -> list[str]:
    """Suites whose lines come from a table, which probes do not."""
    return [suite for suite, space in spaces().items() if any(space.binder)]


def sampled(name: str) -> Iterator[tuple[str, str]]:
    """(suite, line): all of a small profile, a fixed part of a large one."""
    profile = profiles.load(name)
    every = max(1, sum(1 for _ in profile.all_lines()) // SAMPLE)
    for suite in profile.suites:
        for line in profile.lines(suite):
            if zlib.crc32(line.encode()) % every == 0:
                yield suite, line


@pytest.mark.parametrize("name", PROFILES)
def test_lines_are_canonical_and_legal_and_in_their_suite(name):
    for suite, line in sampled(name):
        cases = parse_line(line)
        assert line_of(cases[0], [case.leaf for case in cases]) == line
        assert suite_of(cases[0]) == suite
        assert len(cases) <= spaces()[suite].bundle
        plan(cases[0], tuple(case.leaf for case in cases[1:]))


@pytest.mark.parametrize("name", PROFILES)
def test_lines_are_sorted_and_unique(name):
    profile = profiles.load(name)
    assert profile.suites == sorted(profile.suites)
    for suite in profile.suites:
        assert profile.lines(suite) == sorted(set(profile.lines(suite)))


def test_the_reference_answers_every_line():
    """A line that is legal but that the reference cannot evaluate would end in a defect of the harness, without a verdict."""
    for line in profiles.load("standard").all_lines():
        first, *others = parse_line(line)
        typed = plan(first, tuple(case.leaf for case in others))
        try:
            judge.expectations(typed, functools.partial(operand, typed))
        except Exception as error:
            pytest.fail(f"{line}: {type(error).__name__}: {error}")


def test_each_profile_is_part_of_the_next():
    lists = [set(profiles.load(name).all_lines()) for name in PROFILES]
    for smaller, larger in itertools.pairwise(lists):
        assert smaller <= larger


def test_quick_touches_everything():
    cases = [case for line in profiles.load("quick").all_lines() for case in parse_line(line)]
    assert {layer.word for case in cases for layer in case.layers} == set(WORDS)
    assert {case.leaf.word for case in cases} == set(LEAVES)
    assert {case.dtype for case in cases} == set(NAMES)
    assert {case.payload for case in cases} == set(PAYLOADS)
    assert {case.names for case in cases} == set(NAME_KINDS)
    assert {case.schedule for case in cases} == set(SCHEDULES)


ELSEWHERE = {"process.agree", "aot.compiles", "aot.groups", "aot.distinct", "aot.same", "aot.analysis"}
"""Laws that the same cases are held to when several processes, or a compiler without its devices, run them."""


def test_quick_holds_jax_to_every_rule():
    checked = set()
    for line in profiles.load("quick").all_lines():
        for case in parse_line(line):
            checked.update(judge.checked_rules(plan(case), case))
    assert set(rules()) - checked == ELSEWHERE


# Coverage, counted anew: what the file has, and for the rest that nothing legal is near.


def promised(name: str, space: Space) -> list[tuple[int, ...]]:
    """The factors whose combinations a profile promises, as numbers: single ones, pairs, or triples of layers."""
    varied = [factor for factor, table in enumerate(space.table) if len(table) > 1]
    if name != "full":
        return list(itertools.combinations(varied, {"quick": 1, "standard": 2}[name]))
    leaf, binder, *layers = (FACTORS.index(word) for word in ("leaf", *LAYERS))
    return [(leaf, binder, layer) for layer in layers if layer in varied]


def combinations(rows: list[Row], designs: list[tuple[int, ...]]) -> set[tuple[tuple[int, str], ...]]:
    return {tuple((factor, row[factor]) for factor in design) for row in rows for design in designs}


def asked(space: Space, designs: list[tuple[int, ...]]) -> Iterator[tuple[tuple[int, str], ...]]:
    for design in designs:
        yield from itertools.product(*([(factor, word) for word in space.table[factor]] for factor in design))


def legal(space: Space, row: Row) -> bool:
    try:
        return not inexact(space.plan([row]))
    except Illegal:
        return False


def rows_of(name: str, suite: str) -> list[Row]:
    space = spaces()[suite]
    return [row for line in profiles.load(name).lines(suite) for row in space.rows(line)]


def missing(name: str, suite: str) -> list[tuple[tuple[int, str], ...]]:
    """Combinations that no line has although changing a line of the file into one that has them is legal."""
    space, rows, found = spaces()[suite], rows_of(name, suite), []
    designs = promised(name, space)
    covered = combinations(rows, designs)
    by_value: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        for value in enumerate(row):
            by_value.setdefault(value, []).append(row)
    chance = random.Random(suite)
    for wanted in asked(space, designs):
        if wanted in covered:
            continue
        starts = [
            row
            for value in wanted
            if (known := by_value.get(value))
            for row in chance.sample(known, min(4, len(known)))
        ]
        changed = [tuple(dict(wanted).get(factor, word) for factor, word in enumerate(row)) for row in starts]
        found += [wanted] * any(legal(space, row) for row in changed)
    return found


@pytest.mark.parametrize("suite", combined())
def test_quick_has_every_value(suite):
    if "quick" in PROFILES:
        assert missing("quick", suite) == []


@pytest.mark.parametrize("suite", combined())
def test_standard_has_every_feasible_pair(suite):
    if "standard" in PROFILES:
        assert missing("standard", suite) == []


@pytest.mark.parametrize("suite", ["scan", "checkpoint", "jvp"])
def test_full_has_every_feasible_triple_of_layers(suite):
    if "full" in PROFILES:
        assert missing("full", suite) == []


def test_every_space_reads_its_own_lines():
    """A row makes a line, and the line is read as that row again."""
    chance = random.Random(0)
    for suite in combined():
        space, made = spaces()[suite], 0
        for _ in range(400):
            row = tuple(chance.choice(table) for table in space.table)
            try:
                space.plan([row])
            except Illegal:
                continue
            made += 1
            assert row in space.rows(space.line([row]))
        assert made or suite in ("raises", "unbound", "caches")


def test_factors_are_fields_of_a_space():
    assert all(hasattr(Space, factor) or factor in Space.__dataclass_fields__ for factor in FACTORS)


# Loading


def test_a_persons_file_needs_no_sections(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("# mine\nvmap(i:2) > psum(i)\n\nvmap(i:2) > jit > psum(i) & pmax(i)\n", encoding="utf-8")
    profile = profiles.load(str(path))
    assert profile.sections == {
        "vmap": ["vmap(i:2) > psum(i)"],
        "jit": ["vmap(i:2) > jit > psum(i) & pmax(i)"],
    }
    assert profile.count() == 3


def test_a_bad_line_is_named_by_file_and_number(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("vmap(i:2) > psum(i)\nvmap(i:2) > psumm(i)\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.txt:2: case line, column 13"):
        profiles.load(str(path))


def test_an_unknown_profile_names_the_known():
    with pytest.raises(UsageError, match="quick"):
        profiles.load("quik")


def test_the_parts_of_a_profile_are_disjoint_and_complete():
    profile = profiles.load("quick")
    for suite in profile.suites:
        parts = [line for k in (1, 2, 3) for line in profile.lines(suite, profiles.parse_fraction(f"{k}/3"))]
        assert sorted(parts) == profile.lines(suite)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "x/2", "-1/2", "1/2/3"])
def test_a_fraction_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="--fraction"):
        profiles.parse_fraction(text)
