"""Faults in the caches of what transforms make of a traced program, and of eager collectives."""

from .library import fault
from .patching import around, coarsen, own


def _rewrite_forgets(module, name, argument):
    """One argument of a cache keyed on a jaxpr is replaced by the first that came with that jaxpr."""
    import weakref

    first = weakref.WeakKeyDictionary()

    @around(module, name)
    def rewrite(original, jaxpr, *args):
        args = list(args)
        args[argument] = first.setdefault(jaxpr, args[argument])
        return original(jaxpr, *args)


@fault(
    breaks="vmap's rewrite of a loop is found without which of its operands are mapped",
    family="cache",
    rules=("batching.mapped", "cache.signature"),
    component={"binder": "vmap", "control": "scan", "option": "in_axes", "schedule": "in_axes changed"},
    witness="""
    f = jax.jit(lambda x, y: lax.scan(lambda c, _: (c + x - 2 * y, None), 0.0, None, length=1)[0])
    v = jnp.arange(3.0)
    good = [jax.vmap(f, in_axes=axes)(*args).tolist() for axes, args in
            (((0, None), (v, 1.0)), ((None, 0), (1.0, v)))] == [[-2, -1, 0], [1, -1, -3]]
    """,
)
def ck_batch_axes(jax):
    from jax._src.interpreters import batching

    _rewrite_forgets(batching, "_batch_jaxpr_axes", 1)
    _rewrite_forgets(batching, "_batch_jaxpr2", 1)


@fault(
    breaks="the forward derivative of a jitted function is found without the arguments it is taken in",
    family="cache",
    rules=("derivative.forward", "cache.signature"),
    component={"staging": "jit", "derivative": "jvp", "schedule": "argnums changed"},
    witness="""
    f = jax.jit(lambda x, y: x * x * y)
    a = jax.jvp(lambda x: f(x, 3.0), (2.0,), (1.0,))[1]
    b = jax.jvp(lambda y: f(2.0, y), (3.0,), (1.0,))[1]
    good = (float(a), float(b)) == (12.0, 4.0)
    """,
)
def ck_jvp_arguments(jax):
    from jax._src.interpreters import ad

    _rewrite_forgets(ad, "_jvp_jaxpr", 0)


@fault(
    breaks="the linearization of a jitted function is found without the arguments it is taken in",
    family="cache",
    rules=("derivative.reverse", "cache.signature"),
    component={"staging": "jit", "derivative": "vjp", "schedule": "argnums changed"},
    witness="""
    f = jax.jit(lambda x, y: x * x * y)
    got = [float(jax.grad(f, argnums=k)(2.0, 3.0)) for k in (0, 1, 0)]
    good = got == [12.0, 4.0, 12.0]
    """,
)
def ck_linearize_arguments(jax):
    from jax._src.interpreters import ad

    _rewrite_forgets(ad, "_linearize_jaxpr", 0)


@fault(
    breaks="eager collectives in shard_map are found without their parameters, such as the permutation",
    family="cache",
    rules=("cache.fresh", "ppermute.pairs"),
    component={
        "binder": "shard_map",
        "staging": "eager",
        "leaf": "ppermute",
        "schedule": "another permutation",
    },
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
    def shifted(by):
        pairs = [(k, (k + by) % 4) for k in range(4)]
        f = lambda x: lax.ppermute(x, "i", pairs)
        return jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"))(jnp.arange(4)).tolist()
    good = [shifted(1), shifted(2)] == [[3, 0, 1, 2], [2, 3, 0, 1]]
    """,
)
def ck_eager_shard_map_params(jax):
    _eager_shard_map_without(2)


@fault(
    breaks="eager operations in shard_map are found without their mesh",
    family="cache",
    rules=("cache.mesh", "result.placement"),
    component={"binder": "shard_map", "staging": "eager", "schedule": "devices"},
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    def held(devices):
        mesh = Mesh(np.array(devices), ("i",))
        y = jax.shard_map(lambda: lax.axis_index("i")[None], mesh=mesh, in_specs=(), out_specs=P("i"))()
        return {s.device.id: int(s.data[0]) for s in y.addressable_shards}
    four = jax.devices()[:4]
    good = [held(four), held(four[::-1])] == [{0: 0, 1: 1, 2: 2, 3: 3}, {0: 3, 1: 2, 2: 1, 3: 0}]
    """,
)
def ck_eager_shard_map_mesh(jax):
    _eager_shard_map_without(3)


