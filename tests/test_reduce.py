"""A failing case shrinks to what the failure needs, within its bounds."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from harness.case import parse
from harness.isolate import Parent
from harness.parameters import parameters
from harness.program import plan
from harness.reduce import candidates, in_fresh_processes, reduce

LONG = (
    "shard_map(i:2,3, j:3,2, in=i.j, devices=last) > jit > checkpoint > scan(3, reverse) > cond(reduced i) > "
    "all_gather(i, tiled) | dtype=bfloat16 shape=3x5 payload=origin names=unicode"
)


def pretend(needs):
    """An attempt that fails where the parameters satisfy `needs`; `.lines` has what was tried."""

    def attempt(line: str):
        attempt.lines.append(line)
        bad = needs(parameters(parse(line)))
        return {
            "case": line,
            "verdict": "fail" if bad else "pass",
            "kind": "wrong value" if bad else "",
            "rule": "all_gather.order",
        }

    attempt.lines = []
    return attempt


FAILED = {"verdict": "fail", "kind": "wrong value", "rule": "all_gather.order"}


@pytest.mark.parametrize(
    ("needs", "smallest"),
    [
        (lambda own: own["leaf"] == ("all_gather",), 2),
        (lambda own: own["leaf"] == ("all_gather",) and "scan" in own["control"], 3),
        (lambda own: "all_gather.tiled" in own["option"] and own["dtype"] == ("bfloat16",), 2),
        (
            lambda own: (
                own["leaf"] == ("all_gather",)
                and {"scan", "cond"} <= set(own["control"])
                and "jit" in own["staging"]
            ),
            5,
        ),
    ],
    ids=["leaf", "scan", "tiled and dtype", "three layers"],
)
def test_what_the_failure_needs_is_left(needs, smallest):
    attempt = pretend(needs)
    found = reduce(parse(LONG), FAILED, attempt, seconds=60, tries=400)
    own = parameters(found.case)
    assert needs(own)
    assert len(found.case.layers) + 1 <= smallest
    assert own["names"] == ("str",) and own["payload"] != ("origin",)
    assert own["environments"] == ("1",)
    assert len(str(found.case)) < len(LONG) / 2
    assert len(set(attempt.lines)) == len(attempt.lines) == found.tries


def test_several_environments_are_kept_where_the_failure_needs_them():
    found = reduce(
        parse(LONG), FAILED, pretend(lambda own: own["environments"] != ("1",)), seconds=60, tries=400
    )
    assert parameters(found.case)["environments"] == ("2",)


def test_another_way_of_failing_is_not_taken():
    def attempt(line: str):
        return {**FAILED, "case": line, "kind": "error raised"}

    assert reduce(parse(LONG), FAILED, attempt).case == parse(LONG)


def test_only_legal_cases_are_tried():
    attempt = pretend(lambda own: True)
    reduce(parse(LONG), FAILED, attempt, tries=400)
    for line in attempt.lines:
        plan(parse(line))


def test_tries_and_time_are_bounded():
    def slow(line: str):
        time.sleep(0.05)
        return {**FAILED, "case": line, "verdict": "pass"}

    start = time.monotonic()
    assert reduce(parse(LONG), FAILED, slow, seconds=0.5).tries <= 12
    assert time.monotonic() - start < 2
    assert reduce(parse(LONG), FAILED, slow, tries=3).tries == 3


def test_a_smallest_case_has_nothing_left_to_try_that_is_larger():
    case = parse("vmap(i:2) > psum(i) | shape=scalar")
    assert all(len(candidate.layers) <= 1 for candidate in candidates(case))


def test_in_real_processes(tmp_path):
    """A partial permutation over a vmapped axis fails on a bare assertion in every release tried."""
    pytest.importorskip("jax")
    parent = Parent({"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"})
    try:
        attempt = in_fresh_processes(parent, 60)
        line = "vmap(i:3,2) > jit > scan(3, reverse) > ppermute(i, perm=partial) | dtype=int32 shape=3x5"
        result = attempt(line)
        if result["verdict"] == "pass":
            pytest.skip("this JAX gets it right")
        found = reduce(parse(line), result, attempt, seconds=60)
    finally:
        parent.close()
    assert found.tries and len(found.case.layers) == 1
    file = tmp_path / "reproducer.py"
    file.write_text(found.result["reproducer"])
    done = subprocess.run([sys.executable, file], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AssertionError" in done.stderr and "Permutation" in done.stderr
    body = found.result["reproducer"].partition("traces = ")[2]
    assert len([text for text in body.splitlines() if text.strip()]) <= 24, body
