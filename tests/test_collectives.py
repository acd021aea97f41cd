"""The reference's collectives against tables worked out by hand from jax.lax's documentation.

Every row goes through `Leaf.evaluate`, so the flattening of several names is under test too. Arrays are written with
one dimension for each bound axis (i, then j), then the local dimensions.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from harness import collectives
from harness.case import parse
from harness.layers.base import Axis, Lanes, Scope
from harness.layers.leaves import WRONG_GROUPS, partition

NAN, INF = np.nan, np.inf


def lanes(*sizes: int) -> Lanes:
    """Axes i, j of these sizes."""
    keys = "ij"[: len(sizes)]
    axes = tuple(Axis(key, key, (size,), "vmap") for key, size in zip(keys, sizes, strict=True))
    return Lanes(Scope(axes), dict(zip(keys, sizes, strict=True)))


def result(leaf: str, x: np.ndarray, axes: int) -> np.ndarray:
    """A leaf, as a case line writes it, of an array whose first `axes` dimensions are the positions of i, j."""
    bound = " > ".join(f"vmap({key}:1)" for key in "ij"[:axes])
    return parse(f"{bound} > {leaf}").leaf.evaluate(x, lanes(*x.shape[:axes]))


Table = tuple[str, list, list]

ONE_NAME: tuple[Table, ...] = (
    # four members with one or two numbers each
    ("psum(i)", [[1, 2], [30, 40], [500, 600], [7000, 8000]], [[7531, 8642]] * 4),
    ("pmax(i)", [[1, 9], [3, -4], [2, 5], [0, 0]], [[3, 9]] * 4),
    ("pmin(i)", [[1, 9], [3, -4], [2, 5], [0, 0]], [[0, -4]] * 4),
    ("psum(i, groups=halves)", [1, 20, 300, 4000], [21, 21, 4300, 4300]),
    ("psum(i, groups=interleaved)", [1, 20, 300, 4000], [301, 4020, 301, 4020]),
    ("psum(i, groups=unordered)", [1, 20, 300, 4000], [301, 4020, 301, 4020]),
    ("psum(i, groups=singles)", [1, 20, 300, 4000], [1, 20, 300, 4000]),
    ("pmax(i, groups=interleaved)", [1, 5, 3, 2], [3, 5, 3, 5]),
    ("pmin(i, groups=halves)", [1, 5, 3, 2], [1, 1, 2, 2]),
    ("ppermute(i)", [10, 11, 12, 13], [13, 10, 11, 12]),
    ("ppermute(i, perm=previous)", [10, 11, 12, 13], [11, 12, 13, 10]),
    ("ppermute(i, perm=reverse)", [10, 11, 12, 13], [13, 12, 11, 10]),
    ("ppermute(i, perm=identity)", [10, 11, 12, 13], [10, 11, 12, 13]),
    ("ppermute(i, perm=partial)", [10, 11, 12, 13], [0, 10, 11, 12]),
    ("ppermute(i, perm=first)", [10, 11, 12, 13], [13, 0, 0, 0]),
    ("ppermute(i, perm=none)", [10, 11, 12, 13], [0, 0, 0, 0]),
    ("all_gather(i)", [[1, 2], [3, 4], [5, 6]], [[[1, 2], [3, 4], [5, 6]]] * 3),
    ("all_gather(i, axis=1)", [[1, 2], [3, 4], [5, 6]], [[[1, 3, 5], [2, 4, 6]]] * 3),
    ("all_gather(i, axis=-1)", [[1, 2], [3, 4], [5, 6]], [[[1, 3, 5], [2, 4, 6]]] * 3),
    ("all_gather(i, tiled)", [[1, 2], [3, 4], [5, 6]], [[1, 2, 3, 4, 5, 6]] * 3),
    (
        "all_gather(i, axis=1, tiled)",
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        [[[1, 2, 5, 6], [3, 4, 7, 8]]] * 2,
    ),
    ("all_gather(i, axis=-2, tiled)", [[[1, 2]], [[3, 4]]], [[[1, 2], [3, 4]]] * 2),
    ("all_gather(i, groups=interleaved)", [1, 2, 3, 4], [[1, 3], [2, 4], [1, 3], [2, 4]]),
    ("all_gather(i, groups=unordered)", [1, 2, 3, 4], [[1, 3], [4, 2], [1, 3], [4, 2]]),
    ("all_gather(i, tiled, groups=unordered)", [[1], [2], [3], [4]], [[1, 3], [4, 2], [1, 3], [4, 2]]),
    ("all_to_all(i)", [[11, 12], [21, 22]], [[11, 21], [12, 22]]),
    # split 0, concat 1: the split dimension goes, the sources stand along the last
    ("all_to_all(i, concat=1)", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], [[[1, 5], [2, 6]], [[3, 7], [4, 8]]]),
    # split 1, concat 0: each takes its column of every source
    ("all_to_all(i, split=1)", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], [[[1, 3], [5, 7]], [[2, 4], [6, 8]]]),
    ("all_to_all(i, tiled)", [[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 5, 6], [3, 4, 7, 8]]),
    (
        "all_to_all(i, split=0, concat=1, tiled)",
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        [[[1, 2, 5, 6]], [[3, 4, 7, 8]]],
    ),
    (
        "all_to_all(i, split=1, concat=0, tiled)",
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        [[[1], [3], [5], [7]], [[2], [4], [6], [8]]],
    ),
    (
        "all_to_all(i, groups=unordered)",  # groups [3, 1] and [0, 2]: member 3 is the first of its group
        [[1, 2], [3, 4], [5, 6], [7, 8]],
        [[1, 5], [8, 4], [2, 6], [7, 3]],
    ),
    ("psum_scatter(i)", [[1, 20], [300, 4000]], [301, 4020]),
    ("psum_scatter(i, tiled)", [[1, 2, 3, 4], [10, 20, 30, 40]], [[11, 22], [33, 44]]),
    ("psum_scatter(i, dim=1)", [[[1, 2], [3, 4]], [[10, 20], [30, 40]]], [[11, 33], [22, 44]]),
    (
        "psum_scatter(i, dim=-1, tiled)",
        [[[1, 2], [3, 4]], [[10, 20], [30, 40]]],
        [[[11], [33]], [[22], [44]]],
    ),
    (
        "psum_scatter(i, groups=unordered)",  # groups [3, 1] and [0, 2]
        [[1, 2], [10, 20], [100, 200], [1000, 2000]],
        [101, 2020, 202, 1010],
    ),
    ("axis_index(i)", [0, 0, 0], [0, 1, 2]),
    ("axis_size(i)", [0, 0, 0], [3, 3, 3]),
    ("psum(i)", [5], [5]),
    ("all_gather(i)", [5], [[5]]),
    ("ppermute(i)", [5], [5]),
    ("ppermute(i, perm=partial)", [5], [0]),
    ("all_to_all(i)", [[5]], [[5]]),
    ("psum_scatter(i)", [[5]], [5]),
)


@pytest.mark.parametrize(
    ("leaf", "x", "want"), ONE_NAME, ids=lambda value: value if isinstance(value, str) else ""
)
def test_one_name(leaf: str, x: list, want: list) -> None:
    got = result(leaf, np.array(x, np.int32), axes=1)
    np.testing.assert_array_equal(got, np.array(want, np.int32), strict=True)


GRID = [[1, 2, 3], [10, 20, 30]]
"""x at (i, j), sizes 2 and 3."""

TWO_NAMES: tuple[Table, ...] = (
    ("psum(i)", GRID, [[11, 22, 33]] * 2),
    ("psum(j)", GRID, [[6] * 3, [60] * 3]),
    ("psum(i+j)", GRID, [[66] * 3] * 2),
    ("psum(j+i)", GRID, [[66] * 3] * 2),
    ("pmax(j)", GRID, [[3] * 3, [30] * 3]),
    ("all_gather(i+j)", GRID, [[[1, 2, 3, 10, 20, 30]] * 3] * 2),
    ("all_gather(j+i)", GRID, [[[1, 10, 2, 20, 3, 30]] * 3] * 2),
    ("axis_index(i+j)", GRID, [[0, 1, 2], [3, 4, 5]]),
    ("axis_index(j+i)", GRID, [[0, 2, 4], [1, 3, 5]]),
    ("axis_index(j)", GRID, [[0, 1, 2], [0, 1, 2]]),
    ("axis_size(i+j)", GRID, [[6] * 3] * 2),
    ("axis_size(j)", GRID, [[3] * 3] * 2),
    # flattened (1, 2, 3, 10, 20, 30): everybody gets its predecessor's
    ("ppermute(i+j)", GRID, [[30, 1, 2], [3, 10, 20]]),
    # flattened with j major: 1, 10, 2, 20, 3, 30
    ("ppermute(j+i)", GRID, [[30, 10, 20], [1, 2, 3]]),
    ("ppermute(j+i, perm=reverse)", GRID, [[30, 20, 10], [3, 2, 1]]),
    ("ppermute(j, perm=partial)", GRID, [[0, 1, 2], [0, 10, 20]]),
    ("ppermute(i, perm=partial)", GRID, [[0, 0, 0], [1, 2, 3]]),
)


@pytest.mark.parametrize(
    ("leaf", "x", "want"), TWO_NAMES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_two_names(leaf: str, x: list, want: list) -> None:
    got = result(leaf, np.array(x, np.int32), axes=2)
    np.testing.assert_array_equal(got, np.array(want, np.int32), strict=True)


def test_blocks_over_two_names_are_numbered_with_the_first_name_major() -> None:
    x = np.arange(2 * 2 * 4).reshape(2, 2, 4)  # position (i, j) holds 4 numbers, one for each member
    by_i = result("all_to_all(i+j)", x, axes=2)
    np.testing.assert_array_equal(by_i[0, 1], [1, 5, 9, 13])  # block 1 of (0,0), (0,1), (1,0), (1,1)
    by_j = result("all_to_all(j+i)", x, axes=2)
    np.testing.assert_array_equal(by_j[0, 1], [2, 10, 6, 14])  # block 2 of (0,0), (1,0), (0,1), (1,1)
    np.testing.assert_array_equal(result("psum_scatter(i+j)", x, axes=2), [[24, 28], [32, 36]])
    np.testing.assert_array_equal(result("psum_scatter(j+i)", x, axes=2), [[24, 32], [28, 36]])


def test_other_axes_are_left_alone() -> None:
    x = np.array([[[1, 2]], [[3, 4]], [[5, 6]]])  # i of 3, j of 1, two numbers
    np.testing.assert_array_equal(result("psum(j)", x, axes=2), x)
    np.testing.assert_array_equal(result("all_gather(j)", x, axes=2), x[:, :, None])
    np.testing.assert_array_equal(result("all_gather(i, axis=1)", x, axes=2)[1, 0], [[1, 3, 5], [2, 4, 6]])


DTYPES: tuple[tuple[str, str, list, str, list], ...] = (
    # leaf, dtype, operand, dtype of the result, result
    ("psum(i)", "bool", [True, False, True], "int32", [2, 2, 2]),
    ("pmean(i)", "bool", [True, False, True, True], "float32", [0.75] * 4),
    ("pmax(i)", "bool", [False, True], "bool", [True, True]),
    ("pmin(i)", "bool", [False, True], "bool", [False, False]),
    ("psum(i)", "int8", [127, 1], "int8", [-128, -128]),
    ("psum(i)", "uint8", [255, 255, 3], "uint8", [1, 1, 1]),
    ("psum(i)", "int32", [2**31 - 1, 2], "int32", [-(2**31) + 1] * 2),
    ("psum_scatter(i)", "int8", [[100, 1], [100, 2]], "int8", [-56, 3]),
    ("pmean(i)", "int32", [1, 2], "float32", [1.5, 1.5]),
    ("pmean(i)", "int8", [127, 1], "float32", [-64.0, -64.0]),
    ("pmean(i, groups=halves)", "float32", [1, 2, 5, 8], "float32", [1.5, 1.5, 6.5, 6.5]),
    ("pmean(i)", "bfloat16", [1, 4], "bfloat16", [2.5, 2.5]),
    ("psum(i)", "complex64", [1 + 2j, 3 - 1j], "complex64", [4 + 1j] * 2),
    ("pmean(i)", "complex64", [1 + 2j, 3 - 4j], "complex64", [2 - 1j] * 2),
    ("psum(i)", "float32", [NAN, 1], "float32", [NAN, NAN]),
    ("psum(i)", "float32", [INF, 1], "float32", [INF, INF]),
    ("psum(i)", "float32", [INF, -INF], "float32", [NAN, NAN]),
    ("pmax(i)", "float32", [NAN, 1], "float32", [NAN, NAN]),
    ("pmax(i)", "float32", [1, NAN, 2], "float32", [NAN] * 3),
    ("pmin(i)", "float32", [1, NAN, INF], "float32", [NAN] * 3),
    ("pmin(i)", "float32", [-INF, 0], "float32", [-INF, -INF]),
    ("ppermute(i, perm=partial)", "float32", [NAN, INF], "float32", [0, NAN]),
    ("ppermute(i)", "bool", [True, False], "bool", [False, True]),
    ("ppermute(i, perm=first)", "bool", [True, True], "bool", [True, False]),
    ("all_gather(i)", "bfloat16", [1, 2], "bfloat16", [[1, 2], [1, 2]]),
)


@pytest.mark.parametrize(("leaf", "dtype", "x", "result_dtype", "want"), DTYPES)
def test_dtypes(leaf: str, dtype: str, x: list, result_dtype: str, want: list) -> None:
    as_dtype = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}
    with np.errstate(all="ignore"):
        got = result(leaf, np.array(x).astype(as_dtype.get(dtype, dtype)), axes=1)
    wanted = np.array(want).astype(as_dtype.get(result_dtype, result_dtype))
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


def test_a_move_keeps_the_sign_of_zero() -> None:
    x = np.array([[-0.0, 0.0], [1.0, -0.0]], np.float32)
    for leaf in ("ppermute(i)", "all_gather(i, tiled)", "all_to_all(i)"):
        moved = result(leaf, x, axes=1)
        assert np.signbit(moved).sum() == np.signbit(x).sum() * moved.size // x.size, leaf


@pytest.mark.parametrize("leaf", ["psum(i)", "all_gather(i)", "ppermute(i)", "all_gather(i, axis=1, tiled)"])
def test_no_elements_are_no_trouble(leaf: str) -> None:
    got = result(leaf, np.zeros((3, 2, 0), np.float32), axes=1)
    assert got.size == 0 and got.shape[0] == 3


@pytest.mark.parametrize("kind", ["halves", "interleaved", "unordered", "singles"])
@pytest.mark.parametrize("size", [4, 6, 8])
def test_groups_are_partitions(kind: str, size: int) -> None:
    groups = partition(kind, size)
    assert groups is not None
    assert sorted(member for group in groups for member in group) == list(range(size))
    assert len({len(group) for group in groups}) == 1


@pytest.mark.parametrize("kind", sorted(WRONG_GROUPS))
def test_wrong_groups_are_none(kind: str) -> None:
    groups = partition(kind, 4)
    assert groups is not None and sorted(member for group in groups for member in group) != list(range(4))


def test_the_unordered_groups_are_not_in_order() -> None:
    assert partition("unordered", 4) == [[3, 1], [0, 2]]


def test_a_wrong_table_would_be_noticed() -> None:
    got = result("all_to_all(i, tiled)", np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.int32), axes=1)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(got, [[1, 2, 5, 6], [3, 4, 8, 7]])


NEW: tuple[tuple[str, list, list], ...] = (
    ("pshuffle(i)", [10, 20, 30, 40], [20, 30, 40, 10]),
    ("pshuffle(i, order=back)", [10, 20, 30, 40], [40, 10, 20, 30]),
    ("pshuffle(i, order=reverse)", [10, 20, 30, 40], [40, 30, 20, 10]),
    ("pbroadcast(i)", [[1, 2], [3, 4], [5, 6]], [[1, 2]] * 3),
    ("pbroadcast(i, source=last)", [[1, 2], [3, 4], [5, 6]], [[5, 6]] * 3),
    ("pcast(i)", [1, 2, 3], [1, 2, 3]),
    ("pswapaxes(i)", [[1, 2], [3, 4]], [[1, 3], [2, 4]]),
    ("pswapaxes(i, axis=1)", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], [[[1, 5], [3, 7]], [[2, 6], [4, 8]]]),
    ("psum(none)", [1, 2, 3], [1, 2, 3]),
    ("pmean(none)", [1.0, 2.5], [1.0, 2.5]),
    ("pmax(none)", [1, 2, 3], [1, 2, 3]),
)


@pytest.mark.parametrize(("leaf", "x", "want"), NEW, ids=[row[0] for row in NEW])
def test_shuffles_broadcasts_and_no_axis(leaf: str, x: list, want: list) -> None:
    np.testing.assert_array_equal(result(leaf, np.asarray(x), 1), np.asarray(want))


def test_pshuffle_over_two_names_numbers_the_first_name_major() -> None:
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(result("pshuffle(i+j)", x, 2), [[1, 2, 3], [4, 5, 0]])
    np.testing.assert_array_equal(result("pshuffle(j+i)", x, 2), [[3, 4, 5], [1, 2, 0]])


def test_threefry_gives_the_published_vectors() -> None:
    """The known answers of Threefry-2x32 with 20 rounds that come with the authors' library."""
    answers = (
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    )
    for key, counter, want in answers:
        words = [np.asarray([word], np.uint32) for word in (*key, *counter)]
        left, right = collectives.threefry((words[0], words[1]), (words[2], words[3]))
        assert (int(left[0]), int(right[0])) == want


def test_random_folds_in_the_position() -> None:
    data = result("random(i)", np.zeros(3), 1)
    assert data.shape == (3, 2) and data.dtype == np.uint32
    assert len({tuple(row) for row in data.tolist()}) == 3
