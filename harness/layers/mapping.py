"""lax.map and lax.associative_scan: control flow over a stack of scaled copies of the operand."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.dims import Dim
from harness.errors import Illegal
from harness.layers.base import Inner, Lanes, Param, Place, Scope, Type, Types, Values, flag, integer
from harness.layers.control import COUNT, Control, double, scaled, stacked_types

if TYPE_CHECKING:
    from harness.render import Module


@dataclasses.dataclass(frozen=True)
class Mapping(Control):
    """A layer whose inside is applied to each of several multiples of the operand, the results stacked in order."""

    caches: ClassVar[bool] = False  # what lax.map and a Python loop run is made anew at each call

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        if self.count.kind != "fixed" or self.count.value < 1:
            raise Illegal(f"{self.word} is over a number of copies, 1 or more")
        if x is None:
            raise Illegal(f"{self.word} needs an argument")
        if x.dtype == "bool" and self.count.value > 3:
            raise Illegal("eight times a boolean is no boolean")
        return super().argument(x, scope)

    def copies(self, module: Module) -> str:
        """Source of the copies 1, 2, 4 ... times the operand, stacked."""
        module.imports("import jax.numpy as jnp")
        return f"jnp.stack([{', '.join(scaled('x', 2**t) for t in range(self.count.value))}])"


@dataclasses.dataclass(frozen=True)
class Map(Mapping):
    """`map(3, batch=2)`: the law of lax.map's documentation, with or without batches of the leading dimension."""

    word: ClassVar[str] = "map"
    mark: ClassVar[bool] = False
    rule: ClassVar[str | None] = "map.order"
    params: ClassVar[tuple[Param, ...]] = (COUNT, Param("batch", integer(1), "batch=NUMBER"))
    batch: int = 0

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        return stacked_types(inner, self.count.value)

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        function = inner if args == "x" else f"lambda x: {inner}({args})"
        batch = f", batch_size={self.batch}" if self.batch else ""
        return module.define(
            "mapped",
            f"def {{name}}({args}):",
            f"    return lax.map({function}, {self.copies(module)}{batch})",
        )

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        trips: list[Values] = []
        for _ in range(self.count.value):
            trips.append(inner(x, lanes))
            x = None if x is None else double(x)
        return {name: np.stack([trip[name] for trip in trips], axis=lanes.ndim) for name in trips[0]}


@dataclasses.dataclass(frozen=True)
class AssociativeScan(Mapping):
    """`associative_scan(3, reverse)`: sums of prefixes of the copies; what is inside is applied to each sum.

    The law of lax.associative_scan's documentation: element k is the sum of elements 0..k, or k.. in reverse.
    """

    word: ClassVar[str] = "associative_scan"
    rule: ClassVar[str | None] = "associative.prefix"
    params: ClassVar[tuple[Param, ...]] = (COUNT, flag("reverse"))
    reverse: bool = False  # type: ignore[misc]

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        assert x is not None
        own = dataclasses.replace(x, shape=(Dim(self.count.value), *x.shape))
        return {mark: own, **stacked_types(inner, self.count.value)}

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        reverse = ", reverse=True" if self.reverse else ""
        call = f"{inner}({', '.join('part' if name == 'x' else name for name in module.params)})"
        copies = self.copies(module)
        return module.define(
            "associative_scan",
            f"def {{name}}({args}):",
            f"    sums = lax.associative_scan(jnp.add, {copies}{reverse})",
            f"    outs = [{call} for part in sums]",
            f'    return {{"{place.mark}": sums, **jax.tree.map(lambda *parts: jnp.stack(parts), *outs)}}',
        )

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        assert x is not None
        copies = [x]
        while len(copies) < self.count.value:
            copies.append(double(copies[-1]))
        order = copies[::-1] if self.reverse else copies
        sums = [order[0]]
        for copy in order[1:]:
            sums.append(np.add(sums[-1], copy))
        sums = sums[::-1] if self.reverse else sums
        outs = [inner(part, lanes) for part in sums]
        stacked = {name: np.stack([out[name] for out in outs], axis=lanes.ndim) for name in place.inner}
        return {place.mark: np.stack(sums, axis=lanes.ndim), **stacked}
