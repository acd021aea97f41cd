"""Compares what was observed with what the reference and the laws say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from harness import reference
from harness.case import Case
from harness.decode import describe
from harness.dtypes import WIDE
from harness.layers.base import Values
from harness.layers.binders import Pmap, ShardMap
from harness.layers.probe import ProbeLeaf
from harness.observed import Observation, Output
from harness.program import Plan
from harness.schedules import Step
from harness.verdicts import Finding, Kind

ERRORS = ("unbound", "raises")
"""Schedules whose cases are held to the laws of errors alone."""

NOT_TRUE = "not true that "
"""What precedes the untrue statements of a probe in its message, which `; ` separates."""


@dataclasses.dataclass(frozen=True)
class Expected:
    """What each step must give: its description and, for a value, the outputs by key."""

    step: Step
    values: Values


def expectations(plan: Plan, operand: Callable[[dict[str, int]], np.ndarray | None]) -> list[Expected]:
    """The reference's answer for every step of the schedule; equal environments are evaluated once."""
    known: dict[tuple, Values] = {}
    result = []
    for step in plan.schedule.steps(plan):
        key = (step.environment, step.factor, step.variant, step.copies)
        if key not in known and step.outcome == "value":
            known[key] = _reference(plan, operand(step.sizes), step)
        result.append(Expected(step, known.get(key, {})))
    return result


def _reference(plan: Plan, operand: np.ndarray | None, step: Step) -> Values:
    variant = plan.swapped if step.variant == "swapped" and plan.swapped is not None else plan
    values = reference.evaluate(variant, operand, step.sizes, step.factor)
    if step.flag is not None:
        values["flag"] = np.asarray(step.flag, np.int32)
    if step.copies:
        values = {key: np.broadcast_to(value, (step.copies, *value.shape)) for key, value in values.items()}
    return values


def judge(plan: Plan, expected: list[Expected], seen: list[Observation]) -> dict[str, list[Finding]]:
    """Findings by output key; findings about the whole program have the key "".

    Args:
      plan: the typed program.
      expected: one entry for each step of the schedule.
      seen: one observation for each step that ran; it ends early when a step raised.
    """
    findings: dict[str, list[Finding]] = {}
    for number, (want, got) in enumerate(zip(expected, seen)):
        for key, finding in _judge_step(plan, expected, number, want, got, findings):
            findings.setdefault(key, []).append(finding)
    for finding in _judge_traces(plan, expected, seen):
        findings.setdefault("", []).append(finding)
    return findings


def _judge_step(
    plan: Plan,
    expected: list[Expected],
    number: int,
    want: Expected,
    got: Observation,
    earlier: Mapping[str, list[Finding]],
):
    if want.step.outcome == "error":
        if not got.error:
            given = {key: _short(output.value) for key, output in got.outputs.items()}
            yield (
                "",
                Finding(
                    want.step.rule, Kind.NOT_RAISED, f"{want.step.about}: gave {given}, should raise", number
                ),
            )
        return
    if got.error:
        message = f"{want.step.about}: {got.error}\n{got.where}".rstrip()
        yield "", Finding(rule_of(plan, ""), Kind.RAISED, message, number)
        return
    if want.step.outcome == "facts":
        kept = [name for name, output in got.outputs.items() if not output.value]
        if not got.outputs:  # a probe that states nothing must not pass for one that holds
            kept = ["anything was stated"]
        if kept:
            kind = Kind.NOT_RELEASED if want.step.rule == "cache.release" else Kind.WRONG_VALUE
            yield (
                "",
                Finding(want.step.rule, kind, f"{want.step.about}: {NOT_TRUE}{'; '.join(kept)}", number),
            )
        return
    for key, value in want.values.items():
        if key not in got.outputs:
            yield key, Finding("result.type", Kind.WRONG_SHAPE, f"{want.step.about}: no output {key}", number)
            continue
        if key == "flag":  # every position of every axis saw the same setting
            value = np.broadcast_to(value, got.outputs[key].shape)
        wrong = {finding.step for finding in earlier.get(key, ())}
        finding = _judge_output(plan, expected, number, want, key, value, got.outputs[key], wrong)
        if finding:
            yield key, finding


