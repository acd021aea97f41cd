"""The fragments that case lines are made of, shared by the suites.

A binder fragment is everything from the outermost layer to the last binder (and the jit right inside it, where that is
what makes it affordable), with `{i}` and `{j}` for the sizes of its axes. Adding a value is adding a word to a list and
running `scripts/profiles`; nothing here says what goes with what, which is for `harness.program.plan` to decide.
"""

from __future__ import annotations

from harness.dtypes import NAMES
from harness.names import NAME_KINDS
from harness.payloads import PAYLOADS
from harness.schedules import SCHEDULES

Fragments = tuple[str, ...]

# Binders

VMAP: Fragments = (
    "vmap(i:{i})",
    "vmap(i:{i}, in=1)",
    "vmap(i:{i}, in=none)",
    "vmap(i:{i}, out=1)",
    "vmap(i:{i}, out=none)",
    "vmap(_:2) > vmap(i:{i})",
    "vmap(i:{i}) > vmap(_:2, in=1)",
    "vmap(i:3) > vmap(i:{i})",
    "vmap(i:{i}) > vmap(j:{j})",
    "vmap(j:{j}, in=1) > vmap(i:{i}, out=1)",
    "pmap(i:{i}) > vmap(j:{j})",
)

PMAP: Fragments = (
    "pmap(i:{i})",
    "pmap(i:{i}, in=1, out=1)",
    "pmap(i:{i}, out=none)",
    "pmap(i:{i}, devices=reversed)",
    "pmap(i:{i}, devices=last)",
    "pmap(i:{i}, devices=interleaved)",
    "vmap(j:{j}) > pmap(i:{i})",
    "vmap(_:2) > pmap(i:{i})",
)

SHARD_MAP: Fragments = (
    "shard_map(i:{i})",
    "shard_map(i:{i}, check=off)",
    "shard_map(i:{i}, in=none)",
    "shard_map(i:{i}, in=_.i, devices=reversed)",
    "shard_map(i:{i}, out=none)",
    "shard_map(i:{i}, out=i, check=off, devices=interleaved)",
    "shard_map(i:{i}, j:{j}, in=i.j)",
    "shard_map(i:{i}, j:{j}, check=off)",
    "shard_map(j:{j}, i:{i}, in=i+j, devices=last)",
    "shard_map(i:{i}, j:{j}, in=j, out=j.i)",
    "shard_map(i:{i}) > vmap(j:{j})",
    "vmap(j:{j}) > shard_map(i:{i})",
    "shard_map(i:{i}) > vmap(_:2)",
)


def jitted(binders: Fragments) -> Fragments:
    """Each binder under one jit: everything inside is compiled once for each environment."""
    return tuple(f"jit > {binder}" for binder in binders)


def inside_of(layer: str, binders: Fragments) -> Fragments:
    """Each binder with a layer around it."""
    return tuple(f"{layer} > {binder}" for binder in binders)


def holding(layer: str, binders: Fragments) -> Fragments:
    """Each binder with a layer right inside it."""
    return tuple(f"{binder} > {layer}" for binder in binders)


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

SHARD_MAP_EAGER: Fragments = (
    "shard_map(i:{i})",
    "shard_map(i:{i}, in=none, check=off)",
    "shard_map(i:{i}, j:{j}, in=i.j)",
    "shard_map(j:{j}, i:{i}, check=off, devices=reversed)",
    "vmap(j:{j}) > shard_map(i:{i})",
)

MESHES: Fragments = (
    "shard_map(i:{i}, other=2)",
    "shard_map(i:{i}, other=2, auto)",
    "shard_map(i:{i}, j:{j}, in=i.j, check=off, other=2, auto)",
    "shard_map(i:{i}, devices=reversed, other=2, auto, types=auto)",
    "shard_map(i:{i}) > shard_map(j:{j}, nested)",
    "shard_map(i:{i}, check=off) > shard_map(j:{j}, check=off, nested)",
    "vmap(_:2) > shard_map(j:{j}) > shard_map(i:{i}, in=_.i, nested)",
    "shard_map(i:{i}) > vmap(_:2) > shard_map(j:{j}, nested)",
    "vmap(_:4, spmd) > shard_map(i:{i}, other=2)",
    "vmap(_:2, in=1, out=1, spmd) > shard_map(i:{i}, check=off, other=2)",
    "vmap(_:2, in=none, spmd) > shard_map(i:{i}, devices=reversed, other=2)",
    "shard_map(i:{i}, types=explicit)",
    "shard_map(i:{i}, j:{j}, in=i.j, check=off, types=explicit)",
    "vmap(_:2) > shard_map(i:{i}, types=explicit)",
)
"""Meshes with further axes: left alone, left to the compiler, split by a vmap, bound by another shard_map inside."""

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

