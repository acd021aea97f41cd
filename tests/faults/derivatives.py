"""Faults in derivatives through control flow and in what jvp, vjp, linearize and linear_transpose return."""

from .control import parts
from .library import fault
from .patching import around, around_rule

REVERSE, FORWARD = ("derivative.reverse",), ("derivative.forward",)


@fault(
    breaks="the transpose of a reverse scan runs in the wrong direction",
    family="control",
    rules=REVERSE,
    component={"control": "scan", "derivative": "vjp", "option": "scan.reverse"},
    witness="""
    g = lambda xs: lax.scan(lambda c, x: (c * x + x, None), 2.0, xs, reverse=True)[0]
    good = jax.grad(g)(jnp.array([1.0, 2.0, 3.0])).tolist() == [21.0, 10.0, 6.0]
    """,
)
def cf_grad_reverse_scan(jax):
    from jax._src.interpreters import ad
    from jax._src.lax.control_flow import loops

    @around_rule(ad.fancy_transposes, loops.scan_p)
    def transpose(original, cts, *args, reverse, **params):
        return original(cts, *args, reverse=False, **params)


@fault(
    breaks="the tangents of what a scan closes over are lost in an unrolled scan",
    family="control",
    rules=REVERSE + FORWARD,
    component={"control": "scan", "derivative": "jvp", "option": "unroll"},
    witness="""
    f = lambda a: lax.scan(lambda c, x: (c + a * x, None), 0.0, jnp.arange(4.0), unroll=2)[0]
    good = float(jax.grad(f)(1.0)) == 6.0 and float(jax.jvp(f, (1.0,), (1.0,))[1]) == 6.0
    """,
)
def cf_scan_closed_over_tangent(jax):
    _stop_tangents(lambda consts, init, xs, params: range(len(consts)) if params["unroll"] > 1 else ())


@fault(
    breaks="the tangent of the initial carry is lost in a scan of odd length",
    family="control",
    rules=REVERSE + FORWARD,
    component={"control": "scan", "derivative": "jvp", "sizes": "odd"},
    witness="""
    f = lambda a: lax.scan(lambda c, x: (c * x, None), a, jnp.array([2.0, 3.0, 5.0]))[0]
    good = float(jax.grad(f)(1.0)) == 30.0 and float(jax.jvp(f, (1.0,), (1.0,))[1]) == 30.0
    """,
)
def cf_scan_carry_tangent(jax):
    def lost(consts, init, xs, params):
        return range(len(consts), len(consts) + len(init)) if params["length"] % 2 else ()

    _stop_tangents(lost)


def _stop_tangents(lost):
    """Differentiating a scan: the operands at `lost(consts, init, xs, params)` count as constants."""
    from jax._src.interpreters import ad
    from jax._src.lax.control_flow import loops

    @around_rule(ad.primitive_jvps, loops.scan_p)
    def jvp(original, primals, tangents, **params):
        drop = set(lost(*parts(primals, params), params))
        tangents = [
            ad.Zero(t.aval) if k in drop and not isinstance(t, ad.Zero) else t for k, t in enumerate(tangents)
        ]
        return original(primals, tangents, **params)

    # Without a rule of its own, reverse mode is derived from the forward rule.
    del ad.primitive_linearizations[loops.scan_p]


@fault(
    breaks="the tangents of what the body of a while_loop closes over are lost",
    family="control",
    rules=FORWARD,
    component={"control": "while_loop", "derivative": "jvp"},
    witness="""
    f = lambda a: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + a), (0, 0.0))[1]
    good = float(jax.jvp(f, (1.0,), (1.0,))[1]) == 3.0
    """,
)
def cf_while_closed_over_tangent(jax):
    from jax._src.interpreters import ad
    from jax._src.lax.control_flow import loops

    @around_rule(ad.primitive_jvps, loops.while_p)
    def jvp(original, primals, tangents, cond_nconsts, cond_jaxpr, body_nconsts, body_jaxpr):
        last = cond_nconsts + body_nconsts
        tangents = [
            ad.Zero(ad.Zero.from_primal_value(p).aval) if k < last else t
            for k, (p, t) in enumerate(zip(primals, tangents, strict=True))
        ]
        return original(
            primals,
            tangents,
            cond_nconsts=cond_nconsts,
            cond_jaxpr=cond_jaxpr,
            body_nconsts=body_nconsts,
            body_jaxpr=body_jaxpr,
        )


