"""Faults in while_loop: in its lowering, where the lanes of a mapped loop are masked, and in what it traces."""

from .library import fault
from .patching import around, around_lowering, inside


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