BINDERS_JIT: Fragments = (
    "vmap(i:{i}) > jit",
    "jit > vmap(i:{i}, in=1)",
    "vmap(i:{i}, in=none) > jit",
    "jit > vmap(i:{i}, out=1)",
    "vmap(i:{i}, out=none) > jit",
    "vmap(_:2) > jit > vmap(i:{i})",
    "jit > vmap(i:3) > vmap(i:{i})",
    "vmap(i:{i}) > vmap(j:{j}) > jit",
    "jit > vmap(j:{j}, in=1) > vmap(i:{i}, out=1)",
    "jit > vmap(i:{i}) > jit > vmap(j:{j}) > jit",
    "pmap(i:{i}) > jit",
    "jit > pmap(i:{i}, devices=interleaved)",
    "vmap(j:{j}) > pmap(i:{i}) > jit",
    "pmap(i:{i}) > vmap(j:{j}) > jit",
    "shard_map(i:{i}) > jit",
    "shard_map(i:{i}, j:{j}, in=i.j, devices=last) > jit",
    *jitted(SHARD_MAP),
    *jitted(MESHES),
)

BINDERS_CORE: Fragments = (
    "vmap(i:{i})",
    "jit > vmap(i:{i}, in=1)",
    "jit > vmap(i:{i}) > vmap(j:{j})",
    "pmap(i:{i})",
    "jit > shard_map(i:{i})",
    "jit > shard_map(i:{i}, j:{j}, in=i.j, check=off)",
    "jit > vmap(j:{j}) > shard_map(i:{i}, check=off, devices=reversed)",
    "jit > shard_map(i:{i}, other=2, auto)",
    "jit > shard_map(i:{i}) > shard_map(j:{j}, nested)",
    "jit > vmap(_:2, spmd) > shard_map(i:{i}, check=off, other=2)",
    "jit > shard_map(i:{i}, types=explicit)",
)
"""Those that every layer meets."""

BINDERS_OUTERMOST: Fragments = (
    "vmap(i:{i})",
    "vmap(i:{i}, out=none)",
    "vmap(i:{i}, in=1) > vmap(j:{j})",
    "pmap(i:{i})",
    "shard_map(i:{i})",
    "shard_map(i:{i}, j:{j}, in=i.j, check=off)",
    "shard_map(i:{i}) > vmap(j:{j})",
)

BINDERS_FORWARD: Fragments = (
    "vmap(i:{i})",
    "jit > vmap(i:{i}, in=1)",
    "jit > vmap(i:{i}) > vmap(j:{j})",
    "pmap(i:{i})",
    "jit > shard_map(i:{i})",
    "jit > shard_map(i:{i}, j:{j}, in=i.j, check=off)",
    "jit > vmap(j:{j}) > shard_map(i:{i}, in=none)",
)
BINDERS_REVERSE: Fragments = BINDERS_FORWARD

BINDERS_CACHES: Fragments = (
    "vmap(i:{i})",
    "vmap(i:{i}) > jit",
    "jit > vmap(i:{i}, in=none)",
    "jit > vmap(i:{i}) > vmap(j:{j})",
    "vmap(i:{i}) > vmap(j:{j}) > jit",
    "pmap(i:{i})",
    "jit > shard_map(i:{i})",
    "jit > shard_map(i:{i}, j:{j}, in=i.j, check=off)",
    "shard_map(i:{i}, in=none) > jit",
)

BINDERS_ERRORS: Fragments = (
    "vmap(i:{i})",
    "vmap(i:{i}) > jit",
    "jit > vmap(i:{i}) > vmap(j:{j})",
    "pmap(i:{i})",
    "jit > shard_map(i:{i})",
    "jit > shard_map(i:{i}, j:{j}, check=off)",
)

AROUND_BINDERS: Fragments = (
    "jit > {word} > shard_map(i:{i})",
    "jit > {word} > shard_map(i:{i}, j:{j}, in=i.j, check=off)",
    "jit > {word} > checkpoint > shard_map(i:{i}, in=none)",
    "jit > {word} > shard_map(i:{i}, other=2, auto)",
    "jit > {word} > shard_map(i:{i}) > shard_map(j:{j}, nested)",
    "jit > {word} > shard_map(i:{i}, types=explicit)",
    "jit > vmap(_:2) > {word} > shard_map(i:{i})",
    "jit > vmap(_:4, spmd) > {word} > shard_map(i:{i}, other=2)",
    "jit > vmap(_:2, spmd) > {word} > checkpoint > shard_map(i:{i}, check=off, other=2)",
    "jit > {word} > vmap(j:{j}) > shard_map(i:{i}, check=off)",
    "{word} > pmap(i:{i})",
    "{word} > vmap(i:{i})",
    "vmap(j:{j}) > {word} > vmap(i:{i}, in=1)",
)
"""A derivative around binders, where `{word}` stands."""


