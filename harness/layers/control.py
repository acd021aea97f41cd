"""Control flow: scan, while_loop, fori_loop, cond, switch.

Every loop doubles its carry at each trip, so that the number of trips and their order show in the values: after t
trips the operand is 2**t times what it was. The final carry is an output of its own (`scan`, `while_loop`, ...),
judged apart from what the collectives inside gave.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.dims import Dim
from harness.dtypes import numpy_dtype
from harness.errors import Illegal
from harness.layers.base import Inner, Lanes, Layer, Param, Place, Scope, Type, Types, Values, flag, integer

if TYPE_CHECKING:
    from harness.render import Module


@dataclasses.dataclass(frozen=True)
class Count:
    """Where a trip count or a branch number comes from.

    kind "fixed" (a literal), "arg" (the program's argument n), "index" (this position's index along an axis, so it
    differs between positions) or "reduced" (the largest index along an axis, found by a collective).
    """

    kind: str
    value: int = 0
    symbol: str = ""

    def source(self, module: Module) -> str:
        if self.kind == "fixed":
            return str(self.value)
        if self.kind == "arg":
            return "n"
        index = f"lax.axis_index({module.axis(self.symbol)})"
        return index if self.kind == "index" else f"lax.pmax({index}, {module.axis(self.symbol)})"

    def evaluate(self, n: int, lanes: Lanes) -> np.ndarray:
        """The count at every position, int32 of shape `lanes.shape`."""
        if self.kind == "fixed":
            return np.full(lanes.shape, self.value, np.int32)
        if self.kind == "arg":
            return np.full(lanes.shape, n, np.int32)
        if self.kind == "index":
            return lanes.position(self.symbol)
        return np.full(lanes.shape, lanes.shape[lanes.dimension(self.symbol)] - 1, np.int32)

    def vary(self, scope: Scope) -> frozenset[str]:
        return frozenset({scope.find(self.symbol).key}) if self.kind == "index" else frozenset()

    def __str__(self) -> str:
        return {"fixed": str(self.value), "arg": "arg"}.get(self.kind, f"{self.kind} {self.symbol}")


def read_count(text: str) -> Count | None:
    """`3`, `arg`, `index i` or `reduced i`."""
    words = text.split(" ")
    if text == "arg":
        return Count("arg")
    if len(words) == 1 and text.isdecimal() and str(int(text)) == text:
        return Count("fixed", int(text))
    if len(words) == 2 and words[0] in ("index", "reduced") and len(words[1]) == 1 and words[1].islower():
        return Count(words[0], symbol=words[1])
    return None


COUNT = Param("count", read_count, "a number, arg, 'index AXIS' or 'reduced AXIS'", kind="positional")


@dataclasses.dataclass(frozen=True)
class Control(Layer):
    """A layer that runs its inside several times, or one of several ways, as `count` says."""

    family: ClassVar[str] = "control"
    mark: ClassVar[bool] = True
    caches: ClassVar[bool] = True
    count: Count

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        varying = self.count.vary(scope)
        if self.count.kind == "reduced":
            scope.find(self.count.symbol)
        if varying & scope.checked() and (x is None or not varying <= x.vary):
            raise Illegal("a count that varies along a checked axis needs an operand that varies along it")
        return x

    def own_output(self, x: Type | None, scope: Scope) -> Type:
        """The type of the final carry: the operand, or a counter where there is none."""
        vary = self.count.vary(scope) - scope.checked()
        if x is None:
            return Type((), "int32", vary)
        return Type(x.shape, x.dtype, x.vary | vary)

    def zeros(self, module: Module, place: Place) -> str:
        """Source of zeros of the types of what is inside."""
        module.imports("import jax.numpy as jnp")
        items = [f'"{name}": {module.zeros(type_, place.scope)}' for name, type_ in place.inner.items()]
        return "{" + ", ".join(items) + "}"

    def widen(self, types: Types, scope: Scope) -> Types:
        """A value chosen by a varying count varies too."""
        vary = self.count.vary(scope) - scope.checked()
        return {name: dataclasses.replace(type_, vary=type_.vary | vary) for name, type_ in types.items()}


def stacked_types(types: Types, length: int) -> Types:
    """Types with a new first dimension."""
    return {name: dataclasses.replace(t, shape=(Dim(length), *t.shape)) for name, t in types.items()}


def double(x: np.ndarray) -> np.ndarray:
    """One trip's change of the carry."""
    return np.add(x, x)


