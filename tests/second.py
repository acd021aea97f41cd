"""A second evaluator, for holding the reference to: no lane dimensions, one plain array for each position.

Where `harness.reference` gives every bound axis an array dimension and lets NumPy move whole axes, here a program's
state is a dictionary from positions to local arrays, and everything is a Python loop over positions. It shares with
the harness nothing but the case itself (layers, leaves and their fields).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from harness.layers.binders import ShardMap, Vmap
from harness.program import Plan

Position = tuple[int, ...]
Cells = dict[Position, Any]
Results = dict[Position, dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class World:
    """The bound axes, outermost first: symbols (None for an unnamed one) and sizes."""

    plan: Plan
    operand: np.ndarray | None
    symbols: tuple[str | None, ...] = ()
    sizes: tuple[int, ...] = ()

    def positions(self) -> list[Position]:
        return list(itertools.product(*map(range, self.sizes)))

    def bind(self, *axes: tuple[str | None, int]) -> World:
        symbols, sizes = zip(*axes, strict=True)
        return dataclasses.replace(self, symbols=self.symbols + symbols, sizes=self.sizes + sizes)

    def place(self, symbol: str) -> int:
        """Which part of a position belongs to the innermost axis of that name."""
        return max(d for d, known in enumerate(self.symbols) if known == symbol)

    def members(self, names: tuple[str, ...], at: Position) -> list[Position]:
        """The positions a collective at `at` reaches, the first name major."""
        places = [self.place(name) for name in names]
        found = []
        for index in itertools.product(*(range(self.sizes[place]) for place in places)):
            member = list(at)
            for place, value in zip(places, index, strict=True):
                member[place] = value
            found.append(tuple(member))
        return found


def evaluate(plan: Plan, operand: np.ndarray | None, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The program's outputs, position by position."""
    x = operand if plan.case.takes_argument else None
    with np.errstate(all="ignore"):
        return _run(0, {(): x}, World(plan, operand), sizes)[()]


def _run(depth: int, cells: Cells, world: World, sizes: Mapping[str, int]) -> Results:
    layers = world.plan.case.layers
    if depth == len(layers):
        return _leaves(cells, world)
    layer = layers[depth]
    keys = [axis.key for axis in world.plan.axes[len(world.sizes) :]]

    def inner(cells: Cells, world: World = world) -> Results:
        return _run(depth + 1, cells, world, sizes)

    if isinstance(layer, Vmap):
        return _vmap(layer, inner, cells, world, sizes[keys[0]])
    if isinstance(layer, ShardMap):
        return _shard_map(layer, inner, cells, world, [sizes[key] for key in keys[: len(layer.bindings)]])
    if layer.word in CONTROL:
        return CONTROL[layer.word](layer, inner, cells, world, world.plan.places[depth])
    if layer.word in ("jvp", "linearize"):
        return _forward(inner, cells, world.plan.places[depth].mark)
    if layer.word in REVERSE:
        return REVERSE[layer.word](layer, inner, cells, world.plan.places[depth].mark)
    assert layer.family == "staging", layer.word
    return inner(cells)


def _vmap(layer: Any, inner: Callable, cells: Cells, world: World, size: int) -> Results:
    mapped: Cells = {}
    for at, x in cells.items():
        for k in range(size):
            mapped[(*at, k)] = x if x is None or layer.entry == "none" else np.take(x, k, axis=layer.entry)
    symbol = layer.bindings[0][0]
    results = inner(mapped, world.bind((None if symbol == "_" else symbol, size)))
    out: Results = {}
    for at in cells:
        each = [results[(*at, k)] for k in range(size)]
        out[at] = {
            key: each[0][key] if layer.out == "none" else np.stack([one[key] for one in each], axis=layer.out)
            for key in each[0]
        }
    return out


def _block(index: Mapping[str, int], mesh: Mapping[str, int], names: tuple[str, ...], length: int) -> slice:
    """The part of a dimension of the whole array that a device holds, the first name major."""
    number, parts = 0, 1
    for name in names:
        number, parts = number * mesh[name] + index[name], parts * mesh[name]
    step = length // parts
    return slice(number * step, (number + 1) * step)


