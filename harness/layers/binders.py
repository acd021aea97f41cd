"""Layers that bind named axes: vmap, pmap, shard_map."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.dims import ONE, Dim, product
from harness.errors import Illegal
from harness.layers.base import (
    Axis,
    Inner,
    Lanes,
    Layer,
    Layout,
    Param,
    Place,
    Scope,
    Type,
    Types,
    Values,
    choice,
    flag,
    integer,
)

if TYPE_CHECKING:
    from harness.render import Module

Binding = tuple[str, tuple[int, ...]]
"""A symbol (`_` for an unnamed vmap) and its size at each step."""

DEVICE_ORDERS: dict[str, str] = {
    "first": "jax.devices()[:{count}]",
    "reversed": "jax.devices()[:{count}][::-1]",
    "last": "jax.devices()[-{count}:]",
    "interleaved": "sorted(jax.devices()[:{count}], key=lambda device: (device.id % 2, device.id))",
}
"""How `count` devices are picked; the renderer writes these expressions and the judge evaluates them."""


def read_position(text: str) -> int | str | None:
    """`none`, or the dimension an axis goes in or out at."""
    if text == "none":
        return text
    return int(text) if text.isdecimal() and str(int(text)) == text else None


def write_bindings(bindings: tuple[Binding, ...]) -> str:
    return ", ".join(f"{symbol}:{','.join(map(str, sizes))}" for symbol, sizes in bindings)


BINDINGS = Param(
    "bindings", expects="an axis and its sizes such as i:3 or i:2,3,2", write=write_bindings, kind="bindings"
)


def _axis_keys(bindings: tuple[Binding, ...], taken: frozenset[str]) -> list[str]:
    """Identifiers for new axes: their symbols, numbered when the symbol is already used further out."""
    keys: list[str] = []
    for symbol, _ in bindings:
        base = "u" if symbol == "_" else symbol
        key, count = base, 1
        while key in taken or key in keys:
            count += 1
            key = f"{base}{count}"
        keys.append(key)
    return keys


@dataclasses.dataclass(frozen=True)
class Binder(Layer):
    """A layer that binds axes."""

    family: ClassVar[str] = "binder"
    bindings: tuple[Binding, ...]

    def axes(self, taken: frozenset[str]) -> tuple[Axis, ...]:
        keys = _axis_keys(self.bindings, taken)
        return tuple(
            Axis(key, None if symbol == "_" else symbol, sizes, self.word, self.tracks())
            for key, (symbol, sizes) in zip(keys, self.bindings)
        )

    def tracks(self) -> bool:
        """Whether JAX tracks variation along these axes in its types."""
        return False

    def layout(self, inner: Layout, inside: Scope) -> Layout:
        if self.entry == "none":  # type: ignore[attr-defined]
            return inner
        at = int(self.entry)  # type: ignore[attr-defined]
        return [*inner[:at], [inside.axes[-1].key], *inner[at:]]

    def own_axes(self, inside: Scope) -> tuple[Axis, ...]:
        return inside.axes[-len(self.bindings) :]


def _in_axes(module: Module, position: int | str, place: Place) -> str:
    mapped = "None" if position == "none" else str(position)
    axes = [mapped if name == "x" else "None" for name in module.params]
    return axes[0] if len(axes) == 1 else f"({', '.join(axes)})"


@dataclasses.dataclass(frozen=True)
class Vmap(Binder):
    """`vmap(i:3, in=1, out=none)`; `_:3` is an unnamed axis; with `spmd` it is split over the other mesh axis of a
    shard_map inside.

    The law of vmap (jax.vmap's documentation): the function is applied at every position of the mapped axis, and
    collectives over its name see all positions.
    """

    word: ClassVar[str] = "vmap"
    params: ClassVar[tuple[Param, ...]] = (
        BINDINGS,
        Param("entry", read_position, "in=DIMENSION or in=none", label="in"),
        Param("out", read_position, "out=DIMENSION or out=none"),
        flag("spmd"),
    )
    entry: int | str = 0
    out: int | str = 0
    spmd: bool = False

    def stands(self, around: tuple[Layer, ...], inside: tuple[Layer, ...]) -> None:
        if not self.spmd:
            return
        spare = [
            layer.other for layer in inside if isinstance(layer, ShardMap) and layer.other and not layer.auto
        ]
        if not spare or any(size % spare[0] for _, sizes in self.bindings for size in sizes):
            raise Illegal("spmd needs a shard_map inside, with another mesh axis that divides the mapped one")
        if any(isinstance(layer, Vmap) and layer.spmd for layer in around):
            raise Illegal("the other mesh axis is spent on the vmap around")

    def axes(self, taken: frozenset[str]) -> tuple[Axis, ...]:
        if len(self.bindings) > 1:
            raise Illegal(f"{self.word} binds one axis")
        return super().axes(taken)

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        if x is None or self.entry == "none":
            return x
        shape = list(x.shape)
        del shape[int(self.entry)]
        return Type(tuple(shape), x.dtype, x.vary | {scope.axes[-1].key})

    def operand(self, inner: Type, scope: Scope) -> Type:
        if self.entry == "none":
            return inner
        if int(self.entry) > len(inner.shape):
            raise Illegal(f"in={self.entry} needs an operand of rank {self.entry} inside")
        shape = list(inner.shape)
        shape.insert(int(self.entry), Dim(1, (scope.axes[-1].key,)))
        return Type(tuple(shape), inner.dtype)

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        key = scope.axes[-1].key
        return {name: self._output(type_, key) for name, type_ in inner.items()}

    def _output(self, inner: Type, key: str) -> Type:
        if self.out == "none":
            if key in inner.vary:
                raise Illegal("out=none needs outputs that do not vary along the mapped axis")
            return inner
        if int(self.out) > len(inner.shape):
            raise Illegal(f"out={self.out} needs outputs of rank {self.out} inside")
        shape = list(inner.shape)
        shape.insert(int(self.out), Dim(1, (key,)))
        return Type(tuple(shape), inner.dtype, inner.vary - {key})

    def render(self, module: Module, inner: str, place: Place) -> str:
        axis = place.inside.axes[-1]
        settings = []
        if module.params and _in_axes(module, self.entry, place) != "0":
            settings.append(f"in_axes={_in_axes(module, self.entry, place)}")
        if self.out != 0:
            settings.append(f"out_axes={None if self.out == 'none' else self.out}")
        if axis.symbol is not None:
            settings.append(f"axis_name={module.name(axis.symbol)}")
        if "x" not in module.params or self.entry == "none":
            settings.append(f"axis_size={module.step_size(axis)}")
        if self.spmd:
            settings.append(f'spmd_axis_name="{OTHER}"')
        return module.assign("vmapped", f"jax.vmap({', '.join([inner, *settings])})")

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        (axis,) = self.axes(frozenset(known.key for known in lanes.scope.axes))
        inside = lanes.bind(axis)
        if x is not None and self.entry == "none":
            x = np.broadcast_to(np.expand_dims(x, lanes.ndim), inside.shape + x.shape[lanes.ndim :])
        elif x is not None:
            x = np.moveaxis(x, lanes.ndim + int(self.entry), lanes.ndim)
        outputs = inner(x, inside)
        if self.out == "none":
            return {name: np.take(y, 0, axis=lanes.ndim) for name, y in outputs.items()}
        return {name: np.moveaxis(y, lanes.ndim, lanes.ndim + int(self.out)) for name, y in outputs.items()}


@dataclasses.dataclass(frozen=True)
class Pmap(Vmap):
    """`pmap(i:4, in=1, devices=reversed)`: vmap with one device for each position; always maps an argument."""

    word: ClassVar[str] = "pmap"
    caches: ClassVar[bool] = True
    params: ClassVar[tuple[Param, ...]] = (
        *(param for param in Vmap.params if param.name != "spmd"),
        Param("devices", choice(*DEVICE_ORDERS), "devices=" + "|".join(DEVICE_ORDERS)),
    )
    devices: str = "first"

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        if x is None:
            raise Illegal("pmap needs an argument")
        if self.entry == "none":
            raise Illegal("pmap needs a mapped argument")
        if any(axis.on_devices for axis in scope.axes[:-1]):
            raise Illegal("pmap inside a binder of devices")
        return super().argument(x, scope)

    def render(self, module: Module, inner: str, place: Place) -> str:
        (axis,) = place.inside.axes[-1:]
        settings = [f"axis_name={module.name(axis.symbol)}"] if axis.symbol else []
        if _in_axes(module, self.entry, place) != "0":
            settings.append(f"in_axes={_in_axes(module, self.entry, place)}")
        if self.out != 0:
            settings.append(f"out_axes={None if self.out == 'none' else self.out}")
        devices = module.devices(self.devices, module.step_size(axis) if self.devices != "first" else "")
        if devices == "devices" or self.devices != "first":
            settings.append(f"devices={devices}")
        return module.assign("pmapped", f"jax.pmap({', '.join([inner, *settings])})")


OTHER = "other"
"""The name of a mesh axis that a shard_map leaves alone."""

Spec = tuple[tuple[str, ...], ...]
"""For each leading dimension the symbols of the mesh axes it is split over, as in PartitionSpec."""


def read_spec(text: str) -> Spec | str | None:
    """`none`, or dimensions separated by `.`, each `_` or symbols joined by `+`."""
    if text in ("none", "stack"):
        return text
    dims = [() if part == "_" else tuple(part.split("+")) for part in text.split(".")]
    if any(len(name) != 1 or not name.islower() for dim in dims for name in dim):
        return None
    return tuple(dims)


def read_in_spec(text: str) -> Spec | str | None:
    return None if text == "stack" else read_spec(text)


def write_spec(spec: Spec | str) -> str:
    return spec if isinstance(spec, str) else ".".join("+".join(dim) or "_" for dim in spec)


@dataclasses.dataclass(frozen=True)
class ShardMap(Binder):
    """`shard_map(i:2, j:4, in=i.j, out=stack, check=off, devices=reversed)`.

    `in` and `out` are PartitionSpecs; by default the first dimension is split over all axes on the way in, and every
    output gets a new first dimension split over all axes on the way out (`stack`), so that each device's own result
    is seen.

    With `other=2` the mesh has one more axis, the last, that no spec and no leaf mentions; with `auto` it is left to
    the compiler (a partially manual shard_map). `nested` stands inside another shard_map, on further axes of its mesh.
    `types` gives the mesh's axes a type.
    """

    word: ClassVar[str] = "shard_map"
    params: ClassVar[tuple[Param, ...]] = (
        BINDINGS,
        Param("entry", read_in_spec, "in=SPEC such as i.j, i+j, _.i or none", write_spec, label="in"),
        Param("out", read_spec, "out=SPEC, none or stack", write_spec),
        Param("check", choice("on", "off"), "check=on|off"),
        Param("devices", choice(*DEVICE_ORDERS), "devices=" + "|".join(DEVICE_ORDERS)),
        Param("other", integer(1), "other=NUMBER"),
        flag("auto"),
        flag("nested"),
        Param("types", choice("auto", "explicit"), "types=auto|explicit"),
    )
    entry: Spec | str = "all"
    out: Spec | str = "stack"
    check: str = "on"
    devices: str = "first"
    other: int = 0
    auto: bool = False
    nested: bool = False
    types: str = ""

    def since(self, around: tuple[Layer, ...]) -> str:
        return "0.6.2" if self.nested or self.types else ""

    def stands(self, around: tuple[Layer, ...], inside: tuple[Layer, ...]) -> None:
        outer = [layer for layer in around if isinstance(layer, (Pmap, ShardMap))]
        partial = self.auto or any(isinstance(layer, ShardMap) and layer.nested for layer in inside)
        if self.auto and not self.other:
            raise Illegal("auto is about another mesh axis")
        if self.nested and (self.other or self.types or self.devices != "first"):
            raise Illegal("a nested shard_map has the mesh of the one around it")
        if self.nested and not (outer and all(isinstance(layer, ShardMap) for layer in outer)):
            raise Illegal("a nested shard_map stands inside another")
        if self.nested and any(isinstance(layer, ShardMap) and layer.types == "explicit" for layer in around):
            raise Illegal(
                "under explicit axes the argument of a nested shard_map must have its sharding already"
            )
        if (partial or self.nested) and not any(layer.word in ("jit", "compiled") for layer in around):
            raise Illegal("a shard_map over some of a mesh's axes runs under jit")

    def axes(self, taken: frozenset[str]) -> tuple[Axis, ...]:
        if any(symbol == "_" for symbol, _ in self.bindings):
            raise Illegal("a mesh axis has a name")
        self.checked()
        return super().axes(taken)

    def tracks(self) -> bool:
        return self.check == "on"

    def _in_spec(self) -> Spec:
        if self.entry == "all":
            return (tuple(symbol for symbol, _ in self.bindings),)
        return () if isinstance(self.entry, str) else self.entry

    def _out_spec(self) -> Spec:
        if self.out == "stack":
            return (tuple(symbol for symbol, _ in self.bindings),)
        return () if isinstance(self.out, str) else self.out

    def out_spec(self) -> Spec:
        """The spec of the outputs as the mesh sees them (the stacked dimension included)."""
        return self._out_spec()

    def checked(self) -> bool:
        known = {symbol for symbol, _ in self.bindings}
        for spec in (self._in_spec(), self._out_spec()):
            used = [symbol for dim in spec for symbol in dim]
            if not set(used) <= known or len(used) != len(set(used)):
                raise Illegal("a spec may use each mesh axis of its own shard_map once")
        return True

    def _keys(self, scope: Scope) -> dict[str, str]:
        return {axis.symbol: axis.key for axis in self.own_axes(scope) if axis.symbol}

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        if not self.nested and any(axis.on_devices for axis in scope.axes[: -len(self.bindings)]):
            raise Illegal("shard_map inside a binder of devices")
        if x is None:
            return None
        keys = self._keys(scope)
        shape = list(x.shape)
        for d, symbols_ in enumerate(self._in_spec()):
            block = shape[d].divided_by(product(tuple(Dim(1, (keys[s],)) for s in symbols_)))
            if block is None:
                raise Illegal(f"dimension {d} is not divisible by its mesh axes")
            shape[d] = block
        vary = x.vary | {keys[symbol] for dim in self._in_spec() for symbol in dim}
        return Type(tuple(shape), x.dtype, vary)

    def operand(self, inner: Type, scope: Scope) -> Type:
        keys = self._keys(scope)
        shape = list(inner.shape)
        if len(self._in_spec()) > len(shape):
            raise Illegal(f"in={write_spec(self.entry)} needs an operand of rank {len(self._in_spec())}")
        for d, symbols_ in enumerate(self._in_spec()):
            for symbol in symbols_:
                shape[d] = shape[d] * Dim(1, (keys[symbol],))
        return Type(tuple(shape), inner.dtype)

    def layout(self, inner: Layout, inside: Scope) -> Layout:
        keys, spec = self._keys(inside), self._in_spec()
        return [[keys[s] for s in (spec[d] if d < len(spec) else ())] + dim for d, dim in enumerate(inner)]

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        keys = self._keys(scope)
        return {name: self._output(type_, keys) for name, type_ in inner.items()}

    def _output(self, inner: Type, keys: dict[str, str]) -> Type:
        spec = self._out_spec()
        shape = [ONE, *inner.shape] if self.out == "stack" else list(inner.shape)
        if len(spec) > len(shape):
            raise Illegal(f"out={write_spec(self.out)} needs outputs of rank {len(spec)}")
        mentioned = {keys[symbol] for dim in spec for symbol in dim}
        if inner.vary & (set(keys.values()) - mentioned):
            raise Illegal("outputs vary along a mesh axis that the out spec does not mention")
        for d, symbols_ in enumerate(spec):
            for symbol in symbols_:
                shape[d] = shape[d] * Dim(1, (keys[symbol],))
        return Type(tuple(shape), inner.dtype, inner.vary - set(keys.values()))

    def render(self, module: Module, inner: str, place: Place) -> str:
        axes = self.own_axes(place.inside)
        if self.out == "stack":
            inner = module.stacked(inner)
        nested = self._nested_axes(module, place)
        mesh = "" if self.nested else self._mesh(module, (*axes, *nested))
        specs = [
            self._spec_source(module, self._in_spec()) if name == "x" else "P()" for name in module.params
        ]
        in_specs = specs[0] if len(specs) == 1 else f"({', '.join(specs)})"
        manual: tuple[str, ...] = ()
        auto: tuple[str, ...] = ()
        if self.nested or nested or self.auto:
            manual = tuple(module.name(axis.symbol or "") for axis in axes)
            auto = (
                *(module.name(axis.symbol or "") for axis in nested),
                *([f'"{OTHER}"'] if self.auto else []),
            )
        out_specs = self._spec_source(module, self._out_spec())
        call = module.shard_map(inner, mesh, in_specs, out_specs, self.check == "on", manual, auto)
        module.imports("from jax.sharding import Mesh, PartitionSpec as P")
        sharded = module.assign("sharded", call)
        if self.types != "explicit" or not module.spelling.reshard or "x" not in module.params:
            return sharded
        args = ", ".join(module.params)
        sharding = f"NamedSharding({mesh}, {self._spec_source(module, self._in_spec())})"
        module.imports("from jax.sharding import NamedSharding")
        placed = module.spelling.reshard.format(value="x", sharding=sharding)
        given = ", ".join(placed if name == "x" else name for name in module.params)
        return module.define("placed", f"def {{name}}({args}):", f"    return {sharded}({given})")

    def _nested_axes(self, module: Module, place: Place) -> tuple[Axis, ...]:
        """The axes of the shard_maps inside that share this one's mesh."""
        plan = module.plan
        depth = next(depth for depth, other in enumerate(plan.places) if other is place)
        found: list[Axis] = []
        for layer, inner in zip(plan.case.layers[depth + 1 :], plan.places[depth + 1 :]):
            if isinstance(layer, ShardMap) and layer.nested and not self.nested:
                found.extend(layer.own_axes(inner.inside))
        return tuple(found)

    def _mesh(self, module: Module, axes: tuple[Axis, ...]) -> str:
        """Writes the mesh and returns its name."""
        sizes = [module.step_size(axis) for axis in axes] + [str(self.other)] * bool(self.other)
        count = str(math.prod(map(int, sizes))) if all(map(str.isdecimal, sizes)) else " * ".join(sizes)
        devices = module.devices(self.devices, f"({count})" if "*" in count else count)
        shape = f".reshape({', '.join(sizes)})" if len(sizes) > 1 else ""
        listed = [module.name(axis.symbol or "") for axis in axes] + [f'"{OTHER}"'] * bool(self.other)
        names = ", ".join(listed) + "," * (len(listed) == 1)
        types = ""
        if self.types:
            module.imports("from jax.sharding import AxisType")
            types = f", axis_types=(AxisType.{self.types.capitalize()},) * {len(sizes)}"
        return module.assign("mesh", f"Mesh(np.array({devices}){shape}, ({names}){types})")

    def _spec_source(self, module: Module, spec: Spec) -> str:
        dims = []
        for dim in spec:
            names = [module.name(symbol) for symbol in dim]
            dims.append("None" if not names else names[0] if len(names) == 1 else f"({', '.join(names)})")
        return f"P({', '.join(dims)})"

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        axes = self.axes(frozenset(known.key for known in lanes.scope.axes))
        inside = lanes.bind(*axes)
        mesh = {axis.symbol: lanes.sizes[axis.key] for axis in axes}
        if x is not None:
            x = split_blocks(x, self._in_spec(), mesh, lanes.ndim)
        outputs = inner(x, inside)
        if self.out == "stack":
            outputs = {name: np.expand_dims(y, inside.ndim) for name, y in outputs.items()}
        return {name: join_blocks(y, self._out_spec(), mesh, lanes.ndim) for name, y in outputs.items()}


def split_blocks(x: np.ndarray, spec: Spec, mesh: dict, outer: int) -> np.ndarray:
    """Global array -> blocks, one for each mesh position.

    Args:
      x: shape (outer lanes..., global dimensions...).
      spec: which mesh axes split each leading dimension, major to minor.
      mesh: size of each mesh axis, in mesh order.
      outer: number of lane dimensions in front.

    Returns:
      shape (outer lanes..., mesh dimensions..., local dimensions...), replicated along axes the spec leaves out.
    """
    shape, places, local = list(x.shape[:outer]), {}, []
    for d, length in enumerate(x.shape[outer:]):
        names = spec[d] if d < len(spec) else ()
        for name in names:
            places[name] = len(shape)
            shape.append(mesh[name])
            length //= mesh[name]
        local.append(len(shape))
        shape.append(length)
    x = x.reshape(shape)
    for name in mesh:
        if name not in places:
            places[name] = x.ndim
            x = np.broadcast_to(x[..., None], (*x.shape, mesh[name]))
    return x.transpose([*range(outer), *(places[name] for name in mesh), *local])


def join_blocks(y: np.ndarray, spec: Spec, mesh: dict, outer: int) -> np.ndarray:
    """The inverse of `split_blocks`; along axes the spec leaves out, position 0 speaks for all."""
    order = list(mesh)
    kept = {name for dim in spec for name in dim}
    for d in reversed(range(len(order))):
        if order[d] not in kept:
            y = np.take(y, 0, axis=outer + d)
    order = [name for name in order if name in kept]
    local = outer + len(order)
    axes, shape = list(range(outer)), list(y.shape[:outer])
    for d, length in enumerate(y.shape[local:]):
        names = spec[d] if d < len(spec) else ()
        axes += [outer + order.index(name) for name in names] + [local + d]
        for name in names:
            length *= mesh[name]
        shape.append(length)
    return y.transpose(axes).reshape(shape)