@dataclasses.dataclass(frozen=True)
class Scan(Control):
    """`scan(3, reverse, unroll=2, xs)`: the law of lax.scan's documentation (carry threaded, outputs stacked in order).

    With `xs` the operand of each trip is a slice of a scanned array (1, 2, 4.. times the operand) and the carry
    counts trips.
    """

    word: ClassVar[str] = "scan"
    rule: ClassVar[str | None] = "scan.carry"
    params: ClassVar[tuple[Param, ...]] = (
        COUNT,
        flag("reverse"),
        flag("xs"),
        Param("unroll", integer(1), "unroll=NUMBER"),
    )
    reverse: bool = False  # type: ignore[misc]
    xs: bool = False
    unroll: int = 1

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        if self.count.kind != "fixed":
            raise Illegal("the length of a scan is a number")
        if self.xs and x is None:
            raise Illegal("scan(xs) needs an argument")
        return super().argument(x, scope)

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        own = Type((), "int32") if self.xs else self.own_output(x, scope)
        return {mark: own, **stacked_types(inner, self.count.value)}

    def render(self, module: Module, inner: str, place: Place) -> str:
        state, start = module.state("k" if self.xs or place.x is None else "x", "0")
        args = ", ".join(module.params)
        given = "x" if self.xs else "_"
        step = module.define(
            "scan_step",
            f"def {{name}}(carry, {given}):",
            f"    {state} = carry",
            f"    return {module.next(state)}, {inner}({args})",
        )
        xs, lines = "None", []
        if self.xs:
            module.imports("import jax.numpy as jnp")
            powers = ", ".join(scaled("x", 2**t) for t in range(self.count.value))
            xs = "xs"
            lines = [
                f"    xs = jnp.stack([{powers}])" if powers else "    xs = jnp.zeros((0, *x.shape), x.dtype)"
            ]
        settings = ["length=" + str(self.count.value)]
        settings += ["reverse=True"] * self.reverse + [f"unroll={self.unroll}"] * (self.unroll != 1)
        return module.define(
            "scan",
            f"def {{name}}({args}):",
            *lines,
            f"    {state}, out = lax.scan({step}, {start}, {xs}, {', '.join(settings)})",
            f'    return {{"{place.mark}": {module.first(state)}, **out}}',
        )

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        trips: list[Values] = []
        count = np.zeros(lanes.shape, np.int32)
        operand = x
        for _ in range(self.count.value):
            trips.append(inner(operand, lanes))
            operand = None if operand is None else double(operand)
            count = count + np.int32(1)
        if self.reverse and not self.xs:  # scanned slices keep their places whichever way they are visited
            trips.reverse()
        own = count if self.xs or operand is None else operand
        stacked = {
            name: np.stack([trip[name] for trip in trips], axis=lanes.ndim) if trips else _empty(type_, lanes)
            for name, type_ in place.inner.items()
        }
        return {place.mark: own, **stacked}


def _empty(type_: Type, lanes: Lanes) -> np.ndarray:
    return np.zeros(
        (*lanes.shape, 0, *(dim.at(lanes.sizes) for dim in type_.shape)), numpy_dtype(type_.dtype)
    )


def scaled(name: str, factor: int) -> str:
    """Source of a multiple."""
    return " + ".join([name] * factor) if factor <= 4 else f"{name} * {factor}"


@dataclasses.dataclass(frozen=True)
class Loop(Control):
    """while_loop and fori_loop: the outputs of all trips are added up."""

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        return {mark: self.own_output(x, scope), **self.widen(inner, scope)}

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        bound = self.count.evaluate(n, lanes)
        count = np.zeros(lanes.shape, np.int32)
        sums = {
            name: np.zeros((*lanes.shape, *(dim.at(lanes.sizes) for dim in t.shape)), numpy_dtype(t.dtype))
            for name, t in place.inner.items()
        }
        trips = 0
        while trips < bound.max(initial=0):
            running = trips < bound
            trip = inner(x, lanes)
            sums = {name: where(running, np.add(total, trip[name]), total) for name, total in sums.items()}
            x = None if x is None else where(running, double(x), x)
            count = count + running.astype(np.int32)
            trips += 1
        return {place.mark: count if x is None else x, **sums}


