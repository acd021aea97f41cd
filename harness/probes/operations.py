"""Ordinary operations in axis contexts: NumPy's values, shapes and dtypes, whatever binds an axis around them.

`FAMILIES` is the table of operations, `CONTEXTS` what stands around them; each context is a probe whose value is a
family. An operation is one line, `NAME: JAX; NUMPY; BOUND`, of an array x of shape (6, 4): where NUMPY is left out it is
the JAX expression with `np` for `jnp`, where BOUND is left out the result is exact. Adding an operation is adding a line.
"""

from __future__ import annotations

import dataclasses
import textwrap

from harness.probes import flow
from harness.probes.base import Probe
from harness.probes.family import INTEGERS, Family

FAMILIES = {
    **flow.FAMILIES,
    "reductions": Family("""
        sum: jnp.sum(x, axis=0)
        sum of all: jnp.sum(x)
        sum kept: jnp.sum(x, axis=-1, keepdims=True)
        mean: jnp.mean(x, axis=1)
        var: jnp.var(x, axis=1)
        median: jnp.median(x, axis=1)
        prod: jnp.prod(jnp.sign(x), axis=0)
        max: jnp.max(x, axis=0)
        min: jnp.min(x, axis=(0, 1))
        argmax: jnp.argmax(x, axis=0)
        argmin: jnp.argmin(x, axis=-1)
        argmax of all: jnp.argmax(x)
        any: jnp.any(x > 20, axis=0)
        all: jnp.all(x > -30, axis=1)
        count_nonzero: jnp.count_nonzero(x > 0, axis=1)
        ptp: jnp.ptp(x, axis=0)
        max with start: jnp.max(x, axis=0, initial=-3)
        max where: jnp.max(x, axis=0, initial=-99, where=x < 5)
    """),
    "negative": Family(
        """
        max: jnp.max(x, axis=0)
        max of all: jnp.max(x)
        argmax: jnp.argmax(x, axis=1)
        cummax: lax.cummax(x, axis=0); np.maximum.accumulate(x, axis=0)
        maximum: jnp.maximum(x, x[::-1])
        sort: jnp.sort(x, axis=0)
        top_k: lax.top_k(x, 2)[0]; -np.sort(-x)[:, :2]
        window: lax.reduce_window(x, -np.inf, lax.max, (2, 1), (2, 1), "VALID"); x.reshape(3, 2, 4).max(axis=1)
        segments: jax.ops.segment_max(x, np.array([0, 1, 1, 0, 2, 2]), 3); np.stack([x[[0, 3]].max(0), x[1:3].max(0), x[4:].max(0)])
        """,
        'lambda k: (k - 50).astype("float32")',
    ),
    "special": Family(
        """
        max: jnp.max(x, axis=0)
        min: jnp.min(x, axis=1)
        sum: jnp.sum(x, axis=0)
        argmax: jnp.argmax(x, axis=0)
        argmin: jnp.argmin(x, axis=1)
        sort: jnp.sort(x, axis=0)
        argsort: jnp.argsort(x, axis=1, stable=True)
        maximum: jnp.maximum(x, 0)
        minimum: jnp.minimum(x[::-1], x)
        clip: jnp.clip(x, -5, 5)
        isnan: jnp.isnan(x)
        isinf: jnp.isinf(x)
        isfinite: jnp.isfinite(x)
        nansum: jnp.nansum(jnp.where(jnp.isinf(x), 0, x), axis=0)
        nanmax: jnp.nanmax(x, axis=0)
        nan_to_num: jnp.nan_to_num(x, nan=1, posinf=2, neginf=3)
        cummax: lax.cummax(x, axis=0); np.maximum.accumulate(x, axis=0)
        equal: x == x
        signbit: jnp.signbit(-abs(x))
        where: jnp.where(x > 0, x, 0)
        """,
        'lambda k: np.where(k % 7 == 0, np.nan, np.where(k % 11 == 1, np.inf * (k + 0.5), k)).astype("float32")',
    ),
    "cumulative": Family("""
        cumsum: jnp.cumsum(x, axis=0)
        cumsum of all: jnp.cumsum(x)
        cumsum reversed: lax.cumsum(x, axis=1, reverse=True); np.cumsum(x[:, ::-1], axis=1)[:, ::-1]
        cumprod: jnp.cumprod(jnp.sign(x) * 2, axis=1)
        cummax: lax.cummax(x, axis=1); np.maximum.accumulate(x, axis=1)
        cummin reversed: lax.cummin(x, axis=0, reverse=True); np.minimum.accumulate(x[::-1], axis=0)[::-1]
        diff: jnp.diff(x, axis=0)
        prefixes: lax.associative_scan(jnp.add, x, axis=0); np.cumsum(x, axis=0)
        prefixes of maxima: lax.associative_scan(jnp.maximum, x, axis=1, reverse=True); np.maximum.accumulate(x[:, ::-1], axis=1)[:, ::-1]
        scan: lax.scan(lambda c, y: (c + y, c), jnp.zeros_like(x[0]), x)[1]; np.cumsum(x, axis=0) - x
        scan of columns: lax.scan(lambda c, y: (c + y, c), x[:, 0] * 0, x.T)[0]; np.sum(x, axis=1)
        map: lax.map(lambda y: y[0] - y[1], x); x[:, 0] - x[:, 1]
        fori: lax.fori_loop(0, 3, lambda k, y: y + x * k, x); x * 4
        while: lax.while_loop(lambda y: y[1] < 3, lambda y: (y[0] + x, y[1] + 1), (x, 0))[0]; x * 4
        """),
    "sorting": Family("""
        sort: jnp.sort(x, axis=0)
        sort flat: jnp.sort(x, axis=None)
        argsort: jnp.argsort(x, axis=1)
        argsort rows: jnp.argsort(x, axis=0)
        sort descending: jnp.sort(x, axis=0, descending=True); np.sort(x, axis=0)[::-1]
        top_k: lax.top_k(x, 3)[0]; np.sort(x)[:, :0:-1]
        top_k places: lax.top_k(x, 2)[1]; np.argsort(-x)[:, :2]
        searchsorted: jnp.searchsorted(jnp.sort(x[:, 0]), x[:, 1])
        searchsorted right: jnp.searchsorted(jnp.sort(x[:, 0]), x[:, 0], side="right")
        digitize: jnp.digitize(x, np.array([-10, 0, 10]))
        lexsort: jnp.lexsort((x[:, 0], x[:, 1] > 0))
        two keys: lax.sort((abs(x[:, 0]) % 2, x[:, 1]), num_keys=2)[1]; x[np.lexsort((x[:, 1], abs(x[:, 0]) % 2)), 1]
        unique: jnp.unique(x[:, 0] > 0, size=2); np.unique(x[:, 0] > 0)
        bincount: jnp.bincount((x[:, 0] > 0).astype(int), length=3); np.bincount((x[:, 0] > 0).astype(int), minlength=3)
        nonzero: jnp.nonzero(x[:, 0] < 99, size=6)[0]; np.nonzero(x[:, 0] < 99)[0]
        histogram: jnp.histogram(x[:, 0], bins=np.array([-40.0, -8.0, 8.0, 40.0]))[0]; np.histogram(x[:, 0], bins=np.array([-40.0, -8.0, 8.0, 40.0]))[0].astype("float32")
        partition: jnp.sort(jnp.partition(x, 2, axis=0)[:3], axis=0)
        """),
    "gathers": Family("""
        index: x[np.array([2, 0, 5])]
        index pairs: x[np.array([2, 0, 5]), np.array([1, 3, 3])]
        reversed: x[::-1, ::2]
        take: jnp.take(x, np.array([3, 3, 0]), axis=1)
        take_along_axis: jnp.take_along_axis(x, jnp.argsort(x, axis=0), axis=0)
        traced index: x[jnp.argmax(x[:, 0])]
        dynamic_slice: lax.dynamic_slice(x, (jnp.argmax(x[:, 0]) // 2, 1), (3, 2)); x[np.argmax(x[:, 0]) // 2 :][:3, 1:3]
        dynamic_index: lax.dynamic_index_in_dim(x, jnp.argmin(x[0]), axis=1); x[:, np.argmin(x[0])][:, None]
        repeat: jnp.repeat(x, 2, axis=0)
        repeat unevenly: jnp.repeat(x, np.array([1, 0, 2, 1, 3, 1]), axis=0)
        repeat traced: jnp.repeat(x, jnp.where(x[:, 0] < 99, 2, 1), axis=0, total_repeat_length=12); np.repeat(x, 2, axis=0)
        insert: jnp.insert(x, 2, 7, axis=0)
        insert rows: jnp.insert(x, np.array([1, 4]), 7, axis=0)
        delete: jnp.delete(x, 3, axis=0)
        diagonal: jnp.diagonal(x)
        tile: jnp.tile(x, (2, 1))
        select rows: jnp.where(x[:, :1] > 0, x, -x)
        """),
    "scatters": Family("""
        set: x.at[1].set(9); np.concatenate([x[:1], np.full_like(x[:1], 9), x[2:]])
        add: x.at[np.array([1, 3])].add(x[np.array([0, 2])]); np.stack([x[0], x[1] + x[0], x[2], x[3] + x[2], x[4], x[5]])
        add twice: x.at[np.array([1, 1])].add(x[:2]); np.stack([x[0], 2 * x[1] + x[0], *x[2:]])
        multiply: x.at[:, 1].multiply(3); x * np.array([1, 3, 1, 1], x.dtype)
        maximum: x.at[0].max(x[1]); np.concatenate([np.maximum(x[:1], x[1:2]), x[1:]])
        minimum: x.at[::2].min(0); np.where(np.arange(6)[:, None] % 2 == 0, np.minimum(x, 0), x)
        traced place: jnp.zeros_like(x).at[jnp.argmax(x[:, 0])].set(x[0]); np.where(np.arange(6)[:, None] == np.argmax(x[:, 0]), x[0], 0).astype(x.dtype)
        outside: x.at[7].set(9, mode="drop"); x
        dynamic_update: lax.dynamic_update_slice(x, x[:2, :2] * 2, (3, 1)); np.vstack([x[:3], np.hstack([x[3:5, :1], x[:2, :2] * 2, x[3:5, 3:]]), x[5:]])
        segment_sum: jax.ops.segment_sum(x, np.array([0, 2, 2, 0, 1, 1]), 3); np.stack([x[0] + x[3], x[4] + x[5], x[1] + x[2]])
        permute: jnp.zeros_like(x).at[jnp.argsort(x[:, 0])].set(x); x[np.argsort(np.argsort(x[:, 0]))]
        column: x.at[:, jnp.argmin(x[0])].set(0); np.where(np.arange(4) == np.argmin(x[0]), 0, x).astype(x.dtype)
        """),
    "movement": Family("""
        roll: jnp.roll(x, 2, axis=0)
        roll both: jnp.roll(x, (1, -1), axis=(0, 1))
        roll flat: jnp.roll(x, 5)
        roll traced: jnp.roll(x, jnp.argmax(x[:, 0]), axis=0)
        flip: jnp.flip(x, axis=0)
        rot90: jnp.rot90(x)
        pad: jnp.pad(x, ((1, 0), (2, 3)))
        pad edge: jnp.pad(x, ((1, 2), (0, 1)), mode="edge")
        pad reflect: jnp.pad(x, ((2, 1), (1, 0)), mode="reflect")
        pad wrap: jnp.pad(x, ((1, 2), (1, 0)), mode="wrap")
        concatenate: jnp.concatenate([x, x[:1], -x], axis=0)
        concatenate columns: jnp.concatenate([x, -x], axis=1)
        stack: jnp.stack([x, x + 1], axis=1)
        split: jnp.split(x, 3, axis=0)[1]
        array_split: jnp.array_split(x, 4, axis=0)[1]
        reshape: jnp.reshape(x, (4, 6))
        ravel: jnp.ravel(x)
        transpose: jnp.transpose(x)
        swapaxes: jnp.swapaxes(x[None], 0, 2)
        broadcast: jnp.broadcast_to(x[:, :1], (6, 3))
        triu: jnp.triu(x, 1)
        tril: jnp.tril(x, -1)
        diag: jnp.diag(x[0], 1)
        block: jnp.block([[x, x], [x, x]])
        meshgrid: jnp.meshgrid(x[0], x[:3, 1])[1]
        """),
    "dilation": Family("""
        pad and dilate: lax.pad(x, 0.0, ((-1, 1, 1), (0, -1, 0))); np.vstack([np.stack([r for y in x for r in (y, y * 0)])[1:11], x[:1] * 0])[:, :3]
        dilate: lax.pad(x, 0.0, ((0, 0, 1), (0, 0, 0))); np.stack([r for y in x for r in (y, y * 0)])[:11]
        crop: lax.pad(x, 0.0, ((-1, -2, 0), (0, -1, 0))); x[1:4, :3]
        """),
    "products": Family("""
        matmul: x @ x.T
        matmul transposed: x.T @ x
        dot vector: jnp.dot(x, x[0])
        einsum: jnp.einsum("ij,kj->ik", x, x)
        einsum sum: jnp.einsum("ij->j", x)
        einsum diagonal: jnp.einsum("ii->i", x[:4])
        tensordot: jnp.tensordot(x, x, axes=2)
        outer: jnp.outer(x[0], x[:, 0])
        vdot: jnp.vdot(x, x)
        inner: jnp.inner(x, x[:2])
        kron: jnp.kron(x[:2], x[:, :2])
        trace: jnp.trace(x)
        batched: lax.dot_general(x.reshape(2, 3, 4), x.reshape(2, 3, 4), (((2,), (2,)), ((0,), (0,)))); np.einsum("bij,bkj->bik", x.reshape(2, 3, 4), x.reshape(2, 3, 4))
        wider: lax.dot_general(x.astype("int8"), x.astype("int8"), (((1,), (1,)), ((), ())), preferred_element_type="int32"); (x @ x.T).astype("int32")
        convolve: jnp.convolve(x[:, 0], np.array([1, -2, 3], "float32"))
        correlate: jnp.correlate(x[:, 0], np.array([1, -2, 3], "float32"))
        convolution: lax.conv_general_dilated(x[None, None], np.array([[[[1, 2], [3, 4]]]], "float32"), (1, 1), "VALID")[0, 0]; x[:-1, :-1] + 2 * x[:-1, 1:] + 3 * x[1:, :-1] + 4 * x[1:, 1:]
        windows: lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "VALID"); x[:-2] + x[1:-1] + x[2:]
        polyval: jnp.polyval(np.array([1, -2, 3], "float32"), x)
        """),
    "elementwise": Family("""
        where: jnp.where(x > 0, x, -1)
        clip: jnp.clip(x, -7, 9)
        select: jnp.select([x > 9, x < -9], [x, -x], 0)
        select_n: lax.select_n((x > 0).astype("int32"), x, -x); np.where(x > 0, -x, x)
        maximum: jnp.maximum(x, x[::-1])
        minimum: jnp.minimum(x, 3)
        sign: jnp.sign(x)
        abs: abs(x)
        floor_divide: x // 5
        remainder: x % -5
        fmod: jnp.fmod(x, 5)
        power: x**3
        round: jnp.round(x / 4)
        floor: jnp.floor(x / 4)
        sqrt: jnp.sqrt(x * x)
        copysign: jnp.copysign(2, x); np.copysign(np.float32(2), x)
        heaviside: jnp.heaviside(x, 1); np.heaviside(x, np.float32(1))
        divmod: jnp.divmod(x, 7)[1]
        comparison: (x > 1) & ~(x > 9) | (x == -3)
        relu: jax.nn.relu(x); np.maximum(x, 0)
        clamp: lax.clamp(-3.0, x, 8.0); np.clip(x, -3, 8)
        reduce_precision: lax.reduce_precision(x, 8, 7); x
        barrier: lax.optimization_barrier(x); x
        vectorize: jnp.vectorize(lambda y: y * 2)(x); x * 2
        checkpoint: jax.checkpoint(lambda y: y * y)(x); x * x
        linear solve: lax.custom_linear_solve(lambda y: y * 2, x * 2, lambda _, b: b / 2, symmetric=True); x
        root: lax.custom_root(lambda y: y - x * 2, x, lambda f, y: y - f(y), lambda g, y: y / g(jnp.ones_like(y))); x * 2
        """),
    "integers": Family(
        """
        floor_divide: x // 5
        floor_divide negative: x // -7
        remainder: x % 5
        remainder negative: x % -7
        truncating divide: lax.div(x, jnp.full_like(x, 5)); np.trunc(x / 5).astype("int32")
        truncating remainder: lax.rem(x, jnp.full_like(x, 5)); np.fmod(x, 5)
        and: x & 12
        or: x | 5
        xor: x ^ -1
        not: ~x
        shift left: x << 3
        shift right: x >> 2
        logical shift: lax.shift_right_logical(x, jnp.full_like(x, 28)); (x.astype("uint32") >> 28).astype("int32")
        population_count: lax.population_count(x); np.array([bin(v & 0xFFFFFFFF).count("1") for v in x.ravel().tolist()], "int32").reshape(x.shape)
        clz: lax.clz(abs(x)); 32 - np.array([v.bit_length() for v in abs(x).ravel().tolist()], "int32").reshape(x.shape)
        power: x**2
        integer_pow: lax.integer_pow(x, 3); x**3
        wrap: x * 123456789; (x.astype("int64") * 123456789).astype("int32")
        sum: jnp.sum(x, axis=0)
        max: jnp.max(x, axis=1)
        true divide: x / 4; (x / 4).astype("float32")
        cumsum: jnp.cumsum(x, axis=1)
        matmul: x @ x.T
        mean: jnp.mean(x, axis=1)
        sort: jnp.sort(x, axis=0)
        """,
        INTEGERS,
    ),
    "euclid": Family(
        """
        gcd: jnp.gcd(x, 12)
        lcm: jnp.lcm(x, x[::-1])
        gcd of all: jnp.gcd(x, x[:1])
        """,
        INTEGERS,
    ),
    "conversions": Family(
        """
        bool: x.astype(bool)
        int8: (x * 5).astype("int8")
        int16: x.astype("int16")
        uint8: (x * 5).astype("uint8")
        uint16: x.astype("uint16")
        uint32: x.astype("uint32")
        float16: x.astype("float16")
        bfloat16: x.astype(jnp.bfloat16) ; x.astype(jnp.bfloat16)
        float32: x.astype("float32")
        complex64: x.astype("complex64")
        back from int8: x.astype("int8").astype("int32")
        back from bfloat16: x.astype(jnp.bfloat16).astype("int32"); x
        float to int: (x / 4).astype("int32"); np.trunc(x / 4).astype("int32")
        bits: lax.bitcast_convert_type(x.astype("float32"), "int32"); x.astype("float32").view("int32")
        bytes: lax.bitcast_convert_type(x, "uint8"); np.ascontiguousarray(x).view("uint8").reshape(6, 4, 4)
        promotion: x + x.astype("float16"); (x + x.astype("float16")).astype("float16")
        weak: x.astype("int8") * 2
        weak float: x.astype(jnp.bfloat16) * 2.0; (x * 2).astype(jnp.bfloat16)
        bool sum: jnp.sum(x > 0, axis=0)
        bool max: jnp.max(x > 0, axis=0)
        bool argmax: jnp.argmax(x > 0, axis=0)
        bool sort: jnp.sort(x > 0, axis=0)
        int8 sum: jnp.sum(x.astype("int8"), axis=0, dtype="int8")
        bool cumsum: jnp.cumsum(x > 0, axis=0)
        """,
        INTEGERS,
    ),
    "complex": Family(
        """
        conj: jnp.conj(x)
        real: jnp.real(x)
        imag: jnp.imag(x)
        product: x * x
        sum: jnp.sum(x, axis=0)
        matmul: x @ x.T
        adjoint: jnp.conj(x).T @ x
        vdot: jnp.vdot(x, x)
        prod: jnp.prod(jnp.sign(jnp.real(x)) * 1j, axis=0); np.prod(np.sign(np.real(x)) * 1j, axis=0)
        abs: abs(jnp.real(x) * (3 + 4j)); abs(np.real(x)) * np.float32(5); 2e-6
        sort: jnp.sort(x, axis=0)
        cumsum: jnp.cumsum(x, axis=1)
        equal: x == jnp.conj(x)
        where: jnp.where(jnp.real(x) > 0, x, 1j); np.where(np.real(x) > 0, x, np.complex64(1j))
        concatenate: jnp.concatenate([x, x * 1j]); np.concatenate([x, x * np.complex64(1j)])
        roll: jnp.roll(x, 1, axis=0)
        gather: x[np.array([4, 1])]
        make: lax.complex(jnp.imag(x), jnp.real(x)); (np.imag(x) + 1j * np.real(x)).astype("complex64")
        """,
        'lambda k: (k + 1j * np.flip(k)).astype("complex64")',
    ),
    # Transcendental functions, divisions and transforms round; the bound is some units in the last place of float32
    # times the length of the sums, on values of size one.
    "rounded": Family("""
        softmax: jax.nn.softmax(x / 8, axis=0); np.exp(x / 8) / np.sum(np.exp(x / 8), axis=0); 2e-5
        softmax rows: jax.nn.softmax(x / 8); np.exp(x / 8) / np.sum(np.exp(x / 8), axis=-1, keepdims=True); 2e-5
        log_softmax: jax.nn.log_softmax(x / 8, axis=0); x / 8 - np.log(np.sum(np.exp(x / 8), axis=0)); 2e-5
        logsumexp: jax.nn.logsumexp(x / 8, axis=1); np.log(np.sum(np.exp(x / 8), axis=1)); 2e-5
        cumlogsumexp: lax.cumlogsumexp(x / 8, axis=0); np.log(np.cumsum(np.exp(x / 8), axis=0)); 2e-5
        one_hot: jax.nn.one_hot(jnp.argmax(x, axis=1), 4); np.eye(4, dtype="float32")[np.argmax(x, axis=1)]
        mean of six: jnp.mean(x, axis=0); np.mean(x, axis=0); 2e-5
        interp: jnp.interp(x[:, 0], np.array([-40, 0, 40]), np.array([40, 0, 40])); abs(x[:, 0]); 2e-5
        std: jnp.std(x, axis=0); np.std(x, axis=0); 2e-5
        norm: jnp.linalg.norm(x, axis=0); np.linalg.norm(x, axis=0); 2e-4
        tanh: jnp.tanh(x / 8); np.tanh(x / 8); 2e-5
        sin: jnp.sin(x); np.sin(x); 2e-5
        logistic: jax.nn.sigmoid(x / 8); 1 / (1 + np.exp(-x / 8)); 2e-5
        erf: lax.erf(x * 0 + 1); x * 0 + np.float32(0.8427007929497149); 2e-5
        fft: jnp.fft.fft(x); np.fft.fft(x); 2e-4
        fft rows: jnp.fft.fft(x, axis=0); np.fft.fft(x, axis=0); 2e-4
        rfft: jnp.fft.rfft(x); np.fft.rfft(x); 2e-4
        ifft2: jnp.fft.ifft2(x); np.fft.ifft2(x); 2e-4
        rational: (x + 1) / 3; (x + 1) / 3; 2e-5
        quantile: jnp.quantile(x, 0.25, axis=0); np.quantile(x, 0.25, axis=0).astype("float32"); 2e-5
        """),
    "constants": Family("""
        iota: lax.broadcasted_iota("int32", x.shape, 1); np.broadcast_to(np.arange(4, dtype="int32"), x.shape)
        arange: x + jnp.arange(4.0)
        eye: x[:4] + jnp.eye(4)
        linspace: x + jnp.linspace(0, 3, 4)
        full_like: jnp.full_like(x, 7)
        zeros_like: jnp.zeros_like(x)
        ones: jnp.ones((6, 1)) * x
        unused: jnp.arange(3) * 2
        tri: jnp.tri(6, 4) * x
        array: jnp.array([1, 2, 3, 4]) * x
        shape: jnp.asarray(x.shape) ; np.asarray(x.shape)
        full_like of the inside: jnp.full_like(x[0], 3) + x[1]
        indices: jnp.indices((6, 4))[0] + x
        cond: lax.cond(x[0, 0] > -99, lambda y: y * 2, lambda y: y * 0, x); x * 2
        cond of a constant: lax.cond(x[0, 0] > -99, lambda y: jnp.ones(3), lambda y: jnp.zeros(3), x); np.ones(3)
        switch: lax.switch(1, [lambda y: y, lambda y: jnp.zeros_like(y), lambda y: y * 2], x); x * 0
        scan of nothing: lax.scan(lambda c, _: (c + 1, None), x, None, length=3)[0]; x + 3
        carry grows: lax.scan(lambda c, y: (jnp.maximum(c, y), None), x[0] * 0 - 99, x)[0]; np.max(x, axis=0)
        """),
}