def differentiated(*words: str) -> Fragments:
    """Binders with each of the derivatives inside, and the first of them around and between binders."""
    inside = tuple(fragment for word in words for fragment in holding(word, BINDERS_REVERSE))
    return inside + tuple(fragment.replace("{word}", words[0]) for fragment in AROUND_BINDERS)


# Layers between the binders and the leaf

AROUND_CONTROL: Fragments = ("", "jit", "checkpoint", "custom_vjp", "jvp", "vjp", "grad")
WITHIN_DERIVATIVE: Fragments = ("", "jit", "checkpoint", "custom_vjp", "custom_jvp")
WITHIN_CONTROL: Fragments = ("", "jit", "custom_jvp", "checkpoint > jit")

SCAN: Fragments = (
    "scan(2)",
    "scan(3, reverse)",
    "scan(3, unroll=2)",
    "scan(2, xs)",
    "scan(3, reverse, xs)",
    "scan(1)",
    "scan(0)",
    "scan(2) > scan(2)",
    "while_loop(2) > scan(2)",
    "cond(index i) > scan(2)",
    "cond(arg) > fori_loop(2) > scan(2)",
)
WHILE_LOOP: Fragments = (
    "while_loop(2)",
    "while_loop(0)",
    "while_loop(1)",
    "while_loop(arg)",
    "while_loop(arg) | n=3",
    "while_loop(index i)",
    "while_loop(reduced i)",
    "while_loop(reduced j)",
    "scan(2) > while_loop(2)",
    "while_loop(arg) > while_loop(index i)",
    "switch(1) > map(2) > while_loop(arg)",
)
FORI_LOOP: Fragments = (
    "fori_loop(2)",
    "fori_loop(0)",
    "fori_loop(3)",
    "fori_loop(arg)",
    "fori_loop(arg) | n=0",
    "fori_loop(index i)",
    "fori_loop(reduced i)",
    "switch(arg) > fori_loop(2)",
    "fori_loop(2) > fori_loop(arg)",
    "scan(2) > cond(index i) > fori_loop(2)",
)
COND: Fragments = (
    "cond(0)",
    "cond(1)",
    "cond(arg)",
    "cond(arg) | n=1",
    "cond(index i)",
    "cond(index j)",
    "cond(reduced i)",
    "scan(2) > cond(arg)",
    "cond(arg) > cond(index i)",
    "cond(1, one)",
    "cond(arg, one)",
    "cond(index i, one)",
    "cond(reduced i, one)",
    "scan(2) > while_loop(arg) > cond(arg, one)",
)
SWITCH: Fragments = (
    "switch(0)",
    "switch(2)",
    "switch(arg)",
    "switch(arg) | n=1",
    "switch(arg) | n=5",
    "switch(index i)",
    "switch(reduced i)",
    "fori_loop(2) > switch(arg)",
    "switch(index i) > switch(arg)",
    "switch(1, one)",
    "switch(arg, one) | n=1",
    "switch(index i, one)",
    "while_loop(2) > map(2) > switch(arg)",
)
MAP: Fragments = (
    "map(2)",
    "map(1)",
    "map(3, batch=2)",
    "map(4, batch=2)",
    "scan(2) > map(2)",
    "cond(index i) > map(2)",
    "map(2) > map(2)",
    "while_loop(2) > scan(2) > map(2)",
)
ASSOCIATIVE_SCAN: Fragments = (
    "associative_scan(3)",
    "associative_scan(4, reverse)",
    "associative_scan(1)",
    "scan(2) > associative_scan(2)",
    "cond(arg) > associative_scan(2, reverse)",
    "map(2) > associative_scan(2)",
)

MIDDLE_CACHES: Fragments = ("", "jit", "checkpoint", "custom_vjp", "vjp")
CONTROL_CACHES: Fragments = ("", "scan(2)", "while_loop(2)", "fori_loop(arg)", "cond(arg)", "switch(2)")
MIDDLE_ERRORS: Fragments = ("", "jit", "checkpoint")
CONTROL_ERRORS: Fragments = ("", "scan(2)", "while_loop(2)", "cond(1)")

# Sizes: one environment or several; the product of two axes stays within eight devices.

