"""What a layer is: one definition that says how it is written, typed, rendered and evaluated.

A program is a nest of layers around a leaf, outermost first. Reading inwards, a layer turns its own argument into the
argument of the layer inside it; reading outwards it turns the inside's outputs into its own. Each concrete layer knows

- its parameters, from which it is parsed and printed (`params`);
- the types that go in and come out, and what makes it illegal (`argument`, `outputs`);
- the Python source that a person would write for it (`render`);
- its meaning in NumPy (`evaluate`), where every bound axis is a leading dimension of the arrays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from harness.dims import Dim
from harness.errors import Illegal

if TYPE_CHECKING:
    from harness.render import Module

Types = dict[str, "Type"]
Values = dict[str, np.ndarray]
Inner = Callable[..., Values]
Layout = list[list[str]]
"""For each dimension of an argument the labels (axis keys, then a local dimension) it is made of, major to minor."""


@dataclasses.dataclass(frozen=True)
class Type:
    """The type of an array as one position of every bound axis sees it.

    Attributes:
      shape: local shape, without the bound axes.
      dtype: NumPy dtype name.
      vary: keys of the bound axes along which the value may differ ("varying" for a manual mesh axis, "batched" for
        vmap).
    """

    shape: tuple[Dim, ...]
    dtype: str
    vary: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Axis:
    """A bound axis.

    Attributes:
      key: identifier unique within the program; the name of the variable that holds its size.
      symbol: the name's symbol in the case line, or None for an unnamed vmap.
      sizes: its size at each step of the schedule.
      binder: word of the layer that binds it.
      checked: whether JAX itself tracks variation along it (shard_map with checks on).
    """

    key: str
    symbol: str | None
    sizes: tuple[int, ...]
    binder: str
    checked: bool = False

    @property
    def on_devices(self) -> bool:
        """Whether positions of this axis are different devices."""
        return self.binder in ("pmap", "shard_map")


@dataclasses.dataclass(frozen=True)
class Scope:
    """The axes bound around a layer, outermost first."""

    axes: tuple[Axis, ...] = ()

    def bind(self, *axes: Axis) -> Scope:
        return Scope(self.axes + axes)

    def find(self, symbol: str) -> Axis:
        """The innermost axis of that name."""
        for axis in reversed(self.axes):
            if axis.symbol == symbol:
                return axis
        raise Illegal(f"axis {symbol} is not bound here")

    def checked(self) -> frozenset[str]:
        """Keys of the axes whose variation JAX tracks in its types."""
        return frozenset(axis.key for axis in self.axes if axis.checked)


@dataclasses.dataclass(frozen=True)
class Lanes:
    """The axis environment of the NumPy evaluation: array dimension d holds the positions of `scope.axes[d]`."""

    scope: Scope
    sizes: Mapping[str, int]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[axis.key] for axis in self.scope.axes)

    @property
    def ndim(self) -> int:
        return len(self.scope.axes)

    def dimension(self, symbol: str) -> int:
        """The array dimension of the innermost axis of that name."""
        return self.scope.axes.index(self.scope.find(symbol))

    def bind(self, *axes: Axis) -> Lanes:
        return Lanes(self.scope.bind(*axes), self.sizes)

    def position(self, symbol: str) -> np.ndarray:
        """Every lane's index along an axis, shape `self.shape`, int32."""
        return np.indices(self.shape, dtype=np.int32)[self.dimension(symbol)]


@dataclasses.dataclass(frozen=True)
class Param:
    """One parameter of a layer or leaf, as written between its parentheses.

    Attributes:
      name: field of the layer; also the keyword in the line unless positional or a flag.
      read: text -> value, or None when the text is not acceptable.
      expects: what a reader of an error message should have written.
      write: value -> text.
      kind: "positional", "keyword", "flag" (written by its bare name, False by default) or "bindings" (the axes a
        binder binds: several items, always first).
      label: the keyword in the line where it is not the field's name.
    """

    name: str
    read: Callable[[str], Any] = str
    expects: str = ""
    write: Callable[[Any], str] = str
    kind: str = "keyword"
    label: str = ""

    @property
    def keyword(self) -> str:
        return self.label or self.name


