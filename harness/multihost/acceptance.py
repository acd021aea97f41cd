"""The profile `cluster`: what an operator wants to know of a cluster within minutes. Imports no JAX.

Its lines depend on how many devices there are, so they are made when the run starts, by rule: every rank makes the same.
The world check comes first, then what processes promise each other, every mesh of all devices with every collective over
every axis of it, one callable under several meshes, device orders, derivatives and loops, and last the large operands.

The number of lines grows with the number of ways to write the number of devices as a product, not with itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from harness import probes
from harness.case import line_of, parse_line
from harness.errors import CaseError, Illegal
from harness.multihost.world import World
from harness.program import plan

NAME = "cluster"

BASIS_UP_TO = 64
"""Devices up to which every unit vector is sent, which proves the whole operator; its cost grows with their square."""
MESHES_OF_THREE = 12
"""Meshes of three axes that are tried, evenly spread over all of them."""
FIRST = ("probe(world)", "probe(process_identity)", "probe(device_order)")
LEAVES = (
    "psum({a})",
    "pmax({a})",
    "pmin({a})",
    "ppermute({a})",
    "all_gather({a})",
    "axis_index({a})",
    "axis_size({a})",
    "psum({a}, groups=halves)",
)
"""Over each axis, and the first four over all pairs and over all axes together."""
BLOCKS = ("all_to_all({a})", "all_to_all({a}, tiled)", "psum_scatter({a})", "psum_scatter({a}, tiled)")
"""Over each axis, of an operand that has as many parts as the axis has members."""
TOGETHER = ("psum({a})", "pmax({a})", "all_gather({a})", "axis_index({a})")


def lines(world: World) -> list[str]:
    """The lines for a world, in the order in which they are run."""
    total = world.total
    own = probes.leaves("processes")
    large = [line for line in own if line.startswith("probe(payload_sizes")]
    found: list[str] = [*FIRST, *(line for line in own if line not in large and line not in FIRST)]
    payload = "" if total <= BASIS_UP_TO else " dtype=int32 payload=origin"
    for mesh in meshes(total):
        found += _collectives(mesh, payload)
    found += _environments(total)
    for order in ("reversed", "interleaved"):
        found.append(f"jit > shard_map(i:{total}, devices={order}) > psum(i) & ppermute(i) & all_gather(i)")
    found += [
        f"jit > grad > shard_map(i:{total}) > psum(i) | payload=counting",
        f"jit > shard_map(i:{total}) > scan(2) > psum(i) & ppermute(i)",
        f"shard_map(i:{total}) > psum(i)",
        f"jit > shard_map(i:{total}) > pbroadcast(i)",
    ]
    found += large
    legal = (kept for line in found if (kept := _canonical(line)))
    return list(dict.fromkeys(legal))


def meshes(total: int) -> list[tuple[int, ...]]:
    """Every way to write a number as an ordered product of one, two or three factors above 1; of three not all."""
    two = [(m, total // m) for m in range(2, total) if total % m == 0 and total // m > 1]
    three = [(m, *rest) for m, n in two for rest in _pairs(n)]
    step = max(1, len(three) // MESHES_OF_THREE)
    return [(total,), *two, *three[::step][:MESHES_OF_THREE]]


def _pairs(total: int) -> Iterator[tuple[int, int]]:
    for m in range(2, total):
        if total % m == 0:
            yield m, total // m


def _collectives(mesh: tuple[int, ...], payload: str) -> list[str]:
    """Programs with every collective over every axis of a mesh."""
    names = "ijk"[: len(mesh)]
    bound = ", ".join(f"{name}:{size}" for name, size in zip(names, mesh))
    head = f"jit > shard_map({bound}, in={'+'.join(names)}, check=off)"
    found = []
    for name in names:
        found.append(_line(head, [leaf.format(a=name) for leaf in LEAVES], f"shape=1{payload}"))
        found.append(_line(head, [leaf.format(a=name) for leaf in BLOCKS], f"shape={name}x{name}{payload}"))
    for several in itertools.chain(itertools.permutations(names, 2), [tuple(names)]):
        if len(several) > 1:
            found.append(
                _line(head, [leaf.format(a="+".join(several)) for leaf in TOGETHER], f"shape=1{payload}")
            )
    return [line for line in found if line]


def _line(head: str, leaves: Iterable[str], settings: str) -> str:
    """One line of those leaves that are legal there; "" when none is."""
    legal = [leaf for leaf in leaves if _canonical(f"{head} > {leaf} | {settings}")]
    return f"{head} > {' & '.join(legal)} | {settings}" if legal else ""


def _environments(total: int) -> list[str]:
    """One callable under every mesh of two axes, there and back."""
    pairs = [mesh for mesh in meshes(total) if len(mesh) == 2]
    if len(pairs) < 2:
        return []
    chosen = [pairs[0], pairs[-1], pairs[0]]
    sizes = [",".join(str(mesh[d]) for mesh in chosen) for d in (0, 1)]
    return [
        f"jit > shard_map(i:{sizes[0]}, j:{sizes[1]}, in=i+j, check=off) > psum(i) & psum(j) & axis_size(i)"
    ]


def _canonical(line: str) -> str:
    """The line as its id is written; "" where it is illegal."""
    try:
        cases = parse_line(line)
        plan(cases[0], tuple(case.leaf for case in cases[1:]))
    except (CaseError, Illegal):
        return ""
    return line_of(cases[0], [case.leaf for case in cases])
