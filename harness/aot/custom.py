"""What the TPU compiler calls by name, in NumPy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from harness.aot.elements import joined, unsigned
from harness.aot.program import Instruction, Values
from harness.errors import NotApplicable

PARTS = re.compile(r"X(64|128)(SplitLow|SplitHigh|Combine)")


def custom_call(instruction: Instruction, operands: Values) -> Any:
    """What the TPU compiler calls by name. TPUs have no 64-bit types: it takes such a number apart into two of half the
    width, computes with these, and joins them again."""
    target = str(instruction.attributes.get("call_target_name", "")).strip('"')
    kind = instruction.types[0]
    parts = PARTS.fullmatch(target)
    if parts and kind is not None:
        if parts.group(2) == "Combine":
            return joined(operands[0], operands[1], kind.dtype)
        return _half(operands[0], parts.group(2) == "SplitHigh", kind.dtype)
    if target in ("Sharding", "AssumeGatherIndicesInBound", "LayoutConstraint"):
        return operands[0]
    if target == "AllocateBuffer" and kind is not None:  # memory that a loop fills
        return np.zeros(kind.shape, kind.dtype)
    raise NotApplicable(f"the operation {instruction.op} {target} is not executed here")


def _half(x: np.ndarray, high: bool, dtype: np.dtype) -> np.ndarray:
    if x.dtype.kind == "c":
        return (np.imag(x) if high else np.real(x)).astype(dtype)
    if x.dtype.kind == "f":  # the nearest float32, and what is left
        if not np.isfinite(x).all():
            raise NotApplicable("what X64Split makes of infinity and NaN is not documented")
        nearest = x.astype(np.float32)
        return (nearest if high else x - nearest.astype(x.dtype)).astype(dtype)
    bits = unsigned(x)
    return (bits >> np.uint64(32) if high else bits & np.uint64(0xFFFFFFFF)).astype(dtype)
