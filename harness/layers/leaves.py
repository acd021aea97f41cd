"""Leaves: the collectives and axis queries of jax.lax, each one definition.

A leaf is rendered as one expression over `x`; its NumPy meaning comes from `harness.collectives`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness import collectives
from harness.dims import Dim, product
from harness.errors import Illegal
from harness.layers.base import Definition, Lanes, Param, Scope, Type, choice, flag, symbols

if TYPE_CHECKING:
    from harness.render import Module


def _some_or_none(text: str) -> tuple[str, ...] | None:
    return () if text == "none" else symbols(text)


def _write_some(names: tuple[str, ...]) -> str:
    return "+".join(names) or "none"


AXIS = Param("names", symbols, "axis symbols such as i or i+j", "+".join, kind="positional")


@dataclasses.dataclass(frozen=True)
class Leaf(Definition):
    """A collective or axis query over one or several names."""

    family: ClassVar[str] = "leaf"
    rule: ClassVar[str]
    linear: ClassVar[bool] = True
    """Whether the result is an affine function of the operand."""
    communicates: ClassVar[bool] = True
    """Whether members wait for each other."""
    uses_operand: ClassVar[bool] = True
    positional_names: ClassVar[bool] = True
    """Whether an integer name would be read as a positional axis."""

    names: tuple[str, ...]

    def axes_size(self, scope: Scope) -> Dim:
        """The number of members, flattened over all names."""
        return product(tuple(Dim(1, (scope.find(name).key,)) for name in self.names))

    def keys(self, scope: Scope) -> frozenset[str]:
        return frozenset(scope.find(name).key for name in self.names)

    def error(self, scope: Scope) -> str:
        """The law by which JAX must refuse this call, or ""."""
        bound = {axis.symbol for axis in scope.axes}
        if not set(self.names) <= bound:
            return "error.unbound"
        return "error.duplicate" if len(set(self.names)) < len(self.names) else ""

    def declined(self, scope: Scope) -> bool:
        """Whether JAX may answer this call with NotImplementedError and a message that says so.

        Only what JAX words as a missing feature counts; where it fails on a bare assertion instead (partial
        permutations and several names under vmap), the case stays legal and the failure a finding.
        """
        return False

    def output(self, x: Type, scope: Scope) -> Type:
        """The result's type; raises Illegal when the operand does not fit."""
        return dataclasses.replace(x, vary=x.vary | self.keys(scope))

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        """Python source of the call."""
        raise TypeError

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        """The meaning over (members, batch..., local...)."""
        raise TypeError

    def evaluate(self, x: np.ndarray, lanes: Lanes) -> np.ndarray:
        """The meaning over lanes: the named dimensions are flattened in front, first name major, and put back."""
        dims = [lanes.dimension(name) for name in self.names]
        rest = [d for d in range(x.ndim) if d not in dims]
        sizes = [x.shape[d] for d in dims]
        members = x.transpose(dims + rest).reshape(math.prod(sizes), *[x.shape[d] for d in rest])
        out = self.apply(members, 1 + lanes.ndim - len(dims))
        out = out.reshape(*sizes, *out.shape[1:])
        order = np.argsort(dims + [d for d in range(lanes.ndim) if d not in dims])
        return out.transpose([*order, *range(lanes.ndim, out.ndim)])


def _constant_size(leaf: Leaf, scope: Scope) -> int:
    """The number of members when it is the same at every step."""
    total = 1
    for name in leaf.names:
        sizes = set(scope.find(name).sizes)
        if len(sizes) > 1:
            raise Illegal(f"{leaf.word} with groups needs an axis of one size")
        total *= sizes.pop()
    return total


def partition(kind: str, size: int) -> list[list[int]] | None:
    """The `axis_index_groups` of that kind for an axis of `size` members; None when there is none."""
    half = size // 2
    if size % 2 or size < 4:
        return None
    tables = {
        "halves": [list(range(half)), list(range(half, size))],
        "interleaved": [list(range(0, size, 2)), list(range(1, size, 2))],
        "unordered": [list(range(size - 1, 0, -2)), list(range(0, size, 2))],
        "singles": [[member] for member in range(size)],
        "overlapping": [list(range(half)), list(range(half))],
        "incomplete": [list(range(half))],
        "outside": [list(range(half)), list(range(half + 1, size + 1))],
    }
    return tables[kind]