def choice(*allowed: str) -> Callable[[str], str | None]:
    """A reader that accepts exactly these words."""
    return lambda text: text if text in allowed else None


def integer(low: int) -> Callable[[str], int | None]:
    """A reader of whole numbers not below `low`."""

    def read(text: str) -> int | None:
        try:
            value = int(text)
        except ValueError:
            return None
        return value if value >= low and str(value) == text else None

    return read


def symbols(text: str) -> tuple[str, ...] | None:
    """A reader of axis symbols, `i` or `i+j`."""
    names = tuple(text.split("+"))
    return names if all(len(name) == 1 and name.isalpha() and name.islower() for name in names) else None


def flag(name: str) -> Param:
    return Param(name, expects=name, kind="flag")


class Definition:
    """Anything with parameters: parsing and printing derive from the table `params`."""

    word: ClassVar[str]
    params: ClassVar[tuple[Param, ...]] = ()

    def default(self, name: str) -> Any:
        """The value a parameter has where it is not written."""
        return next(field.default for field in dataclasses.fields(self) if field.name == name)  # type: ignore[arg-type]

    def __str__(self) -> str:
        parts = []
        for param in self.params:
            value = getattr(self, param.name)
            if param.kind in ("positional", "bindings"):
                parts.append(param.write(value))
            elif value != self.default(param.name):
                parts.append(
                    param.keyword if param.kind == "flag" else f"{param.keyword}={param.write(value)}"
                )
        return self.word + (f"({', '.join(parts)})" if parts else "")


class Layer(Definition):
    """A transform around a function."""

    family: ClassVar[str]
    """binder, staging, control or derivative."""

    caches: ClassVar[bool] = False
    """Whether JAX keeps the trace of the function inside for as long as that function lives."""

    rule: ClassVar[str | None] = None
    """The law judged by the layer's own output, where it has one."""

    mark: ClassVar[bool] = False
    """Whether the layer adds an output of its own (a final carry, the branch taken)."""

    reverse: ClassVar[bool] = False
    """Whether the layer differentiates in reverse mode."""

    def since(self, around: tuple[Layer, ...]) -> str:
        """The first JAX release that the layer is held against between those around it, or ""."""
        return ""

    def stands(self, around: tuple[Layer, ...], inside: tuple[Layer, ...]) -> None:
        """Raises Illegal where the layer may not stand between these layers (both outermost first)."""

    def axes(self, taken: frozenset[str]) -> tuple[Axis, ...]:
        """The axes this layer binds; `taken` are the keys already used further out."""
        return ()

    def checked(self) -> bool:
        """Whether the layer is a legal combination of its own parameters; raises Illegal otherwise."""
        return True

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        """The type of the inside's argument, given this layer's own."""
        return x

    def operand(self, inner: Type, scope: Scope) -> Type:
        """The type of this layer's own argument that gives the inside that argument (inverse of `argument`)."""
        return inner

    def layout(self, inner: Layout, inside: Scope) -> Layout:
        """The layout of this layer's own argument, given that of the inside's."""
        return inner

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        """The types of this layer's outputs."""
        return inner

    def render(self, module: Module, inner: str, place: Place) -> str:
        """Writes the layer into the module and returns the name of the function that now stands for it."""
        raise TypeError(f"{self.word} has no rendering")

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        """The meaning of the layer: `inner(x, lanes)` evaluates what is inside.

        Args:
          x: the layer's argument, lanes first, or None when the program takes none.
          n: the program's scalar argument (trip count or branch) where it has one.
          place: the layer's place in the typed program.
        """
        return inner(x, lanes)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a layer stands in its program, as the renderer needs it.

    Attributes:
      scope: axes bound around the layer.
      inside: axes bound around what is inside it.
      x: type of the layer's argument, or None.
      inner: types of the inside's outputs.
      outputs: types of the layer's outputs.
      mark: key of the layer's own output.
    """

    scope: Scope
    inside: Scope
    x: Type | None
    inner: Types
    outputs: Types
    mark: str
