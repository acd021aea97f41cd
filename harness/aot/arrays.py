"""Operations that their attributes define, in NumPy: shapes, places, types, products (StableHLO specification)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.aot import memory
from harness.aot.program import Instruction, Values
from harness.errors import NotApplicable

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}


def _word(attribute: Any) -> str:
    """`EQ` of `#stablehlo<comparison_direction EQ>`."""
    return re.findall(r"\w+", str(attribute))[-1]


def _compare(instruction: Instruction, operands: Values) -> Any:
    a, b = operands
    if _word(instruction.attributes.get("compare_type", "NOTYPE")) == "TOTALORDER":
        a, b = _total_order(a), _total_order(b)
    return COMPARISONS[_word(instruction.attributes["comparison_direction"])](a, b)


def _total_order(x: np.ndarray) -> np.ndarray:
    """Bits of a float as a whole number of the same order: -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    signed = x.view(np.dtype(f"int{8 * x.dtype.itemsize}"))
    return np.where(signed < 0, signed ^ np.iinfo(signed.dtype).max, signed)


def _convert(instruction: Instruction, operands: Values) -> Any:
    kind = instruction.types[0]
    assert kind is not None
    (x,) = operands
    if kind.dtype == bool:
        return x != 0
    if x.dtype.kind == "c" and kind.dtype.kind != "c":
        return np.real(x).astype(kind.dtype)
    return x.astype(kind.dtype)


def _constant(instruction: Instruction, operands: Values) -> Any:
    return instruction.attributes["value"]


def _iota(instruction: Instruction, operands: Values) -> Any:
    kind = instruction.types[0]
    assert kind is not None
    at = instruction.attributes["iota_dimension"]
    along = np.arange(kind.shape[at]).reshape([-1 if d == at else 1 for d in range(len(kind.shape))])
    return np.broadcast_to(along, kind.shape)


def _broadcast(instruction: Instruction, operands: Values) -> Any:
    kind = instruction.types[0]
    assert kind is not None
    places = numbers_of(instruction.attributes["broadcast_dimensions"])
    shape = [1] * len(kind.shape)
    for d, place in enumerate(places):
        shape[place] = operands[0].shape[d]
    order = [int(d) for d in np.argsort(places)]
    return np.broadcast_to(operands[0].transpose(order).reshape(shape), kind.shape)


def numbers_of(attribute: Any) -> list[int]:
    return [int(item) for item in np.asarray(attribute).reshape(-1)]


def _reshape(instruction: Instruction, operands: Values) -> Any:
    kind = instruction.types[0]
    assert kind is not None
    return np.asarray(operands[0]).reshape(kind.shape)


def _transpose(instruction: Instruction, operands: Values) -> Any:
    return operands[0].transpose(numbers_of(instruction.attributes["permutation"]))


def _bitcast(instruction: Instruction, operands: Values) -> Any:
    """The same elements in memory under another shape: layouts list dimensions from the minor one on."""
    kind, x = instruction.types[0], operands[0]
    assert kind is not None
    if (
        not kind.shape and x.size > 1 and x.dtype.itemsize == kind.dtype.itemsize
    ):  # in a region, on a whole array
        return np.ascontiguousarray(x).view(kind.dtype).reshape(x.shape)
    source = numbers_of(instruction.attributes.get("source_layout", range(x.ndim)[::-1]))
    result = numbers_of(instruction.attributes.get("result_layout", range(len(kind.shape))[::-1]))
    if len(source) != x.ndim or len(result) != len(kind.shape):
        raise NotApplicable("the operation mhlo.bitcast without its layouts is not executed here")
    if x.dtype.itemsize != kind.dtype.itemsize or x.size != int(np.prod(kind.shape)):  # tiles matter
        before, after = instruction.attributes["memory"]
        if before is None or after is None:
            raise NotApplicable(
                f"the operation mhlo.bitcast from {x.dtype} to {kind.dtype} is not executed here"
            )
        return memory.reinterpret(x, before, kind.shape, kind.dtype, after)
    stored = x.transpose(source[::-1])
    if x.dtype != kind.dtype:
        stored = np.ascontiguousarray(stored).view(kind.dtype)
    order = result[::-1]
    return stored.reshape([kind.shape[d] for d in order]).transpose(np.argsort(order))


