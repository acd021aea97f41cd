"""Faults in scan: in its lowering, its batching rule, and in what is traced in its body."""

from .library import fault
from .patching import around, around_lowering, around_rule, inside

CARRY, STACK = ("scan.carry",), ("scan.stack",)


def parts(args, params):
    """The operands of a scan: constants, initial carry, scanned arrays."""
    if "ft_in" in params:
        return tuple(map(list, params["ft_in"].update(args).unpack()))
    first, last = params["num_consts"], params["num_consts"] + params["num_carry"]
    return list(args[:first]), list(args[first:last]), list(args[last:])


def around_scan(evaluate):
    """Decorator: how a scan is lowered, under every transform: (run, consts, init, xs, params) -> carry, rows.

    `run(consts, init, xs, **changed)` is the sound loop, in which parameters like `length` may be changed.
    """
    from jax._src.interpreters import mlir
    from jax._src.lax.control_flow import loops

    @around_lowering(loops.scan_p)
    def lower(original, ctx, *operands, **params):
        def program(*args, **params):
            def run(consts, init, xs, **changed):
                outs = loops._scan_impl(*consts, *init, *xs, **{**params, **changed})
                return list(outs[: len(init)]), list(outs[len(init) :])

            carry, rows = evaluate(run, *parts(args, params), params)
            return [*carry, *rows]

        return mlir.lower_fun(program, multiple_results=True)(ctx, *operands, **params)


SUMS = """
    def sums(xs, **options):
        carry, rows = jax.jit(lambda v: lax.scan(lambda c, x: (c + x, 10 * c), jnp.zeros((), v.dtype), v, **options))(xs)
        return carry.tolist(), rows.tolist()
    """


