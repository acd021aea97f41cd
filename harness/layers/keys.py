"""A leaf of jax.random: a key of its own for each member of an axis."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness import collectives
from harness.dims import Dim
from harness.layers.base import Lanes, Scope, Type
from harness.layers.leaves import AxisIndex

if TYPE_CHECKING:
    from harness.render import Module

SEED = 7


@dataclasses.dataclass(frozen=True)
class Random(AxisIndex):
    """`random(i)`: the data of a typed key with the member's index folded in, two uint32.

    The law: jax.random's documentation names Threefry-2x32; folding in a number enciphers (0, number) with the key,
    whatever surrounds the call.
    """

    word: ClassVar[str] = "random"
    rule: ClassVar[str] = "random.fold"

    def output(self, x: Type, scope: Scope) -> Type:
        return Type((Dim(2),), "uint32", self.keys(scope))

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        key = f'jax.random.key({SEED}, impl="threefry2x32")'
        return f"jax.random.key_data(jax.random.fold_in({key}, {super().expression(module, x, scope)}))"

    def evaluate(self, x: np.ndarray, lanes: Lanes) -> np.ndarray:
        index = super().evaluate(x, lanes).astype(np.uint32)
        zeros = np.zeros_like(index)
        return np.stack(collectives.threefry((zeros, zeros + np.uint32(SEED)), (zeros, index)), axis=-1)
