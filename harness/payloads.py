"""Which values an operand has: exact by construction, and telling where they came from.

A payload writes the NumPy source of an array whose first dimensions are the positions of the mapped axes (outermost
first) and whose last are the local shape: `count` values, numbered by k. The same source stands in the rendered
program and feeds the reference.
"""

from __future__ import annotations

import dataclasses

from harness.dims import Dim, product
from harness.dtypes import is_complex, is_float, is_integer
from harness.errors import Illegal


@dataclasses.dataclass(frozen=True)
class Payload:
    """Attributes:
    about: what the values are for.
    source: NumPy expression over `count` (how many values) and `shape` (the tuple of dimensions, as source).
    extra: dimension added behind the local shape: "count" for a basis, a number, or None.
    dtypes: "all", "float", "signed" or "integer".
    linear_only: whether nothing but affine functions keep it exact.
    finite: whether every value is finite (a derivative needs it).
    """

    about: str
    source: str
    extra: str | int | None = None
    dtypes: str = "all"
    finite: bool = True


BULK_COLUMNS = 2**18
"""Columns of the bulk payload: 4 MiB a device for 4 float32 values."""

PAYLOADS: dict[str, Payload] = {
    "basis": Payload(
        "every unit vector: the result is the operator's contribution matrix",
        "np.eye(count).reshape(*{shape}, count)",
        extra="count",
    ),
    "origin": Payload(
        "distinct numbers of both signs that name their origin",
        "(np.arange(count) - count // 2).reshape({shape})",
        dtypes="signed",
    ),
    "counting": Payload("1, 2, 3 ...: distinct and positive", "np.arange(1, count + 1).reshape({shape})"),
    "negative": Payload(
        "all negative and distinct", "np.arange(-count, 0).reshape({shape})", dtypes="signed"
    ),
    "wrap": Payload(
        "the largest values of an integer dtype: sums wrap around",
        '(np.iinfo("{dtype}").max - np.arange(count, dtype="{dtype}")).reshape({shape})',
        dtypes="integer",
    ),
    "special": Payload(
        "NaN, infinities, signed zeros among ordinary numbers",
        "np.resize([np.nan, np.inf, -0.0, 1.0, -np.inf, 0.0, -2.0, 1.0, 3.0, 5.0, -0.0], count).reshape({shape})",
        dtypes="float",
        finite=False,
    ),
    "empty": Payload("no elements at all", "np.zeros((*{shape}, 0))", extra=0),
    "bulk": Payload(
        "4 MiB and more a device: column r is 1..7 times the first",
        "np.arange(1, count + 1).reshape(*{shape}, 1) * (np.arange({columns}) % 7 + 1)",
        extra=BULK_COLUMNS,
    ),
}


def check_dtype(payload: str, dtype: str) -> None:
    """Raises Illegal when the payload has no meaning in that dtype."""
    kind = PAYLOADS[payload].dtypes
    signed = not dtype.startswith(("uint", "bool"))
    fits = {"all": True, "signed": signed, "float": is_float(dtype), "integer": is_integer(dtype)}[kind]
    if not fits or (payload == "origin" and is_complex(dtype)):
        raise Illegal(f"payload {payload} has no {dtype} values")


def local_shape(payload: str, shape: tuple[Dim, ...], count: Dim) -> tuple[Dim, ...]:
    """The operand's local shape with the payload's own dimension."""
    extra = PAYLOADS[payload].extra
    if extra is None:
        return shape
    return (*shape, count if extra == "count" else Dim(int(extra)))


def count_of(mapped: tuple[Dim, ...], shape: tuple[Dim, ...]) -> Dim:
    """How many values a payload numbers."""
    return product((*mapped, *shape))