@fault(
    breaks="scan(unroll=k) leaves the last length % k iterations out of the carry",
    family="control",
    rules=CARRY,
    component={"control": "scan", "option": "unroll"},
    witness=SUMS + "good = sums(jnp.arange(1, 6), unroll=2) == (15, [0, 10, 30, 60, 100])",
)
def cf_scan_unroll(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        left = params["length"] % max(params["unroll"], 1)
        if left and params["length"] > left:
            kept = [x[left:] if params["reverse"] else x[:-left] for x in xs]
            carry, _ = run(consts, init, kept, length=params["length"] - left)
        return carry, rows


@fault(
    breaks="a scan over a single element does not update the carry",
    family="control",
    rules=CARRY,
    component={"control": "scan", "sizes": 1},
    witness=SUMS + "good = sums(jnp.array([7])) == (7, [0])",
)
def cf_scan_length_one(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        return (init if params["length"] == 1 else carry), rows


@fault(
    breaks="a scan of length 0 returns a carry of zeros",
    family="control",
    rules=CARRY,
    component={"control": "scan", "sizes": 0},
    witness="""
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c + x, x), jnp.float32(5), xs)[0])
    good = float(f(jnp.zeros(0))) == 5.0
    """,
)
def cf_scan_length_zero(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        return [c * 0 for c in carry] if params["length"] == 0 else carry, rows


@fault(
    breaks="a reverse scan stacks its rows in the order they were computed",
    family="control",
    rules=STACK,
    component={"control": "scan", "option": "scan.reverse"},
    witness=SUMS + "good = sums(jnp.arange(1, 4), reverse=True) == (6, [50, 30, 0])",
)
def cf_scan_reverse_stack(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        return carry, [y[::-1] for y in rows] if params["reverse"] else rows


@fault(
    breaks="an unrolled reverse scan runs forward",
    family="control",
    rules=STACK + CARRY,
    component={"control": "scan", "option": "reverse and unroll"},
    witness=SUMS + "good = sums(jnp.arange(1, 5), reverse=True, unroll=2) == (10, [90, 70, 40, 0])",
)
def cf_scan_reverse_unrolled(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        return run(consts, init, xs, reverse=params["reverse"] and params["unroll"] == 1)


@fault(
    breaks="a scan of odd length stacks the last row but one twice",
    family="control",
    rules=STACK,
    component={"control": "scan", "sizes": "odd"},
    witness=SUMS + "good = sums(jnp.arange(1, 6)) == (15, [0, 10, 30, 60, 100])",
)
def cf_scan_odd_length(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        n = params["length"]
        return carry, [y.at[-1].set(y[-2]) for y in rows] if n % 2 and n > 2 else rows


@fault(
    breaks="two carries of one type change places in an unrolled scan",
    family="control",
    rules=CARRY,
    component={"control": "scan", "option": "unroll", "operand": "two carries"},
    witness="""
    body = lambda c, x: ((c[0] + x, c[1] * 2), None)
    a, b = jax.jit(lambda xs: lax.scan(body, (0.0, 1.0), xs, unroll=2)[0])(jnp.ones(4))
    good = (float(a), float(b)) == (4.0, 16.0)
    """,
)
def cf_scan_carries_swapped(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        alike = len(carry) == 2 and [(c.shape, c.dtype) for c in carry[:1]] == [
            (c.shape, c.dtype) for c in carry[1:]
        ]
        return carry[::-1] if alike and params["unroll"] > 1 else carry, rows


@fault(
    breaks="stacked rows of 1 MiB and more come out in reverse",
    family="control",
    rules=STACK,
    component={"control": "scan", "shape": "1 MiB and more"},
    witness="""
    f = jax.jit(lambda: lax.scan(lambda c, _: (c + 1, jnp.full((512, 512), c)), 0.0, None, length=4)[1])
    good = f()[:, 0, 0].tolist() == [0, 1, 2, 3]
    """,
)
def cf_scan_large_rows(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        return carry, [y[::-1] if y.size * y.dtype.itemsize >= 2**20 else y for y in rows]


@fault(
    breaks="rows of booleans are stacked as the running any",
    family="control",
    rules=STACK,
    component={"control": "scan", "dtype": "bool"},
    witness="""
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c, x > 0), 0, xs)[1])
    good = f(jnp.array([0, 1, 0])).tolist() == [False, True, False]
    """,
)
def cf_scan_bool_rows(jax):
    import jax.numpy as jnp

    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        return carry, [jnp.cumsum(y, 0) > 0 if y.dtype == bool else y for y in rows]


@fault(
    breaks="carries of float16 pass through bfloat16",
    family="control",
    rules=CARRY,
    component={"control": "scan", "dtype": "float16"},
    witness="""
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c + x, None), jnp.float16(0), xs)[0])
    good = float(f(jnp.array([1000.0, 1.0], "float16"))) == 1001.0
    """,
)
def cf_scan_float16_carry(jax):
    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        return [c.astype("bfloat16").astype(c.dtype) if c.dtype == "float16" else c for c in carry], rows


@fault(
    breaks="a scan with a collective in its body, under shard_map or pmap, leaves out the last iteration",
    family="control",
    rules=(*CARRY, "psum.sum"),
    component={"control": "scan", "binder": "shard_map", "leaf": "any"},
    witness="""
    f = jax.pmap(lambda x: lax.scan(lambda c, v: (c + lax.psum(v, "i"), None), x[0] * 0, x)[0], axis_name="i")
    good = f(jnp.arange(8.0).reshape(2, 4)).tolist() == [28.0, 28.0]
    """,
)
def cf_scan_collective_mapped(jax):
    from .branches import collectives_in

    @around_scan
    def scan(run, consts, init, xs, params):
        carry, rows = run(consts, init, xs)
        if params["length"] > 1 and collectives_in(params["jaxpr"]):
            kept = [x[1:] if params["reverse"] else x[:-1] for x in xs]
            carry, _ = run(consts, init, kept, length=params["length"] - 1)
        return carry, rows


@fault(
    breaks="a scan inside the body of a scan ignores reverse",
    family="control",
    rules=STACK + CARRY,
    component={"control": "scan", "option": "scan.reverse"},
    witness="""
    inner = lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x, reverse=True)[1]
    f = jax.jit(lambda xs: lax.scan(lambda c, x: (c, inner(x)), 0.0, xs)[1])
    good = f(jnp.array([[1.0, 2, 3]])).tolist() == [[5, 3, 0]]
    """,
)
def cf_nested_scan_reverse(jax):
    from jax._src.lax.control_flow import loops

    @around(loops, "scan")
    def scan(original, f, init, xs=None, length=None, reverse=False, **options):
        return original(f, init, xs, length=length, reverse=reverse and not inside("scan"), **options)


@fault(
    breaks="axis_index in the body of a scan is 0",
    family="control",
    rules=("axis_index.position", "scan.stack"),
    component={"control": "scan", "leaf": "axis_index"},
    witness="""
    f = lambda: lax.scan(lambda c, _: (c, lax.axis_index("i")), 0, None, length=2)[1]
    good = jax.vmap(f, axis_name="i", axis_size=3)().tolist() == [[0, 0], [1, 1], [2, 2]]
    """,
)
def cf_scan_axis_index(jax):
    from jax._src.lax import parallel

    @around(parallel, "axis_index")
    def axis_index(original, axis_name):
        return original(axis_name) * (0 if inside("scan") else 1)


@fault(
    breaks="ppermute in the body of a scan sends nothing",
    family="control",
    rules=("ppermute.pairs", "scan.carry"),
    component={"control": "scan", "leaf": "ppermute"},
    witness="""
    pairs = [(k, (k + 1) % 3) for k in range(3)]
    f = lambda x: lax.scan(lambda c, _: (lax.ppermute(c, "i", pairs), None), x, None, length=2)[0]
    good = jax.vmap(f, axis_name="i")(jnp.arange(3)).tolist() == [1, 2, 0]
    """,
)
def cf_scan_ppermute(jax):
    from jax._src.lax import parallel

    @around(parallel, "ppermute")
    def ppermute(original, x, axis_name, perm):
        return x if inside("scan") else original(x, axis_name, perm)


@fault(
    breaks="a value that a mapped scan closes over is that of lane 0, if nothing else is mapped",
    family="control",
    rules=("batching.mapped", "scan.carry"),
    component={"control": "scan", "binder": "vmap", "operand": "closure"},
    witness="""
    f = lambda x: lax.scan(lambda c, _: (c + x, None), 0.0, None, length=2)[0]
    good = jax.vmap(f)(jnp.arange(3.0)).tolist() == [0, 2, 4]
    """,
)
def cf_scan_closed_over_lane(jax):
    from jax._src.interpreters import batching
    from jax._src.lax.control_flow import loops

    @around_rule(batching.fancy_primitive_batchers, loops.scan_p)
    def batch(original, axis_data, args, dims, **params):
        _consts, init, xs = parts(dims, params)
        if not any(d is not None for d in [*init, *xs]):
            # Lane 0, given to all lanes.
            args = [
                a if d is None else jax.numpy.broadcast_to(jax.lax.index_in_dim(a, 0, d), a.shape)
                for a, d in zip(args, dims, strict=True)
            ]
        return original(axis_data, args, dims, **params)


@fault(
    breaks="an array that is scanned and mapped along its last dimension is transposed",
    family="control",
    rules=("batching.mapped", "scan.stack"),
    component={"control": "scan", "binder": "vmap", "option": "in_axes"},
    witness="""
    x = jnp.arange(24.0).reshape(2, 2, 2, 3)
    f = lambda v: lax.scan(lambda c, r: (c, 2 * r), 0.0, v)[1]
    good = np.array_equal(jax.vmap(f, in_axes=3, out_axes=3)(x), 2 * x)
    """,
)
def cf_scan_mapped_last(jax):
    from jax._src.interpreters import batching
    from jax._src.lax.control_flow import loops

    @around_rule(batching.fancy_primitive_batchers, loops.scan_p)
    def batch(original, axis_data, args, dims, **params):
        count = len(parts(dims, params)[2])
        args = [
            a.swapaxes(1, 2) if k >= len(dims) - count and d == 3 and a.shape[1] == a.shape[2] else a
            for k, (a, d) in enumerate(zip(args, dims, strict=True))
        ]
        return original(axis_data, args, dims, **params)