@fault(
    breaks="the transpose of a switch takes branch 1 for every later one",
    family="control",
    rules=(*REVERSE, "switch.branch"),
    component={"control": "switch", "derivative": "vjp"},
    witness="""
    f = jax.jit(jax.grad(lambda x, k: lax.switch(k, [lambda v: v, lambda v: 2 * v, lambda v: 3 * v], x)))
    good = [float(f(1.0, k)) for k in range(3)] == [1.0, 2.0, 3.0]
    """,
)
def cf_grad_switch(jax):
    from jax._src.interpreters import ad
    from jax._src.lax.control_flow import conditionals

    @around_rule(ad.fancy_transposes, conditionals.cond_p)
    def transpose(original, cts, index, *args, branches, **params):
        if len(branches) > 2:
            index = jax.numpy.minimum(index, 1)
        return original(cts, index, *args, branches=branches, **params)


@fault(
    breaks="the linear function that jax.linearize returns remembers its first answer",
    family="control",
    rules=(*FORWARD, "repeat.bitwise"),
    component={"derivative": "linearize", "schedule": "entries"},
    witness="""
    _, f = jax.linearize(lambda x: x * x, 3.0)
    good = [float(f(t)) for t in (1.0, 2.0)] == [6.0, 12.0]
    """,
)
def cf_linearize_second_call(jax):
    from jax._src import api

    @around(api, "linearize")
    def linearize(original, fun, *primals, **options):
        *results, linear = original(fun, *primals, **options)
        first = []

        def remembered(*tangents):
            return (first or first.append(linear(*tangents)) or first)[0]

        return (*results, remembered)


@fault(
    breaks="the function that jax.vjp returns adds up the cotangents of all its calls",
    family="control",
    rules=(*REVERSE, "repeat.bitwise"),
    component={"derivative": "vjp", "schedule": "entries"},
    witness="""
    _, f = jax.vjp(lambda x: x * x, 3.0)
    good = [float(f(1.0)[0]) for _ in range(2)] == [6.0, 6.0]
    """,
)
def cf_vjp_second_call(jax):
    from jax._src import api

    @around(api, "vjp")
    def vjp(original, fun, *primals, **options):
        value, pull, *aux = original(fun, *primals, **options)
        total = []

        def accumulating(*cotangents):
            new = pull(*cotangents)
            total[:] = [jax.tree.map(jax.numpy.add, total[0], new) if total else new]
            return total[0]

        return (value, accumulating, *aux)


@fault(
    breaks="jax.linear_transpose of a function that scans leaves out the first row",
    family="control",
    rules=REVERSE,
    component={"control": "scan", "derivative": "linear_transpose"},
    witness="""
    f = lambda xs: lax.scan(lambda c, x: (c + 2 * x, None), 0.0, xs)[0]
    good = jax.linear_transpose(f, jnp.zeros(3))(1.0)[0].tolist() == [2.0, 2.0, 2.0]
    """,
)
def cf_linear_transpose_scan(jax):
    from jax._src import api

    @around(api, "linear_transpose")
    def linear_transpose(original, fun, *primals, **options):
        transposed = original(fun, *primals, **options)
        if " scan[" not in str(jax.make_jaxpr(fun)(*primals)):
            return transposed
        return lambda ct: jax.tree.map(lambda x: x.at[0].set(0) if x.ndim else x, transposed(ct))


@fault(
    breaks="second derivatives in forward mode are those of the first",
    family="control",
    rules=FORWARD,
    component={"derivative": ("hvp", "jvp")},
    witness="""
    d = lambda f: (lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1])
    f = lambda x: lax.scan(lambda c, _: (c * x, None), x, None, length=2)[0]
    good = float(d(d(f))(2.0)) == 12.0
    """,
)
def cf_second_jvp(jax):
    from jax._src import api

    depth = []

    @around(api, "jvp")
    def jvp(original, fun, primals, tangents, **options):
        depth.append(True)
        try:
            out = original(fun, primals, tangents, **options)
        finally:
            depth.pop()
        # The tangent of an inner jvp counts as a constant.
        return (out[0], jax.lax.stop_gradient(out[1]), *out[2:]) if depth else out
