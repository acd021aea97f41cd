"""Programs for tests: random case lines drawn from the vocabulary's own tables, and operands made without JAX."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from hypothesis import strategies as st

from harness.case import OPERANDS, SETTINGS, Case, read_shape
from harness.compat import Spelling, spelling
from harness.layers import LAYERS, LEAVES
from harness.layers.base import Definition, Param

SPELLING: Spelling = spelling("0.10.2")

WORDS: tuple[str, ...] = (
    *("0", "1", "2", "3", "-1", "arg", "index i", "index j", "reduced i", "reduced j", "none", "on", "off"),
    *("i", "j", "i.j", "j.i", "i+j", "j+i", "_.i", "i.none", "first", "reversed", "last", "interleaved"),
    *("fwd", "rev", "forward", "rotate", "back", "last", "explicit"),
    *("halves", "unordered", "singles", "next", "previous", "reverse", "identity", "partial"),
    *(
        "scalar",
        "3x2",
        "2i",
        "ix2",
        "4ij",
        "basis",
        "origin",
        "counting",
        "negative",
        "wrap",
        "special",
        "empty",
    ),
    *("float32", "bfloat16", "float16", "int32", "int8", "uint8", "bool", "complex64", "float64", "uint64"),
    *("str", "long", "unicode", "int", "tuple", "enum", "object", "sizes", "clear"),
)
"""Texts that some parameter or setting may accept: each reader picks those it can read."""


def values_of(param: Param) -> list[Any]:
    """What a parameter can be, of the texts above."""
    read = [param.read(word) for word in WORDS]
    return [value for value in read if value is not None]


@st.composite
def bindings(draw: st.DrawFn, several: bool) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """One axis (or up to two) with one to three sizes each."""
    axes = draw(
        st.lists(st.sampled_from("ijk" if several else "ijk_"), min_size=1, max_size=1 + several, unique=True)
    )
    steps = draw(st.integers(1, 3))
    sizes = st.lists(st.integers(1, 4), min_size=steps, max_size=steps).map(tuple)
    return tuple((axis, draw(sizes)) for axis in axes)


@st.composite
def definitions(draw: st.DrawFn, kind: type[Definition]) -> Definition:
    """A layer or leaf with any parameters its table lets be written."""
    fields: dict[str, Any] = {}
    for param in kind.params:
        if param.kind == "bindings":
            fields[param.name] = draw(bindings(several=kind.word == "shard_map"))
        elif param.kind == "positional":
            fields[param.name] = draw(st.sampled_from(values_of(param)))
        elif draw(st.integers(0, 3)) == 0:
            fields[param.name] = True if param.kind == "flag" else draw(st.sampled_from(values_of(param)))
    return kind(**fields)


def layers() -> st.SearchStrategy[Any]:
    return st.sampled_from(list(LAYERS.values())).flatmap(definitions)


def leaves() -> st.SearchStrategy[Any]:
    return st.sampled_from([leaf for leaf in LEAVES.values() if leaf.word != "probe"]).flatmap(definitions)


@st.composite
def cases(draw: st.DrawFn, most: int = 4) -> Case:
    """Any well-formed case, legal or not."""
    fields: dict[str, Any] = {}
    for setting in SETTINGS:
        if draw(st.integers(0, 3)) == 0:
            read = [setting.read(word) for word in WORDS]
            fields[setting.key] = draw(st.sampled_from([value for value in read if value is not None]))
    fields["operand"] = draw(st.sampled_from([*OPERANDS, "argument", "argument", "-2", "1.5", "True"]))
    inner = tuple(draw(st.lists(layers(), max_size=most)))
    return Case(inner, draw(leaves()), **fields)


@st.composite
def binders(draw: st.DrawFn) -> list[Definition]:
    """One or two layers that bind i, or i and j, with as many sizes each."""
    steps = draw(st.integers(1, 3))
    sizes = st.lists(st.integers(1, 4), min_size=steps, max_size=steps).map(tuple)
    axes = [(symbol, draw(sizes)) for symbol in draw(st.sampled_from(["i", "ij", "ji", "i_", "_i"]))]
    split = [axes] if draw(st.booleans()) and "_" not in dict(axes) else [[axis] for axis in axes]
    found = []
    for group in split:
        words = (
            ["shard_map"]
            if len(group) > 1
            else ["vmap"]
            if group[0][0] == "_"
            else ["vmap", "vmap", "pmap", "shard_map"]
        )
        layer = draw(definitions(LAYERS[draw(st.sampled_from(words))]))
        found.append(dataclasses.replace(layer, bindings=tuple(group)))  # type: ignore[type-var]
    return found


def _named(definition: Definition, bound: list[str]) -> bool:
    """Whether a definition speaks of bound axes only, as far as its text shows."""
    inside = str(definition).partition("(")[2]
    return all(symbol in bound for symbol in re.findall(r"\b[ijk]\b", inside))


@st.composite
def likely(draw: st.DrawFn) -> Case:
    """A case that is more often legal than not: axes are bound before they are used."""
    outer = draw(binders())
    bound = [symbol for layer in outer for symbol, _ in layer.bindings]  # type: ignore[attr-defined]
    others = st.lists(
        layers().filter(lambda layer: layer.family != "binder" and _named(layer, bound)), max_size=2
    )
    inner = draw(others)
    if draw(st.integers(0, 3)) == 0:
        outer = [*outer[:1], *draw(others), *outer[1:]]
    leaf = draw(leaves().filter(lambda leaf: _named(leaf, bound)))
    shape = draw(
        st.sampled_from(
            [
                text
                for text in ("3", "3", "2i", "ix2", "2ix2i", "ij", "scalar")
                if "j" in bound or "j" not in text
            ]
        )
    )
    payload = draw(st.sampled_from(["basis", "counting", "origin", "special", "empty"]))
    dtype = draw(st.sampled_from(["float32", "float32", "bfloat16", "int8", "bool", "complex64", "float64"]))
    operand = draw(st.sampled_from(["argument"] * 4 + ["tree", "closure", "constant"]))
    return Case((*outer, *inner), leaf, operand, dtype, read_shape(shape) or (), payload)
