"""Binder fragments: everything from the outermost layer to the last binder, and the jit right inside it where that is what makes
it affordable, with `{i}` and `{j}` for the sizes of its axes."""

from __future__ import annotations

from harness.space import Fragments

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

JIT: Fragments = (
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

CORE: Fragments = (
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

OUTERMOST: Fragments = (
    "vmap(i:{i})",
    "vmap(i:{i}, out=none)",
    "vmap(i:{i}, in=1) > vmap(j:{j})",
    "pmap(i:{i})",
    "shard_map(i:{i})",
    "shard_map(i:{i}, j:{j}, in=i.j, check=off)",
    "shard_map(i:{i}) > vmap(j:{j})",
)

FORWARD: Fragments = (
    "vmap(i:{i})",
    "jit > vmap(i:{i}, in=1)",
    "jit > vmap(i:{i}) > vmap(j:{j})",
    "pmap(i:{i})",
    "jit > shard_map(i:{i})",
    "jit > shard_map(i:{i}, j:{j}, in=i.j, check=off)",
    "jit > vmap(j:{j}) > shard_map(i:{i}, in=none)",
)

REVERSE: Fragments = FORWARD

CACHES: Fragments = (
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

ERRORS: Fragments = (
    "vmap(i:{i})",
    "vmap(i:{i}) > jit",
    "jit > vmap(i:{i}) > vmap(j:{j})",
    "pmap(i:{i})",
    "jit > shard_map(i:{i})",
    "jit > shard_map(i:{i}, j:{j}, check=off)",
)

AROUND: Fragments = (
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
    inside = tuple(fragment for word in words for fragment in holding(word, REVERSE))
    return inside + tuple(fragment.replace("{word}", words[0]) for fragment in AROUND)