def _bitcast_convert(instruction: Instruction, operands: Values) -> Any:
    kind, x = instruction.types[0], np.ascontiguousarray(operands[0])
    assert kind is not None
    narrow, wide = x.dtype.itemsize, kind.dtype.itemsize
    if narrow == wide:
        return x.view(kind.dtype).reshape(np.shape(operands[0]))
    flat = np.frombuffer(x.tobytes(), kind.dtype)
    return flat.reshape(kind.shape)


def _slice(instruction: Instruction, operands: Values) -> Any:
    a = instruction.attributes
    starts, ends, steps = (numbers_of(a[name]) for name in ("start_indices", "limit_indices", "strides"))
    return operands[0][tuple(slice(*span) for span in zip(starts, ends, steps))]


def _starts(x: np.ndarray, starts: Values, sizes: Sequence[int]) -> list[int]:
    """Starts moved so that the block lies inside, as XLA does."""
    return [int(min(max(int(s), 0), n - size)) for s, n, size in zip(starts, x.shape, sizes)]


def _dynamic_slice(instruction: Instruction, operands: Values) -> Any:
    sizes = numbers_of(instruction.attributes["slice_sizes"])
    starts = _starts(operands[0], operands[1:], sizes)
    return operands[0][tuple(slice(s, s + n) for s, n in zip(starts, sizes))]


def _dynamic_update(instruction: Instruction, operands: Values) -> Any:
    x, update = np.array(operands[0]), operands[1]
    starts = _starts(x, operands[2:], update.shape)
    x[tuple(slice(s, s + n) for s, n in zip(starts, update.shape))] = update
    return x


def _concatenate(instruction: Instruction, operands: Values) -> Any:
    return np.concatenate(operands, axis=instruction.attributes["dimension"])