def _shard_map(layer: ShardMap, inner: Callable, cells: Cells, world: World, sizes: list[int]) -> Results:
    names = [symbol for symbol, _ in layer.bindings]
    mesh = dict(zip(names, sizes, strict=True))
    grid = list(itertools.product(*map(range, sizes)))
    entry = (tuple(names),) if layer.entry == "all" else () if layer.entry == "none" else layer.entry
    split: Cells = {}
    for at, x in cells.items():
        for device in grid:
            index = dict(zip(names, device, strict=True))
            if x is None:
                split[at + device] = None
            else:
                split[at + device] = x[tuple(_block(index, mesh, dim, n) for dim, n in zip(entry, x.shape))]
    results = inner(split, world.bind(*mesh.items()))
    return {
        at: _assemble(layer, {device: results[at + device] for device in grid}, names, mesh) for at in cells
    }


def _assemble(
    layer: ShardMap, parts: Results, names: list[str], mesh: dict[str, int]
) -> dict[str, np.ndarray]:
    stack = layer.out == "stack"
    spec = (tuple(names),) if stack else () if layer.out == "none" else layer.out
    whole: dict[str, np.ndarray] = {}
    for device, outputs in sorted(parts.items(), reverse=True):  # position 0 has the last word
        index = dict(zip(names, device, strict=True))
        for key, y in outputs.items():
            local = y[None] if stack else y
            shape = list(local.shape)
            for d, dim in enumerate(spec):
                for name in dim:
                    shape[d] *= mesh[name]
            target = whole.setdefault(key, np.zeros(shape, local.dtype))
            target[tuple(_block(index, mesh, dim, n) for dim, n in zip(spec, shape))] = local
    return whole


def _count(layer: Any, at: Position, world: World) -> int:
    count = layer.count
    if count.kind in ("fixed", "arg"):
        return count.value if count.kind == "fixed" else world.plan.case.n
    place = world.place(count.symbol)
    return at[place] if count.kind == "index" else world.sizes[place] - 1


def _twice(x: Any) -> Any:
    return None if x is None else x + x


def _scan(layer: Any, inner: Callable, cells: Cells, world: World, place: Any) -> Results:
    trips, state = [], dict(cells)
    for _ in range(layer.count.value):
        trips.append(inner(state))
        state = {at: _twice(x) for at, x in state.items()}
    if layer.reverse and not layer.xs:
        trips = trips[::-1]
    out: Results = {}
    for at in cells:
        counted = layer.xs or state[at] is None
        out[at] = {place.mark: np.int32(layer.count.value) if counted else state[at]}
        for key, type_ in place.inner.items():
            if trips:
                out[at][key] = np.stack([trip[at][key] for trip in trips])
            else:
                shape = tuple(dim.at(_sizes(world)) for dim in type_.shape)
                out[at][key] = np.zeros((0, *shape), _dtype(type_.dtype))
    return out


def _sizes(world: World) -> dict[str, int]:
    return {axis.key: size for axis, size in zip(world.plan.axes, world.sizes)}


def _loop(layer: Any, inner: Callable, cells: Cells, world: World, place: Any) -> Results:
    bound = {at: _count(layer, at, world) for at in cells}
    sizes = {axis.key: set(axis.sizes) for axis in world.plan.axes}
    known = {**{key: next(iter(size)) for key, size in sizes.items()}, **_sizes(world)}
    state = dict(cells)
    zeros = {
        key: np.zeros(tuple(dim.at(known) for dim in type_.shape), _dtype(type_.dtype))
        for key, type_ in place.inner.items()
    }
    sums = {at: dict(zeros) for at in cells}
    for trip in range(max(bound.values(), default=0)):
        given = inner(state)  # those that are done still show what they kept to the collectives of the others
        for at in cells:
            if trip < bound[at]:
                sums[at] = {key: (sums[at][key] + y).astype(y.dtype) for key, y in given[at].items()}
                state[at] = _twice(state[at])
    return {
        at: {place.mark: np.int32(bound[at]) if state[at] is None else state[at], **sums[at]} for at in cells
    }


def _branch(layer: Any, inner: Callable, cells: Cells, world: World, place: Any) -> Results:
    taken = {}
    for at in cells:
        count = _count(layer, at, world)
        if layer.word == "switch":
            taken[at] = min(max(count, 0), 2)
        elif layer.count.kind == "fixed":
            taken[at] = count
        else:
            taken[at] = int(count % 2 == 1 if layer.count.kind == "index" else count > 1)
    out: Results = {}
    for b in range(3 if layer.word == "switch" else 2):
        scaled: Cells = {}
        for at, x in cells.items():
            scaled[at] = x
            for _ in range(b):
                scaled[at] = None if x is None else scaled[at] + x
        results = inner(scaled)
        for at in cells:
            if taken[at] == b:
                given = results[at]
                if layer.one and b != 1:
                    given = {key: y * 0 for key, y in given.items()}
                out[at] = {place.mark: np.int32(b) if scaled[at] is None else scaled[at], **given}
    return out