BEFORE = """
def fold(step, items, carry):  # what a loop over items gives
    for item in items:
        carry = step(carry, item)
    return carry


def loop(test, step, state):  # what a while_loop gives
    while test(state):
        state = step(state)
    return state


@jax.custom_jvp
def forward(x):
    return 2 * x


forward.defjvp(lambda primals, tangents: (forward(*primals), 7 * tangents[0]))


@jax.custom_vjp
def backward(x):
    return 2 * x


backward.defvjp(lambda x: (backward(x), None), lambda _, cotangent: (7 * cotangent,))


def scaled(x, a, b):
    return x * a - b


scaled = jax.custom_vjp(scaled, nondiff_argnums=(1, 2))
scaled.defvjp(lambda x, a, b: (scaled(x, a, b), None), lambda a, b, _, cotangent: ((a + 2 * b) * cotangent,))

make, operations = VALUE(fold, loop, forward, backward, scaled)
x = make((np.arange(72) * 29 % 72 - 36).reshape(3, 6, 4))  # three lanes of distinct numbers of both signs


def run(names):
    def lane(x):
        return {{name: operations[name][0](x) for name in names}}

{context}


def same(got, want, bound):
    want = want.astype({{"f8": "f4", "i8": "i4", "u8": "u4", "c16": "c8"}}.get(want.dtype.str[1:], want.dtype))
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    return np.allclose(got, want, 0, bound) if bound else np.all((got == want) | ((got != got) & (want != want)))


results, facts = {{}}, {{}}
try:
    results = run(list(operations))
except Exception:  # one of them cannot be run here: which?
    for name in operations:
        try:
            for context, given in run([name]).items():
                results.setdefault(context, {{}}).update(given)
        except Exception as error:
            facts[f"{{name}} runs ({{type(error).__name__}}: {{str(error)[:150]}})"] = False
for context, given in results.items():
    for name, got in given.items():
        _, reference, bound = operations[name]
        got, want = np.asarray(got), np.stack([np.asarray(reference(y)) for y in x])
        want = want[:1] if context.startswith("one lane") else want
        right = bool(same(got, want, bound))
        why = "" if right else f" (gave {{got.dtype}} {{got.ravel()[:8]}}, should be {{want.dtype}} {{want.ravel()[:8]}})"
        facts[f"{{name}}, {{context}}, is as in NumPy{{why}}"] = right
return facts
"""

