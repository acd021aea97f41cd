"""Faults in cond, switch, fori_loop, map and associative_scan."""

from .leaves import is_traced
from .library import fault
from .patching import around, around_rule, inside

COND, SWITCH, FORI, PREFIX = (
    ("cond.branch",),
    ("switch.branch",),
    ("fori.trips",),
    ("associative_scan.prefix",),
)
COLLECTIVES = {
    "psum",
    "psum_invariant",
    "pmax",
    "pmin",
    "ppermute",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
}


def collectives_in(jaxpr):
    """The collectives among the equations of a jaxpr, not of those inside it."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return [e for e in jaxpr.eqns if e.primitive.name in COLLECTIVES]


def around_bind(primitive):
    """Decorator: every use of a primitive, eager or traced; the decorated function gets the original bind first."""

    def patch(replacement):
        original = primitive.bind
        primitive.bind = lambda *args, **params: replacement(original, *args, **params)
        return replacement

    return patch


@fault(
    breaks="in a cond with collectives in both branches, the false branch is the true branch",
    family="control",
    rules=COND,
    component={"control": "cond", "leaf": "any"},
    witness="""
    f = jax.jit(lambda x, p: lax.cond(p, lambda v: lax.psum(v, "i"), lambda v: lax.pmax(v, "i"), x))
    call = lambda p: jax.vmap(f, in_axes=(0, None), axis_name="i")(jnp.array([1, 2, 4]), p).tolist()
    good = call(True) == [7] * 3 and call(False) == [4] * 3
    """,
)
def cf_cond_wrong_branch(jax):
    from jax._src.lax.control_flow import conditionals

    @around_bind(conditionals.cond_p)
    def cond(original, index, *operands, branches, **params):
        if len(branches) == 2 and all(map(collectives_in, branches)):
            branches = (branches[1], branches[1])
        return original(index, *operands, branches=branches, **params)


@fault(
    breaks="a cond whose predicate is a Python constant and that has no operands takes the other branch",
    family="control",
    rules=COND,
    component={"control": "cond", "payload": "constant predicate"},
    witness="good = int(lax.cond(True, lambda: 1, lambda: 2)) == 1 and int(lax.cond(False, lambda: 1, lambda: 2)) == 2",
)
def cf_cond_constant(jax):
    from jax._src.lax.control_flow import conditionals

    @around(conditionals, "cond")
    def cond(original, pred, *args, **options):
        if isinstance(pred, bool) and len(args) == 2:
            pred = not pred
        return original(pred, *args, **options)


@fault(
    breaks="an integer predicate of cond is read from its lowest bit",
    family="control",
    rules=COND,
    component={"control": "cond", "dtype": "int32", "payload": "integer predicate"},
    witness="""
    f = jax.jit(lambda n: lax.cond(n, lambda: 1, lambda: 0))
    good = [int(f(n)) for n in (0, 1, 2, 3)] == [0, 1, 1, 1]
    """,
)
def cf_cond_lowest_bit(jax):
    from jax._src.lax.control_flow import conditionals

    @around(conditionals, "cond")
    def cond(original, pred, *args, **options):
        if is_traced(pred) and jax.numpy.issubdtype(pred.dtype, jax.numpy.integer):
            pred = pred & 1
        return original(pred, *args, **options)


@fault(
    breaks="a mapped predicate is inverted if no operand of the cond is mapped",
    family="control",
    rules=(*COND, "batching.mapped"),
    component={"control": "cond", "binder": "vmap", "operand": "unbatched"},
    witness="""
    f = lambda p: lax.cond(p, lambda v: v + 1, lambda v: v - 1, 0.0)
    good = jax.vmap(f)(jnp.array([True, False, True])).tolist() == [1, -1, 1]
    """,
)
def cf_cond_mapped_inverted(jax):
    _map_index(
        lambda index, dims, count: 1 - index if count == 2 and not any(d is not None for d in dims) else index
    )


@fault(
    breaks="a cond over axis_index takes the branch of the lanes of even index, for axes longer than 2",
    family="control",
    rules=(*COND, "batching.mapped"),
    component={"control": "cond", "payload": "predicate per axis index", "sizes": "more than 2"},
    witness="""
    f = lambda x: lax.cond(lax.axis_index("i") < 2, lambda v: v, lambda v: -v, x)
    good = jax.vmap(f, axis_name="i")(jnp.arange(1, 5)).tolist() == [1, 2, -3, -4]
    """,
)
def cf_cond_neighbour(jax):
    import jax.numpy as jnp

    def change(index, dims, count):
        if count != 2 or index.ndim != 1 or index.shape[0] <= 2:
            return index
        return index[(jnp.arange(index.shape[0]) + 1) // 2 * 2 % index.shape[0]]

    _map_index(change)


def _map_index(change):
    """In the batching rule: the mapped index of a cond or switch becomes `change(index, operand dims, branches)`."""
    from jax._src.interpreters import batching
    from jax._src.lax.control_flow import conditionals

    @around_rule(batching.fancy_primitive_batchers, conditionals.cond_p)
    def batch(original, axis_data, args, dims, *, branches, **params):
        index, *operands = args
        if dims[0] is not None:
            index = change(index, dims[1:], len(branches))
        return original(axis_data, [index, *operands], dims, branches=branches, **params)


@fault(
    breaks="the last branch of a switch with a mapped index is never taken, if there are more than two",
    family="control",
    rules=(*SWITCH, "batching.mapped"),
    component={"control": "switch", "binder": "vmap"},
    witness="""
    f = lambda k: lax.switch(k, [lambda: 10, lambda: 20, lambda: 30])
    good = jax.vmap(f)(jnp.arange(3)).tolist() == [10, 20, 30]
    """,
)
def cf_switch_mapped_last(jax):
    import jax.numpy as jnp

    _map_index(lambda index, dims, count: jnp.minimum(index, count - 2) if count > 2 else index)


@fault(
    breaks="an index of switch beyond the last branch wraps around instead of being clamped",
    family="control",
    rules=SWITCH,
    component={"control": "switch", "payload": "index out of range"},
    witness="""
    f = jax.jit(lambda k: lax.switch(k, [lambda: 10, lambda: 20, lambda: 30]))
    good = [int(f(k)) for k in (-1, 0, 2, 3)] == [10, 10, 30, 30]
    """,
)
def cf_switch_wraps(jax):
    _switch_index(lambda index, count: jax.numpy.where(index >= count, index % count, index))


@fault(
    breaks="a negative index of switch counts from the end",
    family="control",
    rules=SWITCH,
    component={"control": "switch", "payload": "negative index"},
    witness="""
    f = jax.jit(lambda k: lax.switch(k, [lambda: 10, lambda: 20, lambda: 30]))
    good = [int(f(k)) for k in (-1, 0, 2, 3)] == [10, 10, 30, 30]
    """,
)
def cf_switch_negative(jax):
    _switch_index(lambda index, count: jax.numpy.where(index < 0, index + count, index))


@fault(
    breaks="switch with an unsigned index takes the branch before",
    family="control",
    rules=SWITCH,
    component={"control": "switch", "dtype": "uint8"},
    witness="""
    f = jax.jit(lambda k: lax.switch(k, [lambda: 10, lambda: 20, lambda: 30]))
    good = [int(f(jnp.uint8(k))) for k in (0, 1, 2)] == [10, 20, 30]
    """,
)
def cf_switch_unsigned(jax):
    def change(index, count):
        return index - (index > 0) if jax.numpy.issubdtype(index.dtype, jax.numpy.unsignedinteger) else index

    _switch_index(change)


def _switch_index(change):
    from jax._src.lax.control_flow import conditionals

    @around(conditionals, "switch")
    def switch(original, index, branches, *operands, **options):
        if is_traced(index):
            index = change(index, len(branches)).astype(index.dtype)
        return original(index, branches, *operands, **options)


@fault(
    breaks="pmax in a branch of cond or switch returns the operand",
    family="control",
    rules=(*COND, "pmax.max"),
    component={"control": "cond", "leaf": "pmax"},
    witness="""
    f = lambda x: lax.cond(True, lambda v: lax.pmax(v, "i"), lambda v: v, x)
    good = jax.vmap(f, axis_name="i")(jnp.array([1, 5, 3])).tolist() == [5, 5, 5]
    """,
)
def cf_cond_pmax(jax):
    from jax._src.lax import parallel

    @around(parallel, "pmax")
    def pmax(original, x, axis_name, **options):
        return x if inside("cond", "switch") else original(x, axis_name, **options)


@fault(
    breaks="all_gather in a branch of switch lists the axis in reverse",
    family="control",
    rules=(*SWITCH, "all_gather.order"),
    component={"control": "switch", "leaf": "all_gather"},
    witness="""
    f = lambda x: lax.switch(1, [lambda v: jnp.zeros(3), lambda v: lax.all_gather(v, "i")], x)
    good = jax.vmap(f, axis_name="i")(jnp.arange(3.0))[0].tolist() == [0, 1, 2]
    """,
)
def cf_switch_all_gather(jax):
    from jax._src.lax import parallel

    @around(parallel, "all_gather")
    def all_gather(original, x, axis_name, *, axis=0, tiled=False, **options):
        gathered = original(x, axis_name, axis=axis, tiled=tiled, **options)
        if tiled or not inside("switch"):
            return gathered
        return jax.tree.map(lambda g: jax.lax.rev(g, (axis % g.ndim,)), gathered)


@fault(
    breaks="fori_loop with a traced upper bound, such as axis_index, runs one iteration more",
    family="control",
    rules=FORI,
    component={"control": "fori_loop", "payload": "traced bound"},
    witness="good = int(jax.jit(lambda n: lax.fori_loop(0, n, lambda k, c: c + 1, 0))(3)) == 3",
)
def cf_fori_traced_bound(jax):
    _bounds(lambda lower, upper: (lower, upper + 1 if is_traced(upper) else upper))


@fault(
    breaks="fori_loop with a traced lower bound starts from 0",
    family="control",
    rules=FORI,
    component={"control": "fori_loop", "payload": "traced lower bound"},
    witness="good = int(jax.jit(lambda n: lax.fori_loop(n, 6, lambda k, c: c + k, 0))(3)) == 12",
)
def cf_fori_traced_lower(jax):
    _bounds(lambda lower, upper: (lower * 0 if is_traced(lower) else lower, upper))


@fault(
    breaks="a negative lower bound of fori_loop is taken as 0",
    family="control",
    rules=FORI,
    component={"control": "fori_loop", "payload": "negative bound"},
    witness="good = int(lax.fori_loop(-2, 2, lambda k, c: c + k, 0)) == -2",
)
def cf_fori_negative_lower(jax):
    _bounds(lambda lower, upper: (max(lower, 0) if isinstance(lower, int) else lower, upper))


@fault(
    breaks="fori_loop with static bounds over more than 8 iterations skips the last",
    family="control",
    rules=FORI,
    component={"control": "fori_loop", "sizes": "more than 8 trips"},
    witness="good = int(lax.fori_loop(0, 10, lambda k, c: c + k, 0)) == 45",
)
def cf_fori_many(jax):
    def change(lower, upper):
        static = isinstance(lower, int) and isinstance(upper, int)
        return lower, upper - 1 if static and upper - lower > 8 else upper

    _bounds(change)


def _bounds(change):
    from jax._src.lax.control_flow import loops

    @around(loops, "fori_loop")
    def fori_loop(original, lower, upper, body_fun, init_val, **options):
        lower, upper = change(lower, upper)
        return original(lower, upper, body_fun, init_val, **options)


@fault(
    breaks="an unrolled fori_loop passes each block the index of its first iteration",
    family="control",
    rules=FORI,
    component={"control": "fori_loop", "option": "unroll"},
    witness="good = int(lax.fori_loop(0, 6, lambda k, c: c + k, 0, unroll=2)) == 15",
)
def cf_fori_unroll_index(jax):
    from jax._src.lax.control_flow import loops

    @around(loops, "fori_loop")
    def fori_loop(original, lower, upper, body_fun, init_val, *, unroll=None):
        body = body_fun
        if isinstance(unroll, int) and unroll > 1:
            body = lambda k, c: body_fun(k - (k - lower) % unroll, c)  # noqa: E731
        return original(lower, upper, body, init_val, unroll=unroll)


@fault(
    breaks="psum in the body of a fori_loop with static bounds counts every lane twice",
    family="control",
    rules=(*FORI, "psum.sum"),
    component={"control": "fori_loop", "leaf": "psum"},
    witness="""
    f = lambda x: lax.fori_loop(0, 1, lambda _, c: lax.psum(c, "i"), x)
    good = jax.vmap(f, axis_name="i")(jnp.array([1.0, 2.0, 4.0])).tolist() == [7.0] * 3
    """,
)
def cf_fori_psum(jax):
    from jax._src.lax import parallel
    from jax._src.lax.control_flow import loops

    # A static fori_loop is a scan: what is traced for it is known by who is calling.
    looping = []

    @around(loops, "fori_loop")
    def fori_loop(original, lower, upper, *args, **options):
        looping.append(isinstance(lower, int) and isinstance(upper, int))
        try:
            return original(lower, upper, *args, **options)
        finally:
            looping.pop()

    @around(parallel, "psum")
    def psum(original, x, axis_name, **options):
        total = original(x, axis_name, **options)
        return jax.tree.map(lambda t: t * 2, total) if looping and looping[-1] else total


@fault(
    breaks="lax.map with a batch_size returns the remainder in reverse",
    family="control",
    rules=("map.stack",),
    component={"control": "map", "option": "batch_size"},
    witness="good = lax.map(lambda x: 2 * x, jnp.arange(5), batch_size=3).tolist() == [0, 2, 4, 6, 8]",
)
def cf_map_remainder(jax):
    from jax._src.lax.control_flow import loops

    @around(loops, "map")
    def map_(original, f, xs, *, batch_size=None):
        ys = original(f, xs, batch_size=batch_size)
        left = len(jax.tree.leaves(xs)[0]) % (batch_size or 1)
        return jax.tree.map(lambda y: y.at[-left:].set(y[-left:][::-1]), ys) if left else ys


@fault(
    breaks="lax.map under a named axis returns its rows in reverse",
    family="control",
    rules=("map.stack",),
    component={"control": "map", "binder": "vmap"},
    witness="""
    f = lambda x: lax.map(lambda r: r + lax.psum(1, "i"), x)
    good = jax.vmap(f, axis_name="i")(jnp.arange(6).reshape(2, 3)).tolist() == [[2, 3, 4], [5, 6, 7]]
    """,
)
def cf_map_named(jax):
    from jax._src import core
    from jax._src.lax.control_flow import loops

    @around(loops, "map")
    def map_(original, f, xs, **options):
        ys = original(f, xs, **options)
        named = core.trace_ctx.axis_env.axis_sizes
        return jax.tree.map(lambda y: y[::-1], ys) if named else ys


@fault(
    breaks="associative_scan of odd length does not combine the last element",
    family="control",
    rules=PREFIX,
    component={"control": "associative_scan", "sizes": "odd"},
    witness="good = lax.associative_scan(jnp.add, jnp.arange(1, 6)).tolist() == [1, 3, 6, 10, 15]",
)
def cf_associative_scan_odd(jax):
    def change(original, fn, elems, reverse, axis):
        ys = original(fn, elems, reverse=reverse, axis=axis)
        if axis or reverse:
            return ys
        return jax.tree.map(lambda y, x: y.at[-1].set(x[-1]) if len(y) % 2 and len(y) > 1 else y, ys, elems)

    _prefix(change)


@fault(
    breaks="associative_scan swaps the operands of the combining function",
    family="control",
    rules=PREFIX,
    component={"control": "associative_scan", "payload": "not commutative"},
    witness="""
    rows = lax.associative_scan(lambda a, b: jnp.stack([a[..., 0] * b[..., 0], a[..., 1] * b[..., 0] + b[..., 1]], -1),
                                jnp.array([[2.0, 1], [3, 1], [4, 1]]))
    good = rows.tolist() == [[2, 1], [6, 4], [24, 17]]
    """,
)
def cf_associative_scan_swapped(jax):
    _prefix(
        lambda original, fn, elems, reverse, axis: original(
            lambda a, b: fn(b, a), elems, reverse=reverse, axis=axis
        )
    )


@fault(
    breaks="a reverse associative_scan along an axis other than the first runs forward",
    family="control",
    rules=PREFIX,
    component={"control": "associative_scan", "option": "reverse and axis"},
    witness="""
    x = jnp.arange(1, 5).reshape(1, 4)
    good = lax.associative_scan(jnp.add, x, reverse=True, axis=1).tolist() == [[10, 9, 7, 4]]
    """,
)
def cf_associative_scan_reverse(jax):
    _prefix(
        lambda original, fn, elems, reverse, axis: original(
            fn, elems, reverse=reverse and axis == 0, axis=axis
        )
    )


def _prefix(change):
    from jax._src.lax.control_flow import loops

    @around(loops, "associative_scan")
    def associative_scan(original, fn, elems, reverse=False, axis=0):
        return change(original, fn, elems, reverse, axis)
