"""The judge: a right run gives no finding, and every doctored one gives the right kind, law, step and words."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from harness.case import parse_line
from harness.decode import describe
from harness.exact import operand
from harness.judge import Expected, checked_rules, expectations, judge, law_of_death, same
from harness.layers.binders import ShardMap
from harness.observed import Observation, Output, Shard
from harness.program import Plan, plan
from harness.schedules import SCHEDULES
from harness.verdicts import Finding, Kind

NAN, INF = np.nan, np.inf


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight pretended devices, so that the judge can be tested without JAX."""

    def ordered(order: str, count: int) -> list[int]:
        return {"reversed": list(range(count))[::-1]}.get(order, list(range(count)))

    pretended = SimpleNamespace(ordered=ordered, own=lambda: set(range(8)))
    monkeypatch.setitem(sys.modules, "harness.devices", pretended)


class Run:
    """A program, what is expected of it, and a perfect run of it to be doctored."""

    def __init__(self, line: str):
        first, *others = parse_line(line)
        self.plan: Plan = plan(first, tuple(case.leaf for case in others))
        self.expected: list[Expected] = expectations(self.plan, lambda sizes: operand(self.plan, sizes))
        self.seen = self._perfect()

    def _perfect(self) -> list[Observation]:
        met: set[tuple] = set()
        seen = []
        for want in self.expected:
            new = want.step.environment not in met or want.step.cold
            met.add(want.step.environment)
            if want.step.outcome == "error":
                seen.append(Observation({}, error="NameError: unbound axis name: i"))
            elif want.step.outcome == "facts":
                seen.append(Observation({"callable is gone": output(np.array(True))}))
            else:
                outputs = {key: self._placed(want, value) for key, value in want.values.items()}
                seen.append(Observation(outputs, traces=int(new), compiles=int(new)))
        return seen

    def _placed(self, want: Expected, value: np.ndarray) -> Output:
        """The output with its shards where a shard_map (the only binder) over all axes puts them, stacked."""
        layer = next((layer for layer in self.plan.case.layers if isinstance(layer, ShardMap)), None)
        if layer is None:
            return output(value)
        count = int(np.prod(list(want.step.sizes.values())))
        order = list(range(count))[::-1] if layer.devices == "reversed" else list(range(count))
        step = value.shape[0] // count
        indices = [(slice(k * step, (k + 1) * step), *[slice(None)] * (value.ndim - 1)) for k in range(count)]
        shards = tuple(Shard(order[k], index, value[index].copy()) for k, index in enumerate(indices))
        return dataclasses.replace(output(value), shards=shards)

    def findings(self) -> dict[str, list[Finding]]:
        return judge(self.plan, self.expected, self.seen)

    def only(self) -> Finding:
        """The one finding there must be."""
        (found,) = [finding for findings in self.findings().values() for finding in findings]
        return found

    def change(self, step: int, key: str, value: np.ndarray) -> None:
        self.seen[step].outputs[key] = output(value)


def output(value: np.ndarray) -> Output:
    value = np.array(value)
    return Output(value, value.shape, value.dtype.name)


RIGHT = (
    "vmap(i:2,3) > jit > psum(i) & all_gather(i) & axis_index(i)",
    "vmap(i:2) > vmap(j:3) > while_loop(index j) > psum(i) | payload=origin",
    "vmap(i:4) > ppermute(i) & psum(i) & pmax(i) | payload=special",
    "vmap(i:3) > jvp > psum(i) | payload=counting",
    "shard_map(i:2, j:2) > jit > all_gather(j) & psum(i)",
    "jit > shard_map(i:4, devices=reversed) > ppermute(i)",
    "vmap(i:3) > jit > psum(i) of constant",
    "vmap(i:2) > vmap(j:3) > jit > psum(i) | schedule=swap",
    "vmap(i:3) > jit > psum(i) | schedule=unbound",
    "vmap(i:3) > jit > psum(i) | schedule=closure",
    "vmap(i:3) > jit > psum(i) | schedule=release",
    "vmap(i:2,3) > jit > psum(i) | schedule=clear",
    "vmap(i:3) > jit > psum(i+i) | schedule=raises",
)