def _pad(instruction: Instruction, operands: Values) -> Any:
    x, value = operands
    a = instruction.attributes
    low, high, inner = (
        numbers_of(a[name]) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    spread = np.full([max(n + (n - 1) * k, 0) for n, k in zip(x.shape, inner)], value, x.dtype)
    spread[tuple(slice(None, None, k + 1) for k in inner)] = x
    out = np.full([n + a_ + b for n, a_, b in zip(spread.shape, low, high)], value, x.dtype)
    to = tuple(slice(max(a_, 0), max(a_, 0) + n) for a_, n in zip(low, _kept(spread.shape, low, high)))
    from_ = tuple(slice(max(-a_, 0), max(-a_, 0) + n) for a_, n in zip(low, _kept(spread.shape, low, high)))
    out[to] = spread[from_]
    return out


def _kept(shape: Sequence[int], low: Sequence[int], high: Sequence[int]) -> list[int]:
    """How many elements are left where negative padding cuts some off."""
    return [max(n + min(a, 0) + min(b, 0), 0) for n, a, b in zip(shape, low, high)]


def _reverse(instruction: Instruction, operands: Values) -> Any:
    return np.flip(operands[0], tuple(numbers_of(instruction.attributes["dimensions"])))


def _dot(instruction: Instruction, operands: Values) -> Any:
    text = str(instruction.attributes["dot_dimension_numbers"])
    numbers = {
        name: [int(n) for n in re.findall(r"\d+", found)]
        for name, found in re.findall(r"(\w+_dimensions) = \[([^\]]*)\]", text)
    }
    a, b = operands
    kind = instruction.types[0]
    assert kind is not None
    ba, bb = numbers.get("lhs_batching_dimensions", []), numbers.get("rhs_batching_dimensions", [])
    ca, cb = numbers.get("lhs_contracting_dimensions", []), numbers.get("rhs_contracting_dimensions", [])
    left, right = list(range(a.ndim)), [a.ndim + d for d in range(b.ndim)]
    for da, db in [*zip(ba, bb), *zip(ca, cb)]:
        right[db] = left[da]
    out = [
        *(left[d] for d in ba),
        *(left[d] for d in range(a.ndim) if d not in (*ba, *ca)),
        *(right[d] for d in range(b.ndim) if d not in (*bb, *cb)),
    ]
    return np.einsum(_wide(a, kind.dtype), left, _wide(b, kind.dtype), right, out)


def _wide(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The type sums are taken in: the result's, and for the narrow ones that NumPy does not sum, float32."""
    return x.astype(dtype if dtype.kind in "fciu" and dtype.itemsize >= 4 else np.float32)


def _gather(instruction: Instruction, operands: Values) -> Any:
    x, indices = operands
    kind = instruction.types[0]
    assert kind is not None
    numbers = dimension_numbers(instruction.attributes["dimension_numbers"])
    offset, collapsed = numbers["offset_dims"], numbers["collapsed_slice_dims"]
    batching, batching_at = numbers["operand_batching_dims"], numbers["start_indices_batching_dims"]
    starts, at = numbers["start_index_map"], (numbers["index_vector_dim"] or [0])[0]
    sizes = numbers_of(instruction.attributes["slice_sizes"])
    batch = [d for d in range(len(kind.shape)) if d not in offset]
    kept = [d for d in range(x.ndim) if d not in (*collapsed, *batching)]
    out = np.empty(kind.shape, x.dtype)
    for place in np.ndindex(*[kind.shape[d] for d in batch]):
        vector = index_vector(indices, place, at)
        first = [0] * x.ndim
        for k, d in enumerate(starts):
            first[d] = min(max(int(vector[k]), 0), x.shape[d] - sizes[d])
        outside = [p for p in place]
        for d, b in zip(batching, batching_at):
            first[d] = outside[b if b < at else b - 1]
        part = x[tuple(slice(f, f + n) for f, n in zip(first, sizes))]
        target: list[Any] = [slice(None)] * len(kind.shape)
        for d, p in zip(batch, place):
            target[d] = p
        out[tuple(target)] = part.reshape([part.shape[d] for d in kept])
    return out


def dimension_numbers(attribute: Any) -> dict[str, list[int]]:
    """The lists of a dimension-numbers attribute; what it leaves out is empty."""
    text = str(attribute)
    found = {
        name: [int(n) for n in re.findall(r"\d+", items)]
        for name, items in re.findall(r"(\w+) = \[([^\]]*)\]", text)
    }
    found.update((name, [int(n)]) for name, n in re.findall(r"(\w+) = (\d+)", text))
    return _Lists(found)


class _Lists(dict[str, list[int]]):
    def __missing__(self, key: str) -> list[int]:
        return []


def index_vector(indices: np.ndarray, place: Sequence[int], at: int) -> np.ndarray:
    """The index vector at one place; dimension `at` holds its components, or none does and it is one number."""
    if at == indices.ndim:
        return np.asarray([indices[tuple(place)]])
    index: list[Any] = list(place)
    index.insert(at, slice(None))
    return indices[tuple(index)]


def _reduce_precision(instruction: Instruction, operands: Values) -> Any:
    from harness.dtypes import numpy_dtype

    bits = (instruction.attributes["exponent_bits"], instruction.attributes["mantissa_bits"])
    names = {(8, 23): "float32", (8, 7): "bfloat16", (5, 10): "float16"}
    if bits not in names:
        raise NotApplicable(f"the operation stablehlo.reduce_precision to {bits} bits is not executed here")
    return operands[0].astype(numpy_dtype(names[bits])).astype(operands[0].dtype)


ARRAYS: dict[str, Callable[[Instruction, Values], Any]] = {
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.reshape": _reshape,
    "stablehlo.transpose": _transpose,
    "mhlo.bitcast": _bitcast,
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.slice": _slice,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    "stablehlo.dot_general": _dot,
    "stablehlo.gather": _gather,
    "stablehlo.reduce_precision": _reduce_precision,
}
