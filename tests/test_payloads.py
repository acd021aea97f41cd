"""Payloads are exact by construction: whatever order sums are taken in, every intermediate fits the case's dtype."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest

from harness import payloads, reference
from harness.case import Case, parse, parse_line
from harness.dtypes import NAMES, SIGNIFICAND
from harness.errors import Illegal
from harness.exact import inexact
from harness.exact import operand as operand_of
from harness.payloads import PAYLOADS
from harness.program import Plan, plan, unit_of

PROFILES = Path(__file__).resolve().parent.parent / "configs" / "profiles"
SAMPLE = 400
"""Lines looked at in each profile, picked by a hash of the line."""


def typed(case: Case, others: tuple = ()) -> Plan:
    return plan(dataclasses.replace(case, schedule="sizes"), others)


DEPTHS = ("", "while_loop(3) > ", "scan(3) > fori_loop(2) > ")
LEAVES = (
    *("psum(i)", "psum(i+j)", "pmean(i+j)", "pmax(j)", "pmin(i)", "ppermute(i+j)", "all_gather(j, tiled)"),
    *("psum_scatter(i)", "all_to_all(i, concat=1, tiled)"),
)


def grid() -> list[str]:
    """Small programs of every payload and dtype; no means of narrow integers, which wrap early."""
    return [
        f"vmap(i:2) > vmap(j:2) > {depth}{leaf} | dtype={dtype} shape=ix1 payload={payload}"
        for payload in PAYLOADS
        if payload != "bulk"
        for dtype in NAMES
        for depth in DEPTHS
        for leaf in LEAVES
        if not (leaf.startswith("pmean") and ("int8" in dtype or payload == "wrap"))
    ]


@pytest.mark.parametrize("payload", [payload for payload in PAYLOADS if payload != "bulk"])
def test_small_programs_are_exact(payload: str) -> None:
    looked, wrong = 0, []
    for line in grid():
        if not line.endswith(f"payload={payload}"):
            continue
        try:
            program = typed(parse(line))
        except Illegal:
            continue
        looked += 1
        problem = inexact(program)
        if problem:
            wrong.append(f"{line}: {problem}")
    assert looked >= 27 and not wrong, "\n".join(wrong)


def profile_lines(name: str) -> list[str]:
    text = (PROFILES / name).read_text(encoding="utf-8").splitlines()
    lines = [line for line in text if line.strip() and not line.startswith("#")]
    return sorted(lines, key=lambda line: hashlib.sha256(line.encode()).hexdigest())[:SAMPLE]


def programs_of(line: str) -> list[Plan]:
    """The programs of a line: leaves with another unit have another operand."""
    found: dict[tuple, list[Case]] = {}
    for case in parse_line(line):
        found.setdefault(unit_of(case), []).append(case)
    return [typed(cases[0], tuple(case.leaf for case in cases[1:])) for cases in found.values()]


@pytest.mark.parametrize("name", sorted(path.name for path in PROFILES.glob("*.txt")))
def test_the_committed_lines_are_exact(name: str) -> None:
    wrong = []
    for line in profile_lines(name):
        if "payload=bulk" in line or "schedule=raises" in line:
            continue
        for program in programs_of(line):
            problem = inexact(program)
            if problem:
                wrong.append(f"{line}: {problem}")
    assert not wrong, "\n".join(wrong)


def test_bulk_is_exact_in_every_dtype_it_may_have() -> None:
    columns = np.arange(payloads.BULK_COLUMNS) % 7 + 1
    assert columns.max() * sum(range(1, 9)) < 2 ** SIGNIFICAND["bfloat16"]


INEXACT = (
    ("vmap(i:8) > vmap(j:4) > psum(i+j) | dtype=bfloat16 shape=9 payload=counting", "psum"),
    ("vmap(i:2) > psum(i) | dtype=float16 shape=2049 payload=counting", "psum"),
    ("vmap(i:4) > while_loop(14) > psum(i) | dtype=float16 shape=8 payload=counting", "while_loop"),
    ("vmap(i:3) > psum(i) | dtype=bfloat16 shape=86 payload=counting", "psum is rounded"),
    # no sum is rounded in the order the reference takes
    # integers may wrap, but the mean of a sum that wrapped is none
    ("vmap(i:16) > jit > psum(i) | dtype=bfloat16 shape=2 payload=counting", "psum may reach 272"),
)


@pytest.mark.parametrize(("line", "words"), INEXACT)
def test_an_inexact_program_would_be_noticed(line: str, words: str) -> None:
    assert words in inexact(typed(parse(line)))


def values(line: str) -> np.ndarray:
    program = typed(parse(line))
    operand = operand_of(program, program.steps[0])
    assert operand is not None
    return operand


def test_a_basis_has_one_1_at_each_place() -> None:
    x = values("vmap(i:2) > vmap(j:3) > psum(i) | shape=2x2")
    assert x.shape == (2, 3, 2, 2, 24) and (x.reshape(24, 24) == np.eye(24)).all()


def test_numbers_name_their_origin() -> None:
    assert values("vmap(i:2) > psum(i) | shape=3 payload=counting").tolist() == [[1, 2, 3], [4, 5, 6]]
    assert values("vmap(i:2) > psum(i) | shape=3 payload=origin").tolist() == [[-3, -2, -1], [0, 1, 2]]
    assert values("vmap(i:2) > psum(i) | shape=2 payload=negative").tolist() == [[-4, -3], [-2, -1]]


def test_the_values_follow_the_arrangement_of_the_binders() -> None:
    """Position (i, j) holds the same numbers however the binders take them out of the argument."""
    straight = values("vmap(i:2) > vmap(j:3) > psum(i) | shape=2 payload=counting")
    turned = values("vmap(i:2, in=2) > vmap(j:3, in=1) > psum(i) | shape=2 payload=counting")
    assert turned.shape == (2, 3, 2)
    np.testing.assert_array_equal(turned.transpose(2, 1, 0), straight)
    blocks = values("shard_map(i:2, j:3, in=j.i) > psum(i) | shape=2x2 payload=counting")
    lanes = values("vmap(i:2) > vmap(j:3) > psum(i) | shape=2x2 payload=counting")
    np.testing.assert_array_equal(blocks.reshape(3, 2, 2, 2).transpose(2, 0, 1, 3), lanes)


def test_a_mean_is_whole() -> None:
    x = values("vmap(i:3) > pmean(i) | payload=counting")
    assert (x % 3 == 0).all()


def test_wrap_wraps_and_special_is_special() -> None:
    x = values("vmap(i:2) > psum(i) | dtype=int8 payload=wrap")
    assert x.max() == 127 and x.dtype == np.int8
    special = values("vmap(i:4) > psum(i) | payload=special")
    assert np.isnan(special).any() and np.isinf(special).any()
    assert (np.signbit(special) & (special == 0)).any() and ((special == 0) & ~np.signbit(special)).any()


@pytest.mark.parametrize("leaf", ["psum(i)", "pmax(i)", "pmin(i)", "pmean(i)"])
def test_sums_of_nan_and_inf_do_not_depend_on_the_order(leaf: str) -> None:
    program = typed(parse(f"vmap(i:4) > {leaf} | payload=special"))
    (sizes,) = program.steps
    x = operand_of(program, sizes)
    assert x is not None
    forward = reference.evaluate(program, x, sizes)[parse(f"vmap(i:4) > {leaf}").leaf.word]
    backward = reference.evaluate(program, x[::-1], sizes)[parse(f"vmap(i:4) > {leaf}").leaf.word]
    np.testing.assert_array_equal(forward, backward)


REFUSED = (
    "payload=wrap dtype=float32",
    "payload=special dtype=int8",
    "payload=origin dtype=uint8",
    "payload=negative dtype=bool",
    "payload=origin dtype=complex64",
)


@pytest.mark.parametrize("settings", REFUSED)
def test_a_payload_without_values_in_a_dtype_is_illegal(settings: str) -> None:
    with pytest.raises(Illegal, match="has no"):
        typed(parse(f"vmap(i:2) > psum(i) | {settings}"))
