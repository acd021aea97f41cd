"""How an array lies in a device's memory: XLA's layouts with tiles.

A layout lists dimensions from the minor one on, then tiles: `{1,0:T(8,128)(4,1)}`. Each tile divides the last
dimensions of what the one before it made, padded to whole tiles (XLA documentation, tiled layout).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from harness.errors import NotApplicable


@dataclasses.dataclass(frozen=True)
class Layout:
    """Dimensions from minor to major, and tiles in the order they are applied."""

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()


def read(text: str) -> Layout:
    """The layout of an array's shape as HLO writes it: `f32[8,1]{1,0:T(8,128)S(1)}`."""
    match = re.match(r"\w+\[[\d,]*\](?:\{([\d,]*)(?::([^}]*))?\})?", text)
    if match is None:
        raise NotApplicable(f"a layout in a form that is not known here: {text[:80]}")
    order = tuple(int(d) for d in (match.group(1) or "").split(",") if d)
    tiled = re.match(r"T((?:\([\d,]+\))+)", match.group(2) or "")
    tiles = re.findall(r"\(([\d,]+)\)", tiled.group(1)) if tiled else []
    return Layout(order, tuple(tuple(map(int, tile.split(","))) for tile in tiles))


def image(x: np.ndarray, layout: Layout) -> np.ndarray:
    """The elements in the order they lie in memory, padding (zeros) included."""
    x = x.transpose(layout.minor_to_major[::-1])
    for tile in layout.tiles:
        x = _tiled(x, tile)
    return np.ascontiguousarray(x).reshape(-1)


def _tiled(x: np.ndarray, tile: Sequence[int]) -> np.ndarray:
    x = x.reshape([1] * max(len(tile) - x.ndim, 0) + list(x.shape))
    outer = x.ndim - len(tile)
    padding = [(0, 0)] * outer + [(0, -n % t) for n, t in zip(x.shape[outer:], tile)]
    padded = np.zeros([n + p[1] for n, p in zip(x.shape, padding)], x.dtype)
    padded[tuple(slice(n) for n in x.shape)] = x
    split = list(padded.shape[:outer])
    for n, t in zip(padded.shape[outer:], tile):
        split += [n // t, t]
    counts = [outer + 2 * k for k in range(len(tile))]
    return padded.reshape(split).transpose([*range(outer), *counts, *[c + 1 for c in counts]])


def reinterpret(
    x: np.ndarray, source: Layout, shape: Sequence[int], dtype: np.dtype, result: Layout
) -> np.ndarray:
    """The array that another shape, dtype and layout see in the same memory."""
    held = image(x, source)
    places = image(np.arange(1, int(np.prod(shape)) + 1).reshape(tuple(shape)), result)
    if held.size * x.dtype.itemsize != places.size * dtype.itemsize:
        raise NotApplicable(
            f"the operation mhlo.bitcast from {held.size} x {x.dtype} to {places.size} x {dtype} in memory is not "
            "executed here"
        )
    data = held.view(dtype)
    out = np.zeros(int(np.prod(shape)), dtype)
    real = places > 0
    out[places[real] - 1] = data[real]
    return out.reshape(tuple(shape))
