"""Each collective in NumPy, from its documentation alone.

Every function takes `x` of shape (G, batch..., local...) where dimension 0 holds the members of the collective's axis
(several names flattened with the first name major), `local` is the index of the first local dimension, and dimension
arguments count from there. The result has the same leading dimensions. NumPy only: nothing here may import JAX.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Groups = Sequence[Sequence[int]] | None
"""`axis_index_groups`: a partition of the members; each group communicates by itself, in the order given."""


def _groups(x: np.ndarray, groups: Groups) -> Sequence[Sequence[int]]:
    return groups if groups is not None else [range(x.shape[0])]


def _reduce(x: np.ndarray, groups: Groups, ufunc: np.ufunc) -> np.ndarray:
    out = np.empty_like(x)
    for group in _groups(x, groups):
        total = x[group[0]]
        for member in group[1:]:
            total = ufunc(total, x[member])
        out[list(group)] = total
    return out


def psum(x: np.ndarray, groups: Groups = None) -> np.ndarray:
    """Sum over the members of the group, given to each; a sum of booleans counts them in int32 (as jnp.sum does)."""
    return _reduce(x.astype(np.int32) if x.dtype == bool else x, groups, np.add)


def pmean(x: np.ndarray, groups: Groups = None) -> np.ndarray:
    """Mean over the members; integers and booleans give float32 (true division)."""
    total = psum(x, groups)
    if not (np.issubdtype(x.dtype, np.inexact) or x.dtype.name == "bfloat16"):
        total = total.astype(np.float32)
    size = len(_groups(x, groups)[0])
    return (total / total.dtype.type(size)).astype(total.dtype)


def pmax(x: np.ndarray, groups: Groups = None) -> np.ndarray:
    """Largest over the members; NaN wherever a member has NaN, as jnp.max has it."""
    return _reduce(x, groups, np.maximum)


def pmin(x: np.ndarray, groups: Groups = None) -> np.ndarray:
    """Smallest over the members; NaN wherever a member has NaN."""
    return _reduce(x, groups, np.minimum)


def ppermute(x: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Member `destination` of each (source, destination) gets the source's value, everybody else zeros."""
    out = np.zeros_like(x)
    for source, destination in pairs:
        out[destination] = x[source]
    return out


def pshuffle(x: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Member k gets the value of member `order[k]`."""
    return x[np.asarray(order)]


def pbroadcast(x: np.ndarray, source: int) -> np.ndarray:
    """Every member gets the value of member `source`."""
    return np.broadcast_to(x[source], x.shape)


def all_gather(x: np.ndarray, local: int, dimension: int, tiled: bool, groups: Groups = None) -> np.ndarray:
    """The members' values stacked along a new dimension, or concatenated along an old one, in the group's order."""
    width = len(_groups(x, groups)[0])
    results: list[np.ndarray] = [x[0]] * x.shape[0]
    for group in _groups(x, groups):
        parts = [x[member] for member in group]
        at = local - 1 + dimension
        gathered = np.concatenate(parts, axis=at) if tiled else np.stack(parts, axis=at)
        for member in group:
            results[member] = gathered
    assert all(len(group) == width for group in _groups(x, groups))
    return np.stack(results)


def all_to_all(
    x: np.ndarray, local: int, split: int, concat: int, tiled: bool, groups: Groups = None
) -> np.ndarray:
    """Member k gets block k of every member, in the group's order.

    Untiled, the split dimension (of the group's size) disappears and a new one appears at `concat`; tiled, the blocks
    are concatenated along `concat`.
    """
    results: list[np.ndarray] = [x[0]] * x.shape[0]
    for group in _groups(x, groups):
        blocks = {member: np.split(x[member], len(group), axis=local - 1 + split) for member in group}
        for k, member in enumerate(group):
            parts = [blocks[source][k] for source in group]
            if tiled:
                results[member] = np.concatenate(parts, axis=local - 1 + concat)
            else:
                parts = [np.squeeze(part, axis=local - 1 + split) for part in parts]
                results[member] = np.stack(parts, axis=local - 1 + concat)
    return np.stack(results)


def psum_scatter(x: np.ndarray, local: int, dimension: int, tiled: bool, groups: Groups = None) -> np.ndarray:
    """Member k gets block k of the sum over the group; untiled, the scattered dimension disappears."""
    total = psum(x, groups)
    results: list[np.ndarray] = [total[0]] * x.shape[0]
    for group in _groups(x, groups):
        for k, member in enumerate(group):
            block = np.split(total[member], len(group), axis=local - 1 + dimension)[k]
            results[member] = block if tiled else np.squeeze(block, axis=local - 1 + dimension)
    return np.stack(results)


ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""By how many bits Threefry-2x32 rotates in each round, in turns of four."""


def threefry(
    key: tuple[np.ndarray, np.ndarray], counter: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011), element by element in uint32."""
    keys = (*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    left, right = counter[0] + keys[0], counter[1] + keys[1]
    for turn in range(5):
        for bits in ROTATIONS[turn % 2]:
            left = left + right
            right = ((right << np.uint32(bits)) | (right >> np.uint32(32 - bits))) ^ left
        left = left + keys[(turn + 1) % 3]
        right = right + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    return left, right
