"""Which devices a program's collectives must let communicate, derived from the case alone. Imports no JAX.

Positions on a mesh are numbered row by row, which is how JAX numbers a program's partitions. Each leaf over axes of
devices gives a partition of these numbers, or pairs of them; control flow whose predicate is reduced adds its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from harness.aot.hlo import Collective, Groups, Pairs, joined
from harness.dims import ONE
from harness.layers.base import Axis
from harness.layers.binders import ShardMap
from harness.layers.control import Control
from harness.layers.leaves import ORDERS, Grouped, Leaf, Pcast, Ppermute, Pshuffle, pairs
from harness.program import Plan


def mesh(plan: Plan, sizes: Mapping[str, int]) -> tuple[list[Axis], list[int]]:
    """The axes that are bound to devices, in the mesh's order, and the mesh's shape (with a spare last axis)."""
    axes = [axis for axis in plan.inside.axes if axis.on_devices]
    shape = [sizes[axis.key] for axis in axes]
    shape += [layer.other for layer in plan.case.layers if isinstance(layer, ShardMap) and layer.other]
    return axes, shape


def along(
    shape: Sequence[int], dims: Sequence[int], members: Sequence[Sequence[int]] | None = None
) -> Groups:
    """Groups along some dimensions of a mesh, the first one major, or parts of them.

    Args:
      shape: the mesh's.
      dims: the dimensions that a group runs over.
      members: which members of such a group stay together, by their number in it; None for all.
    """
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    rest = [d for d in range(len(shape)) if d not in dims]
    rows = numbers.transpose([*rest, *dims]).reshape(-1, int(np.prod([shape[d] for d in dims])))
    parts = members if members is not None else [range(rows.shape[1])]
    return frozenset(frozenset(int(row[k]) for k in part) for row in rows for part in parts)


def moved(shape: Sequence[int], dims: Sequence[int], table: Sequence[tuple[int, int]]) -> Pairs:
    """The pairs of positions that a permutation along some dimensions moves values between."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    rest = [d for d in range(len(shape)) if d not in dims]
    rows = numbers.transpose([*rest, *dims]).reshape(-1, int(np.prod([shape[d] for d in dims])))
    return frozenset((int(row[a]), int(row[b])) for row in rows for a, b in table)


def expected(plan: Plan, sizes: Mapping[str, int]) -> list[Collective]:
    """What the leaves and predicates of a program communicate; a leaf over no axis of devices gives nothing."""
    axes, shape = mesh(plan, sizes)
    found = []
    for leaf in plan.leaves.values():
        if leaf.communicates:
            found += _of_leaf(plan, leaf, axes, shape)
    for layer in plan.case.layers:
        if isinstance(layer, Control) and layer.count.kind == "reduced":
            dims = _dims(plan, (layer.count.symbol,), axes)
            found.append(Collective("all-reduce", along(shape, dims)))
    return [collective for collective in found if collective.pairs or _talks(collective.groups)]


def _talks(groups: Groups) -> bool:
    return any(len(group) > 1 for group in groups)


def _dims(plan: Plan, names: Sequence[str], axes: Sequence[Axis]) -> list[int]:
    """The mesh's dimensions among the names, in the names' order."""
    bound = [plan.inside.find(name) for name in names]
    return [axes.index(axis) for axis in bound if axis in axes]


def _of_leaf(plan: Plan, leaf: Leaf, axes: list[Axis], shape: list[int]) -> list[Collective]:
    dims = _dims(plan, leaf.names, axes)
    if not dims or isinstance(leaf, Pcast):
        return []
    mixed = len(dims) < len(leaf.names)  # over lanes of a vmap too
    size = int(np.prod([shape[d] for d in dims]))
    if isinstance(leaf, (Ppermute, Pshuffle)) and not mixed:
        table = (
            pairs(leaf.perm, size)
            if isinstance(leaf, Ppermute)
            else [(source, k) for k, source in enumerate(eval(ORDERS[leaf.order].format(size=size)))]
        )
        return [Collective("collective-permute", pairs=moved(shape, dims, table))]
    members = leaf.partition(size) if isinstance(leaf, Grouped) and leaf.groups and not mixed else None
    return [Collective("all-reduce", along(shape, dims, members))]