WRONG_GROUPS = frozenset({"overlapping", "incomplete", "outside"})
"""Groups that are no partition of the axis."""

GROUP_KINDS = ("halves", "interleaved", "unordered", "singles", *sorted(WRONG_GROUPS))
GROUPS = Param("groups", choice(*GROUP_KINDS), "groups=" + "|".join(GROUP_KINDS))


@dataclasses.dataclass(frozen=True)
class Grouped(Leaf):
    """A collective that takes axis_index_groups."""

    groups: str = ""

    def error(self, scope: Scope) -> str:
        return super().error(scope) or ("error.groups" if self.groups in WRONG_GROUPS else "")

    def declined(self, scope: Scope) -> bool:
        return bool(self.groups) and any(axis.binder == "vmap" for axis in scope.axes)

    def members(self, scope: Scope) -> Dim:
        """The size of a group."""
        if not self.groups:
            return self.axes_size(scope)
        if len(self.names) > 1:
            raise Illegal("axis_index_groups go with one name")
        if any(axis.checked for axis in scope.axes):
            raise Illegal("axis_index_groups are not supported under checked shard_map")
        groups = self.partition(_constant_size(self, scope))
        if groups is None:
            raise Illegal("axis_index_groups here need an even axis of 4 or more")
        return Dim(len(groups[0]))

    def partition(self, size: int) -> list[list[int]] | None:
        return partition(self.groups, size) if self.groups else None

    def suffix(self, module: Module, scope: Scope) -> str:
        if not self.groups:
            return ""
        return f", axis_index_groups={self.partition(_constant_size(self, scope))}"


@dataclasses.dataclass(frozen=True)
class Reduction(Grouped):
    """psum, pmean, pmax, pmin: the same result for every member."""

    params: ClassVar[tuple[Param, ...]] = (
        Param("names", _some_or_none, "axis symbols such as i or i+j", _write_some, kind="positional"),
        GROUPS,
    )

    def members(self, scope: Scope) -> Dim:
        if self.groups and not self.names:
            raise Illegal("groups of no axis")
        return super().members(scope)

    def result_dtype(self, dtype: str) -> str:
        return dtype

    def output(self, x: Type, scope: Scope) -> Type:
        self.members(scope)
        if not self.names and x.dtype == "bool":
            raise Illegal("nothing is promised of what booleans count to over no axis")
        vary = x.vary | self.keys(scope) if self.groups else x.vary - self.keys(scope)
        return Type(x.shape, self.result_dtype(x.dtype), vary)

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        return f"lax.{self.word}({x}, {module.axes(self.names)}{self.suffix(module, scope)})"

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        return getattr(collectives, self.word)(x, self.partition(x.shape[0]))


@dataclasses.dataclass(frozen=True)
class Psum(Reduction):
    word: ClassVar[str] = "psum"
    rule: ClassVar[str] = "psum.sum"

    def result_dtype(self, dtype: str) -> str:
        return "int32" if dtype == "bool" else dtype


@dataclasses.dataclass(frozen=True)
class Pmean(Reduction):
    word: ClassVar[str] = "pmean"
    rule: ClassVar[str] = "pmean.mean"

    def result_dtype(self, dtype: str) -> str:
        return "float32" if dtype.startswith(("int", "uint", "bool")) else dtype


@dataclasses.dataclass(frozen=True)
class Pmax(Reduction):
    word: ClassVar[str] = "pmax"
    rule: ClassVar[str] = "pmax.max"
    linear: ClassVar[bool] = False

    def output(self, x: Type, scope: Scope) -> Type:
        if x.dtype.startswith("complex"):
            raise Illegal(f"{self.word} has no order for complex numbers")
        return super().output(x, scope)


@dataclasses.dataclass(frozen=True)
class Pmin(Pmax):
    word: ClassVar[str] = "pmin"
    rule: ClassVar[str] = "pmin.min"


