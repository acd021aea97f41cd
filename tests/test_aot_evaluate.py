"""Compiled programs executed in NumPy: operations against JAX on the host, the TPU compiler's output against what the
program means, and defects put into that output."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
from jax import lax  # noqa: E402

from harness import compat  # noqa: E402
from harness.aot import evaluate, memory, program  # noqa: E402
from harness.errors import NotApplicable  # noqa: E402

GOLDEN = Path(__file__).resolve().parent / "hlo"
NEW = compat.version(jax.__version__) >= (0, 12)
RELEASES = ("0.10.2", "0.12") if NEW else ("0.10.2",)
X = np.arange(24, dtype=np.float32).reshape(4, 6) - 7

OPERATIONS: dict[str, Callable] = {
    "arithmetic": lambda x: (x * 2 - 3) / 4 + jnp.abs(x) - jnp.maximum(x, 0),
    "integers": lambda x: (x.astype("int32") // 3) * 100 + x.astype("int32") % 5,
    "shifts": lambda x: (x.astype("int32") << 3) ^ (x.astype("int32") >> 1),
    "logical shift": lambda x: lax.shift_right_logical(x.astype("int32"), jnp.int32(3)),
    "comparison": lambda x: jnp.where((x > 2) & ~(x == 5), x, -x),
    "reduction": lambda x: (x.sum(0), x.max(1), x.min(), (x > 0).any(1)),
    "argmax": lambda x: jnp.argmax(x, axis=1),
    "cumsum": lambda x: jnp.cumsum(x, axis=1),
    "transpose": lambda x: x.T.reshape(2, 3, 4).swapaxes(0, 2),
    "slices": lambda x: (x[1:3, ::2], lax.dynamic_slice(x, (9, 1), (2, 3)), jnp.flip(x, 1)),
    "update": lambda x: lax.dynamic_update_slice(x, x[:2, :2] * 10, (3, 3)),
    "padding": lambda x: lax.pad(x, jnp.float32(9), ((1, 2, 1), (-1, 0, 0))),
    "concatenation": lambda x: jnp.concatenate([x, x + 1], axis=1),
    "gather": lambda x: x[jnp.array([2, 0, 3]), jnp.array([1, 1, 5])],
    "take": lambda x: jnp.take(x, jnp.array([3, 0]), axis=0),
    "scatter": lambda x: x.at[jnp.array([1, 1, 2])].add(1.0),
    "sort": lambda x: jnp.sort(-x, axis=1),
    "product": lambda x: x @ x.T,
    "iota": lambda x: jnp.arange(6) + lax.broadcasted_iota("int32", (4, 6), 0),
    "loop": lambda x: lax.fori_loop(0, 5, lambda k, c: c + k, x),
    "endless but for its data": lambda x: lax.while_loop(lambda c: c.sum() < 500, lambda c: c * 2 + 30, x),
    "branch": lambda x: lax.switch(2, [lambda x: x, lambda x: x + 1, lambda x: x * 3], x),
    "traced branch": lambda x: lax.cond(x[0, 0] < 0, lambda x: x + 1, lambda x: x - 1, x),
    "bits": lambda x: lax.bitcast_convert_type(x, "uint32") & 0xFFFF,
    "random": lambda x: jax.random.bits(jax.random.key(5), (3, 5)),
    "complex": lambda x: jnp.real((x + 2j) * (1 - 1j * x)),
    "bfloat16": lambda x: (x.astype("bfloat16") * 3).astype("float32"),
    "finite": lambda x: jnp.isfinite(jnp.where(x > 0, jnp.inf, x)),
    "sign": lambda x: jnp.sign(x),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_give_what_jax_gives_on_the_host(name: str) -> None:
    function = OPERATIONS[name]
    compiled = jax.jit(function).lower(X).compile()
    read = program.read(compiled.as_text())
    inputs = [X] if read.main.arguments else []
    (got,) = evaluate.execute(read, [inputs])
    want = [np.asarray(y) for y in jax.tree.leaves(compiled(X))]
    assert [(y.dtype, y.shape) for y in got] == [(y.dtype, y.shape) for y in want]
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)


def split(x: np.ndarray, rows: int, columns: int) -> list[list[np.ndarray]]:
    return [[part] for row in np.split(x, rows) for part in np.split(row, columns, axis=1)]


def mixed() -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    """psum over i, moved on by one along j, plus 100 times the index along i, on a mesh of 2 by 4."""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    parts = split(x, 2, 4)
    total = [parts[j][0] + parts[4 + j][0] for j in range(4)]
    return parts, [total[(j - 1) % 4] + 100 * i for i in range(2) for j in range(4)]


def loop() -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    """Three times: moved on by one, plus one."""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    parts = split(x, 8, 1)
    return parts, [parts[(k - 3) % 8][0] + 3 for k in range(8)]


def branch() -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    """The sum, doubled where the index is odd, else plus one; bytes that the compiler packs into words."""
    x = (np.arange(64) % 7).reshape(8, 8).astype(np.uint8)
    total = x.sum(axis=0, keepdims=True, dtype=np.uint8)
    return split(x, 8, 1), [total * np.uint8(2) if k % 2 else total + np.uint8(1) for k in range(8)]


PROGRAMS = {"mixed": mixed, "loop": loop, "branch": branch}


def text_of(name: str, release: str) -> str:
    return (GOLDEN / f"{name}_{release}.txt").read_text()


def results(text: str, inputs: list[list[np.ndarray]]) -> list[np.ndarray]:
    return [outputs[0] for outputs in evaluate.execute(program.read(text), inputs)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_tpu_compilers_output_gives_what_the_program_means(name: str, release: str) -> None:
    inputs, want = PROGRAMS[name]()
    for got, right in zip(results(text_of(name, release), inputs), want):
        assert got.dtype == right.dtype
        np.testing.assert_array_equal(got, right)


DEFECTS = {
    "a swapped pair": ("mixed", r"\{0,1\},\{1,2\}", "{0,2},{1,1}"),
    "a lost pair": ("loop", r"source_target_pairs=\{\{0,1\},", "source_target_pairs={"),
    "another factor": ("mixed", r"s32\[\](\S*) constant\(100\)", r"s32[]\1 constant(101)"),
    "another number of trips": ("loop", r"s32\[\](\S*) constant\(3\)", r"s32[]\1 constant(2)"),
    "another operation": ("branch", r"multiply\(", "add("),
    "a wrong group": (
        "mixed",
        r"replica_groups=[^ ]*( \{'i'\})?,",
        "replica_groups={{0,5},{1,4},{2,6},{3,7}},",
    ),
    "everybody": ("mixed", r"replica_groups=[^ ]*( \{'i'\})?,", "replica_groups={{0,1,2,3,4,5,6,7}},"),
    "another axis of the mesh": (
        "mixed",
        r"replica_groups=[^ ]*( \{'i'\})?,",
        "replica_groups={{0,1},{2,3},{4,5},{6,7}},",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_in_the_compilers_output_changes_the_result(defect: str) -> None:
    name, pattern, replacement = DEFECTS[defect]
    text = text_of(name, "0.10.2")
    broken, count = re.subn(pattern, replacement, text)
    assert count, "the defect fits no line"
    inputs, want = PROGRAMS[name]()
    got = results(broken, inputs)
    assert any(a.shape != b.shape or not np.array_equal(a, b) for a, b in zip(got, want))


def test_devices_that_wait_for_ever_are_told() -> None:
    text = """HloModule stuck, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%yes (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %r = f32[] all-reduce(%x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=%add
}

%no (y: f32[]) -> f32[] {
  ROOT %y = f32[] parameter(0)
}

ENTRY %main (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %id = u32[] partition-id()
  %which = s32[] convert(%id)
  ROOT %out = f32[] conditional(%which, %p, %p), branch_computations={%yes, %no}
}
"""
    one = np.float32(1).reshape(())
    with pytest.raises(evaluate.Stuck, match="wait for ever"):
        evaluate.execute(program.read(text), [[one], [one]])


def test_an_unknown_operation_is_named_and_never_wrong() -> None:
    text = """HloModule mystery

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2] parameter(0)
  ROOT %out = f32[2] custom-call(%p), custom_call_target="Mystery"
}
"""
    with pytest.raises(
        NotApplicable, match=r"the operation stablehlo\.custom_call Mystery is not executed here"
    ):
        evaluate.execute(program.read(text), [[np.zeros(2, np.float32)]])


def test_text_that_is_no_program_is_told() -> None:
    with pytest.raises(NotApplicable, match="cannot be converted"):
        program.read("HloModule nothing")


@pytest.mark.parametrize(
    "layout, shape",
    [
        ("u8[3,5]{1,0}", (3, 5)),
        ("u8[3,5]{0,1:T(4,128)(4,1)}", (3, 5)),
        ("u8[2,9,130]{1,2,0:T(8,128)(4,1)S(1)}", (2, 9, 130)),
        ("u8[7]{0:T(512)(128)(4,1)}", (7,)),
        ("u8[]{:T(512)}", ()),
    ],
)
def test_an_array_comes_back_from_memory(layout: str, shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape)), dtype=np.uint8).reshape(shape)
    kept = memory.read(layout)
    np.testing.assert_array_equal(memory.reinterpret(x, kept, shape, x.dtype, kept), x)


def test_four_bytes_of_one_column_make_a_word() -> None:
    x = np.array([[1], [2], [3], [4]], np.uint8)
    narrow, wide = memory.read("u8[4,1]{1,0:T(4,128)(4,1)}"), memory.read("u32[1,128]{1,0:T(1,128)}")
    words = memory.reinterpret(x, narrow, (1, 128), np.dtype(np.uint32), wide)
    assert words[0, 0] == 0x04030201 and not words[0, 1:].any()


@pytest.mark.parametrize(
    "text, want",
    [
        ("dense<[1.000000e+00, 0x7FC0]> : tensor<2xbf16>", np.array([1, np.nan], ml_dtypes.bfloat16)),
        ("dense<true> : tensor<2x2xi1>", np.ones((2, 2), bool)),
        ("dense<[(1.0,-2.0), (0.0,3.0)]> : tensor<2xcomplex<f32>>", np.array([1 - 2j, 3j], np.complex64)),
        ('dense<"0x0100FF7F"> : tensor<2xi16>', np.array([1, 32767], np.int16)),
        ("dense<-7> : tensor<i8>", np.array(-7, np.int8)),
        ("dense<> : tensor<0x3xf16>", np.zeros((0, 3), np.float16)),
        ("dense<0xFC00> : tensor<f16>", np.array(-np.inf, np.float16)),
    ],
)
def test_constants_that_are_read_from_their_text(text: str, want: np.ndarray) -> None:
    got = program.dense(text, None)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got.astype(np.complex128), want.astype(np.complex128))