def _map(layer: Any, inner: Callable, cells: Cells, world: World, place: Any) -> Results:
    trips = []
    for trip in range(layer.count.value):
        trips.append(inner({at: _multiple(x, 2**trip) for at, x in cells.items()}))
    return {at: {key: np.stack([trip[at][key] for trip in trips]) for key in place.inner} for at in cells}


def _multiple(x: np.ndarray, times: int) -> np.ndarray:
    total = x
    for _ in range(times - 1):
        total = total + x
    return total


def _prefixes(layer: Any, inner: Callable, cells: Cells, world: World, place: Any) -> Results:
    count = layer.count.value
    factors = [2**count - 2**k if layer.reverse else 2 ** (k + 1) - 1 for k in range(count)]
    sums = [{at: _multiple(x, factor) for at, x in cells.items()} for factor in factors]
    trips = [inner(part) for part in sums]
    return {
        at: {
            place.mark: np.stack([part[at] for part in sums]),
            **{key: np.stack([trip[at][key] for trip in trips]) for key in place.inner},
        }
        for at in cells
    }


CONTROL: dict[str, Callable[..., Results]] = {
    "map": _map,
    "associative_scan": _prefixes,
    "scan": _scan,
    "while_loop": _loop,
    "fori_loop": _loop,
    "cond": _branch,
    "switch": _branch,
}


def _forward(inner: Callable, cells: Cells, mark: str) -> Results:
    """The derivative of an affine function along 3 x, as f(3 x) - f(0)."""
    here = inner(cells)
    there = inner({at: (x * 3).astype(x.dtype) for at, x in cells.items()})
    zero = inner({at: x * 0 for at, x in cells.items()})
    return {
        at: {
            **here[at],
            **{
                f"{mark}.{key}": there[at][key] - zero[at][key] for key, y in here[at].items() if _floating(y)
            },
        }
        for at in cells
    }


def _pull(inner: Callable, cells: Cells, cotangents: Results) -> Cells:
    """The transposed derivative, one unit vector at a time (for axes whose variation is not tracked)."""
    zero = inner({at: x * 0 for at, x in cells.items()})
    out: Cells = {at: np.zeros_like(x) for at, x in cells.items()}
    for at, x in cells.items():
        for element in np.ndindex(*x.shape):
            poked = {other: np.zeros_like(y) for other, y in cells.items()}
            poked[at][element] = 1
            moved = inner(poked)
            total = 0.0
            for other in cells:
                for key, weights in cotangents[other].items():
                    change = (moved[other][key] - zero[other][key]).astype(np.float64)
                    total += float((change * weights).sum())
            out[at][element] = total
    return out


def _floating(y: np.ndarray) -> bool:
    return y.dtype.kind in "fV"


def _weights(y: np.ndarray) -> np.ndarray:
    return (np.arange(y.size) % 5 + 1).reshape(y.shape).astype(np.float64)


def _reverse(layer: Any, inner: Callable, cells: Cells, mark: str) -> Results:
    """The pullback of cotangents 1..5; with `value` also the weighted sum whose gradient that is."""
    cells = {at: np.asarray(x) for at, x in cells.items()}
    here = inner(cells)
    weights = {at: {key: _weights(y) for key, y in row.items() if _floating(y)} for at, row in here.items()}
    slopes = _pull(inner, cells, weights)
    out: Results = {}
    for at, x in cells.items():
        out[at] = {**here[at], mark: slopes[at]}
        if getattr(layer, "value", False):
            total = sum(float((here[at][key].astype(np.float64) * w).sum()) for key, w in weights[at].items())
            out[at][f"{mark}.value"] = np.asarray(total, x.dtype)
    return out