def where(lanes: np.ndarray, chosen: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Chooses between two arrays position by position; `lanes` has only the lane dimensions."""
    mask = lanes.reshape(lanes.shape + (1,) * (chosen.ndim - lanes.ndim))
    return np.where(mask, chosen, other).astype(chosen.dtype)


@dataclasses.dataclass(frozen=True)
class WhileLoop(Loop):
    """`while_loop(3)`, `while_loop(arg)`, `while_loop(index i)`, `while_loop(reduced i)`.

    The law of lax.while_loop's documentation; where the count varies along a vmapped axis, positions that are done
    keep their state while the others go on, and collectives see the kept state.
    """

    word: ClassVar[str] = "while_loop"
    rule: ClassVar[str | None] = "while.trips"
    params: ClassVar[tuple[Param, ...]] = (COUNT,)

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        names = ["k", *module.params, "out"]
        state = ", ".join(names)
        test = module.define(
            "while_test",
            "def {name}(state):",
            f"    {state} = state",
            f"    return k < {self.count.source(module)}",
        )
        body = module.define(
            "while_body",
            "def {name}(state):",
            f"    {state} = state",
            f"    return {module.next('k, ' + args if args else 'k')}, jax.tree.map(jnp.add, out, {inner}({args}))",
        )
        start = ", ".join(["0", *module.params, "zeros"])
        return module.define(
            "while_loop",
            f"def {{name}}({args}):",
            f"    zeros = {self.zeros(module, place)}",
            f"    {state} = lax.while_loop({test}, {body}, ({start}))",
            f'    return {{"{place.mark}": {"x" if "x" in module.params else "k"}, **out}}',
        )


@dataclasses.dataclass(frozen=True)
class ForiLoop(Loop):
    """`fori_loop(3)` (static bounds), `fori_loop(arg)`, `fori_loop(index i)`, `fori_loop(reduced i)` (traced bounds)."""

    word: ClassVar[str] = "fori_loop"
    rule: ClassVar[str | None] = "fori.trips"
    params: ClassVar[tuple[Param, ...]] = (COUNT,)

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        own = list(module.params) if "x" in module.params else ["k", *module.params]
        state = ", ".join([*own, "out"])
        body = module.define(
            "fori_body",
            "def {name}(_, state):",
            f"    {state} = state",
            f"    return {module.next(', '.join(own))}, jax.tree.map(jnp.add, out, {inner}({args}))",
        )
        start = ", ".join([*("0" if name == "k" else name for name in own), "zeros"])
        return module.define(
            "fori_loop",
            f"def {{name}}({args}):",
            f"    zeros = {self.zeros(module, place)}",
            f"    {state} = lax.fori_loop(0, {self.count.source(module)}, {body}, ({start}))",
            f'    return {{"{place.mark}": {own[0]}, **out}}',
        )


@dataclasses.dataclass(frozen=True)
class Branch(Control):
    """cond and switch: branch b applies what is inside to (b + 1) times the operand, and says which branch it was.

    With `one` only branch 1 does: the others give zeros of the same types.

    The law of lax.cond's and lax.switch's documentation: exactly one branch's result is given.
    """

    branches: ClassVar[int]
    one: bool = False

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        return self.widen({mark: self.own_output(x, scope), **inner}, scope)

    def selector(self, module: Module) -> str:
        """Source of the predicate or index."""
        return self.count.source(module)

    def chosen(self, count: np.ndarray) -> np.ndarray:
        """The branch taken, given the count."""
        return np.clip(count, 0, self.branches - 1)

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        names = []
        for b in range(self.branches):
            own = scaled("x", b + 1) if "x" in module.params else str(b)
            given = ", ".join(own if name == "x" else name for name in module.params)
            result = self.zeros(module, place) if self.empty(b) else f"{inner}({given})"
            names.append(
                module.define(
                    f"{self.word}_{b}",
                    f"def {{name}}({args}):",
                    f'    return {{"{place.mark}": {own}, **{result}}}',
                )
            )
        return module.define(
            self.word, f"def {{name}}({args}):", f"    return {self.call(module, names, args)}"
        )

    def empty(self, branch: int) -> bool:
        """Whether a branch gives zeros instead of what is inside."""
        return self.one and branch != 1

    def call(self, module: Module, names: list[str], args: str) -> str:
        raise TypeError

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        taken = self.chosen(self.count.evaluate(n, lanes))
        result: Values = {}
        for b in range(self.branches):
            operand = None
            if x is not None:
                operand = x
                for _ in range(b):
                    operand = np.add(operand, x)
            own = np.full(lanes.shape, b, np.int32) if operand is None else operand
            given = inner(operand, lanes)
            if self.empty(b):
                given = {name: np.zeros_like(y) for name, y in given.items()}
            branch = {place.mark: own, **given}
            result = {name: where(taken == b, y, result[name]) if b else y for name, y in branch.items()}
        return result


@dataclasses.dataclass(frozen=True)
class Cond(Branch):
    """`cond(0)` and `cond(1)` (constant), `cond(arg)` (n > 1), `cond(index i)` (odd positions), `cond(reduced i)`."""

    word: ClassVar[str] = "cond"
    rule: ClassVar[str | None] = "cond.branch"
    params: ClassVar[tuple[Param, ...]] = (COUNT, flag("one"))
    branches: ClassVar[int] = 2

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        if self.count.kind == "fixed" and self.count.value > 1:
            raise Illegal("a constant predicate is cond(0) or cond(1)")
        return super().argument(x, scope)

    def chosen(self, count: np.ndarray) -> np.ndarray:
        if self.count.kind == "fixed":
            return count
        return count % 2 if self.count.kind == "index" else (count > 1).astype(np.int32)

    def call(self, module: Module, names: list[str], args: str) -> str:
        source = self.count.source(module)
        if self.count.kind == "fixed":
            source = str(bool(self.count.value))
        else:
            source = f"{source} % 2 == 1" if self.count.kind == "index" else f"{source} > 1"
        return f"lax.cond({', '.join([source, names[1], names[0], *module.params])})"


@dataclasses.dataclass(frozen=True)
class Switch(Branch):
    """`switch(2)` (constant), `switch(arg)`, `switch(index i)`, `switch(reduced i)`: three branches; indices clamp."""

    word: ClassVar[str] = "switch"
    rule: ClassVar[str | None] = "switch.branch"
    params: ClassVar[tuple[Param, ...]] = (COUNT, flag("one"))
    branches: ClassVar[int] = 3

    def call(self, module: Module, names: list[str], args: str) -> str:
        listed = ", ".join([self.count.source(module), f"[{', '.join(names)}]", *module.params])
        return f"lax.switch({listed})"