@pytest.mark.parametrize("line", RIGHT)
def test_a_right_run_gives_no_finding(line: str) -> None:
    assert Run(line).findings() == {}


def test_two_shards_swapped() -> None:
    run = Run("vmap(i:3) > jit > all_gather(i) & ppermute(i)")
    run.change(0, "ppermute", run.expected[0].values["ppermute"][[1, 0, 2]])
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("ppermute.pairs", Kind.WRONG_VALUE, 0)
    assert "(i=0) [0, 0] received {(i=0)[0]}, should be {(i=2)[0]}" in found.message
    assert list(run.findings()) == ["ppermute"]


def test_a_contribution_too_many_is_named() -> None:
    run = Run("vmap(i:2) > vmap(j:2) > psum(j) | shape=1")
    wrong = run.expected[0].values["psum"].copy()
    wrong[1, 0, 0] = [1, 0, 2, 1]
    run.change(0, "psum", wrong)
    message = run.only().message
    assert "(i=1,j=0) [1, 0, 0] received {(i=0,j=0)[0], 2*(i=1,j=0)[0], (i=1,j=1)[0]}" in message
    assert "should be {(i=1,j=0)[0], (i=1,j=1)[0]}" in message


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "complex64", "bool"])
def test_one_flipped_bit(dtype: str) -> None:
    run = Run(f"vmap(i:3) > ppermute(i) | payload=counting dtype={dtype}")
    wrong = np.ascontiguousarray(run.expected[1].values["ppermute"]).copy()
    wrong.view(np.uint8).reshape(-1)[wrong.itemsize] ^= 1
    run.change(1, "ppermute", wrong)
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("repeat.bitwise", Kind.NOT_DETERMINISTIC, 1)
    assert "[0, 1] is " in found.message and "right at an earlier visit" in found.message


def test_wrong_at_every_visit_is_not_called_indeterminate() -> None:
    run = Run("vmap(i:3) > psum(i) | payload=counting")
    for step in (0, 1):
        run.change(step, "psum", run.expected[step].values["psum"] + 1)
    assert [(finding.kind, finding.rule) for finding in run.findings()["psum"]] == [
        (Kind.WRONG_VALUE, "psum.sum")
    ] * 2
    assert "[0, 0] is 13.0, should be 12.0" in run.findings()["psum"][0].message
    assert "6 more of 9" in run.findings()["psum"][0].message


def test_a_wrong_carry_is_the_loops_fault() -> None:
    run = Run("vmap(i:3) > scan(2) > psum(i)")
    run.change(0, "scan", run.expected[0].values["scan"] * 2)
    found = run.only()
    assert (found.rule, found.kind) == ("scan.carry", Kind.WRONG_VALUE)


def test_another_dtype() -> None:
    run = Run("vmap(i:3) > psum(i) | dtype=int8 payload=counting")
    run.change(0, "psum", run.expected[0].values["psum"].astype(np.int32))
    found = run.only()
    assert (found.rule, found.kind) == ("result.type", Kind.WRONG_DTYPE)
    assert "has dtype int32, should be int8" in found.message


def test_another_shape() -> None:
    run = Run("vmap(i:3) > all_gather(i)")
    run.change(0, "all_gather", run.expected[0].values["all_gather"][..., :5])
    found = run.only()
    assert (found.rule, found.kind) == ("result.type", Kind.WRONG_SHAPE)
    assert "has shape (3, 3, 3, 5), should be (3, 3, 3, 9)" in found.message


