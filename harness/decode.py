"""Says what a wrong answer means: who received from whom, where the payload allows it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.layers.base import Lanes, Scope
from harness.layers.binders import Binder
from harness.program import Plan

SHOWN = 3


def describe(plan: Plan, key: str, sizes: Mapping[str, int], want: np.ndarray, got: np.ndarray) -> str:
    """A few lines about the first wrong elements."""
    equal = _equal(want, got)
    if equal.all():  # then it is the sign of a zero
        equal = (np.signbit(want.real) == np.signbit(got.real)) | (want != 0)
    elif plan.case.payload == "basis" and plan.mapped and want.ndim and want.shape[-1] == _count(plan, sizes):
        return _contributions(plan, key, sizes, want, got)
    wrong = np.argwhere(~equal)
    shown = [
        f"[{', '.join(map(str, at))}] is {got[tuple(at)]}, should be {want[tuple(at)]}"
        for at in wrong[:SHOWN]
    ]
    more = f"; {len(wrong) - SHOWN} more of {want.size}" if len(wrong) > SHOWN else ""
    return "; ".join(shown) + more


def _equal(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return (want == got) | ((want != want) & (got != got))


def _count(plan: Plan, sizes: Mapping[str, int]) -> int:
    return int(np.prod([sizes[key] for key in plan.mapped] + [dim.at(sizes) for dim in plan.case.shape]))


def _contributions(plan: Plan, key: str, sizes: Mapping[str, int], want: np.ndarray, got: np.ndarray) -> str:
    """`position i=1 element [0] received 2*{i=0 [0]}, should be 1*{i=1 [0]}`."""
    owners = _owners(plan, key, sizes)
    wrong = np.argwhere((want != got).any(axis=-1))
    lines = []
    for at in wrong[:SHOWN]:
        index = tuple(at)
        who = f"[{', '.join(map(str, index))}]"
        if owners is not None:
            who = f"{owners[index]} {who}"
        lines.append(
            f"{who} received {_sources(plan, sizes, got[index])}, should be {_sources(plan, sizes, want[index])}"
        )
    if len(wrong) > SHOWN:
        lines.append(f"{len(wrong) - SHOWN} more of {int(np.prod(want.shape[:-1]))}")
    return "; ".join(lines)


def _sources(plan: Plan, sizes: Mapping[str, int], row: np.ndarray) -> str:
    shape = tuple(sizes[key] for key in plan.mapped)
    local = tuple(dim.at(sizes) for dim in plan.case.shape)
    parts = []
    for k in np.flatnonzero(row)[: 2 * SHOWN]:
        where = np.unravel_index(int(k), shape + local)
        lane = ",".join(f"{key}={at}" for key, at in zip(plan.mapped, where))
        element = ",".join(str(at) for at in where[len(shape) :])
        times = "" if row[k] == 1 else f"{str(row[k]).removesuffix('.0')}*"
        parts.append(f"{times}({lane})[{element}]")
    more = ", ..." if np.count_nonzero(row) > 2 * SHOWN else ""
    return "{" + ", ".join(parts) + more + "}"


def _owners(plan: Plan, key: str, sizes: Mapping[str, int]) -> np.ndarray | None:
    """For each element of an output (without the basis dimension) the position that computed it, as text.

    Found by sending position numbers out through the binders; None when other layers reshape outputs on the way.
    """
    if key not in plan.leaves or any(layer.family not in ("binder", "staging") for layer in plan.case.layers):
        return None
    local = plan.places[-1].inner[key].shape if plan.places else ()
    axes = plan.inside.axes

    def positions(_x: object, lanes: Lanes) -> dict[str, np.ndarray]:
        numbers = np.arange(int(np.prod(lanes.shape))).reshape(lanes.shape)
        shape = tuple(dim.at(sizes) for dim in local)
        return {key: np.broadcast_to(numbers.reshape(lanes.shape + (1,) * len(shape)), lanes.shape + shape)}

    def through(depth: int, lanes: Lanes) -> dict[str, np.ndarray]:
        if depth == len(plan.case.layers):
            return positions(None, lanes)
        layer = plan.case.layers[depth]
        if not isinstance(layer, Binder):
            return through(depth + 1, lanes)
        return layer.evaluate(
            lambda _x, inside: through(depth + 1, inside), None, 0, lanes, plan.places[depth]
        )

    numbers = through(0, Lanes(Scope(), sizes))[key][..., 0]
    shape = tuple(sizes[axis.key] for axis in axes)
    names = np.empty(int(np.prod(shape)), object)
    for k in range(names.size):
        names[k] = (
            "(" + ",".join(f"{axis.key}={at}" for axis, at in zip(axes, np.unravel_index(k, shape))) + ")"
        )
    return names[numbers]