MESH = 'mesh = Mesh(np.array(jax.devices()[:3]), ("i",))'
EACH = "jax.tree.map(lambda y: y[None], lane(x[0]))"


@dataclasses.dataclass(frozen=True)
class Context:
    """What stands around the operations: source that returns, by a word for each way, their results with lanes first."""

    source: str
    devices: int = 1
    since: str = ""
    families: tuple[str, ...] = tuple(FAMILIES)


def _shard_map(check: str, call: str) -> str:
    """Lanes on devices of their own, and one lane on all: `call` runs the function `both`."""
    return f"""
        {MESH}
        body = lambda x: {EACH}
        split = jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"){check})
        replicated = jax.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P(){check})

        def both(x):
            return {{"split": split(x), "one lane, replicated": replicated(x[:1])}}

        return {call}
    """


def _spmd(check: str) -> str:
    """A vmap whose lanes are placed along a mesh axis, around a shard_map over another."""
    return f"""
        mesh = Mesh(np.array(jax.devices()[:6]).reshape(2, 3), ("j", "i"))
        split = jax.shard_map(lambda x: {EACH}, mesh=mesh, in_specs=P("i"), out_specs=P("i"){check})

        def mapped(x):
            both = jax.vmap(split, in_axes=1, spmd_axis_name="j")(jnp.stack([x, x[::-1]], axis=1))
            return {{"vmap of shard_map": jax.tree.map(lambda y: y[0], both), "its last": jax.tree.map(lambda y: y[1, ::-1], both)}}

        return jax.jit(mapped)(x)
    """