def test_an_abstract_value_has_a_shape_only() -> None:
    run = Run("eval_shape > vmap(i:3) > psum(i)")
    want = run.expected[0].values["psum"]
    run.seen[0].outputs["psum"] = Output(None, want.shape, "float32")
    assert run.findings() == {}
    run.seen[0].outputs["psum"] = Output(None, want.shape, "float16")
    assert run.only().kind == Kind.WRONG_DTYPE


def test_a_missing_output() -> None:
    run = Run("vmap(i:3) > psum(i) & pmax(i)")
    del run.seen[0].outputs["pmax"]
    found = run.only()
    assert found.kind == Kind.WRONG_SHAPE and "no output pmax" in found.message


def test_the_answer_of_another_environment_is_stale() -> None:
    run = Run("vmap(i:2,3) > jit > psum(i) of constant")
    run.change(1, "psum", np.full(3, 2, np.int32))
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("cache.fresh", Kind.STALE, 1)
    assert found.message == "i=3: psum is [2 2 2], the answer of step 0 (i=2), not [3 3 3]"


def test_the_whole_answer_of_another_environment_is_stale() -> None:
    run = Run("vmap(i:2,3) > jit > all_gather(i) | payload=counting")
    run.change(1, "all_gather", run.expected[0].values["all_gather"])
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("cache.fresh", Kind.STALE, 1)
    assert "the answer of step 0 (i=2)" in found.message


def test_stale_before_the_entry_is_made_points_forward() -> None:
    """A first visit can only give a later answer by chance, but a revisit may give a step in between."""
    run = Run("vmap(i:2,3) > jit > all_gather(i) | payload=counting")
    run.change(2, "all_gather", run.expected[1].values["all_gather"])
    found = run.only()
    assert (found.kind, found.step) == (Kind.STALE, 2) and "the answer of step 1 (i=3)" in found.message


def test_a_closure_of_another_callable_is_stale_under_its_own_law() -> None:
    run = Run("vmap(i:3) > jit > psum(i) | schedule=closure")
    run.change(1, "psum", run.expected[0].values["psum"])
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("cache.closure", Kind.STALE, 1)
    assert "closed over 1" in found.message


def test_a_trace_on_return() -> None:
    run = Run("vmap(i:2,3) > jit > psum(i)")
    run.seen[3].traces = 1
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("cache.retrace", Kind.RETRACE, 3)
    assert found.message == "i=3: traced 1 times on return, should be 0"
    assert list(run.findings()) == [""]


def test_more_traces_in_one_environment_than_in_another() -> None:
    run = Run("vmap(i:2,3) > jit > psum(i)")
    run.seen[1].traces = 2
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("cache.retrace", Kind.RETRACE, 1)


def test_without_a_cache_a_trace_is_no_news() -> None:
    run = Run("vmap(i:2,3) > psum(i)")
    for seen in run.seen:
        seen.traces = 1
    assert run.findings() == {}


def test_after_clear_caches_a_trace_is_right() -> None:
    run = Run("vmap(i:2,3) > jit > psum(i) | schedule=clear")
    assert [seen.traces for seen in run.seen] == [1, 1, 1, 1, 0, 0]
    run.seen[4].traces = 1
    assert (run.only().kind, run.only().step) == (Kind.RETRACE, 4)


def test_a_compilation_on_return() -> None:
    run = Run("jit > vmap(i:2,3) > psum(i)")
    run.seen[2].compiles = 2
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("cache.recompile", Kind.RECOMPILE, 2)
    assert found.message == "i=2: compiled 2 times on return, should be 0"


def test_an_error() -> None:
    run = Run("vmap(i:2,3) > jit > psum(i)")
    where = '  File "<case>", line 14, in leaf\n    return {"psum": lax.psum(x, "i")}\n'
    run.seen = [run.seen[0], Observation({}, error="ValueError: no", where=where)]
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("psum.sum", Kind.RAISED, 1)
    assert found.message.startswith("i=3: ValueError: no\n") and "line 14, in leaf" in found.message


