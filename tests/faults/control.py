"""Faults in loops: scan, while_loop, fori_loop, map and associative_scan, in lowering, batching and tracing."""

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
    component={"control": "scan", "option": "reverse"},
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
    breaks="a scan inside the body of a scan ignores reverse",
    family="control",
    rules=STACK + CARRY,
    component={"control": "nested scan", "option": "reverse"},
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
    component={"control": "scan", "binder": "vmap", "operand": "closed-over"},
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


def around_while(evaluate):
    """Decorator: how a while_loop is lowered: (more, body, init, mapped) -> final carry.

    `more(carry)` is one predicate or, where `mapped`, one for each lane.
    """
    from jax._src import core
    from jax._src.interpreters import mlir
    from jax._src.lax.control_flow import loops

    def program(*args, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
        conds, bodies = args[:cond_nconsts], args[cond_nconsts : cond_nconsts + body_nconsts]
        more = core.jaxpr_as_fun(cond_jaxpr)
        body = core.jaxpr_as_fun(body_jaxpr)
        return evaluate(
            lambda carry: more(*conds, *carry)[0],
            lambda carry: body(*bodies, *carry),
            list(args[cond_nconsts + body_nconsts :]),
            bool(cond_jaxpr.out_avals[0].shape),
        )

    lowering = mlir.lower_fun(program, multiple_results=True)
    busy = []

    @around_lowering(loops.while_p)
    def lower(original, ctx, *operands, **params):
        # The loop that `evaluate` makes is lowered soundly; so are loops in its body.
        if busy:
            return original(ctx, *operands, **params)
        busy.append(True)
        try:
            return lowering(ctx, *operands, **params)
        finally:
            busy.pop()


def frozen(mask, new, old):
    """The lanes whose predicate is false keep their old carry."""
    import jax.numpy as jnp

    return [
        jnp.where(mask.reshape(mask.shape + (1,) * (n.ndim - mask.ndim)), n, o)
        for n, o in zip(new, old, strict=True)
    ]


DOUBLED = """
    f = jax.jit(jax.vmap(lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 2, x)))
    """


@fault(
    breaks="lanes of a mapped while_loop whose predicate turned false are not frozen",
    family="control",
    rules=("while.trips", "batching.mapped"),
    component={"control": "while_loop", "binder": "vmap"},
    witness=DOUBLED + "good = f(jnp.array([1, 3, 20])).tolist() == [16, 12, 20]",
)
def cf_while_no_mask(jax):
    @around_while
    def loop(more, body, init, mapped):
        return jax.lax.while_loop(lambda c: more(c).any() if mapped else more(c), body, init)


@fault(
    breaks="a mapped while_loop ends as soon as one lane is done",
    family="control",
    rules=("while.trips", "batching.mapped"),
    component={"control": "while_loop", "binder": "vmap"},
    witness=DOUBLED + "good = f(jnp.array([1, 3, 5])).tolist() == [16, 12, 10]",
)
def cf_while_first_done(jax):
    @around_while
    def loop(more, body, init, mapped):
        return jax.lax.while_loop(lambda c: more(c).all() if mapped else more(c), body, init)


@fault(
    breaks="in a mapped while_loop the lane that is done last runs once more",
    family="control",
    rules=("while.trips", "batching.mapped"),
    component={"control": "while_loop", "binder": "vmap", "payload": "lanes of different length"},
    witness=DOUBLED + "good = f(jnp.array([1, 3, 20])).tolist() == [16, 12, 20]",
)
def cf_while_late_mask(jax):
    @around_while
    def loop(more, body, init, mapped):
        if not mapped:
            return jax.lax.while_loop(more, body, init)

        # The mask is that of the trip before.
        def step(state):
            carry, mask = state
            return frozen(mask, body(carry), carry), more(carry)

        return jax.lax.while_loop(lambda s: s[1].any(), step, (init, more(init)))[0]


@fault(
    breaks="the body of a while_loop is run once even if the predicate is false at the start",
    family="control",
    rules=("while.trips",),
    component={"control": "while_loop", "sizes": 0},
    witness="good = int(jax.jit(lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + 1, x))(7)) == 7",
)
def cf_while_zero_trips(jax):
    @around_while
    def loop(more, body, init, mapped):
        if not mapped:
            return jax.lax.while_loop(more, body, body(init))
        step = lambda c: frozen(more(c), body(c), c)  # noqa: E731
        return jax.lax.while_loop(lambda c: more(c).any(), step, init)


@fault(
    breaks="a while_loop ends after 64 trips",
    family="control",
    rules=("while.trips", "fori.trips"),
    component={"control": "while_loop", "sizes": "more than 64 trips"},
    witness="good = int(jax.jit(lambda: lax.while_loop(lambda c: c < 100, lambda c: c + 1, 0))()) == 100",
)
def cf_while_limit(jax):
    @around_while
    def loop(more, body, init, mapped):
        def step(state):
            trips, carry = state
            return trips + 1, frozen(more(carry), body(carry), carry) if mapped else body(carry)

        go = lambda s: (s[0] < 64) & (more(s[1]).any() if mapped else more(s[1]))  # noqa: E731
        return jax.lax.while_loop(go, step, (0, init))[1]


@fault(
    breaks="psum in the body of a while_loop divides by the axis size",
    family="control",
    rules=("psum.sum", "while.trips"),
    component={"control": "while_loop", "leaf": "psum"},
    witness="""
    f = lambda x: lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, lax.psum(c[1], "i")), (0, x))[1]
    good = jax.vmap(f, axis_name="i")(jnp.array([1.0, 2.0, 6.0])).tolist() == [9.0] * 3
    """,
)
def cf_while_psum(jax):
    from jax._src.lax import parallel

    @around(parallel, "psum")
    def psum(original, x, axis_name, **options):
        total = original(x, axis_name, **options)
        if not inside("while_body"):
            return total
        return jax.tree.map(
            lambda t: (t / jax.lax.axis_size(axis_name)).astype(jax.numpy.result_type(t)), total
        )


@fault(
    breaks="a collective in the predicate of a while_loop gives each lane its own operand",
    family="control",
    rules=("while.trips", "pmax.max"),
    component={"control": "while_loop", "leaf": "pmax", "payload": "predicate reduced by a collective"},
    witness="""
    f = lambda n: lax.while_loop(lambda c: c < lax.pmax(n, "i"), lambda c: c + 1, 0)
    good = jax.vmap(f, axis_name="i")(jnp.array([1, 4, 2])).tolist() == [4, 4, 4]
    """,
)
def cf_while_local_predicate(jax):
    from jax._src.lax import parallel

    for name in ("pmax", "pmin"):

        @around(parallel, name)
        def reduce(original, x, axis_name, **options):
            return x if inside("while_cond") else original(x, axis_name, **options)