def _hessian_vector(layer: Any, inner: Callable, cells: Cells, mark: str) -> Results:
    """2 J^T (w J 3 x)."""
    cells = {at: np.asarray(x) for at, x in cells.items()}
    here = inner(cells)
    along = _forward(inner, cells, "along")
    seeds = {
        at: {
            key: 2 * _weights(y) * along[at][f"along.{key}"].astype(np.float64)
            for key, y in row.items()
            if _floating(y)
        }
        for at, row in here.items()
    }
    product = _pull(inner, cells, seeds)
    return {at: {**here[at], mark: product[at]} for at in cells}


def _jacobian(layer: Any, inner: Callable, cells: Cells, mark: str) -> Results:
    """Column by column (fwd) or row by row (rev): every position asks for the same element."""
    cells = {at: np.asarray(x) for at, x in cells.items()}
    here = inner(cells)
    zero = inner({at: x * 0 for at, x in cells.items()})
    shape = next(iter(cells.values())).shape
    out: Results = {at: dict(row) for at, row in here.items()}
    for key, example in next(iter(here.values())).items():
        for at in cells:
            out[at][f"{mark}.{key}"] = np.zeros(example.shape + shape, example.dtype)
        if layer.mode == "fwd":
            for element in np.ndindex(*shape):
                poked = {at: np.zeros_like(x) for at, x in cells.items()}
                for x in poked.values():
                    x[element] = 1
                moved = inner(poked)
                for at in cells:
                    out[at][f"{mark}.{key}"][(..., *element)] = moved[at][key] - zero[at][key]
        else:
            for element in np.ndindex(*example.shape):
                seed = np.zeros(example.shape)
                seed[element] = 1
                rows = _pull(inner, cells, {at: {key: seed} for at in cells})
                for at in cells:
                    out[at][f"{mark}.{key}"][element] = rows[at]
    return out


REVERSE: dict[str, Callable[..., Results]] = {
    "vjp": _reverse,
    "grad": _reverse,
    "linear_transpose": _reverse,
    "hvp": _hessian_vector,
    "jacobian": _jacobian,
}


def _dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


# Leaves: what the member at `me` of `line` gets, where `line` are the values of its group in order.


def _leaves(cells: Cells, world: World) -> Results:
    return {
        at: {key: _leaf(leaf, at, cells, world) for key, leaf in world.plan.leaves.items()} for at in cells
    }


def _leaf(leaf: Any, at: Position, cells: Cells, world: World) -> np.ndarray:
    reached = world.members(leaf.names, at)
    if leaf.word == "axis_index":
        return np.int32(reached.index(at))  # type: ignore[return-value]
    if leaf.word == "axis_size":
        return np.int32(len(reached))  # type: ignore[return-value]
    if leaf.word == "random":
        return _cipher(7, reached.index(at))
    group = _group(getattr(leaf, "groups", ""), reached, at)
    line = [_value(world, cells[member]) for member in group]

    def collective(line: list[np.ndarray]) -> np.ndarray:
        return np.asarray(LEAVES[leaf.word](leaf, line, group.index(at)))

    if world.plan.case.operand == "tree":  # of x and 2 x
        return np.stack([collective(line), collective([x + x for x in line])])
    return collective(line)


def _value(world: World, x: Any) -> np.ndarray:
    if x is not None:
        return x
    if world.operand is not None:
        return world.operand
    constant = {"constant": 1, "True": True}.get(world.plan.case.operand)
    number = float(world.plan.case.operand) if constant is None else constant
    whole = "." not in world.plan.case.operand and number is not True
    return np.asarray(number, bool if number is True else np.int32 if whole else np.float32)