CONTEXTS = {
    "eager": Context(
        'return {"one lane, eagerly": jax.tree.map(lambda y: y[None], lane(jnp.asarray(x[0])))}'
    ),
    "jit": Context(f"""
        return {{"one lane, jitted": jax.jit(lambda x: {EACH})(x)}}
    """),
    "vmap": Context("""
        def mapped(x):
            first = jax.vmap(lane, axis_name="i")(x)
            middle = jax.vmap(lane, in_axes=1, axis_name="i")(jnp.moveaxis(x, 0, 1))
            last = jax.vmap(lane, in_axes=-1, out_axes=-1, axis_name="i")(jnp.moveaxis(x, 0, -1))
            return {"mapped first": first, "mapped in the middle": middle, "mapped last": last}

        results = jax.jit(mapped)(x)
        results["mapped last"] = {name: np.moveaxis(y, -1, 0) for name, y in results["mapped last"].items()}
        return results
    """),
    "map": Context('return {"in a loop": jax.jit(lambda x: lax.map(lane, x))(x)}'),
    "pmap": Context('return {"on devices": jax.pmap(lane, axis_name="i")(x)}', 3),
    "shard_map": Context(_shard_map("", "jax.jit(both)(x)"), 3),
    "unchecked": Context(_shard_map(", check_vma=False", "jax.jit(both)(x)"), 3),
    "eager_shard_map": Context(
        _shard_map("", "both(jnp.asarray(x))"),
        3,
        families=tuple(word for word in FAMILIES if word not in flow.FAMILIES),  # half a minute each
    ),
    "vmap_in_shard_map": Context(
        f"""
        {MESH}
        mapped = jax.vmap(lane, in_axes=1, axis_name="j")
        split = jax.shard_map(lambda x: mapped(jnp.moveaxis(x, 0, 1)), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
        return {{"vmap in shard_map": jax.jit(split)(x)}}
        """,
        3,
    ),
    "vmap_of_shard_map": Context(
        f"""
        {MESH}
        split = jax.shard_map(lambda x: {EACH}, mesh=mesh, in_specs=P("i"), out_specs=P("i"))

        def mapped(x):
            both = jax.vmap(split, in_axes=2, axis_name="j")(jnp.stack([x, x[::-1]], axis=2))
            return {{"vmap of shard_map": jax.tree.map(lambda y: y[0], both), "its last": jax.tree.map(lambda y: y[1, ::-1], both)}}

        return jax.jit(mapped)(x)
        """,
        3,
    ),
    "spmd": Context(_spmd(", check_vma=False"), 6),
    "spmd_checked": Context(_spmd(""), 6),
    "auto": Context(
        """
        mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("i", "j"))
        specs = {"split rows": P("i"), "split columns": P(None, "j"), "split both": P("j", "i")}
        operands = {word: jax.device_put(x[0], NamedSharding(mesh, spec)) for word, spec in specs.items()}
        each = jax.jit(lambda x: jax.tree.map(lambda y: y[None], lane(x)))
        return {f"one lane, {word}": each(operand) for word, operand in operands.items()}
        """,
        4,
    ),
    "partial": Context(
        f"""
        mesh = Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("i", "j"))
        operand = jax.device_put(x, NamedSharding(mesh, P("i", "j")))
        split = jax.shard_map(
            lambda x: {EACH}, mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names={{"i"}}
        )
        return {{"manual over one axis": jax.jit(split)(operand)}}
        """,
        6,
        "0.7.2",  # before, the partitioner ends the process on many operations
        # the compiler puts communication into branches that some positions do not take, and they wait for ever
        tuple(word for word in FAMILIES if word not in ("branches", "flow_derivatives")),
    ),
}


def _probe(word: str, context: Context) -> Probe:
    body = textwrap.indent(textwrap.dedent(context.source).strip("\n").rstrip(), "    ")
    return Probe(
        rule=f"operation.{word}",
        suite="operations",
        source=BEFORE.format(context=body),
        values={family: FAMILIES[family].source() for family in context.families},
        devices=context.devices,
        since=context.since,
        imports=("import jax.numpy as jnp", "import numpy as np", "from jax import lax"),
    )


PROBES = {f"operations_{word}": _probe(word, context) for word, context in CONTEXTS.items()}