SIZES_ONE: Fragments = (
    "i:2,3",
    "i:1",
    "i:3",
    "i:4",
    "i:8",
    "i:1,5",
    "i:2,6",
    "i:3,7",
    "i:4,8",
    "i:4,3,4",
    "i:6",
)
SIZES_TWO: Fragments = (
    "i:2,3 j:3,2",
    "i:2 j:4",
    "i:4,2 j:2,4",
    "i:1,8 j:8,1",
    "i:1,5 j:1,1",
    "i:2,2,2 j:1,3,4",
    "i:6 j:1",
)
SIZES: Fragments = SIZES_ONE + SIZES_TWO
SIZES_CORE: Fragments = ("i:2,3", "i:1,5", "i:4", "i:8", "i:2,3 j:3,2", "i:4 j:2", "i:1,2 j:3,3")
SIZES_SINGLE: Fragments = ("i:3", "i:4", "i:8", "i:2 j:3", "i:4 j:2")

# Leaves

REDUCTIONS: Fragments = (
    "psum(i)",
    "psum(i+j)",
    "psum(j+i)",
    "psum(i, groups=halves)",
    "psum(i, groups=unordered)",
    "pmean(i)",
    "pmean(i+j)",
    "pmean(i, groups=interleaved)",
    "pmax(i)",
    "pmax(j+i)",
    "pmax(i, groups=interleaved)",
    "pmin(i)",
    "pmin(i+j)",
    "pmin(i, groups=halves)",
    "psum(none)",
    "pmean(none)",
    "pmax(none)",
    "pmin(none)",
)
MOVEMENT: Fragments = (
    "ppermute(i)",
    "ppermute(i, perm=previous)",
    "ppermute(i, perm=reverse)",
    "ppermute(i, perm=identity)",
    "ppermute(i, perm=partial)",
    "ppermute(i, perm=first)",
    "ppermute(i, perm=none)",
    "ppermute(j+i)",
    "pshuffle(i)",
    "pshuffle(i, order=back)",
    "pshuffle(i, order=reverse)",
    "pshuffle(i+j)",
    "pcast(i)",
    "pcast(i+j)",
    "all_gather(i)",
    "all_gather(i, axis=1)",
    "all_gather(i, axis=-1, tiled)",
    "all_gather(i, tiled)",
    "all_gather(j+i)",
    "all_gather(i+j, axis=1, tiled)",
    "all_gather(i, groups=halves)",
    "all_gather(i, tiled, groups=interleaved)",
    "all_to_all(i)",
    "all_to_all(i, concat=1)",
    "all_to_all(i, split=1)",
    "all_to_all(i, tiled)",
    "all_to_all(i, concat=1, tiled)",
    "all_to_all(i, split=1, tiled)",
    "all_to_all(i+j, tiled)",
    "all_to_all(i, tiled, groups=halves)",
    "pswapaxes(i)",
    "pswapaxes(i, axis=1)",
    "pswapaxes(i, axis=-1)",
    "psum_scatter(i)",
    "psum_scatter(i, dim=1)",
    "psum_scatter(i, tiled)",
    "psum_scatter(i, dim=1, tiled)",
    "psum_scatter(i+j, tiled)",
    "psum_scatter(i, tiled, groups=interleaved)",
)
QUERIES: Fragments = (
    "axis_index(i)",
    "axis_index(i+j)",
    "axis_index(j)",
    "axis_size(i)",
    "axis_size(j+i)",
    "random(i)",
    "random(j+i)",
)
LEAVES: Fragments = REDUCTIONS + MOVEMENT + QUERIES

