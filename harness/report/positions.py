"""Reads who received from whom out of a decoded message, for the picture of the device mesh."""

from __future__ import annotations

import re
from typing import Any

from harness.case import parse
from harness.errors import UsageError
from harness.layers.binders import Binder

RECEIVED = re.compile(
    r"(?:\((?P<who>[^()]*)\) )?\[(?P<element>[\d, ]*)\] received \{(?P<got>[^{}]*)\}, should be \{(?P<want>[^{}]*)\}"
)
SOURCE = re.compile(r"(?:(?P<times>[^*,\s{}]+)\*)?\((?P<lane>[^()]*)\)\[(?P<element>[^\]]*)\]")
COORDINATE = re.compile(r"(\w+)=(\d+)")
MOST = 64
"""Positions that can be drawn so that a person sees something."""


def positions(line: str, message: str) -> dict[str, Any] | None:
    """`{"axes": [["i", 3], ...], "receivers": [{"at", "element", "got", "want"}, ...]}`, or None when nothing is decoded.

    `at` and the positions in `got` and `want` are coordinates along the axes, outermost first; a source is
    `[position, times, element]`, and `at` is None where the receiver is not known. Axis sizes are those of the case's
    step where the message names it, else the largest.
    """
    found = [match for match in RECEIVED.finditer(message) if SOURCE.search(match["got"] + match["want"])]
    if not found:
        return None
    keys = list(dict.fromkeys(key for match in found for key, _ in COORDINATE.findall(match.group())))
    sizes = dict.fromkeys(keys, 1)
    for match in found:
        for key, at in COORDINATE.findall(match.group()):
            sizes[key] = max(sizes[key], int(at) + 1)
    for key, size in _known_sizes(line, message[: found[0].start()]).items():
        if key in sizes:
            sizes[key] = max(sizes[key], size)
    count = 1
    for size in sizes.values():
        count *= size
    if not keys or count > MOST:
        return None
    return {
        "axes": [[key, sizes[key]] for key in keys],
        "receivers": [_receiver(match, keys) for match in found],
    }


def _receiver(match: re.Match[str], keys: list[str]) -> dict[str, Any]:
    return {
        "at": _coordinates(match["who"], keys) if match["who"] else None,
        "element": match["element"],
        "got": _sources(match["got"], keys),
        "want": _sources(match["want"], keys),
    }


def _sources(text: str, keys: list[str]) -> list[list[Any]]:
    return [[_coordinates(m["lane"], keys), m["times"] or "1", m["element"]] for m in SOURCE.finditer(text)]


def _coordinates(text: str, keys: list[str]) -> list[int]:
    """Coordinates along all axes; 0 along those the text leaves out."""
    known = {key: int(at) for key, at in COORDINATE.findall(text)}
    return [known.get(key, 0) for key in keys]


def _known_sizes(line: str, about: str) -> dict[str, int]:
    """Axis sizes: at the step the message speaks of ("i=3: psum: ..."), else the largest in the case."""
    try:
        layers = parse(line).layers
    except UsageError:
        return {}
    sizes: dict[str, int] = {}
    for layer in layers:
        if isinstance(layer, Binder):
            for symbol, values in layer.bindings:
                sizes.setdefault(symbol, max(values))
    return sizes | {key: int(size) for key, size in COORDINATE.findall(about) if key in sizes}
