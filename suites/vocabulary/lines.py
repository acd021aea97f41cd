"""Whole lines: what has no place in a table, or must be there whatever the tables give."""

from __future__ import annotations

from harness.names import NAME_KINDS
from harness.space import Fragments

BAKED = "pmean(i) & all_gather(i) & axis_size(i)"
"""Leaves whose trace has the size of the axis in it, as a number or a shape."""

BAKED_FORWARD = "pmean(i) & all_gather(i)"

BAKED_REVERSE = "all_gather(i)"
"""Those of them that have a derivative, and that have an exact one in reverse."""


def environments(layer: str, leaves: str = BAKED, constant: bool = True) -> Fragments:
    """Whole lines: a layer that meets one operand under several sizes of an axis, so that only the environment tells
    its traces apart.

    Args:
      layer: a layer, such as `scan(2)`.
      leaves: what stands inside, joined by ` & `.
      constant: whether the layer can stand around what needs no operand at all.
    """
    lines = (
        f"vmap(i:4,8) > jit > {layer} > {leaves} | payload=counting",
        f"jit > shard_map(i:2,3) > {layer} > {leaves} | payload=counting",
    )
    if not constant:
        return lines
    return (
        *lines,
        f"vmap(i:2,3,2) > {layer} > psum(i) & axis_size(i) of constant",
        f"vmap(i:4,4) > vmap(j:2,3) > {layer} > psum(j) & axis_size(j) of constant",  # the inner one changes
        f"vmap(i:2,3) > vmap(j:4,4) > {layer} > psum(i) & axis_size(i) of constant",  # the outer one
        f"vmap(i:2,6,3) > vmap(j:6,2,4) > {layer} > psum(i) & axis_size(j) of constant",  # their product stays
    )


SWAPPED_NAMES: Fragments = tuple(
    f"vmap(i:2) > vmap(j:3) > jit > psum(i) & axis_size(j) & axis_size(i) of constant | names={kind} schedule=swap"
    for kind in NAME_KINDS
    if kind not in ("str", "int")  # psum reads integers as positions
)
"""Whole lines: each kind of names, exchanged around the same callable."""

WITNESSES: Fragments = (
    "jit > shard_map(i:2,3, j:3,2) > psum(i+j) | names=unicode",
    "jit > pmap(i:2,3) > all_gather(i) | names=unicode",
    "jit > shard_map(i:4) > psum(i) & all_gather(i, tiled) & ppermute(i) | shape=4 payload=bulk",
    "jit > shard_map(i:2, j:3, in=i.j) > psum_scatter(i, tiled) & all_to_all(j, split=1, tiled) | shape=ixj payload=bulk",
    "pmap(i:8) > jit > psum(i) & pmax(i) | dtype=int32 shape=2 payload=bulk",
    "vmap(i:3) > jit > psum(i) & ppermute(i) & all_gather(i) | dtype=bfloat16 shape=1 payload=bulk",
)
"""Whole lines: what is too dear, or too dangerous, to be combined with everything."""

MESHES_3D: Fragments = (
    "jit > shard_map(i:2, j:2, k:2, in=i.j.k) > psum(i+j+k) & psum(k+i) & all_gather(j) & ppermute(k) & axis_index(k+i) | shape=1x2x1",
    "jit > shard_map(i:2, j:2, k:2, check=off) > psum(j) & all_gather(k+i) & all_to_all(i+k, tiled) & axis_index(i+j+k) & random(k+j) | shape=2ik",
    "jit > shard_map(i:1, j:3, k:2, in=k.i+j, devices=reversed) > psum(j) & psum_scatter(k, dim=1, tiled) & all_gather(j+k) | shape=2x2k",
    "jit > shard_map(i:2, j:1, k:3, in=j) > pmax(k+i) & pmean(i) & psum(j) & pshuffle(k) & axis_size(k+j)",
)
"""Whole lines: three axes have no place in the table of sizes."""

WITNESSES_JIT: Fragments = (
    "jit > vmap(i:3) > pbroadcast(i) & pbroadcast(i, source=last)",
    "jit > pmap(i:3) > pbroadcast(i)",
    "jit > shard_map(i:3, check=off) > pbroadcast(i, source=last)",
    "jit > vmap(j:4, spmd) > shard_map(i:2, other=2) > psum(i) & axis_index(j) & random(j)",
    "jit > vmap(j:4, spmd) > shard_map(i:2, check=off, other=2) > psum(j) & all_gather(j)",
    "jit > shard_map(i:2) > vmap(j:3) > psum(j) & all_gather(j) & ppermute(j)",
    "jit > vmap(j:3) > shard_map(i:2) > psum(j) & all_gather(j) & ppermute(j)",
    "jit > shard_map(i:2,3) > shard_map(j:3,2, nested) > psum(i)",
    "jit > shard_map(i:1, other=2, auto) > axis_index(i)",
    "jit > shard_map(i:2, other=4, auto) > psum(i) & ppermute(i) & axis_index(i)",
)
"""Lines that show one defect each."""
