"""The reference: it needs no JAX, promises the types it gives, and agrees with a second evaluator and hand-made values."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import second
from hypothesis import HealthCheck, assume, given, settings
from programs import likely

from harness import reference
from harness.case import Case, parse_line
from harness.errors import Illegal
from harness.exact import operand as operand_of
from harness.layers import LAYERS, LEAVES
from harness.program import Plan, plan

ROOT = Path(__file__).resolve().parent.parent

WITHOUT_JAX = """
import importlib, sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib"):
            raise ImportError(f"{name} is forbidden here")

sys.meta_path.insert(0, Forbidden())
for name in sys.argv[1:]:
    importlib.import_module(name)
assert not {"jax", "jaxlib"} & set(sys.modules)
print("none")
"""

CONTROLLER = (
    *(
        "case",
        "collectives",
        "compat",
        "decode",
        "dims",
        "dtypes",
        "errors",
        "exact",
        "isolate",
        "judge",
        "layers",
        "names",
    ),
    *(
        "observed",
        "parameters",
        "payloads",
        "plugin",
        "profiles",
        "program",
        "reference",
        "render",
        "schedules",
    ),
    *("session", "space", "verdicts"),
)
"""What the controller and the generators import; judging included, since it is arithmetic."""


def without_jax(*modules: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WITHOUT_JAX, *modules]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_controllers_modules_import_no_jax() -> None:
    here = [f"harness.{name}" for name in CONTROLLER if _exists(name)]
    done = without_jax(*here)
    assert done.stdout.strip() == "none", done.stderr


def _exists(name: str) -> bool:
    return (ROOT / "harness" / f"{name}.py").exists() or (ROOT / "harness" / name).is_dir()


def test_an_import_of_jax_would_be_noticed() -> None:
    done = without_jax("harness.run")
    assert done.returncode and "jax is forbidden here" in done.stderr


def typed(line: str) -> Plan:
    first, *others = parse_line(line)
    return plan(first, tuple(case.leaf for case in others))


def same(want: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    assert set(want) == set(got)
    for key in want:
        a, b = np.asarray(want[key]), np.asarray(got[key])
        assert (a.shape, a.dtype) == (b.shape, b.dtype), key
        wide = np.complex128 if a.dtype.kind == "c" else np.float64 if a.dtype.kind in "fV" else a.dtype
        np.testing.assert_array_equal(a.astype(wide), b.astype(wide), err_msg=key)


def tracked_derivative(program: Plan) -> bool:
    """Whether a vjp stands under a shard_map whose types track variation: the second evaluator leaves those out."""
    return any(
        layer.reverse and place.scope.checked() for layer, place in zip(program.case.layers, program.places)
    )


def modest(program: Plan) -> bool:
    """Whether a vjp's Jacobian is small enough for Python loops."""
    depth = sum(layer.reverse for layer in program.case.layers)
    if not depth or program.local is None:
        return True
    sizes = {axis.key: max(axis.sizes) for axis in program.axes}
    elements = np.prod([dim.at(sizes) for dim in program.local.shape]) * np.prod(list(sizes.values()))
    return elements <= (60 if depth == 1 else 12 if depth == 2 else 0)