def _judge_output(
    plan: Plan,
    expected: list[Expected],
    number: int,
    want: Expected,
    key: str,
    value: np.ndarray,
    got: Output,
    wrong: set[int],
) -> Finding | None:
    about = f"{want.step.about}: {key}"
    seen = got.against(value)
    if got.shape != value.shape or (seen is not None and not same(value, seen, strict=_moves(plan, key))):
        source = _stale_from(expected, number, key, got)
        if source is not None:
            message = f"{about} is {_short(seen)}, the answer of step {source} ({expected[source].step.about}), not {_short(value)}"
            rule = want.step.rule or ("cache.config" if key == "flag" else "cache.fresh")
            return Finding(rule, Kind.STALE, message, number)
    if got.shape != value.shape:
        message = f"{about} has shape {got.shape}, should be {value.shape}"
        return Finding("result.type", Kind.WRONG_SHAPE, message, number)
    if got.dtype != value.dtype.name and not (
        (want.step.wide or plan.case.dtype in WIDE) and got.dtype == value.dtype.name.replace("32", "64")
    ):
        message = f"{about} has dtype {got.dtype}, should be {value.dtype.name}"
        return Finding("result.type", Kind.WRONG_DTYPE, message, number)
    if seen is None:
        return None
    if not same(value, seen, strict=_moves(plan, key)):
        message = f"{about}: {describe(plan, key, want.step.sizes, value, seen)}"
        again = any(e.step.environment == want.step.environment for e in expected[:number])
        if again and not wrong and not want.step.cold:
            return Finding(
                "repeat.bitwise", Kind.NOT_DETERMINISTIC, f"{message} (right at an earlier visit)", number
            )
        return Finding(rule_of(plan, key), Kind.WRONG_VALUE, message, number)
    return _judge_placement(plan, want.step, about, number, value, got)


def rule_of(plan: Plan, key: str) -> str:
    """The law an output is judged by: the leaf's, or the layer's whose own output it is."""
    if key in plan.leaves:
        return plan.case.alone(plan.leaves[key]).rule
    for layer, place in zip(plan.case.layers, plan.places):
        if layer.mark and layer.rule and key.split(".")[0] == place.mark:
            return layer.rule
    return "cache.config" if key == "flag" else plan.case.rule


def _moves(plan: Plan, key: str) -> bool:
    """Whether an output only moves values about, so that even the sign of zero must be kept."""
    leaf = plan.leaves.get(key)
    adds = any(layer.word in ("while_loop", "fori_loop", "associative_scan") for layer in plan.case.layers)
    return leaf is not None and leaf.word in ("ppermute", "all_gather", "all_to_all") and not adds


def same(want: np.ndarray, got: np.ndarray, strict: bool) -> bool:
    """Bit for bit, except that any NaN equals any NaN and, unless strict, 0.0 equals -0.0 (sums may start from 0)."""
    if want.shape != got.shape:
        return False
    # The usual case, and quick for large arrays, which are else widened.
    if want.dtype == got.dtype and want.tobytes() == got.tobytes():
        return True
    if want.dtype.kind in "fcV":
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        a, b = want.astype(wide), got.astype(wide)
        number = ~np.isnan(a)  # the sign of a NaN means nothing
        signs = (np.signbit(part(a)[number]) == np.signbit(part(b)[number]) for part in (np.real, np.imag))
        return np.array_equal(a, b, equal_nan=True) and (not strict or all(map(np.all, signs)))
    return np.array_equal(want, got)


def _stale_from(expected: list[Expected], number: int, key: str, got: Output) -> int | None:
    """The step with another environment whose right answer this is."""
    here = expected[number].step.environment
    for other, want in enumerate(expected):
        if want.step.environment == here or key not in want.values:
            continue
        value = want.values[key]
        if key == "flag":
            value = np.broadcast_to(value, got.shape)
        seen = got.against(value)
        if seen is None:
            if got.shape == value.shape:
                return other
        elif same(*_alike(value, seen), strict=False):
            return other
    return None


