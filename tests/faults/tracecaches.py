"""Faults in one cache at a time: its key lacks the axis environment, everything else is sound."""

from .caches import FRESH, UNDER_VMAP, sizes_of
from .library import fault
from .patching import around, context_without, rekey, uncached


def second_trace_cache(kinds, context):
    """Functions traced for one of `kinds` ("scan", "while_body", ...) get a trace cache keyed on `context()`."""
    from jax._src import util
    from jax._src.interpreters import partial_eval as pe
    from jax._src.lib import weakref_lru_cache as lib

    other = lib.weakref_lru_cache(context, uncached(pe.trace_to_jaxpr), None)
    util.register_cache(other, f"traces for {kinds}")

    @around(pe, "trace_to_jaxpr")
    def trace_to_jaxpr(original, fun, in_avals, debug_info, *args, **kwargs):
        traced = other if debug_info.traced_for in kinds else original
        return traced(fun, in_avals, debug_info, *args, **kwargs)


def staged_once(kind):
    """What jit stages of a custom_jvp or custom_vjp function is what was staged first for the same operand types."""
    import weakref

    from jax._src.interpreters import partial_eval as pe

    staged = weakref.WeakKeyDictionary()

    @around(pe, "trace_to_jaxpr_dynamic")
    def trace_to_jaxpr_dynamic(original, fun, in_avals, **options):
        jaxpr, out_avals, consts = original(fun, in_avals, **options)
        if fun.debug_info is None or fun.debug_info.traced_for != kind or consts:
            return jaxpr, out_avals, consts
        return staged.setdefault(fun.f, {}).setdefault(tuple(in_avals), (jaxpr, out_avals, consts))


@fault(
    breaks="the axis environment is dropped from the key of the pjit parameters only",
    family="cache",
    rules=FRESH,
    component={"staging": "jit", "binder": "vmap"},
    witness=sizes_of(UNDER_VMAP),
)
def ck_infer_params_only(jax):
    from jax._src import pjit

    rekey(pjit, "_infer_params_cached", context_without("axis_env_state"))


@fault(
    breaks="the scan body's trace cache ignores the axis environment",
    family="cache",
    rules=FRESH,
    component={"control": "scan"},
    witness="""
    body = lambda c, _: (c + lax.psum(1, "i"), None)
    f = lambda: lax.scan(body, 0, None, length=2)[0]
    under = lambda n: int(jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)())
    good = [under(n) for n in (2, 3, 2)] == [4, 6, 4]
    """,
)
def ck_scan(jax):
    second_trace_cache({"scan"}, context_without("axis_env_state"))


@fault(
    breaks="the trace cache of while_loop's condition and body ignores the axis environment",
    family="cache",
    rules=FRESH,
    component={"control": "while_loop"},
    witness="""
    more, body = lambda c: c < 10, lambda c: c + lax.psum(1, "i")
    f = lambda: lax.while_loop(more, body, 0)
    under = lambda n: int(jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)())
    good = [under(n) for n in (4, 3, 4)] == [12, 12, 12] and [under(n) for n in (7, 6)] == [14, 12]
    """,
)
def ck_while(jax):
    second_trace_cache({"while_cond", "while_body"}, context_without("axis_env_state"))


@fault(
    breaks="the trace cache of while_loop's condition alone ignores the axis environment",
    family="cache",
    rules=FRESH,
    component={"control": "while_loop"},
    witness="""
    more, body = lambda c: c < lax.psum(1, "i"), lambda c: c + 1
    f = lambda: lax.while_loop(more, body, 0)
    under = lambda n: int(jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)())
    good = [under(n) for n in (2, 3, 2)] == [2, 3, 2]
    """,
)
def ck_while_cond(jax):
    second_trace_cache({"while_cond"}, context_without("axis_env_state"))


@fault(
    breaks="the trace cache of cond's branches ignores the axis environment",
    family="cache",
    rules=FRESH,
    component={"control": "cond"},
    witness="""
    yes, no = lambda: lax.psum(1, "i"), lambda: 0
    f = lambda x: lax.cond(x > 0, yes, no)
    under = lambda n: jax.vmap(f, axis_name="i")(jnp.ones(n)).tolist()
    good = [under(n) for n in (2, 3, 2)] == [[2] * 2, [3] * 3, [2] * 2]
    """,
)
def ck_cond(jax):
    second_trace_cache({"cond"}, context_without("axis_env_state"))


@fault(
    breaks="the trace cache of switch's branches ignores the axis environment",
    family="cache",
    rules=FRESH,
    component={"control": "switch"},
    witness="""
    branches = [lambda: 0, lambda: lax.psum(1, "i"), lambda: 1]
    f = lambda x: lax.switch(x, branches)
    under = lambda n: jax.vmap(f, axis_name="i")(jnp.ones(n, int)).tolist()
    good = [under(n) for n in (2, 3, 2)] == [[2] * 2, [3] * 3, [2] * 2]
    """,
)
def ck_switch(jax):
    second_trace_cache({"switch"}, context_without("axis_env_state"))


@fault(
    breaks="the trace cache of jax.checkpoint ignores the axis environment",
    family="cache",
    rules=FRESH,
    component={"staging": "checkpoint"},
    witness=sizes_of("f = jax.checkpoint(lambda: lax.psum(1, 'i')); " + UNDER_VMAP),
)
def ck_remat(jax):
    from jax._src import ad_checkpoint

    rekey(ad_checkpoint, "_trace_to_jaxpr", context_without("axis_env_state"))


@fault(
    breaks="the staged body of a custom_vjp function is cached on its operand types alone",
    family="cache",
    rules=FRESH,
    component={"staging": "custom_vjp"},
    witness="""
    g = jax.custom_vjp(lambda x: x * lax.psum(1, "i"))
    g.defvjp(lambda x: (g(x), None), lambda _, t: (t,))
    under = lambda n: jax.vmap(jax.jit(lambda x: g(x)), axis_name="i")(jnp.ones(n)).tolist()
    good = [under(n) for n in (2, 3, 2)] == [[2.0] * 2, [3.0] * 3, [2.0] * 2]
    """,
)
def ck_custom_vjp(jax):
    staged_once("custom_vjp fun")


@fault(
    breaks="the staged body of a custom_jvp function is cached on its operand types alone",
    family="cache",
    rules=FRESH,
    component={"staging": "custom_jvp"},
    witness="""
    g = jax.custom_jvp(lambda x: x * lax.psum(1, "i"))
    g.defjvp(lambda p, t: (g(*p), t[0]))
    under = lambda n: jax.vmap(jax.jit(lambda x: g(x)), axis_name="i")(jnp.ones(n)).tolist()
    good = [under(n) for n in (2, 3, 2)] == [[2.0] * 2, [3.0] * 3, [2.0] * 2]
    """,
)
def ck_custom_jvp(jax):
    staged_once("custom_jvp fun")
