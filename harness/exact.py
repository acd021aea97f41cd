"""Whether a program is exact: whether every intermediate fits the operand's dtype, in whatever order sums are taken.

Exactness is what lets results be compared bit for bit. The line's author (a person or a generator) asks here, once;
a run does not. NumPy only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from harness import reference
from harness.compat import spelling
from harness.dtypes import SIGNIFICAND, is_complex, is_float, is_integer
from harness.layers.leaves import AxisIndex, AxisSize, Pmean
from harness.payloads import PAYLOADS
from harness.program import Plan, plan
from harness.render import Module, operand_lines

SPELLING = spelling("0.10")
"""Any release will do: how an operand is made is the same in all."""


def operand(program: Plan, sizes: Mapping[str, int]) -> np.ndarray | None:
    """The operand as the rendered module makes it, by running those lines alone."""
    lines = [line for line in operand_lines(Module(program, SPELLING)) if not line.startswith("data = ")]
    if not lines:
        return None
    space: dict[str, Any] = {"np": np, "jnp": SimpleNamespace(bfloat16=ml_dtypes.bfloat16)}
    exec("\n".join(lines), space)
    code = space["operand"].__code__
    return np.asarray(
        space["operand"](**{name: sizes[name] for name in code.co_varnames[: code.co_argcount]})
    )


def wider(dtype: str) -> str | None:
    """A dtype of the same kind in which small programs neither round nor wrap; None for bool, which does neither."""
    if is_complex(dtype):
        return "complex128"
    return "float64" if is_float(dtype) else "int64" if is_integer(dtype) else None


def inexact(program: Plan) -> str:
    """The output that may be rounded and where, or "" for an exact program."""
    wide = wider(program.case.dtype)
    if wide is None or program.local is None or program.case.schedule == "raises":
        return ""
    for sizes in {tuple(sizes.items()): sizes for sizes in program.steps}.values():
        x = operand(program, sizes)
        assert x is not None
        for problem in (*_rounded(program, wide, x, sizes), *_too_large(program, wide, x, sizes)):
            return f"{problem} at {', '.join(f'{key}={size}' for key, size in sizes.items())}"
    return ""


def _as_wide(program: Plan, wide: str) -> Plan:
    """The same program over a wider dtype (the payload plays no part: the operand is given).

    Sizes of axes, Python integers that are never rounded and not everywhere allowed in it, are left out.
    """
    payload = "counting" if program.case.payload == "wrap" else program.case.payload
    leaves = [leaf for leaf in program.leaves.values() if not isinstance(leaf, AxisSize)]
    first, *others = leaves or [AxisIndex(program.case.leaf.names)]
    case = dataclasses.replace(program.case, leaf=first, dtype=wide, payload=payload, schedule="sizes")
    return plan(case, tuple(others))


def _rounded(program: Plan, wide: str, x: np.ndarray, sizes: Mapping[str, int]) -> Iterator[str]:
    """Outputs that are others in the wide dtype. Integers may wrap, but the mean of a sum that wrapped is none."""
    got = reference.evaluate(program, x, sizes)
    true = reference.evaluate(_as_wide(program, wide), x.astype(wide), sizes)
    for key, value in got.items():
        mean = isinstance(program.leaves.get(key.rpartition(".")[2]), Pmean)
        if key not in true or (is_integer(program.case.dtype) and not mean):
            continue
        whole = value.dtype.kind in "iub"
        want = true[key].astype(value.dtype) if whole else true[key]
        if not np.array_equal(want, value if whole else value.astype(want.dtype), equal_nan=not whole):
            yield f"{key} is rounded"


def _too_large(program: Plan, wide: str, x: np.ndarray, sizes: Mapping[str, int]) -> Iterator[str]:
    """Outputs with a partial sum that might not fit.

    All coefficients are positive, so every partial sum lies between the sums of the negative and of the positive
    values alone; and it is a multiple of the power of two that all values share.
    """
    bits = SIGNIFICAND.get(program.case.dtype)
    if bits is None or not PAYLOADS[program.case.payload].finite:
        return
    parts = [x.real, x.imag] if is_complex(program.case.dtype) else [x]
    shared = _power_of_two(np.concatenate([part.reshape(-1) for part in parts]))
    for sign in (1, -1):
        extreme = sum(np.maximum(sign * part.astype(np.float64), 0) for part in parts)
        sums = reference.evaluate(_as_wide(program, wide), np.asarray(extreme, wide), sizes)
        for key, value in sums.items():
            leaf = program.leaves.get(key.rpartition(".")[2])
            if leaf is not None and not leaf.uses_operand:
                continue
            members = leaf.axes_size(program.inside).at(sizes) if isinstance(leaf, Pmean) else 1
            if value.size and np.abs(value).max() * members > shared * 2**bits:
                yield f"{key} may reach {np.abs(value).max() * members:.0f}"


def _power_of_two(x: np.ndarray) -> int:
    """The largest power of two that divides all of these whole numbers (1 where there is none but 0)."""
    bits = int(np.bitwise_or.reduce(np.abs(x.astype(np.float64)).astype(np.int64), initial=0))
    return bits & -bits or 1
