"""Operations whose region says how two elements become one, in NumPy (StableHLO specification)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.aot.arrays import dimension_numbers, index_vector, numbers_of
from harness.aot.program import Apply, Instruction, Values
from harness.errors import NotApplicable


def _reduce(instruction: Instruction, operands: Values, apply: Apply) -> Values:
    """Folds the dimensions away, one element after the other, with the region as the operation."""
    half = len(operands) // 2
    arrays, starts = operands[:half], operands[half:]
    dims = sorted(numbers_of(instruction.attributes["dimensions"]))
    kept = [d for d in range(arrays[0].ndim) if d not in dims]
    shape = [arrays[0].shape[d] for d in kept]
    flat = [x.transpose([*dims, *kept]).reshape(-1, *shape) for x in arrays]
    total = [np.broadcast_to(start, shape) for start in starts]
    for k in range(flat[0].shape[0]):
        total = apply(instruction.regions[0], [*total, *[x[k] for x in flat]])
    return [np.asarray(x, kind.dtype) for x, kind in zip(total, instruction.types) if kind is not None]


def _reduce_window(instruction: Instruction, operands: Values, apply: Apply) -> Values:
    a, (x, start) = instruction.attributes, operands
    rank = x.ndim
    window = numbers_of(a["window_dimensions"])
    strides, dilation = (
        numbers_of(a.get(name, [1] * rank)) for name in ("window_strides", "window_dilations")
    )
    padding = np.asarray(a.get("padding", np.zeros((rank, 2), int))).reshape(rank, 2)
    if any(d != 1 for d in numbers_of(a.get("base_dilations", [1] * rank))):
        raise NotApplicable(
            "the operation stablehlo.reduce_window with dilated operands is not executed here"
        )
    lengths = [n + int(p[0]) + int(p[1]) for n, p in zip(x.shape, padding)]
    padded = np.full(lengths, start, x.dtype)
    padded[tuple(slice(int(p[0]), int(p[0]) + n) for n, p in zip(x.shape, padding))] = x
    kind = instruction.types[0]
    assert kind is not None
    total = np.broadcast_to(start, kind.shape)
    for offset in np.ndindex(*window):
        index = tuple(
            slice(o * d, o * d + s * (n - 1) + 1, s)
            for o, d, s, n in zip(offset, dilation, strides, kind.shape)
        )
        (total,) = apply(instruction.regions[0], [total, padded[index]])
    return [np.asarray(total, kind.dtype)]


def _scatter(instruction: Instruction, operands: Values, apply: Apply) -> Any:
    if len(operands) != 3:
        raise NotApplicable("the operation stablehlo.scatter of several arrays is not executed here")
    x, indices, updates = np.array(operands[0]), operands[1], operands[2]
    numbers = dimension_numbers(instruction.attributes["scatter_dimension_numbers"])
    window, inserted = numbers["update_window_dims"], numbers["inserted_window_dims"]
    batching, batching_at = numbers["input_batching_dims"], numbers["scatter_indices_batching_dims"]
    starts, at = numbers["scatter_dims_to_operand_dims"], (numbers["index_vector_dim"] or [0])[0]
    outer = [d for d in range(updates.ndim) if d not in window]
    kept = [d for d in range(x.ndim) if d not in (*inserted, *batching)]
    for place in np.ndindex(*[updates.shape[d] for d in outer]):
        vector = index_vector(indices, place, at)
        base = [0] * x.ndim
        for k, d in enumerate(starts):
            base[d] = int(vector[k])
        for d, b in zip(batching, batching_at):
            base[d] = place[b if b < at else b - 1]
        for inside in np.ndindex(*[updates.shape[d] for d in window]):
            source, target = [0] * updates.ndim, list(base)
            for d, p in zip(outer, place):
                source[d] = p
            for d, p in zip(window, inside):
                source[d] = p
            for d, p in zip(kept, inside):
                target[d] += p
            if all(0 <= t < n for t, n in zip(target, x.shape)):  # what lies outside is dropped
                there = tuple(target)
                pair = [np.asarray(x[there]), np.asarray(updates[tuple(source)])]
                x[there] = apply(instruction.regions[0], pair)[0]
    return x


def _sort(instruction: Instruction, operands: Values, apply: Apply) -> Values:
    """Stable insertion by the comparator, along one dimension, the others at once."""
    axis = instruction.attributes["dimension"] % operands[0].ndim
    arrays = [np.array(np.moveaxis(x, axis, 0)) for x in operands]
    for end in range(1, arrays[0].shape[0]):
        for k in range(end, 0, -1):
            arguments = [part for x in arrays for part in (x[k], x[k - 1])]
            (before,) = apply(instruction.regions[0], arguments)
            for x in arrays:
                x[k - 1], x[k] = np.where(before, x[k], x[k - 1]), np.where(before, x[k - 1], x[k])
    return [np.moveaxis(x, 0, axis) for x in arrays]


FOLDS: dict[str, Callable[[Instruction, Values, Apply], Any]] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.scatter": _scatter,
    "stablehlo.sort": _sort,
}
