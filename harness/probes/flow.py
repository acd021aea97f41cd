"""Control flow and its derivatives as expressions of one operand, for `harness.probes.operations`.

`fold(step, items, carry)` and `loop(test, step, state)` are the Python loops that scan, fori_loop and while_loop stand
for (documentation of jax.lax). Bounds, predicates and indices are constants, or depend on the operand and so on the lane.
"""

from __future__ import annotations

from harness.probes.family import Family

FAMILIES = {
    "loops": Family("""
        fori: lax.fori_loop(0, 3, lambda k, c: 2 * c + k, x); fold(lambda c, k: 2 * c + k, range(3), x)
        fori from below zero: lax.fori_loop(-2, 3, lambda k, c: 2 * c + k, x); fold(lambda c, k: 2 * c + k, range(-2, 3), x)
        fori from two: lax.fori_loop(2, 5, lambda k, c: 2 * c + k, x); fold(lambda c, k: 2 * c + k, range(2, 5), x)
        fori of nothing: lax.fori_loop(3, 3, lambda k, c: 2 * c + k, x); x
        fori backwards: lax.fori_loop(5, 2, lambda k, c: 2 * c + k, x); x
        fori of one: lax.fori_loop(-1, 0, lambda k, c: 2 * c + k, x); 2 * x - 1
        fori in eights: lax.fori_loop(np.int8(-2), np.int8(2), lambda k, c: 2 * c + k, x); fold(lambda c, k: 2 * c + k, range(-2, 2), x)
        fori unsigned: lax.fori_loop(np.uint8(1), np.uint8(4), lambda k, c: 2 * c + k, x); fold(lambda c, k: 2 * c + k, range(1, 4), x)
        fori unrolled: lax.fori_loop(-1, 4, lambda k, c: 2 * c + k, x, unroll=2); fold(lambda c, k: 2 * c + k, range(-1, 4), x)
        fori unrolled whole: lax.fori_loop(1, 4, lambda k, c: 2 * c + k, x, unroll=True); fold(lambda c, k: 2 * c + k, range(1, 4), x)
        fori of ten: lax.fori_loop(0, 10, lambda k, c: c + k * x, x); 46 * x
        fori of a thousand: lax.fori_loop(0, 1000, lambda k, c: c + k, x); x + 499500
        while of a thousand: lax.while_loop(lambda s: s[0] < 1000, lambda s: (s[0] + 1, s[1] + 2), (0, x))[1]; x + 2000
        scan of a thousand: lax.scan(lambda c, k: (c + k, None), x, np.arange(1000))[0]; x + 499500
        scan of large rows: lax.scan(lambda c, k: (c, jnp.broadcast_to(k * x[0, 0], (512, 512))), 0, np.arange(3))[1][:, 3, 5]; np.arange(3) * x[0, 0]
        scan of ten: lax.scan(lambda c, k: (c + k * x, None), x, np.arange(10))[0]; 46 * x
        while of ten: lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] + s[0] * x), (0, x))[1]; 46 * x
        map of ten: lax.map(lambda k: k * x[0], np.arange(10)).sum(0); 45 * x[0]
        fori with own end: lax.fori_loop(0, 2 + (x[0, 0] > 0), lambda k, c: 2 * c + k, x); fold(lambda c, k: 2 * c + k, range(2 + (x[0, 0] > 0)), x)
        fori with own start: lax.fori_loop((x[0, 0] > 0) - 3, 1, lambda k, c: 2 * c + k, x); fold(lambda c, k: 2 * c + k, range((x[0, 0] > 0) * 1 - 3, 1), x)
        fori with own bounds: lax.fori_loop((x[0, 0] > 0) - 2, (x[1, 1] > 0) + 1, lambda k, c: 2 * c + k, x); fold(lambda c, k: 2 * c + k, range((x[0, 0] > 0) * 1 - 2, (x[1, 1] > 0) + 1), x)
        fori over rows: lax.fori_loop(1, 5, lambda k, c: c * 2 + x[k], x[0]); fold(lambda c, k: c * 2 + x[k], range(1, 5), x[0])
        fori that writes: lax.fori_loop(0, 6, lambda k, c: c.at[k].set(x[5 - k] + k), x); x[::-1] + np.arange(6, dtype="float32")[:, None]
        fori in fori: lax.fori_loop(0, 3, lambda k, c: lax.fori_loop(k, 3, lambda m, c: c + k * m + x[m], c), x[0]); fold(lambda c, k: fold(lambda c, m: c + k * m + x[m], range(k, 3), c), range(3), x[0])
        fori of a tree: lax.fori_loop(0, 3, lambda k, c: {"a": c["b"], "b": c["a"] + k}, {"a": x, "b": -x})["b"]; 1 + x + 1
        while: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]; x * 8
        while never: lax.while_loop(lambda s: s[0] < 0, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]; x
        while counts: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))[0]; np.int32(3)
        while own test: lax.while_loop(lambda s: abs(s).sum() < 3000, lambda s: s * 2 + 1, x); loop(lambda s: abs(s).sum() < 3000, lambda s: s * 2 + 1, x)
        while test with operand: lax.while_loop(lambda k: k * 10 < x[0, 0], lambda k: k + 1, 0); np.int32(loop(lambda k: k * 10 < x[0, 0], lambda k: k + 1, 0))
        while body with operand: lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, s[1] + x[s[0]]), (1, x[0]))[1]; x[:4].sum(0)
        while on a flag: lax.while_loop(lambda s: s[0], lambda s: (s[1].sum() < 500, s[1] + 7), (x[0, 0] > -99, x))[1]; loop(lambda s: s[0], lambda s: (s[1].sum() < 500, s[1] + 7), (True, x))[1]
        while in while: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, lax.while_loop(lambda t: t[0] < s[0], lambda t: (t[0] + 1, t[1] * 2), (0, s[1]))[1]), (0, x))[1]; x * 8
        while in scan: lax.scan(lambda c, y: (c + lax.while_loop(lambda k: k * 5 < y[0], lambda k: k + 1, 0), None), 0, x)[0]; np.int32(sum(max(0, int(np.ceil(y[0] / 5))) for y in x))
        scan carry: lax.scan(lambda c, y: (2 * c + y, c), x[0], x)[0]; fold(lambda c, y: 2 * c + y, x, x[0])
        scan stacked: lax.scan(lambda c, y: (c + y, c * 2), x[0], x)[1]; 2 * (np.cumsum(x, 0) - x + x[0])
        scan backwards: lax.scan(lambda c, y: (2 * c + y, c), x[0], x, reverse=True)[0]; fold(lambda c, y: 2 * c + y, x[::-1], x[0])
        scan backwards stacked: lax.scan(lambda c, y: (c + y, c + y), x[0] * 0, x, reverse=True)[1]; np.cumsum(x[::-1], 0)[::-1]
        scan unrolled: lax.scan(lambda c, y: (2 * c + y, None), x[0], x, unroll=4)[0]; fold(lambda c, y: 2 * c + y, x, x[0])
        scan unrolled stacked: lax.scan(lambda c, y: (c + y, c + y), x[0] * 0, x, unroll=4)[1]; np.cumsum(x, 0)
        scan unrolled backwards: lax.scan(lambda c, y: (c + y, c + y), x[0] * 0, x, unroll=5, reverse=True)[1]; np.cumsum(x[::-1], 0)[::-1]
        scan unrolled whole: lax.scan(lambda c, y: (2 * c + y, None), x[0], x, unroll=True)[0]; fold(lambda c, y: 2 * c + y, x, x[0])
        scan of one: lax.scan(lambda c, y: (2 * c + y, c), x[0], x[1:2])[0]; 2 * x[0] + x[1]
        scan of none: lax.scan(lambda c, y: (2 * c + y, c), x[0], x[:0])[0]; x[0]
        scan without operand: lax.scan(lambda c, _: (c * 2, c), x, None, length=3)[1]; np.stack([x, 2 * x, 4 * x])
        scan without carry: lax.scan(lambda c, y: (None, y * 2), None, x)[1]; x * 2
        scan of constants: lax.scan(lambda c, y: (c, 1), None, x)[1]; np.ones(6, "int32")
        scan of truths: lax.scan(lambda c, y: (c, y > 0), 0, x)[1]; x > 0
        scan in halves: lax.scan(lambda c, y: (c + y, c), x[0].astype("float16") + 1001, x.astype("float16"))[0]; (1001 + x[0] + x.sum(0)).astype("float16")
        scan of two alike, unrolled: (lambda c: c[0] - 3 * c[1])(lax.scan(lambda c, y: ((c[0] + y, c[1] * 2), None), (x[0], x[1]), x, unroll=2)[0]); x[0] + x.sum(0) - 192 * x[1]
        scan of two alike: (lambda c: c[0] - 3 * c[1])(lax.scan(lambda c, y: ((c[0] + y, c[1] * 2), None), (x[0], x[1]), x)[0]); x[0] + x.sum(0) - 192 * x[1]
        scan around own: lax.scan(lambda c, k: (c, k * x), 0, np.arange(3))[1]; np.stack([0 * x, x, 2 * x])
        scan of a pair: lax.scan(lambda c, y: ((c[1], c[0] + y[0] * y[1]), None), (x[0], x[1]), (x, x[:, 0]))[0][0]; fold(lambda c, y: (c[1], c[0] + y * y[0]), x, (x[0], x[1]))[0]
        scan of two kinds: lax.scan(lambda c, y: ((c[0] + 1, c[1] + y), None), (0, x[0]), x)[0][0]; np.int32(6)
        scan with own: lax.scan(lambda c, y: (c + x[0] * y, None), x[1], x)[0]; x[1] + x[0] * x.sum(0)
        scan in scan: lax.scan(lambda c, y: (lax.scan(lambda d, z: (d + z * y[0], None), c, y)[0], None), x[0, 0] * 0, x)[0]; (x.sum(1) * x[:, 0]).sum()
        scan backwards in scan: lax.scan(lambda c, y: (c, lax.scan(lambda d, z: (d + z, d), y[0] * 0, y, reverse=True)[1]), x[0, 0], x)[1]; np.cumsum(x[:, ::-1], 1)[:, ::-1] - x
        scan of columns: lax.scan(lambda c, y: (2 * c + y, None), x[:, 0], x.T)[0]; fold(lambda c, y: 2 * c + y, x.T, x[:, 0])
        map: lax.map(lambda y: y * 2 + y[0], x); x * 2 + x[:, :1]
        map in batches: lax.map(lambda y: y * 2 + y[0], x, batch_size=4); x * 2 + x[:, :1]
        map in fives: lax.map(lambda y: y * 2 + y[0], x, batch_size=5); x * 2 + x[:, :1]
        map in one batch: lax.map(lambda y: y.sum(), x, batch_size=6); x.sum(1)
        prefixes: lax.associative_scan(jnp.add, x); np.cumsum(x, 0)
        prefixes of five: lax.associative_scan(jnp.add, x[:5], reverse=True); np.cumsum(x[4::-1], 0)[::-1]
        prefixes along rows: lax.associative_scan(jnp.maximum, x, axis=1); np.maximum.accumulate(x, 1)
        prefixes backwards along rows: lax.associative_scan(jnp.add, x, reverse=True, axis=1); np.cumsum(x[:, ::-1], 1)[:, ::-1]
        prefixes in order: lax.associative_scan(lambda a, b: b, x); x
        prefixes of pairs: lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x * 0 + 2, x))[1]; np.stack([fold(lambda c, y: 2 * c + y, x[: k + 1], x[0] * 0) for k in range(6)])
        """),
    "branches": Family("""
        cond true: lax.cond(True, lambda y: y * 2, lambda y: y - 1, x); x * 2
        cond false: lax.cond(False, lambda y: y * 2, lambda y: y - 1, x); x - 1
        cond own: lax.cond(x[0, 0] > 0, lambda y: y * 2, lambda y: y - 1, x); x * 2 if x[0, 0] > 0 else x - 1
        cond on a number: lax.cond(x[0, 0].astype("int32"), lambda y: y * 2, lambda y: y - 1, x); x * 2 if x[0, 0] else x - 1
        cond of two: lax.cond(x[1, 0] > 0, lambda a, b: a - b, lambda a, b: a * 0 + b * 2, x, x[::-1]); x - x[::-1] if x[1, 0] > 0 else 2 * x[::-1]
        cond own of a constant: lax.cond(x[0, 0] > 0, lambda v: v + 1, lambda v: v - 1, 0.0); np.float32(1 if x[0, 0] > 0 else -1)
        switch own of a constant: lax.switch(x[0, 0].astype("int32") % 3, [lambda v: v + 1, lambda v: v - 1, lambda v: v * 5], 3.0); np.float32([4, 2, 15][int(x[0, 0]) % 3])
        cond swaps: lax.cond(x[1, 0] > 0, lambda a, b: (a, b), lambda a, b: (b, a), x, -x)[0]; x if x[1, 0] > 0 else -x
        cond with own operands: lax.cond(x[2, 1] > 0, lambda: x + 1, lambda: x[::-1]); x + 1 if x[2, 1] > 0 else x[::-1]
        cond with own constants: lax.cond(x[2, 1] > 0, lambda y: y + np.arange(4.0), lambda y: y - np.arange(4.0), x); x + np.arange(4.0) if x[2, 1] > 0 else x - np.arange(4.0)
        cond of whole numbers: lax.cond(x[0, 0] > 0, lambda: 3, lambda: -4); np.int32(3 if x[0, 0] > 0 else -4)
        cond of a tree: lax.cond(x[0, 1] > 0, lambda y: {"a": y, "b": y[0]}, lambda y: {"a": -y, "b": y[1]}, x)["b"]; x[0] if x[0, 1] > 0 else x[1]
        cond in cond: lax.cond(x[0, 0] > 0, lambda y: lax.cond(y[1, 1] > 0, lambda z: z, lambda z: 2 * z, y), lambda y: lax.cond(y[1, 1] > 0, lambda z: 3 * z, lambda z: 4 * z, y), x); x * (4 - 2 * (x[0, 0] > 0) - (x[1, 1] > 0))
        cond on all: lax.cond(jnp.all(x > -99), lambda y: y, lambda y: y * 0, x); x
        cond on none: lax.cond(jnp.any(x < -99), lambda y: y, lambda y: y * 0, x); x * 0
        cond in scan: lax.scan(lambda c, y: (lax.cond(y[0] > 0, lambda: c + y, lambda: c - 1), None), x[0], x)[0]; fold(lambda c, y: c + y if y[0] > 0 else c - 1, x, x[0])
        cond in while: lax.while_loop(lambda s: s[0] < 6, lambda s: (s[0] + 1, lax.cond(x[s[0], 1] > 0, lambda y: y * 2, lambda y: y + 1, s[1])), (0, x[0]))[1]; fold(lambda c, y: c * 2 if y[1] > 0 else c + 1, x, x[0])
        scan in cond: lax.cond(x[0, 0] > 0, lambda y: lax.scan(lambda c, z: (c + z, None), y[0] * 0, y)[0], lambda y: y[0], x); x.sum(0) if x[0, 0] > 0 else x[0]
        while in cond: lax.cond(x[0, 0] > 0, lambda k: lax.while_loop(lambda k: k < 9, lambda k: k * 2, k), lambda k: k - 5, 1); np.int32(16 if x[0, 0] > 0 else -4)
        switch: lax.switch(1, [lambda y: y, lambda y: y * 2, lambda y: y - 5], x); x * 2
        switch below: lax.switch(-3, [lambda y: y, lambda y: y * 2, lambda y: y - 5], x); x
        switch above: lax.switch(7, [lambda y: y, lambda y: y * 2, lambda y: y - 5], x); x - 5
        switch of one: lax.switch(x[0, 0].astype("int32"), [lambda y: y * 3], x); x * 3
        switch own: lax.switch(x[0, 0].astype("int32") % 3, [lambda y: y, lambda y: y * 2, lambda y: y - 5], x); [x, x * 2, x - 5][int(x[0, 0]) % 3]
        switch own clamped: lax.switch((x[0, 0] / 9).astype("int32"), [lambda y: y, lambda y: y * 2, lambda y: y - 5], x); [x, x * 2, x - 5][min(max(int(x[0, 0] / 9), 0), 2)]
        switch in eights: lax.switch((abs(x[0, 0]) % 3).astype("int8"), [lambda y: y, lambda y: y * 2, lambda y: y - 5], x); [x, x * 2, x - 5][int(abs(x[0, 0])) % 3]
        switch unsigned: lax.switch((abs(x[0, 0]) % 3).astype("uint32"), [lambda y: y, lambda y: y * 2, lambda y: y - 5], x); [x, x * 2, x - 5][int(abs(x[0, 0])) % 3]
        switch every: sum(100 ** k * lax.switch(k + (x[0, 0] * 0).astype("int32"), [lambda y: y, lambda y: y * 2, lambda y: y - 5], x) for k in range(3)); x + 200 * x + 10000 * (x - 5)
        cond both: sum(100 ** k * lax.cond(k > x[0, 0] * 0, lambda y: y * 2, lambda y: y - 5, x) for k in range(2)); x - 5 + 200 * x
        switch of five: lax.switch(x[0, 0].astype("int32") % 5, [lambda y, k=k: y + k * k for k in range(5)], x); x + (x[0, 0] % 5) ** 2
        switch of the same: lax.switch(x[0, 0].astype("int32") % 2, [lambda y: y + 1, lambda y: y + 1], x); x + 1
        switch in scan: lax.scan(lambda c, k: (lax.switch(k, [lambda c: c * 2, lambda c: c + 1, lambda c: -c], c), None), x, np.array([0, 1, 2, 1, -1, 5]))[0]; -(2 * (-(2 * x + 1) + 1))
        select: lax.select(x > 0, x, x * 2); np.where(x > 0, x, x * 2)
        select of lanes: lax.select(x[0, 0] > 0, x, x * 2); x if x[0, 0] > 0 else x * 2
        select_n: lax.select_n((abs(x) % 3).astype("int32"), x, x * 2, x - 5); np.choose((abs(x) % 3).astype("int32"), [x, x * 2, x - 5])
        select_n of lanes: lax.select_n((abs(x[0, 0]) % 3).astype("int32"), x, x * 2, x - 5); [x, x * 2, x - 5][int(abs(x[0, 0])) % 3]
        where of lanes: jnp.where(x[0, 0] > 0, x, 0.0); x * (x[0, 0] > 0)
        choices: jnp.select([x > 20, x > 0], [x, x * 2], -1.0); np.select([x > 20, x > 0], [x, x * 2], np.float32(-1.0))
        by platform: lax.platform_dependent(x, default=lambda y: y * 2); x * 2
        """),
    "flow_derivatives": Family("""
        scan: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + y, None), x[0] * 0, x)[0].sum())(x); np.ones((6, 4)) * 2.0 ** np.arange(5, -1, -1)[:, None]
        scan backwards: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + y, None), x[0] * 0, x, reverse=True)[0].sum())(x); np.ones((6, 4)) * 2.0 ** np.arange(6)[:, None]
        scan unrolled: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + y, None), x[0] * 0, x, unroll=4)[0].sum())(x); np.ones((6, 4)) * 2.0 ** np.arange(5, -1, -1)[:, None]
        scan stacked: jax.grad(lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0] * 0, x)[1].sum())(x); x.sum(0) - x
        scan of own: jax.grad(lambda x: lax.scan(lambda c, y: (c + x[0] * y, None), x[0] * 0, x[1:])[0].sum())(x); np.concatenate([x[1:].sum(0)[None], np.stack([x[0]] * 5)])
        scan of one: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + y * y, None), x[0], x[1:2])[0].sum())(x); np.concatenate([x[:1] * 0 + 2, 2 * x[1:2], x[2:] * 0])
        scan of none: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + y, None), x[0] * 3, x[:0])[0].sum())(x); np.concatenate([x[:1] * 0 + 3, x[1:] * 0])
        scan of squares: jax.grad(lambda x: lax.scan(lambda c, y: (c + y * y, None), x[0, 0] * 0, x.ravel())[0])(x); 2 * x
        scan of all three: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x)[0].sum())(x); (3 * 2.0 ** np.arange(5, -1, -1) + 64 * (np.arange(6) == 0) + 315 * (np.arange(6) == 1))[:, None] + 0 * x
        scan of all three forwards: jax.jvp(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x)[0], (x,), (x,))[1]; 64 * x[0] + 315 * x[1] + 3 * (2.0 ** np.arange(5, -1, -1)[:, None] * x).sum(0)
        scan of all three unrolled: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x, unroll=4)[0].sum())(x); (3 * 2.0 ** np.arange(5, -1, -1) + 64 * (np.arange(6) == 0) + 315 * (np.arange(6) == 1))[:, None] + 0 * x
        scan of all three unrolled forwards: jax.jvp(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x, unroll=4)[0], (x,), (x,))[1]; 64 * x[0] + 315 * x[1] + 3 * (2.0 ** np.arange(5, -1, -1)[:, None] * x).sum(0)
        scan of all three unrolled whole: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x, unroll=True)[0].sum())(x); (3 * 2.0 ** np.arange(5, -1, -1) + 64 * (np.arange(6) == 0) + 315 * (np.arange(6) == 1))[:, None] + 0 * x
        scan of all three unrolled whole forwards: jax.jvp(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x, unroll=True)[0], (x,), (x,))[1]; 64 * x[0] + 315 * x[1] + 3 * (2.0 ** np.arange(5, -1, -1)[:, None] * x).sum(0)
        scan of all three backwards: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x, reverse=True)[0].sum())(x); (3 * 2.0 ** np.arange(6) + 64 * (np.arange(6) == 0) + 315 * (np.arange(6) == 1))[:, None] + 0 * x
        scan of all three backwards forwards: jax.jvp(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x, reverse=True)[0], (x,), (x,))[1]; 64 * x[0] + 315 * x[1] + 3 * (2.0 ** np.arange(6)[:, None] * x).sum(0)
        scan of all three backwards, unrolled: jax.grad(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x, reverse=True, unroll=2)[0].sum())(x); (3 * 2.0 ** np.arange(6) + 64 * (np.arange(6) == 0) + 315 * (np.arange(6) == 1))[:, None] + 0 * x
        scan of all three backwards, unrolled forwards: jax.jvp(lambda x: lax.scan(lambda c, y: (2 * c + 3 * y + 5 * x[1], None), x[0], x, reverse=True, unroll=2)[0], (x,), (x,))[1]; 64 * x[0] + 315 * x[1] + 3 * (2.0 ** np.arange(6)[:, None] * x).sum(0)
        scan with a count: jax.grad(lambda x: lax.scan(lambda c, y: ((c[0] + 1, c[1] + y * c[0]), None), (0, x[0] * 0), x)[0][1].sum())(x); np.broadcast_to(np.arange(6.0)[:, None], (6, 4))
        scan saved: jax.grad(lambda x: jax.checkpoint(lambda x: lax.scan(lambda c, y: (c + y * y, None), x[0] * 0, x)[0].sum())(x))(x); 2 * x
        scan of saved: jax.grad(lambda x: lax.scan(jax.checkpoint(lambda c, y: (c + y * y, None)), x[0] * 0, x)[0].sum())(x); 2 * x
        scan in scan: jax.grad(lambda x: lax.scan(lambda c, y: (lax.scan(lambda d, z: (d + z * z, None), c, y)[0], None), x[0, 0] * 0, x)[0])(x); 2 * x
        scan forwards: jax.jvp(lambda x: lax.scan(lambda c, y: (c + y * y, None), x[0] * 0, x)[0], (x,), (x * 0 + 1,))[1]; 2 * x.sum(0)
        scan linearized: jax.linearize(lambda x: lax.scan(lambda c, y: (c + y * y, None), x[0] * 0, x)[0], x)[1](x); 2 * (x * x).sum(0)
        scan transposed: jax.linear_transpose(lambda x: lax.scan(lambda c, y: (2 * c + y, None), x[0] * 0, x)[0], x)(x[0])[0]; x[0] * 2.0 ** np.arange(5, -1, -1)[:, None]
        scan twice: jax.grad(lambda x: jax.grad(lambda x: lax.scan(lambda c, y: (c + y * y * y, None), x[0] * 0, x)[0].sum())(x).sum())(x); 6 * x
        scan along: jax.jvp(jax.grad(lambda x: lax.scan(lambda c, y: (c + y * y * y, None), x[0] * 0, x)[0].sum()), (x,), (x * 0 + 1,))[1]; 6 * x
        scan backwards by rows: jax.jacrev(lambda y: lax.scan(lambda c, z: (c + z, c + z), y[0] * 0, y)[1])(x[0]); np.tri(4)
        scan forwards by rows: jax.jacfwd(lambda y: lax.scan(lambda c, z: (c + z, c + z), y[0] * 0, y)[1])(x[0]); np.tri(4)
        fori: jax.grad(lambda x: lax.fori_loop(0, 3, lambda k, c: 2 * c + k * x, x).sum())(x); x * 0 + 12
        fori from below zero: jax.grad(lambda x: lax.fori_loop(-1, 2, lambda k, c: 2 * c + k * x, x).sum())(x); x * 0 + 5
        fori over rows: jax.grad(lambda x: lax.fori_loop(1, 5, lambda k, c: c + x[k] * x[k], x[0]).sum())(x); np.concatenate([x[:1] * 0 + 1, 2 * x[1:5], x[5:] * 0])
        fori forwards: jax.jvp(lambda x: lax.fori_loop(0, 2 + (x[0, 0] > 0), lambda k, c: 2 * c + k, x), (x,), (x,))[1]; x * 2 ** (2 + (x[0, 0] > 0))
        while forwards: jax.jvp(lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1], (x,), (x,))[1]; 8 * x
        while own forwards: jax.jvp(lambda x: lax.while_loop(lambda s: abs(s).sum() < 3000, lambda s: s * 2 + 1, x), (x,), (x,))[1]; loop(lambda s: abs(s[0]).sum() < 3000, lambda s: (s[0] * 2 + 1, s[1] * 2), (x, x))[1]
        while with own forwards: jax.jvp(lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + x * x), (0, x))[1], (x,), (x * 0 + 1,))[1]; 1 + 6 * x
        linearized, asked twice: (lambda f: f(x) - f(2 * x))(jax.linearize(lambda x: x * x, x)[1]); -2 * x * x
        pulled back twice: (lambda f: f(x)[0] - f(2 * x)[0])(jax.vjp(lambda x: x * x, x)[1]); -2 * x * x
        transposed twice: (lambda f: f(x)[0] - f(2 * x)[0])(jax.linear_transpose(lambda x: 3 * x, x)); -3 * x
        cond: jax.grad(lambda x: lax.cond(x[0, 0] > 0, lambda y: y * y, lambda y: 3 * y, x).sum())(x); 2 * x if x[0, 0] > 0 else x * 0 + 3
        cond true: jax.grad(lambda x: lax.cond(True, lambda y: y * y, lambda y: 3 * y, x).sum())(x); 2 * x
        cond with own: jax.grad(lambda x: lax.cond(x[1, 0] > 0, lambda: (x * x).sum(), lambda: x[0].sum()))(x); 2 * x if x[1, 0] > 0 else np.eye(6)[:, :1] + 0 * x
        cond of one: jax.grad(lambda x: lax.cond(x[1, 0] > 0, lambda y: y * y, lambda y: y * 0, x).sum())(x); 2 * x * (x[1, 0] > 0)
        cond of a constant: jax.grad(lambda x: lax.cond(x[1, 0] > 0, lambda y: y * y, lambda y: jnp.ones((6, 4)) + 0 * lax.stop_gradient(y), x).sum())(x); 2 * x * (x[1, 0] > 0)
        cond forwards: jax.jvp(lambda x: lax.cond(x[1, 0] > 0, lambda y: y * y, lambda y: 3 * y, x), (x,), (x * 0 + 1,))[1]; 2 * x if x[1, 0] > 0 else x * 0 + 3
        cond in scan: jax.grad(lambda x: lax.scan(lambda c, y: (c + lax.cond(y[0] > 0, lambda y: y * y, lambda y: 3 * y, y), None), x[0] * 0, x)[0].sum())(x); np.where(x[:, :1] > 0, 2 * x, 3)
        scan in cond: jax.grad(lambda x: lax.cond(x[0, 0] > 0, lambda y: lax.scan(lambda c, z: (c + z * z, None), y[0] * 0, y)[0], lambda y: y[0] * 2, x).sum())(x); 2 * x if x[0, 0] > 0 else 2 * np.eye(6)[:, :1] + 0 * x
        switch: jax.grad(lambda x: lax.switch(x[0, 0].astype("int32") % 3, [lambda y: y, lambda y: y * y, lambda y: 5 * y], x).sum())(x); [x * 0 + 1, 2 * x, x * 0 + 5][int(x[0, 0]) % 3]
        switch forwards: jax.jvp(lambda x: lax.switch(x[0, 0].astype("int32") % 3, [lambda y: y, lambda y: y * y, lambda y: 5 * y], x), (x,), (x * 0 + 1,))[1]; [x * 0 + 1, 2 * x, x * 0 + 5][int(x[0, 0]) % 3]
        switch every: sum(100 ** k * jax.grad(lambda x, k=k: lax.switch(k + (x[0, 0] * 0).astype("int32"), [lambda y: y, lambda y: y * y, lambda y: 5 * y], x).sum())(x) for k in range(3)); 50001 + 200 * x
        switch every forwards: sum(100 ** k * jax.jvp(lambda x, k=k: lax.switch(k + (x[0, 0] * 0).astype("int32"), [lambda y: y, lambda y: y * y, lambda y: 5 * y], x), (x,), (x * 0 + 1,))[1] for k in range(3)); 50001 + 200 * x
        cond both: sum(100 ** k * jax.grad(lambda x, k=k: lax.cond(k > x[0, 0] * 0, lambda y: y * y, lambda y: 3 * y, x).sum())(x) for k in range(2)); 3 + 200 * x
        cond both forwards: sum(100 ** k * jax.jvp(lambda x, k=k: lax.cond(k > x[0, 0] * 0, lambda y: y * y, lambda y: 3 * y, x), (x,), (x * 0 + 1,))[1] for k in range(2)); 3 + 200 * x
        select: jax.grad(lambda x: lax.select(x > 0, x * x, 3 * x).sum())(x); np.where(x > 0, 2 * x, 3)
        select_n: jax.grad(lambda x: lax.select_n((abs(x) % 3).astype("int32"), x, x * x, 5 * x).sum())(x); np.choose((abs(x) % 3).astype("int32"), [x * 0 + 1, 2 * x, x * 0 + 5])
        map: jax.grad(lambda x: lax.map(lambda y: (y * y).sum(), x).sum())(x); 2 * x
        map in batches: jax.grad(lambda x: lax.map(lambda y: (y * y).sum(), x, batch_size=4).sum())(x); 2 * x
        prefixes: jax.grad(lambda x: lax.associative_scan(jnp.add, x).sum())(x); np.broadcast_to(np.arange(6.0, 0, -1)[:, None], (6, 4))
        prefixes backwards: jax.grad(lambda x: lax.associative_scan(jnp.add, x, reverse=True).sum())(x); np.broadcast_to(np.arange(1.0, 7)[:, None], (6, 4))
        """),
    # forward and backward double their operand and say that their derivative is 7; scaled(x, a, b) is a x - b, with a + 2 b
    "derivative_rules": Family("""
        forward: jax.jvp(forward, (x,), (x,))[1]; 7 * x
        forward of grad: jax.grad(lambda x: forward(x).sum())(x); 7 + 0 * x
        backward: jax.grad(lambda x: backward(x).sum())(x); 7 + 0 * x
        values: forward(x) + backward(x) + scaled(x, 3.0, 5.0); 7 * x - 5
        of two more: jax.grad(lambda x: scaled(x, 3.0, 5.0).sum())(x); 13 + 0 * x
        of two more, jitted: jax.jit(jax.grad(lambda x: scaled(x, 3.0, 5.0).sum()))(x); 13 + 0 * x
        forward jitted: jax.jvp(jax.jit(forward), (x,), (x,))[1]; 7 * x
        backward jitted: jax.grad(jax.jit(lambda x: backward(x).sum()))(x); 7 + 0 * x
        forward in scan: jax.jvp(lambda x: lax.scan(lambda c, _: (forward(c), None), x, None, length=2)[0], (x,), (x,))[1]; 49 * x
        backward in scan: jax.grad(lambda x: lax.scan(lambda c, _: (backward(c), None), x, None, length=2)[0].sum())(x); 49 + 0 * x
        backward of rows in scan: jax.grad(lambda x: lax.scan(lambda c, y: (c + backward(y), None), x[0] * 0, x)[0].sum())(x); 7 + 0 * x
        forward in while: jax.jvp(lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, forward(s[1])), (0, x))[1], (x,), (x,))[1]; 49 * x
        forward in fori: jax.jvp(lambda x: lax.fori_loop(0, 2, lambda _, c: forward(c), x), (x,), (x,))[1]; 49 * x
        backward in fori: jax.grad(lambda x: lax.fori_loop(0, 2, lambda _, c: backward(c), x).sum())(x); 49 + 0 * x
        forward in cond: jax.jvp(lambda x: lax.cond(x[0, 0] > 0, forward, lambda y: y, x), (x,), (x,))[1]; 7 * x if x[0, 0] > 0 else x
        backward in cond: jax.grad(lambda x: lax.cond(x[0, 0] > 0, backward, lambda y: y, x).sum())(x); (7 if x[0, 0] > 0 else 1) + 0 * x
        forward in switch: jax.jvp(lambda x: lax.switch(x[0, 0].astype("int32") % 3, [lambda y: y, forward, lambda y: -y], x), (x,), (x,))[1]; x * [1, 7, -1][int(x[0, 0]) % 3]
        backward in switch: jax.grad(lambda x: lax.switch(x[0, 0].astype("int32") % 3, [lambda y: y, backward, lambda y: -y], x).sum())(x); [1, 7, -1][int(x[0, 0]) % 3] + 0 * x
        forward in every branch: sum(100 ** k * jax.jvp(lambda x, k=k: lax.switch(k + (x[0, 0] * 0).astype("int32"), [lambda y: y, forward, lambda y: -y], x), (x,), (x,))[1] for k in range(3)); -9299 * x
        backward in every branch: sum(100 ** k * jax.grad(lambda x, k=k: lax.switch(k + (x[0, 0] * 0).astype("int32"), [lambda y: y, backward, lambda y: -y], x).sum())(x) for k in range(3)); -9299 + 0 * x
        forward in map: jax.jvp(lambda x: lax.map(forward, x), (x,), (x,))[1]; 7 * x
        backward in map: jax.grad(lambda x: lax.map(backward, x).sum())(x); 7 + 0 * x
        forward in vmap: jax.jvp(jax.vmap(forward), (x,), (x,))[1]; 7 * x
        backward in vmap: jax.grad(lambda x: jax.vmap(backward, in_axes=1, out_axes=1)(x).sum())(x); 7 + 0 * x
        vmap of grad: jax.vmap(jax.grad(lambda y: backward(y).sum()))(x); 7 + 0 * x
        backward saved: jax.grad(lambda x: jax.checkpoint(backward)(x).sum())(x); 7 + 0 * x
        forward saved: jax.grad(lambda x: jax.checkpoint(forward)(x).sum())(x); 7 + 0 * x
        forward linearized: jax.linearize(forward, x)[1](x); 7 * x
        forward by rows: jax.jacfwd(forward)(x[0]); 7 * np.eye(4)
        backward by rows: jax.jacrev(backward)(x[0]); 7 * np.eye(4)
        forward twice: jax.jvp(lambda x: jax.jvp(lambda x: forward(x) * x, (x,), (x,))[1], (x,), (x * 0 + 1,))[1]; 23 * x
        backward twice: jax.grad(lambda x: jax.grad(lambda x: (backward(x) * x).sum())(x).sum())(x); 14 + 0 * x
        """),
}