# (source, destination) pairs as Python source over the axis size; rendered as they stand and evaluated here
PERMUTATIONS = {
    "next": "[(k, (k + 1) % {size}) for k in range({size})]",
    "previous": "[((k + 1) % {size}, k) for k in range({size})]",
    "reverse": "[(k, {size} - 1 - k) for k in range({size})]",
    "identity": "[(k, k) for k in range({size})]",
    "partial": "[(k, k + 1) for k in range({size} - 1)]",
    "first": "[({size} - 1, 0)]",
    "none": "[]",
    "outside": "[(0, {size})]",
    "twice": "[(0, 0), ({size} - 1, 0)]",
}
WRONG_PERMUTATIONS = frozenset({"outside", "twice"})
"""Pairs that name no member, or give one member two values."""


def pairs(kind: str, size: int) -> list[tuple[int, int]]:
    """The permutation of that kind for an axis of `size` members."""
    return list(eval(PERMUTATIONS[kind].format(size=size)))


@dataclasses.dataclass(frozen=True)
class Ppermute(Leaf):
    """`ppermute(i, next)`: `next`, `previous`, `reverse`, `identity`; `partial` and `first` leave some without."""

    word: ClassVar[str] = "ppermute"
    rule: ClassVar[str] = "ppermute.pairs"
    params: ClassVar[tuple[Param, ...]] = (
        AXIS,
        Param("perm", choice(*PERMUTATIONS), "perm=" + "|".join(PERMUTATIONS)),
    )
    perm: str = "next"

    def error(self, scope: Scope) -> str:
        return super().error(scope) or ("error.permutation" if self.perm in WRONG_PERMUTATIONS else "")

    def declined(self, scope: Scope) -> bool:
        """Pairs number the members with the first name major; newer releases refuse another order than the mesh's."""
        return len(self.names) > 1 and any(axis.binder == "shard_map" for axis in scope.axes)

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        size = module.size_of(self.names, scope)
        return f"lax.ppermute({x}, {module.axes(self.names)}, {PERMUTATIONS[self.perm].format(size=size)})"

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        return collectives.ppermute(x, pairs(self.perm, x.shape[0]))


# sources by member, over the axis size: no order is its own inverse but "reverse"
ORDERS = {
    "rotate": "[(k + 1) % {size} for k in range({size})]",
    "back": "[(k - 1) % {size} for k in range({size})]",
    "reverse": "[{size} - 1 - k for k in range({size})]",
    "repeated": "[0 for k in range({size})]",
}
WRONG_ORDERS = frozenset({"repeated"})
"""Orders that are no permutation of two or more members."""


@dataclasses.dataclass(frozen=True)
class Pshuffle(Leaf):
    """`pshuffle(i, order=rotate)`: member k gets the value of member `order[k]`."""

    word: ClassVar[str] = "pshuffle"
    rule: ClassVar[str] = "pshuffle.order"
    params: ClassVar[tuple[Param, ...]] = (AXIS, Param("order", choice(*ORDERS), "order=" + "|".join(ORDERS)))
    order: str = "rotate"

    def error(self, scope: Scope) -> str:
        return super().error(scope) or ("error.permutation" if self.order in WRONG_ORDERS else "")

    def declined(self, scope: Scope) -> bool:
        return len(self.names) > 1 and any(axis.binder == "shard_map" for axis in scope.axes)

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        size = module.size_of(self.names, scope)
        return f"lax.pshuffle({x}, {module.axes(self.names)}, {ORDERS[self.order].format(size=size)})"

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        return collectives.pshuffle(x, eval(ORDERS[self.order].format(size=x.shape[0])))


@dataclasses.dataclass(frozen=True)
class Pbroadcast(Leaf):
    """`pbroadcast(i, source=last)`: every member gets the value of one of them."""

    word: ClassVar[str] = "pbroadcast"
    rule: ClassVar[str] = "pbroadcast.source"
    params: ClassVar[tuple[Param, ...]] = (
        AXIS,
        Param("source", choice("first", "last"), "source=first|last"),
    )
    source: str = "first"

    def declined(self, scope: Scope) -> bool:
        """Not every backend has a collective broadcast, and not every release differentiates it."""
        return True

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        member = "0" if self.source == "first" else f"{module.size_of(self.names, scope)} - 1"
        return f"lax.pbroadcast({x}, {module.axes(self.names)}, {member})"

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        return collectives.pbroadcast(x, 0 if self.source == "first" else x.shape[0] - 1)


