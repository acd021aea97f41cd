"""Faults in how long entries and arguments live, and in how often entries are made."""

from .library import fault
from .patching import around, own, rekey, uncached


@fault(
    breaks="dispatch keeps strong references to the arguments of every jitted call that Python dispatches",
    family="cache",
    rules=("cache.release",),
    component={"staging": "jit", "schedule": "release"},
    witness="""
    import gc, weakref
    x = jnp.arange(5.0) + 1
    jax.jit(lambda v: v * 2)(x)
    alive = weakref.ref(x)
    del x
    gc.collect()
    good = alive() is None
    """,
)
def ck_unbounded_growth(jax):
    from jax._src import pjit

    kept = []

    @around(pjit, "_infer_params")
    def infer_params(original, fun, info, args, kwargs):
        kept.append((args, kwargs))
        return original(fun, info, args, kwargs)


@fault(
    breaks="large results of jitted calls are kept for reuse and never given back",
    family="cache",
    rules=("cache.release",),
    component={"staging": "jit", "shape": "1 MiB and more"},
    witness="""
    import gc, weakref
    f = jax.jit(lambda v: v * 2)
    alive = weakref.ref(f(jnp.zeros(2**19)))
    gc.collect()
    good = alive() is None
    """,
)
def ck_large_results_kept(jax):
    from jax._src import pjit

    kept = []

    @around(pjit, "_run_python_pjit")
    def run(original, *args, **kwargs):
        result = original(*args, **kwargs)
        kept.append([x for x in result[1] if getattr(x, "nbytes", 0) >= 2**20])
        return result


@fault(
    breaks="the trace cache refers strongly to the functions it traced",
    family="cache",
    rules=("cache.release",),
    component={"staging": "jit", "schedule": "release"},
    witness="""
    import gc, weakref
    class Big: pass
    def once():
        big = Big()
        jax.jit(lambda v: v if big is None else v + 1)(1.0)
        return weakref.ref(big)
    alive = once()
    gc.collect()
    good = alive() is None
    """,
)
def ck_functions_kept(jax):
    _keep_functions(lambda debug_info: debug_info.traced_for == "jit")


@fault(
    breaks="the bodies of loops are kept after the function that ran them is gone",
    family="cache",
    rules=("cache.release",),
    component={"control": "scan", "schedule": "release"},
    witness="""
    import gc, weakref
    class Big: pass
    def once():
        big = Big()
        lax.scan(lambda c, _: (c if big is None else c + 1, None), 0, None, length=2)
        return weakref.ref(big)
    alive = once()
    gc.collect()
    good = alive() is None
    """,
)
def ck_loop_bodies_kept(jax):
    _keep_functions(
        lambda debug_info: debug_info.traced_for in ("scan", "while_body", "while_cond", "fori_loop")
    )


def _keep_functions(which):
    from jax._src.interpreters import partial_eval as pe

    kept = []

    @around(pe, "trace_to_jaxpr")
    def trace_to_jaxpr(original, fun, in_avals, debug_info, *args, **kwargs):
        if own(fun) and which(debug_info):
            kept.append(fun)
        return original(fun, in_avals, debug_info, *args, **kwargs)


@fault(
    breaks="an error raised while tracing is kept with its traceback, and with it the arguments",
    family="cache",
    rules=("cache.release",),
    component={"staging": "jit", "schedule": "trace failed"},
    witness="""
    import gc, weakref
    x = jnp.arange(5.0) + 1
    def fails(v):
        raise ValueError
    try:
        jax.jit(fails)(x)
    except ValueError:
        pass
    alive = weakref.ref(x)
    del x
    gc.collect()
    good = alive() is None
    """,
)
def ck_failed_traces_kept(jax):
    from jax._src import pjit

    kept = []

    @around(pjit, "_infer_params")
    def infer_params(original, fun, info, args, kwargs):
        try:
            return original(fun, info, args, kwargs)
        except Exception as error:
            kept.append((error.with_traceback(None), args))
            raise


@fault(
    breaks="a trace that failed leaves its axis bound",
    family="cache",
    rules=("error.unbound", "cache.fresh"),
    component={"binder": "vmap", "schedule": "trace failed"},
    witness="""
    def fails(x):
        raise ValueError
    try:
        jax.vmap(fails, axis_name="i")(jnp.ones(3))
    except ValueError:
        pass
    try:
        lax.axis_size("i")
        good = False
    except NameError:
        good = True
    """,
)
def ck_failed_trace_leaves_axis(jax):
    from jax._src import core

    @around(core.ExtendAxisEnvNdContextManager, "__exit__")
    def leave(original, self, kind, error, traceback):
        return None if error is not None else original(self, kind, error, traceback)


