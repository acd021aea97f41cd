"""Dimensions whose length may depend on the size of an axis.

`2i` is twice the size of axis `i`: the local operand of a psum_scatter over `i` needs such a dimension, and a
schedule may bind `i` to another size at every step. A dimension is a coefficient times a product of axis keys.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

TOKEN = re.compile(r"(\d*)((?:[a-z]\d*)*)")


@dataclasses.dataclass(frozen=True)
class Dim:
    """`coefficient * product(sizes of axes)`; axes are sorted keys, repeated when squared."""

    coefficient: int
    axes: tuple[str, ...] = ()

    def __mul__(self, other: Dim) -> Dim:
        return Dim(self.coefficient * other.coefficient, tuple(sorted(self.axes + other.axes)))

    def divided_by(self, other: Dim) -> Dim | None:
        """The exact quotient for every size of the axes, or None."""
        axes = list(self.axes)
        for axis in other.axes:
            if axis not in axes:
                return None
            axes.remove(axis)
        if self.coefficient % other.coefficient:
            return None
        return Dim(self.coefficient // other.coefficient, tuple(axes))

    def at(self, sizes: Mapping[str, int]) -> int:
        """The length under one axis environment."""
        length = self.coefficient
        for axis in self.axes:
            length *= sizes[axis]
        return length

    def source(self, spell: Mapping[str, str]) -> str:
        """A Python expression; `spell` gives the expression for the size of each axis."""
        factors = [spell[axis] for axis in self.axes]
        if self.coefficient != 1 or not factors:
            factors.insert(0, str(self.coefficient))
        return " * ".join(factors)

    def __str__(self) -> str:
        return (str(self.coefficient) if self.coefficient != 1 or not self.axes else "") + "".join(self.axes)


ONE = Dim(1)


def product(dims: tuple[Dim, ...]) -> Dim:
    """The number of elements of a shape."""
    total = ONE
    for dim in dims:
        total *= dim
    return total


def parse_dim(text: str) -> Dim | None:
    """`6`, `i`, `2i` or `ij`; None when the text is none of these."""
    match = TOKEN.fullmatch(text)
    if not text or match is None:
        return None
    digits, axes = match.groups()
    return Dim(int(digits) if digits else 1, tuple(sorted(re.findall(r"[a-z]\d*", axes))))