@pytest.mark.parametrize(
    "line", ["vmap(i:3) > jit > psum(i) | schedule=unbound", "vmap(i:3) > psum(i+i) | schedule=raises"]
)
def test_an_answer_where_an_error_was_due(line: str) -> None:
    run = Run(line)
    step = next(k for k, want in enumerate(run.expected) if want.step.outcome == "error")
    run.seen[step] = Observation({"psum": output(np.array(3.0))})
    found = run.only()
    assert (found.kind, found.step) == (Kind.NOT_RAISED, step) and found.rule.startswith(
        ("error.", "cache.", "name")
    )
    assert "should raise" in found.message and "3." in found.message


def test_what_was_not_released() -> None:
    run = Run("vmap(i:3) > jit > psum(i) | schedule=release")
    run.seen[1].outputs["argument x is gone"] = output(np.array(False))
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("cache.release", Kind.NOT_RELEASED, 1)
    assert "argument x is gone" in found.message


def test_shards_on_the_wrong_devices() -> None:
    run = Run("jit > shard_map(i:4) > ppermute(i)")
    out = run.seen[0].outputs["ppermute"]
    first, second, *rest = out.shards
    moved = (
        dataclasses.replace(first, device=second.device),
        dataclasses.replace(second, device=first.device),
        *rest,
    )
    run.seen[0].outputs["ppermute"] = dataclasses.replace(out, shards=moved)
    found = run.only()
    assert (found.rule, found.kind, found.step) == ("result.placement", Kind.WRONG_PLACEMENT, 0)
    assert "devices hold" in found.message


def test_a_shard_that_differs_from_the_whole() -> None:
    run = Run("jit > shard_map(i:4) > ppermute(i)")
    out = run.seen[0].outputs["ppermute"]
    last = dataclasses.replace(out.shards[-1], data=out.shards[-1].data + 1)
    run.seen[0].outputs["ppermute"] = dataclasses.replace(out, shards=(*out.shards[:-1], last))
    found = run.only()
    assert (found.rule, found.kind) == (
        "result.placement",
        Kind.WRONG_PLACEMENT,
    ) and "device 3 holds" in found.message


def test_the_order_of_devices_is_the_cases() -> None:
    run, other = (
        Run("jit > shard_map(i:4) > ppermute(i)"),
        Run("jit > shard_map(i:4, devices=reversed) > ppermute(i)"),
    )
    run.seen = other.seen
    assert {finding.kind for finding in run.findings()["ppermute"]} == {Kind.WRONG_PLACEMENT}


def test_a_move_keeps_the_sign_of_zero_and_a_sum_need_not() -> None:
    for leaf, kept in (("ppermute(i)", True), ("all_gather(i)", True), ("psum(i)", False)):
        run = Run(f"vmap(i:4) > {leaf} | payload=special")
        key = run.plan.case.leaf.word
        value = run.expected[0].values[key]
        turned = np.where(value == 0, -value, value)
        assert (np.signbit(turned) != np.signbit(value)).any() or not kept
        run.change(0, key, turned)
        assert bool(run.findings()) == kept, leaf
        if kept:
            assert (
                "is 0.0, should be -0.0" in run.only().message
                or "is -0.0, should be 0.0" in run.only().message
            )


SAME = (
    # want, got, strict, equal
    ([1.0, NAN], [1.0, NAN], True, True),
    ([1.0, NAN], [1.0, -NAN], True, True),
    ([1.0, NAN], [NAN, 1.0], False, False),
    ([INF], [INF], True, True),
    ([INF], [-INF], False, False),
    ([INF], [NAN], False, False),
    ([0.0], [-0.0], False, True),
    ([0.0], [-0.0], True, False),
    ([-0.0, NAN], [0.0, NAN], True, False),
    ([complex(1, 0.0)], [complex(1, -0.0)], True, False),
    ([1 + 2j], [1 + 2j], True, True),
    ([1 + 2j], [2 + 1j], False, False),
    ([1], [2], False, False),
    ([True], [False], False, False),
    ([1.0], [[1.0]], False, False),
    ([], [], True, True),
)