def _alike(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both without the dimensions of other lengths along which they do not vary: each position gave the same."""
    if a.ndim != b.ndim or not a.size or not b.size:
        return a, b
    for d in range(a.ndim):
        first, other = a.take([0], axis=d), b.take([0], axis=d)
        if a.shape[d] != b.shape[d] and (a == first).all() and (b == other).all():
            a, b = first, other
    return a, b


def _short(value: np.ndarray | None) -> str:
    if value is None:
        return "a shape"
    return np.array2string(value, threshold=8, edgeitems=2).replace("\n", "")


def _judge_placement(
    plan: Plan, step: Step, about: str, number: int, value: np.ndarray, got: Output
) -> Finding | None:
    for shard in got.shards:
        if not same(value[shard.index], shard.data, strict=False):
            message = f"{about}: device {shard.device} holds {_short(shard.data)} for index {shard.index}, should hold {_short(value[shard.index])}"
            return Finding("result.placement", Kind.WRONG_PLACEMENT, message, number)
    if not value.size:  # no element lives anywhere
        return None
    variant = plan.swapped if step.variant == "swapped" and plan.swapped is not None else plan
    from harness.devices import own

    wanted = placement(variant, step.sizes, value.shape, step.order)
    if wanted is None or not got.shards:
        return None
    held = {shard.device: _bounds(shard.index, value.shape) for shard in got.shards}
    here = own()  # the devices of other processes are theirs to judge
    wanted = {device: bounds for device, bounds in wanted.items() if device in here}
    if held != wanted:
        return Finding(
            "result.placement",
            Kind.WRONG_PLACEMENT,
            f"{about}: devices hold {held}, should hold {wanted}",
            number,
        )
    return None


def _bounds(index: tuple, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape))


def placement(
    plan: Plan, sizes: Mapping[str, int], shape: tuple[int, ...], order: str = ""
) -> dict[int, tuple] | None:
    """Which part of an output each device must hold, where the outermost binder puts positions on devices.

    The source is the documentation of PartitionSpec (dimensions split over mesh axes, major to minor) and of pmap.
    None where the layers further out leave it open.
    """
    from harness.devices import ordered

    layer = next((layer for layer in plan.case.layers if layer.family != "staging"), None)
    if not isinstance(layer, (Pmap, ShardMap)):
        return None
    axes = plan.inside.axes[: len(layer.bindings)]
    mesh = tuple(sizes[axis.key] for axis in axes)
    if isinstance(layer, ShardMap):
        if layer.auto or any(isinstance(inner, ShardMap) and inner.nested for inner in plan.case.layers):
            return None  # what is not manual is the compiler's to place
        mesh += (layer.other,) * bool(layer.other)
    devices = np.asarray(ordered(order or layer.devices, int(np.prod(mesh)))).reshape(mesh)
    if isinstance(layer, ShardMap):
        names = [axis.symbol for axis in axes]
        spec = [tuple(names.index(name) for name in dim) for dim in layer.out_spec()]
    else:
        spec = [()] * len(shape)
        if layer.out != "none":
            spec[int(layer.out)] = (0,)
    held = {}
    for position in np.ndindex(*mesh):
        bounds = []
        for d, length in enumerate(shape):
            parts, which = 1, 0
            for axis in spec[d] if d < len(spec) else ():
                parts, which = parts * mesh[axis], which * mesh[axis] + position[axis]
            bounds.append((which * length // parts, (which + 1) * length // parts))
        held[int(devices[position])] = tuple(bounds)
    return held


def _judge_traces(plan: Plan, expected: list[Expected], seen: list[Observation]) -> list[Finding]:
    """Going back to an environment traces and compiles nothing; every first visit traces as often as the others."""
    findings: list[Finding] = []
    met: set[tuple] = set()
    first: tuple[int, str] | None = None
    entries = 0
    for number, (want, got) in enumerate(zip(expected, seen)):
        grown, entries = got.entries - entries, got.entries
        if want.step.outcome != "value" or got.error:
            continue
        again = want.step.environment in met and not want.step.cold
        if again and got.traces and keeps_traces(plan):
            message = f"{want.step.about}: traced {got.traces} times on return, should be 0"
            findings.append(Finding("cache.retrace", Kind.RETRACE, message, number))
        elif again and not want.step.compiles and got.compiles and keeps_executables(plan):
            message = f"{want.step.about}: compiled {got.compiles} times on return, should be 0"
            findings.append(Finding("cache.recompile", Kind.RECOMPILE, message, number))
        elif again and grown > 0 and keeps_entries(plan):
            message = f"{want.step.about}: {grown} cache entries more on return, should be 0"
            findings.append(Finding("cache.entries", Kind.GROWTH, message, number))
        if not again and plan.case.schedule == "sizes" and keeps_traces(plan):
            first = first or (got.traces, want.step.about)
            if got.traces != first[0]:
                message = (
                    f"{want.step.about}: traced {got.traces} times at first, {first[0]} times at {first[1]}"
                )
                findings.append(Finding("cache.retrace", Kind.RETRACE, message, number))
        met.add(want.step.environment)
    return findings[:1]


def keeps_traces(plan: Plan) -> bool:
    """Whether some layer around the leaf promises to keep its trace."""
    return any(layer.caches for layer in plan.case.layers)


def keeps_entries(plan: Plan) -> bool:
    """Whether a jitted function is called with no transform around it, or the schedule counts entries.

    Under an eager vmap or grad a jitted function that is called without a traced argument gains an entry at every
    call, today: the trace that is current is part of the key. The schedule `entries` shows it; elsewhere it would
    only drown the rest.
    """
    outer_jit = any(layer.word in ("jit", "pmap") for layer in plan.case.layers[:1])
    return plan.case.schedule == "entries" or (plan.case.schedule == "sizes" and outer_jit)


def keeps_executables(plan: Plan) -> bool:
    """Whether nothing in the program is compiled anew at each call by design.

    `lower().compile()` is; so, by what JAX does today, are the single operations of a shard_map outside of any jit
    (each is wrapped in a jit of its own) and the control flow in a derivative or a map outside of any jit (its jaxpr
    is made anew at each call). These cost time and no law of JAX's documentation speaks of them.
    """
    for layer in plan.case.layers:
        if layer.word in ("compiled", "shard_map", "map") or layer.family == "derivative":
            return False
        if layer.word in ("jit", "pmap"):
            return True
    return True


def law_of_death(plan: Plan, case: Case) -> str:
    """The law a case is counted under when its process does not survive it: what an error case is about, else its leaf's."""
    return checked_rules(plan, case)[0] if plan.schedule.word in ERRORS else case.rule


def checked_rules(plan: Plan, case: Case) -> list[str]:
    """Every law this case is held to, the leaf's own first."""
    if isinstance(case.leaf, ProbeLeaf):
        return [case.rule]
    rules = [case.rule, "result.type"]
    rules += [layer.rule for layer in plan.case.layers if layer.rule]
    rules.append("repeat.bitwise")
    if len(plan.steps) > 1:
        rules.append("cache.fresh")
    if keeps_traces(plan):
        rules.append("cache.retrace")
    if keeps_entries(plan):
        rules.append("cache.entries")
    if keeps_executables(plan):
        rules.append("cache.recompile")
    if any(isinstance(layer, (Pmap, ShardMap)) for layer in plan.case.layers):
        rules.append("result.placement")
    schedule = plan.schedule
    if schedule.word != "sizes":
        rules = [*(step.rule or schedule.rule for step in schedule.steps(plan)), *rules]
    if schedule.word in ERRORS:
        rules = [rule for rule in rules if rule.startswith("error.")]
    return list(dict.fromkeys(rules))