def allowed(plan: Plan, sizes: Mapping[str, int]) -> set[Groups]:
    """Every grouping that a right program may communicate in, beside permutations.

    Reductions over several axes may be taken axis by axis; a derivative sums over the axes along which an argument
    does not vary; what the compiler places itself it may gather along any axis.
    """
    axes, shape = mesh(plan, sizes)
    wanted = {collective.groups for collective in expected(plan, sizes) if collective.groups}
    free = set(_free(plan, axes, shape))
    for leaf in plan.leaves.values():
        if (
            leaf.communicates
            and not isinstance(leaf, (Ppermute, Pshuffle))
            and not getattr(leaf, "groups", "")
        ):
            free.update(_dims(plan, leaf.names, axes))
    for count in range(1, len(shape) + 1):
        for dims in itertools.combinations(sorted(free), count):
            wanted.add(along(shape, dims))
    return wanted


def _free(plan: Plan, axes: list[Axis], shape: list[int]) -> list[int]:
    """Dimensions along which the compiler or a derivative may communicate by itself."""
    derived = any(layer.family == "derivative" for layer in plan.case.layers)
    placed = any(
        getattr(layer, "spmd", False) or getattr(layer, "auto", False) or getattr(layer, "types", "")
        for layer in plan.case.layers
    )
    if derived or placed:
        return list(range(len(shape)))
    return []


def strict(plan: Plan) -> bool:
    """Whether nothing but the leaves and predicates communicates, each in a group or in pairs of its own.

    Around a shard_map under a vmap, or with axes that it leaves alone, arrays may have to be moved to where the
    program wants them, and the compiler chooses how.
    """
    layers = plan.case.layers
    depth = next((d for d, layer in enumerate(layers) if layer.word in ("shard_map", "pmap")), len(layers))
    outside = layers[:depth]
    plain = all(layer.word in ("jit", "checkpoint", "custom_jvp", "custom_vjp") for layer in outside)
    maps = [layer for layer in layers if isinstance(layer, ShardMap)]
    return plain and not any(layer.other or layer.nested or layer.types for layer in maps)


def necessary(plan: Plan, sizes: Mapping[str, int]) -> bool:
    """Whether the result depends on every communication of the leaves, so that none may be left out.

    A constant needs none, nor does an array without elements, one that all members have alike, or a loop that makes
    no trips; and which branch runs may be known to the compiler.
    """
    case = plan.case
    if plan.operand is None or case.payload == "empty" or case.operand not in ("argument", "tree"):
        return False
    controls = [layer for layer in case.layers if isinstance(layer, Control)]
    fixed = all(layer.count.kind == "fixed" and layer.word not in ("cond", "switch") for layer in controls)
    if not fixed or any(layer.family == "derivative" for layer in case.layers):
        return False
    if any(layer.count.value == 0 for layer in controls):
        return False
    over = {plan.inside.find(name).key for leaf in plan.leaves.values() for name in leaf.names}
    held = {axis.key for axis in plan.axes if axis.on_devices}
    elements = [dim.at(sizes) for dim in (plan.local.shape if plan.local else (ONE,))]
    return (over & held) <= set(plan.mapped) and 0 not in elements


def missing(plan: Plan, sizes: Mapping[str, int], seen: list[Collective], devices: int) -> list[Collective]:
    """What the leaves communicate and no collective of the program, nor several together, can bring about."""
    reach = joined(seen, devices)
    lacking = []
    for wanted in expected(plan, sizes):
        sets = wanted.groups or frozenset(frozenset(pair) for pair in wanted.pairs)
        if not all(any(part <= whole for whole in reach) for part in sets):
            lacking.append(wanted)
    return lacking


def unexpected(plan: Plan, sizes: Mapping[str, int], seen: list[Collective]) -> list[Collective]:
    """Collectives of the program that are none of the reference's."""
    groups = allowed(plan, sizes)
    steps: set[Pairs] = {wanted.pairs for wanted in expected(plan, sizes) if wanted.pairs}
    derived = any(layer.reverse or layer.family == "derivative" for layer in plan.case.layers)
    steps |= {frozenset((b, a) for a, b in table) for table in steps} if derived else set()
    wrong = []
    for collective in seen:
        if collective.pairs or collective.kind == "collective-permute":
            crossing = {pair for pair in collective.pairs if pair[0] != pair[1]}
            known = any(_same_moves(crossing, table) for table in steps)
            own = "ppermute" in collective.source  # a leaf's, not a step of something else
            if crossing and not known and (own or not _within(crossing, groups)):
                wrong.append(collective)
        elif collective.groups not in groups and _talks(collective.groups):
            wrong.append(collective)
    return wrong


def _same_moves(crossing: set[tuple[int, int]], table: Pairs) -> bool:
    return crossing == {pair for pair in table if pair[0] != pair[1]}


def _within(crossing: set[tuple[int, int]], groups: set[Groups]) -> bool:
    """Whether a permutation is a step of a collective that the compiler takes apart: it stays inside the groups."""
    return any(all(any(set(pair) <= group for group in grouping) for pair in crossing) for grouping in groups)