@fault(
    breaks="every third lookup of a known key stores a new entry and traces again",
    family="cache",
    rules=("cache.retrace", "cache.entries"),
    component={"staging": "jit", "schedule": "entries"},
    witness="""
    traces = []
    f = jax.jit(lambda: traces.append(1) or lax.psum(1, "i"))
    for n in (2, 3) * 4:
        jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)()
    good = len(traces) == 2
    """,
)
def ck_duplicate_entries(jax):
    import collections

    from jax._src import pjit
    from jax._src.interpreters import partial_eval as pe

    lookups = collections.Counter()

    @around(pjit, "_infer_params_cached")
    def infer_params_cached(original, fun, info, signature, avals, mesh):
        entry = original(fun, info, signature, avals, mesh)
        lookups[id(entry)] += 1
        if own(fun) and lookups[id(entry)] % 3 == 0:
            pe.trace_to_jaxpr.evict_weakref(fun)
            return original(fun, info, signature, (*avals, lookups[id(entry)]), mesh)
        return entry


@fault(
    breaks="the trace caches hold four entries in all",
    family="cache",
    rules=("cache.retrace",),
    component={"staging": "jit", "schedule": "entries"},
    witness="""
    traces = []
    f = jax.jit(lambda: traces.append(1) or lax.psum(1, "i"))
    for n in (2, 3, 4, 5, 6, 7, 2):
        jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)()
    good = len(traces) == 6
    """,
)
def ck_few_entries(jax):
    from jax._src import config, pjit
    from jax._src.interpreters import partial_eval as pe

    rekey(pjit, "_infer_params_cached", config.trace_context, maxsize=4)
    rekey(pe, "trace_to_jaxpr", config.trace_context, maxsize=4)


@fault(
    breaks="a garbage collection empties the trace caches",
    family="cache",
    rules=("cache.retrace",),
    component={"staging": "jit", "schedule": "entries"},
    witness="""
    import gc
    traces = []
    f = jax.jit(lambda: traces.append(1) or lax.psum(1, "i"))
    for _ in range(2):
        jax.vmap(f, axis_name="i", axis_size=2, out_axes=None)()
        gc.collect()
    good = len(traces) == 1
    """,
)
def ck_collected(jax):
    import gc

    from jax._src import pjit
    from jax._src.interpreters import partial_eval as pe

    def clear(phase, info):
        if phase == "stop" and info["generation"] == 2:
            pjit._infer_params_cached.cache_clear()
            pe.trace_to_jaxpr.cache_clear()

    gc.callbacks.append(clear)


@fault(
    breaks="scan, while_loop and cond trace their bodies anew every time",
    family="cache",
    rules=("cache.retrace",),
    component={"control": "any", "schedule": "entries"},
    witness="""
    traces = []
    body = lambda c, _: (traces.append(1) or c + lax.psum(1, "i"), None)
    f = lambda: lax.scan(body, 0, None, length=2)[0]
    for n in (2, 3, 2):
        jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)()
    good = len(traces) == 2
    """,
)
def ck_control_retraced(jax):
    from jax._src.interpreters import partial_eval as pe

    trace = uncached(pe.trace_to_jaxpr)

    @around(pe, "trace_to_jaxpr")
    def trace_to_jaxpr(original, fun, in_avals, debug_info, *args, **kwargs):
        control = own(fun) and debug_info.traced_for in ("scan", "while_cond", "while_body", "cond", "switch")
        return (trace if control else original)(fun, in_avals, debug_info, *args, **kwargs)


@fault(
    breaks="jax.clear_caches leaves the traces in place",
    family="cache",
    rules=("cache.entries", "cache.release"),
    component={"schedule": "clear"},
    witness="""
    traces = []
    f = jax.jit(lambda x: traces.append(1) or x)
    f(1.0)
    jax.clear_caches()
    f(1.0)
    good = len(traces) == 2
    """,
)
def ck_clear_caches_partial(jax):
    from jax._src import pjit, util
    from jax._src.interpreters import partial_eval as pe

    del util._caches[pjit._infer_params_cached], util._caches[pe.trace_to_jaxpr]


@fault(
    breaks="clear_cache() of one function drops the traces of every function",
    family="cache",
    rules=("cache.retrace",),
    component={"schedule": "clear"},
    witness="""
    traces = []
    f, g = jax.jit(lambda x: x + 1), jax.jit(lambda x: traces.append(1) or x)
    f(1.0), g(1.0)
    f.clear_cache()
    jax.vmap(lambda _: g(1.0))(jnp.ones(2))
    good = len(traces) == 1
    """,
)
def ck_clear_cache_of_all(jax):
    from jax._src import pjit
    from jax._src.interpreters import partial_eval as pe

    @around(pjit, "jit_evict_fn")
    def clear_cache(original, self):
        original(self)
        pe.trace_to_jaxpr.cache_clear()


@fault(
    breaks="clear_cache() of a function keeps its traces",
    family="cache",
    rules=("cache.entries", "cache.release"),
    component={"schedule": "clear"},
    witness="""
    traces = []
    f = jax.jit(lambda x: traces.append(1) or x)
    f(1.0)
    f.clear_cache()
    f(1.0)
    good = len(traces) == 2
    """,
)
def ck_clear_cache_partial(jax):
    from jax._src import pjit

    @around(pjit, "jit_evict_fn")
    def clear_cache(original, self):
        self._clear_cache()