def _group(kind: str, reached: list[Position], at: Position) -> list[Position]:
    """The members of one's own group, in the group's order."""
    size = len(reached)
    tables = {
        "": [range(size)],
        "halves": [range(size // 2), range(size // 2, size)],
        "interleaved": [range(0, size, 2), range(1, size, 2)],
        "unordered": [range(size - 1, -1, -2), range(0, size, 2)],
        "singles": [[k] for k in range(size)],
    }
    me = reached.index(at)
    (mine,) = [group for group in tables[kind] if me in group]
    return [reached[k] for k in mine]


def _sum(line: list[np.ndarray]) -> np.ndarray:
    total = line[0].astype(np.int32) if line[0].dtype == bool else line[0]
    for x in line[1:]:
        total = (total + x).astype(total.dtype)
    return total


def _mean(line: list[np.ndarray]) -> np.ndarray:
    total = _sum(line)
    if total.dtype.kind in "iu":
        return (total / np.float32(len(line))).astype(np.float32)
    return (total / len(line)).astype(total.dtype)


def _extreme(line: list[np.ndarray], larger: bool) -> np.ndarray:
    best = line[0].copy()
    for x in line[1:]:
        for k in np.ndindex(*best.shape):
            if best[k] != best[k] or x[k] != x[k]:
                best[k] = np.nan
            elif (x[k] > best[k]) if larger else (x[k] < best[k]):
                best[k] = x[k]
    return best


SOURCES: dict[str, Callable[[int, int], int | None]] = {
    "next": lambda me, n: (me - 1) % n,
    "previous": lambda me, n: (me + 1) % n,
    "reverse": lambda me, n: n - 1 - me,
    "identity": lambda me, n: me,
    "partial": lambda me, n: me - 1 if me else None,
    "first": lambda me, n: None if me else n - 1,
    "none": lambda me, n: None,
}


def _permuted(leaf: Any, line: list[np.ndarray], me: int) -> np.ndarray:
    source = SOURCES[leaf.perm](me, len(line))
    return np.zeros_like(line[me]) if source is None else line[source]


def _gathered(leaf: Any, line: list[np.ndarray], me: int) -> np.ndarray:
    return np.concatenate(line, axis=leaf.axis) if leaf.tiled else np.stack(line, axis=leaf.axis)


def _cipher(key: int, number: int) -> np.ndarray:
    """Threefry-2x32, 20 rounds, of (0, number) under the key (0, key), in Python integers."""
    mask = 2**32 - 1
    keys = (0, key, key ^ 0x1BD11BDA)
    a, b = 0, (number + key) & mask
    for round_ in range(20):
        bits = (13, 15, 26, 6, 17, 29, 16, 24)[round_ % 8]
        a = (a + b) & mask
        b = ((b << bits | b >> 32 - bits) & mask) ^ a
        if round_ % 4 == 3:
            turn = round_ // 4 + 1
            a, b = (a + keys[turn % 3]) & mask, (b + keys[(turn + 1) % 3] + turn) & mask
    return np.asarray([a, b], np.uint32)


def _shuffled(leaf: Any, line: list[np.ndarray], me: int) -> np.ndarray:
    n = len(line)
    return line[
        {"rotate": (me + 1) % n, "back": (me - 1) % n, "reverse": n - 1 - me, "repeated": 0}[leaf.order]
    ]


def _swapped(leaf: Any, line: list[np.ndarray], me: int) -> np.ndarray:
    return np.stack([np.take(x, me, axis=leaf.split) for x in line], axis=leaf.split)


def _piece(x: np.ndarray, me: int, parts: int, axis: int, tiled: bool) -> np.ndarray:
    if not tiled:
        return np.take(x, me, axis=axis)
    width = x.shape[axis] // parts
    return np.take(x, range(me * width, (me + 1) * width), axis=axis)


def _exchanged(leaf: Any, line: list[np.ndarray], me: int) -> np.ndarray:
    pieces = [_piece(x, me, len(line), leaf.split, leaf.tiled) for x in line]
    concat = leaf.concat % line[0].ndim
    return np.concatenate(pieces, axis=concat) if leaf.tiled else np.stack(pieces, axis=concat)


LEAVES: dict[str, Callable[..., np.ndarray]] = {
    "psum": lambda leaf, line, me: _sum(line),
    "pmean": lambda leaf, line, me: _mean(line),
    "pmax": lambda leaf, line, me: _extreme(line, larger=True),
    "pmin": lambda leaf, line, me: _extreme(line, larger=False),
    "ppermute": _permuted,
    "pshuffle": _shuffled,
    "pswapaxes": _swapped,
    "pbroadcast": lambda leaf, line, me: line[0 if leaf.source == "first" else -1],
    "pcast": lambda leaf, line, me: line[me],
    "all_gather": _gathered,
    "all_to_all": _exchanged,
    "psum_scatter": lambda leaf, line, me: _piece(_sum(line), me, len(line), leaf.dim, leaf.tiled),
}

KNOWN_LEAVES = frozenset({*LEAVES, "axis_index", "axis_size", "random", "probe"})
KNOWN_LAYERS = frozenset({*CONTROL, *REVERSE, "vmap", "pmap", "shard_map", "jvp", "linearize"})
"""Layers that need a meaning of their own here; every other staging layer leaves values alone."""