LINES = """
    vmap(i:3) > psum(i) & pmax(i) & ppermute(i) & all_gather(i, axis=1) & axis_index(i) & axis_size(i)
    vmap(i:2,3) > vmap(j:3,2, in=1, out=2) > all_gather(j+i, axis=1) & psum(i+j)
    vmap(i:3, in=1) > jit > scan(3, reverse) > all_gather(i, tiled) | shape=2x3
    vmap(i:3) > scan(3, xs, reverse) > psum(i) & ppermute(i, perm=partial)
    vmap(i:4) > scan(0) > all_gather(i)
    vmap(i:4) > while_loop(index i) > psum(i) & ppermute(i)
    vmap(i:3) > while_loop(reduced i) > psum(i)
    vmap(i:3) > while_loop(index i) > while_loop(index i) > psum(i)
    vmap(i:2) > vmap(j:3) > while_loop(index j) > cond(index i) > psum(j) & pmax(i)
    vmap(i:3) > fori_loop(arg) > all_gather(i) | n=3
    vmap(i:4) > switch(index i) > psum(i) & axis_index(i)
    vmap(i:4) > switch(arg) > pmin(i) | n=7
    vmap(i:3) > cond(arg) > psum(i) | n=1
    vmap(i:3) > cond(reduced i) > scan(2) > psum(i)
    vmap(i:3) > scan(2) > while_loop(index i) > psum(i) of constant
    vmap(i:3) > psum(i) & pmean(i) of True
    vmap(i:3) > psum(i) of 1.5
    vmap(i:3) > psum(i) & all_gather(i, axis=1, tiled) of tree | shape=2x2
    vmap(i:3) > all_gather(i) & psum(i) of closure
    vmap(i:2) > vmap(i:3) > psum(i) & all_gather(i)
    vmap(_:2) > vmap(i:3) > all_gather(i) & ppermute(i)
    vmap(i:3) > vmap(_:2, in=1) > psum(i) | shape=2x3
    vmap(i:4) > all_to_all(i, split=1, concat=0) | shape=3xi
    vmap(i:4) > all_to_all(i, split=1, concat=0, tiled) | shape=3x2i
    vmap(i:2) > vmap(j:3) > all_to_all(j+i, split=1, tiled) | shape=2xij
    vmap(i:2) > vmap(j:3) > psum_scatter(j+i) & psum(i) | shape=ijx2
    vmap(i:4) > psum_scatter(i, dim=1, tiled) & all_gather(i, groups=unordered) | shape=2x2i
    vmap(i:6) > psum_scatter(i, groups=interleaved) & all_to_all(i, groups=interleaved) | shape=3x2
    shard_map(i:2, j:3) > psum(j) & all_gather(i) & axis_index(j+i)
    shard_map(i:2, j:2, in=j.i) > jit > all_gather(j, axis=1, tiled) | shape=3x2
    shard_map(i:2, j:2, in=_.j+i, out=j+i) > ppermute(i+j) | shape=3x2
    shard_map(i:2, j:2, in=i, out=i) > psum(j) & ppermute(i)
    shard_map(i:2, in=none, out=none) > psum(i) & pmax(i)
    vmap(k:3) > shard_map(i:2, j:2) > psum(k+i) & all_gather(j+k)
    shard_map(i:2) > vmap(j:3, out=1) > all_gather(j+i) & psum(j)
    pmap(i:4, in=1, out=1) > all_gather(i) & ppermute(i, perm=first)
    pmap(i:2) > vmap(j:2) > psum(i+j) | dtype=int8 payload=wrap
    vmap(i:3) > psum(i) & pmax(i) & pmin(i) & ppermute(i) | payload=special
    vmap(i:2) > psum(i) & pmax(i) | dtype=bool payload=counting
    vmap(i:3) > psum(i) & all_gather(i) | dtype=complex64
    vmap(i:4) > pmean(i) | dtype=bfloat16
    vmap(i:3) > all_gather(i) & psum(i) | payload=empty
    vmap(i:3) > jvp > psum(i) & all_gather(i) | payload=origin
    vmap(i:3) > linearize > scan(2) > psum(i) | payload=counting
    vmap(i:2) > vmap(j:2) > vjp > psum(i) & all_gather(j) | payload=counting
    vmap(i:3) > vjp > cond(1) > ppermute(i) & psum(i) | payload=counting shape=2
    vmap(i:3) > vjp > fori_loop(2) > psum(i) | payload=counting shape=scalar
    vmap(i:2) > vjp > jvp > psum(i) | payload=origin shape=2
    vmap(i:2) > vjp > vjp > ppermute(i) | payload=origin shape=scalar
    shard_map(i:2, check=off) > vjp > all_gather(i) & psum(i) | payload=counting
    vmap(i:3) > vjp > psum(i) & axis_index(i) | payload=counting
    vmap(i:3) > jvp > all_gather(i) & axis_index(i) & axis_size(i) | payload=counting
    vmap(i:3) > grad(value) > psum(i) & ppermute(i) & axis_index(i) | payload=origin
    vmap(i:2) > vmap(j:2) > grad > all_gather(j) & pmean(i) | payload=origin shape=2
    vmap(i:3) > hvp(forward) > ppermute(i) & psum(i) & axis_index(i) | payload=counting shape=2
    vmap(i:3) > hvp(reverse) > all_gather(i) | payload=origin shape=2
    vmap(i:3) > linear_transpose > switch(1, one) > ppermute(i) & psum(i) | payload=counting shape=2
    vmap(i:3) > jacobian(fwd) > all_gather(i) & psum(i) & ppermute(i, perm=partial) | payload=counting shape=2
    vmap(i:3) > jacobian(rev) > all_gather(i) & psum(i) & ppermute(i, perm=partial) | payload=counting shape=2
    vmap(i:3) > map(3) > psum(i) & ppermute(i) & axis_index(i)
    vmap(i:3) > map(2, batch=2) > scan(2) > cond(index i) > psum(i)
    vmap(i:3) > associative_scan(3) > psum(i) & all_gather(i)
    vmap(i:3) > associative_scan(3, reverse) > psum(i) & pmax(i) | dtype=int8
    vmap(i:4) > cond(index i, one) > psum(i) & axis_index(i)
    vmap(i:4) > switch(index i, one) > all_gather(i)
    vmap(i:4) > pshuffle(i) & pshuffle(i, order=back) & pshuffle(i, order=reverse) & random(i)
    vmap(i:2) > vmap(j:3) > pshuffle(j) & random(j+i) & psum(none) & pmax(none)
    vmap(i:4) > pswapaxes(i) & pbroadcast(i) & pbroadcast(i, source=last) | shape=ix3
    vmap(i:4) > pswapaxes(i, axis=-1) | shape=2xi payload=counting
    shard_map(i:2, in=none) > pcast(i) & psum(i)
    jit > shard_map(i:2) > vmap(k:3) > shard_map(j:2, nested) > all_gather(j) & psum(i)
    jit > vmap(_:4, spmd) > shard_map(i:2, other=2) > psum(i)
"""