@dataclasses.dataclass(frozen=True)
class Pcast(Leaf):
    """`pcast(i)`: the same value, from here on said to vary along the axis."""

    word: ClassVar[str] = "pcast"
    rule: ClassVar[str] = "pcast.value"
    communicates: ClassVar[bool] = False
    params: ClassVar[tuple[Param, ...]] = (AXIS,)

    def output(self, x: Type, scope: Scope) -> Type:
        axes = [scope.find(name) for name in self.names]
        if any(not axis.checked or axis.key in x.vary for axis in axes):
            raise Illegal("pcast is from not varying to varying along axes that JAX tracks")
        return super().output(x, scope)

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        if not module.spelling.varying:
            return x
        return module.spelling.varying.format(value=x, names=module.axes(self.names))

    def evaluate(self, x: np.ndarray, lanes: Lanes) -> np.ndarray:
        return x


def _dimension(name: str, label: str) -> Param:
    def read(text: str) -> int | None:
        try:
            return int(text) if str(int(text)) == text else None
        except ValueError:
            return None

    return Param(name, read, f"{label}=DIMENSION", label=label)


def _at(dimension: int, rank: int) -> int:
    """A dimension counted from the front; raises Illegal outside the rank."""
    if not -rank <= dimension < rank:
        raise Illegal(f"dimension {dimension} is outside rank {rank}")
    return dimension % rank


@dataclasses.dataclass(frozen=True)
class AllGather(Grouped):
    """`all_gather(i, axis=1, tiled)`: stacked along a new dimension, or concatenated along an old one."""

    word: ClassVar[str] = "all_gather"
    rule: ClassVar[str] = "all_gather.order"
    params: ClassVar[tuple[Param, ...]] = (AXIS, _dimension("axis", "axis"), flag("tiled"), GROUPS)
    axis: int = 0
    tiled: bool = False

    def output(self, x: Type, scope: Scope) -> Type:
        size, shape = self.members(scope), list(x.shape)
        if self.tiled:
            at = _at(self.axis, len(shape))
            shape[at] = shape[at] * size
        else:
            shape.insert(_at(self.axis, len(shape) + 1), size)
        return Type(tuple(shape), x.dtype, x.vary | self.keys(scope))

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        options = (f", axis={self.axis}" if self.axis else "") + (", tiled=True" if self.tiled else "")
        return f"lax.all_gather({x}, {module.axes(self.names)}{options}{self.suffix(module, scope)})"

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        rank = x.ndim - local + (0 if self.tiled else 1)
        return collectives.all_gather(x, local, _at(self.axis, rank), self.tiled, self.partition(x.shape[0]))


@dataclasses.dataclass(frozen=True)
class AllToAll(Grouped):
    """`all_to_all(i, split=0, concat=1, tiled)`."""

    word: ClassVar[str] = "all_to_all"
    rule: ClassVar[str] = "all_to_all.blocks"
    params: ClassVar[tuple[Param, ...]] = (
        AXIS,
        _dimension("split", "split"),
        _dimension("concat", "concat"),
        flag("tiled"),
        GROUPS,
    )
    split: int = 0
    concat: int = 0
    tiled: bool = False

    def output(self, x: Type, scope: Scope) -> Type:
        size, shape = self.members(scope), list(x.shape)
        split, concat = _at(self.split, len(shape)), _at(self.concat, len(shape))
        block = shape[split].divided_by(size)
        if block is None:
            raise Illegal("all_to_all needs a split dimension divisible by the axis size")
        if self.tiled:
            shape[split] = block
            shape[concat] = shape[concat] * size
        else:
            if block != Dim(1):
                raise Illegal("untiled all_to_all needs a split dimension of the axis size")
            del shape[split]
            shape.insert(concat, size)
        return Type(tuple(shape), x.dtype, x.vary | self.keys(scope))

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        options = f", split_axis={self.split}, concat_axis={self.concat}" + (
            ", tiled=True" if self.tiled else ""
        )
        return f"lax.all_to_all({x}, {module.axes(self.names)}{options}{self.suffix(module, scope)})"

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        rank = x.ndim - local
        split, concat = _at(self.split, rank), _at(self.concat, rank)
        return collectives.all_to_all(x, local, split, concat, self.tiled, self.partition(x.shape[0]))