@pytest.mark.parametrize(("want", "got", "strict", "equal"), SAME)
def test_same(want: list, got: list, strict: bool, equal: bool) -> None:
    assert same(np.array(want), np.array(got), strict) is equal


def test_the_smallest_difference_counts() -> None:
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        one = np.ones(2, dtype)
        next_ = (one.view(np.uint16 if one.itemsize == 2 else np.uint32) + 1).view(dtype)
        assert same(one, one.copy(), True) and not same(one, next_, False)


def test_equal_environments_are_evaluated_once() -> None:
    asked: list[dict[str, int]] = []
    program = Run("vmap(i:2,3,2) > psum(i)").plan

    def ask(sizes: dict[str, int]) -> np.ndarray | None:
        asked.append(sizes)
        return operand(program, sizes)

    assert len(expectations(program, ask)) == 6
    assert [sizes["i"] for sizes in asked] == [2, 3]


@pytest.mark.parametrize("word", SCHEDULES)
def test_every_schedule_has_a_step_or_refuses(word: str) -> None:
    schedule = SCHEDULES[word]
    assert schedule.word == word and schedule.rule


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("vmap(i:3) > psum(i)", {"psum.sum", "result.type", "repeat.bitwise"}),
        ("vmap(i:2,3) > jit > scan(2) > psum(i)", {"psum.sum", "scan.carry", "cache.fresh", "cache.retrace"}),
        ("jit > shard_map(i:2) > ppermute(i)", {"ppermute.pairs", "result.placement"}),
        ("vmap(i:3) > vjp > psum(i) | payload=counting", {"psum.sum", "derivative.reverse"}),
    ],
)
def test_the_laws_a_case_is_held_to(line: str, rules: set[str]) -> None:
    program = Run(line).plan
    assert rules <= set(checked_rules(program, program.case))


def test_a_law_that_cannot_be_broken_here_is_not_counted() -> None:
    program = Run("vmap(i:3) > psum(i)").plan
    assert not {"cache.retrace", "result.placement", "cache.fresh"} & set(
        checked_rules(program, program.case)
    )


def test_a_program_without_layers_can_be_judged() -> None:
    run = Run("psum(i) | schedule=raises")
    assert run.findings() == {} and checked_rules(run.plan, run.plan.case)


def test_describe_names_positions_of_other_payloads() -> None:
    program = Run("vmap(i:2) > psum(i) | payload=counting shape=2").plan
    want = np.array([[4.0, 6.0], [4.0, 6.0]])
    got = np.add(want, [[0, 0], [0, 5]])
    assert describe(program, "psum", {"i": 2}, want, got) == "[1, 1] is 11.0, should be 6.0"


def test_findings_are_the_same_in_any_order_of_leaves() -> None:
    leaves = ["psum(i)", "all_gather(i)", "pmax(i)"]
    for order in itertools.permutations(leaves):
        run = Run(f"vmap(i:3) > {' & '.join(order)}")
        run.change(0, "psum", run.expected[0].values["psum"] * 3)
        assert run.only().rule == "psum.sum"


@pytest.mark.parametrize(
    "line, law",
    [
        ("vmap(i:3) > psum(i+i) | schedule=raises", "error.duplicate"),
        ("vmap(i:3) > psum(i) | schedule=unbound", "error.unbound"),
        ("vmap(i:3) > psum(i)", "psum.sum"),
        ("vmap(i:3,2) > jit > psum(i) | schedule=entries", "psum.sum"),
    ],
)
def test_a_death_counts_under_the_law_an_error_case_is_about(line, law) -> None:
    (case,) = parse_line(line)
    assert law_of_death(plan(case), case) == law
