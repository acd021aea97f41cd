"""Collectives in NumPy: who communicates, and what each device gets (StableHLO specification)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.aot.program import Apply, Block, Instruction, Values
from harness.errors import NotApplicable

PERMUTE = "stablehlo.collective_permute"


def groups(instruction: Instruction, count: int) -> list[list[int]]:
    """The groups of devices that communicate; all devices where none are written."""
    written = instruction.attributes.get("replica_groups")
    if written is None or (isinstance(written, np.ndarray) and not written.size):
        return [list(range(count))]
    if not isinstance(written, np.ndarray):
        raise NotApplicable(f"replica groups in a form that is not known here: {str(written)[:120]}")
    return [[int(member) for member in row if member >= 0] for row in written]


def pairs(instruction: Instruction) -> list[tuple[int, int]]:
    """The (source, destination) pairs of a permutation."""
    return [
        (int(a), int(b)) for a, b in np.asarray(instruction.attributes["source_target_pairs"]).reshape(-1, 2)
    ]


def partners(instruction: Instruction, count: int) -> dict[int, frozenset[int]]:
    """For each device those that must be there with it, itself included."""
    if instruction.op == PERMUTE:
        return _connected(pairs(instruction), count)
    found = {device: frozenset({device}) for device in range(count)}
    for group in groups(instruction, count):
        found.update((member, frozenset(group)) for member in group)
    return found


def _connected(edges: list[tuple[int, int]], count: int) -> dict[int, frozenset[int]]:
    found = {device: frozenset({device}) for device in range(count)}
    for a, b in edges:
        joined = found[a] | found[b]
        found.update((member, joined) for member in joined)
    return found


def communicate(
    instruction: Instruction, operands: dict[int, Values], count: int, apply: Apply
) -> dict[int, Values]:
    """What each device of one group gets.

    Args:
      instruction: the collective they meet in.
      operands: what each brings, by device.
      count: the number of all devices.
      apply: runs a reduction's region.
    """
    if instruction.op == PERMUTE:
        sources = {b: a for a, b in pairs(instruction)}
        return {
            device: [
                operands[sources[device]][k] if device in sources else np.zeros_like(x)
                for k, x in enumerate(operands[device])
            ]
            for device in operands
        }
    (order,) = [group for group in groups(instruction, count) if set(group) == set(operands)] or [[*operands]]
    return COLLECTIVES[instruction.op](instruction, [operands[device] for device in order], order, apply)


def _all_reduce(
    instruction: Instruction, operands: list[Values], order: list[int], apply: Apply
) -> dict[int, Values]:
    total = operands[0]
    for other in operands[1:]:
        total = _combine(instruction.regions[0], total, other, apply)
    return {device: list(total) for device in order}


def _combine(region: Block, left: Values, right: Values, apply: Apply) -> Values:
    """A reduction's region applied to whole arrays; to each of them, or to all at once."""
    if len(region.arguments) == 2:
        return [apply(region, [a, b])[0] for a, b in zip(left, right)]
    return apply(region, [*left, *right])


def _reduce_scatter(
    instruction: Instruction, operands: list[Values], order: list[int], apply: Apply
) -> dict[int, Values]:
    total = _all_reduce(instruction, operands, order, apply)[order[0]]
    dimension = instruction.attributes["scatter_dimension"]
    parts = [np.split(x, len(order), axis=dimension) for x in total]
    return {device: [part[k] for part in parts] for k, device in enumerate(order)}


def _all_gather(
    instruction: Instruction, operands: list[Values], order: list[int], apply: Apply
) -> dict[int, Values]:
    dimension = instruction.attributes["all_gather_dim"]
    gathered = [np.concatenate(parts, axis=dimension) for parts in zip(*operands)]
    return {device: gathered for device in order}


def _all_to_all(
    instruction: Instruction, operands: list[Values], order: list[int], apply: Apply
) -> dict[int, Values]:
    a = instruction.attributes
    if "split_dimension" not in a:  # one operand for each member, none of them split
        return {device: [values[k] for values in operands] for k, device in enumerate(order)}
    blocks = [
        [np.split(x, a["split_count"], axis=a["split_dimension"]) for x in values] for values in operands
    ]
    return {
        device: [
            np.concatenate([member[n][k] for member in blocks], axis=a["concat_dimension"])
            for n in range(len(operands[0]))
        ]
        for k, device in enumerate(order)
    }


def _collective_broadcast(
    instruction: Instruction, operands: list[Values], order: list[int], apply: Apply
) -> dict[int, Values]:
    return {device: operands[0] for device in order}


COLLECTIVES: dict[str, Callable[[Instruction, list[Values], list[int], Apply], dict[int, Values]]] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_broadcast": _collective_broadcast,
}


COMMUNICATES = frozenset({*COLLECTIVES, PERMUTE})
"""Operations in which devices wait for each other."""