@dataclasses.dataclass(frozen=True)
class Pswapaxes(AllToAll):
    """`pswapaxes(i, axis=1)`: the named axis and a local one change places."""

    word: ClassVar[str] = "pswapaxes"
    rule: ClassVar[str] = "pswapaxes.blocks"
    params: ClassVar[tuple[Param, ...]] = (AXIS, _dimension("split", "axis"), GROUPS)

    def output(self, x: Type, scope: Scope) -> Type:
        at = _at(self.split, len(x.shape))
        members = self.members(scope)
        if x.shape[at] != members:
            raise Illegal("pswapaxes needs a dimension of the axis size")
        return dataclasses.replace(x, vary=x.vary | self.keys(scope))

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        return f"lax.pswapaxes({x}, {module.axes(self.names)}, {self.split}{self.suffix(module, scope)})"

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        at = _at(self.split, x.ndim - local)
        return collectives.all_to_all(x, local, at, at, False, self.partition(x.shape[0]))


@dataclasses.dataclass(frozen=True)
class PsumScatter(Grouped):
    """`psum_scatter(i, dim=1, tiled)`."""

    word: ClassVar[str] = "psum_scatter"
    rule: ClassVar[str] = "psum_scatter.blocks"
    params: ClassVar[tuple[Param, ...]] = (AXIS, _dimension("dim", "dim"), flag("tiled"), GROUPS)
    dim: int = 0
    tiled: bool = False

    def output(self, x: Type, scope: Scope) -> Type:
        size, shape = self.members(scope), list(x.shape)
        if x.dtype == "bool":
            raise Illegal("psum_scatter has no booleans")
        at = _at(self.dim, len(shape))
        block = shape[at].divided_by(size)
        if block is None:
            raise Illegal("psum_scatter needs a dimension divisible by the axis size")
        if self.tiled:
            shape[at] = block
        elif block != Dim(1):
            raise Illegal("untiled psum_scatter needs a dimension of the axis size")
        else:
            del shape[at]
        return Type(tuple(shape), x.dtype, x.vary | self.keys(scope))

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        options = (f", scatter_dimension={self.dim}" if self.dim else "") + (
            ", tiled=True" if self.tiled else ""
        )
        return f"lax.psum_scatter({x}, {module.axes(self.names)}{options}{self.suffix(module, scope)})"

    def apply(self, x: np.ndarray, local: int) -> np.ndarray:
        at = _at(self.dim, x.ndim - local)
        return collectives.psum_scatter(x, local, at, self.tiled, self.partition(x.shape[0]))


@dataclasses.dataclass(frozen=True)
class Query(Leaf):
    """axis_index and axis_size: no operand."""

    params: ClassVar[tuple[Param, ...]] = (AXIS,)
    communicates: ClassVar[bool] = False
    uses_operand: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class AxisIndex(Query):
    """The member's number, an int32; over several names the first is major."""

    word: ClassVar[str] = "axis_index"
    rule: ClassVar[str] = "axis_index.position"
    positional_names: ClassVar[bool] = False

    def output(self, x: Type, scope: Scope) -> Type:
        return Type((), "int32", self.keys(scope))

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        return f"lax.axis_index({module.axes(self.names)})"

    def evaluate(self, x: np.ndarray, lanes: Lanes) -> np.ndarray:
        index = np.zeros(lanes.shape, np.int32)
        for name in self.names:
            index = index * lanes.shape[lanes.dimension(name)] + lanes.position(name)
        return index.astype(np.int32)


@dataclasses.dataclass(frozen=True)
class AxisSize(Query):
    """The number of members: a Python int, so a constant of every trace."""

    word: ClassVar[str] = "axis_size"
    rule: ClassVar[str] = "axis_size.size"

    def output(self, x: Type, scope: Scope) -> Type:
        return Type((), "int32", frozenset())

    def expression(self, module: Module, x: str, scope: Scope) -> str:
        return module.axis_size(self.names)

    def evaluate(self, x: np.ndarray, lanes: Lanes) -> np.ndarray:
        size = int(np.prod([lanes.shape[lanes.dimension(name)] for name in self.names]))
        return np.full(lanes.shape, size, np.int32)