def _eager_shard_map_without(position):
    """An eager operation in shard_map is jitted as a partial of: primitive, checks, parameters, mesh, axes, specs."""
    from jax._src import shard_map

    make, first = shard_map.HashablePartial, {}

    def interned(f, *args):
        if f.__name__ != "_prim_applier":
            return make(f, *args)
        return first.setdefault((*args[:position], *args[position + 1 :]), make(f, *args))

    shard_map.HashablePartial = interned


@fault(
    breaks="within one program, a primitive is lowered as the first one of its kind and operand types was",
    family="cache",
    rules=("cache.fresh", "lower.text"),
    component={"staging": "jit", "leaf": "ppermute", "schedule": "two in one program"},
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
    shift = lambda x, by: lax.ppermute(x, "i", [(k, (k + by) % 4) for k in range(4)])
    f = jax.shard_map(lambda x: (shift(x, 1), shift(x, 2)), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    a, b = jax.jit(f)(jnp.arange(4))
    good = (a.tolist(), b.tolist()) == ([3, 0, 1, 2], [2, 3, 0, 1])
    """,
)
def ck_lowered_without_params(jax):
    from jax._src.interpreters import mlir

    # A key of its own for each primitive but the collective, whose pairs are not looked at.
    original = mlir.LoweringCacheKey.__eq__

    def equal(self, other):
        if self.primitive.name != "ppermute" or other.primitive.name != "ppermute":
            return original(self, other)
        return self.avals_in == other.avals_in

    mlir.LoweringCacheKey.__eq__ = equal
    mlir.LoweringCacheKey.__hash__ = lambda self: hash((self.primitive, self.avals_in))


@fault(
    breaks="jit's own options are dropped from the key of the pjit parameters",
    family="cache",
    rules=("result.placement", "cache.static"),
    component={"staging": "jit", "option": "out_shardings"},
    witness="""
    f = lambda x: x + 1
    where = [jax.jit(f, out_shardings=jax.sharding.SingleDeviceSharding(d))(np.ones(3)).devices()
             for d in jax.devices()[:2]]
    good = where == [{d} for d in jax.devices()[:2]]
    """,
)
def ck_jit_options(jax):
    from jax._src import pjit

    coarsen(pjit, "_infer_params_cached", 1, lambda info: (info.static_argnums, info.static_argnames))


@fault(
    breaks="the mesh that is set is dropped from the key of the pjit parameters",
    family="cache",
    rules=("cache.mesh", "result.placement"),
    component={"staging": "jit", "binder": "mesh context", "schedule": "devices"},
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    f = jax.jit(lambda x: lax.with_sharding_constraint(x * 2, P("i")))
    where = []
    for devices in (jax.devices()[:2], jax.devices()[2:4]):
        with jax.set_mesh(Mesh(np.array(devices), ("i",))):
            where.append(sorted(d.id for d in f(np.ones(4)).devices()))
    good = where == [[0, 1], [2, 3]]
    """,
)
def ck_set_mesh(jax):
    from jax._src import pjit

    coarsen(pjit, "_infer_params_cached", 4, lambda mesh: mesh.shape_tuple)


@fault(
    breaks="lowered programs are found without the shardings of their arguments",
    family="cache",
    rules=("result.placement", "cache.signature"),
    component={"staging": "jit", "schedule": "sharding of an argument changed"},
    witness="""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
    f = jax.jit(lambda x: x * 2)
    shapes = [f(jax.device_put(np.ones((2, 4)), NamedSharding(mesh, spec))).addressable_shards[0].data.shape
              for spec in (P("i"), P(None, "i"))]
    good = shapes == [(1, 4), (2, 2)]
    """,
)
def ck_argument_shardings(jax):
    from jax._src import pjit

    first = {}

    @around(pjit, "_pjit_lower")
    def lower(original, jaxpr, in_shardings, *args, **kwargs):
        devices = tuple(tuple(getattr(s, "_device_assignment", ())) for s in in_shardings)
        in_shardings = first.setdefault((id(jaxpr), devices), (in_shardings, jaxpr))[0]
        return original(jaxpr, in_shardings, *args, **kwargs)


@fault(
    breaks="a function is traced twice for each new entry",
    family="cache",
    rules=("cache.retrace",),
    component={"staging": "jit", "schedule": "entries"},
    witness="""
    traces = []
    f = jax.jit(lambda x: traces.append(1) or x + lax.psum(1, "i"))
    jax.vmap(f, axis_name="i")(jnp.ones(2))
    good = len(traces) == 1
    """,
)
def ck_traced_twice(jax):
    from jax._src import config, util
    from jax._src.interpreters import partial_eval as pe
    from jax._src.lib import weakref_lru_cache as lib

    from .patching import rebind, uncached

    trace = uncached(pe.trace_to_jaxpr)

    def twice(fun, in_avals, debug_info, *args, **kwargs):
        if own(fun) and debug_info.traced_for == "jit":
            trace(fun, in_avals, debug_info, *args, **kwargs)
        return trace(fun, in_avals, debug_info, *args, **kwargs)

    cached = lib.weakref_lru_cache(config.trace_context, twice, None)
    util.register_cache(cached, "trace_to_jaxpr")
    rebind(pe.trace_to_jaxpr, cached)


@fault(
    breaks="pmap traces its function anew on every call",
    family="cache",
    rules=("cache.retrace", "cache.recompile"),
    component={"binder": "pmap", "schedule": "entries"},
    witness="""
    traces = []
    f = jax.pmap(lambda x: traces.append(1) or lax.psum(x, "i"), axis_name="i")
    for _ in range(3):
        once = len(traces)
        f(jnp.ones(2))
    good = len(traces) == once
    """,
)
def ck_pmap_retraced(jax):
    from jax._src import pmap

    @around(pmap, "_cached_shard_map")
    def cached_shard_map(original, *args):
        original.cache_clear()
        return original(*args)


@fault(
    breaks="functions given to shard_map are kept after they are gone",
    family="cache",
    rules=("cache.release",),
    component={"binder": "shard_map", "schedule": "release"},
    witness="""
    import gc, weakref
    from jax.sharding import Mesh, PartitionSpec as P
    class Big: pass
    def once():
        big = Big()
        mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
        f = lambda x: lax.psum(x, "i") if big else x
        jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P()))(jnp.ones(2))
        return weakref.ref(big)
    alive = once()
    gc.collect()
    good = alive() is None
    """,
)
def ck_shard_map_kept(jax):
    from jax._src import shard_map

    kept = []

    @around(shard_map, "_shard_map")
    def mapped(original, f, **options):
        kept.append(f)
        return original(f, **options)


@fault(
    breaks="a jitted function called under grad is traced anew every time",
    family="cache",
    rules=("cache.retrace",),
    component={"staging": "jit", "derivative": "vjp", "schedule": "entries"},
    witness="""
    traces = []
    f = jax.jit(lambda x: traces.append(1) or x * x)
    for _ in range(3):
        jax.grad(f)(1.0)
    good = len(traces) == 1
    """,
)
def ck_grad_retraced(jax):
    from jax._src import core, pjit
    from jax._src.interpreters import partial_eval as pe

    @around(pjit, "_infer_params_cached")
    def infer_params_cached(original, fun, *args):
        if own(fun) and type(core.trace_ctx.trace).__name__ in ("LinearizeTrace", "JVPTrace"):
            pe.trace_to_jaxpr.evict_weakref(fun)
            return pjit.InferParamsCacheEntry()
        return original(fun, *args)
