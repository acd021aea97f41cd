"""Operations on elements, in NumPy: StableHLO operation -> its meaning (StableHLO specification)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a | b if a.dtype == bool else a + b


def _multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a & b if a.dtype == bool else a * b


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whole numbers are divided towards zero; by zero they give -1 (all ones)."""
    if a.dtype.kind not in "iu":
        return a / b
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    quotient = a // safe
    rounded = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, np.asarray(-1).astype(a.dtype), rounded.astype(a.dtype))


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sign is the dividend's."""
    if a.dtype.kind not in "iu":
        return np.fmod(a, b)
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, a, np.fmod(a, safe))


def unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(np.dtype(f"uint{8 * x.dtype.itemsize}")) if x.dtype.kind == "i" else x


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = unsigned(b) >= 8 * a.dtype.itemsize
    return np.where(wide, np.zeros((), a.dtype), a << np.where(wide, 0, b).astype(a.dtype))


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Logical: zeros come in from the left."""
    a, b = np.asarray(a), np.asarray(b)
    wide = unsigned(b) >= 8 * a.dtype.itemsize
    bits = unsigned(a)
    return np.where(wide, np.zeros((), bits.dtype), bits >> np.where(wide, 0, b).astype(bits.dtype)).astype(
        a.dtype
    )


def _shift_right_signed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    most = 8 * a.dtype.itemsize - 1
    return a >> np.minimum(unsigned(b), most).astype(a.dtype)


def _finite(a: np.ndarray) -> np.ndarray:
    return np.isfinite(a.astype(np.float64))


def _sign(a: np.ndarray) -> np.ndarray:
    return np.where(a == 0, a, np.sign(a)).astype(a.dtype)


def _count_bits(a: np.ndarray) -> np.ndarray:
    return np.bitwise_count(unsigned(a)).astype(a.dtype)


def _leading_zeros(a: np.ndarray) -> np.ndarray:
    bits = 8 * a.dtype.itemsize
    wide = unsigned(a).astype(np.uint64)
    length = np.zeros(np.shape(a), np.int64)
    for shift in range(bits):
        length = np.where((wide >> np.uint64(shift)) != 0, shift + 1, length)
    return (bits - length).astype(a.dtype)


def _clamp(low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(x, low), high)


def joined(low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "c":
        out = np.empty(low.shape, dtype)
        out.real, out.imag = low, high
        return out
    if dtype.kind == "f":
        wide = high.astype(dtype)
        return np.where(low == 0, wide, wide + low.astype(dtype))  # keeps the sign of a zero
    joined = (unsigned(high).astype(np.uint64) << np.uint64(32)) | unsigned(low).astype(np.uint64)
    return joined.astype(dtype)


ELEMENTS: dict[str, Callable[..., Any]] = {
    "stablehlo.add": _add,
    "stablehlo.subtract": lambda a, b: a ^ b if a.dtype == bool else a - b,
    "stablehlo.multiply": _multiply,
    "stablehlo.divide": _divide,
    "stablehlo.remainder": _remainder,
    "stablehlo.maximum": lambda a, b: a | b if a.dtype == bool else np.maximum(a, b),
    "stablehlo.minimum": lambda a, b: a & b if a.dtype == bool else np.minimum(a, b),
    "stablehlo.and": lambda a, b: a & b,
    "stablehlo.or": lambda a, b: a | b,
    "stablehlo.xor": lambda a, b: a ^ b,
    "stablehlo.not": np.invert,
    "stablehlo.negate": lambda a: -a,
    "stablehlo.abs": np.abs,
    "stablehlo.sign": _sign,
    "stablehlo.power": np.power,
    "stablehlo.sqrt": np.sqrt,
    "stablehlo.rsqrt": lambda a: 1 / np.sqrt(a),
    "stablehlo.exponential": np.exp,
    "stablehlo.log": np.log,
    "stablehlo.floor": np.floor,
    "stablehlo.ceil": np.ceil,
    "stablehlo.round_nearest_even": np.rint,
    "stablehlo.is_finite": _finite,
    "stablehlo.shift_left": _shift_left,
    "stablehlo.shift_right_logical": _shift_right,
    "stablehlo.shift_right_arithmetic": _shift_right_signed,
    "stablehlo.popcnt": _count_bits,
    "stablehlo.count_leading_zeros": _leading_zeros,
    "stablehlo.select": np.where,
    "stablehlo.clamp": _clamp,
    "stablehlo.real": np.real,
    "stablehlo.imag": np.imag,
    "stablehlo.complex": lambda a, b: joined(a, b, np.result_type(a.dtype, np.complex64)),
}
