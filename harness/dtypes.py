"""Dtypes by the names case lines use, which are NumPy's."""

from __future__ import annotations

import ml_dtypes
import numpy as np

NAMES: tuple[str, ...] = (
    "float32",
    "bfloat16",
    "float16",
    "float64",
    "int32",
    "int8",
    "int16",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
)

WIDE = frozenset({"float64", "int64", "uint64", "complex128"})
"""Dtypes that exist in JAX only while 64-bit types are enabled."""

SIGNIFICAND = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53, "complex64": 24, "complex128": 53}
"""Bits of the significand, the implicit one included: whole numbers up to 2**bits are exact."""


def numpy_dtype(name: str) -> np.dtype:
    """The dtype object; bfloat16 comes from ml_dtypes, which JAX itself depends on."""
    return np.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else np.dtype(name)


def is_float(name: str) -> bool:
    return name in ("float32", "bfloat16", "float16", "float64")


def is_complex(name: str) -> bool:
    return name.startswith("complex")


def is_integer(name: str) -> bool:
    return name.startswith(("int", "uint"))
