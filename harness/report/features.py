"""What a case has, as the diagnosis compares it: its parameters' values, and a few things that follow from them.

A feature is a key and a value, such as ("control", "scan"). Besides the parameters themselves there are classes of
values ("an unsigned integer dtype", "an axis of odd size"), presence ("inside any control flow") and nesting ("vmap
around shard_map"), because faults often lie along those lines and not along single values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from harness.parameters import FAMILIES

Feature = tuple[str, str]
Parameters = Mapping[str, tuple[str, ...]]

WORDS = {
    "leaf": "collective",
    "control": "control flow",
    "size": "axis size",
    "axes": "number of bound axes",
    "outer": "outermost layer",
    "leaf_over": "collective over",
    "names_in_leaf": "number of names in the collective",
    "names_order": "order of the collective's names",
    "outside": "around a binder",
    "environments": "number of environments",
    "count": "trip count or branch",
    "check": "check_vma",
    "n": "scalar argument",
    "names": "kind of axis name",
}
"""Keys of parameters in the words of reports, where those differ."""

WEIGHTS = {
    "around": 2.1,
    "outer": 1.2,
    "leaf_over": 1.05,
    "any": 1.15,
    "class": 1.1,
    "axes": 1.15,
    "names_in_leaf": 1.1,
    "names_order": 1.1,
    "outside": 1.2,
    "environments": 1.2,
    "mode": 1.15,
}
"""How much dearer than a plain parameter a feature is: of explanations that fit alike the plainest wins."""
NOTHING_WEIGHT = 1.1

PLAIN = (
    "leaf",
    "control",
    "derivative",
    "staging",
    "binder",
    "option",
    "dtype",
    "schedule",
    "payload",
    "operand",
    "names",
)
"""Keys by how much they tell, first to last; others come after."""

DTYPES = {
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "complex": ("complex64", "complex128"),
    "16-bit float": ("bfloat16", "float16"),
    "64-bit": ("float64", "int64", "uint64", "complex128"),
}


def features(parameters: Parameters) -> Iterator[Feature]:
    """Every feature of a case."""
    for key, values in parameters.items():
        yield from features_of(key, values)


@functools.lru_cache(maxsize=65536)
def features_of(key: str, values: tuple[str, ...]) -> tuple[Feature, ...]:
    """The features that follow from one parameter; all do follow from a single one."""
    if key == "program":
        return tuple(_nesting(values))
    found = [(key, value) for value in values]
    if key in FAMILIES[1:] and values != ("none",):
        found.append(("any", key))
    return (*found, *dict.fromkeys(_classes(key, values)))


def _classes(key: str, values: tuple[str, ...]) -> Iterator[Feature]:
    if key == "dtype":
        for name, members in DTYPES.items():
            if set(values) & set(members):
                yield "class", f"dtype:{name}"
    if key == "size":
        sizes = [int(size) for size in values if size.isdigit()]
        for least in range(3, min(max(sizes, default=0), 16) + 1):
            yield "class", f"size:{least} or more"
        if any(size % 2 for size in sizes if size > 1):
            yield "class", "size:odd"
        if any(size & (size - 1) for size in sizes):
            yield "class", "size:not a power of two"
    if key == "shape":
        for shape in values:
            if "0" in shape.split("x"):
                yield "class", "shape:empty"
            if shape != "scalar":
                yield "class", f"shape:rank {shape.count('x') + 1}"


def _nesting(values: tuple[str, ...]) -> Iterator[Feature]:
    """Each pair of layers, however far apart, as `outer around inner`."""
    words = [word for word in "".join(values).split(" > ") if word]
    pairs = ((words[outer], words[inner]) for inner in range(len(words)) for outer in range(inner))
    for outer, inner in dict.fromkeys(pairs):
        yield "around", f"{outer} around {inner}"


def weight(feature: Feature) -> float:
    """How dear a feature is in an explanation; 1 for the plainest."""
    key, value = feature
    base = WEIGHTS.get(key, 1.0 if key in PLAIN else 1.05)
    return base * (NOTHING_WEIGHT if value == "none" else 1.0)


def rank(feature: Feature) -> tuple[int, str, str]:
    """Order among features that say the same of every case."""
    key, value = feature
    return (PLAIN.index(key) if key in PLAIN else len(PLAIN) + (key in WEIGHTS), key, value)


def phrase(key: str, values: tuple[str, ...]) -> str:
    """A condition in words: `collective = psum or pmean`, `vmap around scan`, `an axis of odd size`."""
    if key == "around":
        return " or ".join(values)
    if key == "any":
        return " or ".join(f"any {WORDS.get(value, value)}" for value in values)
    if key == "class":
        about = {value.partition(":")[0] for value in values}
        kinds = " or ".join(value.partition(":")[2] for value in values)
        return f"{' or '.join(WORDS.get(name, name) for name in sorted(about))} = {kinds}"
    if values == ("none",):
        return f"no {WORDS.get(key, key)}"
    return f"{WORDS.get(key, key)} = {' or '.join(values)}"


def concerns(key: str, values: tuple[str, ...], parameters: Parameters) -> Iterator[Feature]:
    """The plain parameters a condition speaks of, given a case that meets it: `vmap around scan` names a binder and a
    control flow."""
    if key == "around":
        words = {word for value in values for word in value.split(" around ")}
        for family in FAMILIES:
            for word in sorted(words & set(parameters.get(family, ()))):
                yield family, word
    elif key == "any":
        for family in values:
            for word in parameters.get(family, ()):
                yield family, word
    elif key == "class":
        for about in {value.partition(":")[0] for value in values}:
            for value in parameters.get(about, ()):
                yield about, value
    else:
        for value in values:
            yield key, value