LEAVES_CORE: Fragments = (
    "psum(i)",
    "psum(i+j)",
    "psum(i, groups=halves)",
    "pmean(i)",
    "pmax(i)",
    "pmin(j+i)",
    "ppermute(i)",
    "all_gather(i)",
    "all_gather(i, axis=1, tiled)",
    "all_gather(j+i)",
    "all_to_all(i)",
    "all_to_all(i, concat=1, tiled)",
    "psum_scatter(i)",
    "psum_scatter(i, dim=1, tiled)",
    "axis_index(i)",
    "axis_index(j+i)",
    "axis_size(i)",
    "pshuffle(i, order=back)",
    "pswapaxes(i)",
    "random(i)",
)
LEAVES_TRANSPOSED: Fragments = (
    "psum(i)",
    "psum(j+i)",
    "psum(i, groups=interleaved)",
    "pmean(i)",
    "ppermute(i)",
    "ppermute(i, perm=previous)",
    "ppermute(i, perm=partial)",
    "all_gather(i)",
    "all_gather(i, axis=1)",
    "all_gather(i, tiled)",
    "all_gather(i+j, tiled)",
    "all_gather(i, groups=halves)",
    "all_to_all(i)",
    "all_to_all(i, concat=1)",
    "all_to_all(i, split=1, tiled)",
    "psum_scatter(i)",
    "psum_scatter(i, tiled)",
    "psum_scatter(i, dim=1, tiled)",
    "psum_scatter(i, tiled, groups=halves)",
    "pshuffle(i)",
    "pshuffle(i, order=back)",
    "pswapaxes(i)",
    "pcast(i)",
)
LEAVES_LINEAR: Fragments = (*LEAVES_TRANSPOSED, "axis_index(i)", "axis_size(i)", "random(i)")
"""Whole numbers beside the others have no derivative of their own."""
LEAVES_FEW: Fragments = (
    "psum(i)",
    "psum(i+j)",
    "pmean(i)",
    "ppermute(i, perm=partial)",
    "all_gather(i)",
    "all_to_all(i, tiled)",
    "psum_scatter(i, tiled)",
    "pshuffle(i, order=back)",
)

LEAVES_CACHES: Fragments = (
    "psum(i)",
    "psum(i+j)",
    "pmean(i)",
    "pmax(i)",
    "ppermute(i)",
    "all_gather(i)",
    "all_gather(i, tiled)",
    "all_to_all(i, tiled)",
    "psum_scatter(i, tiled)",
    "axis_index(i)",
    "axis_size(i)",
)
LEAVES_UNBOUND: Fragments = (
    "psum(i)",
    "pmean(i)",
    "pmax(i)",
    "pmin(i)",
    "ppermute(i)",
    "all_gather(i)",
    "all_to_all(i)",
    "psum_scatter(i)",
    "axis_index(i)",
    "axis_size(i)",
)
LEAVES_RAISES: Fragments = (
    "psum(k)",
    "psum(i+i)",
    "psum(i, groups=overlapping)",
    "pmax(i, groups=incomplete)",
    "all_gather(i, groups=outside)",
    "pmean(k)",
    "pmax(i+k)",
    "pmin(k)",
    "ppermute(k)",
    "ppermute(i, perm=outside)",
    "ppermute(i, perm=twice)",
    "pshuffle(k)",
    "pshuffle(i, order=repeated)",
    "pswapaxes(k)",
    "random(k)",
    "all_gather(k)",
    "all_gather(i+i)",
    "all_to_all(k)",
    "psum_scatter(k)",
    "axis_index(k)",
    "axis_index(i+i)",
    "axis_size(k)",
)

# Operands and settings

OPERANDS: Fragments = ("argument", "closure", "constant", "2.5", "True")
OPERANDS_CORE: Fragments = ("argument", "closure", "constant")

SHAPES: Fragments = ("3", "scalar", "i", "2i", "ix2", "3x2", "2xi", "1x2i", "ij", "2x1x3", "ix2i")
SHAPES_CACHES: Fragments = ("3", "scalar", "i", "2ix2")
SHAPES_CORE: Fragments = ("3", "scalar", "ix2i", "2ix3")

DTYPES: Fragments = NAMES
DTYPES_CORE: Fragments = ("float32", "bfloat16", "int32", "int8", "bool", "complex64", "uint8", "float64")
DTYPES_FLOAT: Fragments = ("float32", "bfloat16", "float64")

PAYLOADS_ALL: Fragments = tuple(word for word in PAYLOADS if word != "bulk")
PAYLOADS_CORE: Fragments = ("basis", "origin", "wrap", "special", "empty")
PAYLOADS_DERIVATIVE: Fragments = ("counting", "origin")

PAYLOADS_CACHES: Fragments = ("basis", "counting")

NAMES_ALL: Fragments = tuple(NAME_KINDS)
NAMES_MESH: Fragments = ("str", "long")
NAMES_JIT: Fragments = tuple(word for word in NAMES_ALL if word != "unicode")
"""Mesh axes outside ASCII end the process on some releases: `WITNESSES` has them, in lines of their own."""

NAMES_CORE: Fragments = ("str", "long", "int", "tuple", "object")

CACHE_SCHEDULES: Fragments = tuple(word for word in SCHEDULES if word not in ("sizes", "unbound", "raises"))
SIZES_CACHES: Fragments = ("i:2,3", "i:3", "i:4", "i:8", "i:4,2 j:2,4", "i:2 j:3", "i:4 j:2")


def schedules(*words: str) -> Fragments:
    """Those of the schedules that exist."""
    return tuple(word for word in words if word in SCHEDULES)