def agree(program: Plan) -> None:
    for sizes in program.steps:
        operand = operand_of(program, sizes)
        same(second.evaluate(program, operand, sizes), reference.evaluate(program, operand, sizes))


@pytest.mark.parametrize("line", [line.strip() for line in LINES.strip().splitlines()])
def test_the_second_evaluator_agrees_on(line: str) -> None:
    promises(typed(line))
    agree(typed(line))


@settings(
    max_examples=100, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(likely())
def test_the_second_evaluator_agrees_at_random(case: Case) -> None:
    try:
        program = plan(case)
    except Illegal:
        assume(False)
    assume({layer.word for layer in case.layers if layer.family != "staging"} <= second.KNOWN_LAYERS)
    assume(case.leaf.word in second.KNOWN_LEAVES)
    assume(modest(program) and not tracked_derivative(program))
    promises(program)
    agree(program)


def promises(program: Plan) -> None:
    """The values have the types that the plan gives them."""
    for sizes in program.steps:
        values = reference.evaluate(program, operand_of(program, sizes), sizes)
        promised = {key: (tuple(d.at(sizes) for d in t.shape), t.dtype) for key, t in program.outputs.items()}
        assert {key: (y.shape, y.dtype.name) for key, y in values.items()} == promised


def test_the_second_evaluator_knows_every_word() -> None:
    assert {word for word, layer in LAYERS.items() if layer.family != "staging"} <= second.KNOWN_LAYERS
    assert set(LEAVES) <= second.KNOWN_LEAVES


def test_a_wrong_reference_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness import collectives

    monkeypatch.setattr(collectives, "ppermute", lambda x, pairs: x[::-1])
    with pytest.raises(AssertionError):
        agree(typed("vmap(i:3) > ppermute(i)"))


Value = int | float | list
BY_HAND: tuple[tuple[str, dict[str, Value]], ...] = (
    # counting: position i holds 2 i + 1, 2 i + 2
    (
        "vmap(i:2) > scan(2) > psum(i) | shape=2 payload=counting",
        {"psum": [[[4, 6], [8, 12]]] * 2, "scan": [[4, 8], [12, 16]]},
    ),
    (
        "vmap(i:2) > scan(2, reverse) > psum(i) | shape=2 payload=counting",
        {"psum": [[[8, 12], [4, 6]]] * 2, "scan": [[4, 8], [12, 16]]},
    ),
    (
        "vmap(i:2) > scan(2, reverse, xs) > psum(i) | shape=2 payload=counting",
        {"psum": [[[4, 6], [8, 12]]] * 2, "scan": [2, 2]},
    ),
    # position 0 makes no trip and keeps 1; positions 1, 2 hold 2, 3: trip 0 sums 6, trip 1 sums 1 + 4 + 6
    (
        "vmap(i:3) > while_loop(index i) > psum(i) | shape=scalar payload=counting",
        {"psum": [0, 6, 17], "while_loop": [1, 4, 12]},
    ),
    (
        "vmap(i:3) > fori_loop(3) > psum(i) | shape=scalar payload=counting",
        {"psum": [42] * 3, "fori_loop": [8, 16, 24]},
    ),
    (
        "vmap(i:3) > fori_loop(0) > psum(i) | shape=scalar payload=counting",
        {"psum": [0] * 3, "fori_loop": [1, 2, 3]},
    ),
    # odd positions take the branch of 2 x; every position computes both
    (
        "vmap(i:3) > cond(index i) > psum(i) | shape=scalar payload=counting",
        {"psum": [6, 12, 6], "cond": [1, 4, 3]},
    ),
    (
        "vmap(i:3) > cond(arg) > psum(i) | shape=scalar payload=counting n=1",
        {"psum": [6] * 3, "cond": [1, 2, 3]},
    ),
    (
        "vmap(i:3) > cond(arg) > psum(i) | shape=scalar payload=counting n=2",
        {"psum": [12] * 3, "cond": [2, 4, 6]},
    ),
    (
        "vmap(i:4) > switch(index i) > psum(i) | shape=scalar payload=counting",
        {"psum": [10, 20, 30, 30], "switch": [1, 4, 9, 12]},
    ),
    ("vmap(i:2) > scan(3) > psum(i) of constant", {"psum": [[2, 2, 2]] * 2, "scan": [3, 3]}),
    # tangent 3 x
    ("vmap(i:2) > jvp > psum(i) | shape=scalar payload=counting", {"psum": [3, 3], "jvp.psum": [9, 9]}),
    # every position's result is the sum, each with cotangent 1
    ("vmap(i:3) > vjp > psum(i) | shape=scalar payload=counting", {"psum": [6] * 3, "vjp": [3] * 3}),
    (
        "vmap(i:3) > vjp > ppermute(i, perm=partial) | shape=2 payload=counting",
        {"ppermute": [[0, 0], [1, 2], [3, 4]], "vjp": [[1, 2], [1, 2], [0, 0]]},
    ),
    # all_gather of 3 scalars at each of 3 positions, cotangents 1, 2, 3: three times one's own
    (
        "vmap(i:3) > vjp > all_gather(i) | shape=scalar payload=counting",
        {"all_gather": [[1, 2, 3]] * 3, "vjp": [3, 6, 9]},
    ),
    # under checks the sum is one value with one cotangent
    (
        "shard_map(i:3) > vjp > psum(i) | shape=1 payload=counting",
        {"psum": [[6], [6], [6]], "vjp": [[1], [1], [1]]},
    ),
    (
        "shard_map(i:3, check=off) > vjp > psum(i) | shape=1 payload=counting",
        {"psum": [[6], [6], [6]], "vjp": [[3], [3], [3]]},
    ),
    # one operand for all devices under checks: its cotangent is the sum over devices
    (
        "shard_map(i:2, in=none) > vjp > all_gather(i) | shape=1 payload=counting",
        {"all_gather": [[[1], [1]]] * 2, "vjp": [[6], [6]]},
    ),
    (
        "shard_map(i:2, j:2, in=j.i, out=j.i) > ppermute(j) | shape=1x1 payload=counting",
        {"ppermute": [[2, 4], [1, 3]]},
    ),
)


@pytest.mark.parametrize(("line", "want"), BY_HAND, ids=[line for line, _ in BY_HAND])
def test_values_worked_out_by_hand(line: str, want: dict[str, Value]) -> None:
    program = typed(line)
    (sizes,) = program.steps
    got = reference.evaluate(program, operand_of(program, sizes), sizes)
    for key, value in want.items():
        np.testing.assert_array_equal(got[key], np.asarray(value), err_msg=key)
    assert set(got) == set(want)
