"""Faults in the caches of lowered programs and executables in memory."""

from .library import fault
from .patching import around, rekey, uncached

COUNT_COMPILED = """
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(1) if "backend_compile" in event else None)
    """


@fault(
    breaks="a jitted function is lowered and compiled again on every call that C++ does not dispatch",
    family="cache",
    rules=("cache.recompile",),
    component={"binder": "vmap", "staging": "jit", "schedule": "entries"},
    witness=COUNT_COMPILED
    + """
    f = jax.jit(lambda x: x * lax.axis_size("i"))
    x = jnp.ones(3)
    for n in (2, 3, 2):
        before = len(compiled)
        jax.vmap(lambda: f(x), axis_name="i", axis_size=n, out_axes=None)().block_until_ready()
    good = len(compiled) == before
    """,
)
def ck_lowered_anew(jax):
    from jax._src import pjit
    from jax._src.interpreters import pxla

    rekey(pjit, "_pjit_lower", object)
    rekey(pxla, "_cached_lowering_to_hlo", object)
    rekey(pjit, "_get_jaxpr_as_fun", object)  # by which C++ finds the executable of a jaxpr


@fault(
    breaks="the executables of eager collectives are not kept",
    family="cache",
    rules=("cache.recompile",),
    component={"binder": "vmap", "leaf": "psum", "schedule": "entries"},
    witness=COUNT_COMPILED
    + """
    for n in (2, 3, 2):
        before = len(compiled)
        jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.ones(n, "float32")).block_until_ready()
    good = len(compiled) == before
    """,
)
def ck_eager_not_kept(jax):
    from jax._src import dispatch
    from jax._src.lax import lax as ops

    compile = uncached(dispatch.xla_primitive_callable)

    @around(dispatch, "xla_primitive_callable")
    def xla_primitive_callable(original, primitive, **params):
        kept = primitive is not ops.reduce_sum_p
        return original(primitive, **params) if kept else compile(primitive, **params)


def _executables(key):
    """Executables are found by `key(module text, devices)`; the devices are those of the device list."""
    from jax._src.interpreters import pxla

    kept = {}

    @around(pxla, "_cached_compilation")
    def cached_compilation(original, module, name, *rest):
        devices = next(a for a in rest if type(a).__name__ == "DeviceList")
        text = str(module)
        found = kept.setdefault(key(text, [d.id for d in devices]), [])
        if not found:
            found.append(original(module, name, *rest))
        return found[0]


@fault(
    breaks="executables in memory are found by the module's text without its replica groups and pairs",
    family="cache",
    rules=("cache.fresh", "ppermute.pairs"),
    component={"leaf": "ppermute", "schedule": "another permutation"},
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
    def shifted(by):
        pairs = [(k, (k + by) % 4) for k in range(4)]
        f = jax.shard_map(lambda x: lax.ppermute(x, "i", pairs), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
        return jax.jit(f)(jnp.arange(4)).tolist()
    good = [shifted(1), shifted(2)] == [[3, 0, 1, 2], [2, 3, 0, 1]]
    """,
)
def ck_compile_replica_groups(jax):
    from .persistent import without_groups

    _executables(lambda text, devices: (without_groups(text), tuple(devices)))


@fault(
    breaks="executables in memory are found by the module's text without its constants",
    family="cache",
    rules=("cache.fresh", "cache.closure"),
    component={"operand": "constant", "schedule": "closure"},
    witness="""
    scaled = lambda n: float(jax.jit(lambda x: x * n)(3.0))
    good = [scaled(n) for n in (2.0, 5.0)] == [6.0, 15.0]
    """,
)
def ck_compile_constants(jax):
    from .persistent import without_constants

    _executables(lambda text, devices: (without_constants(text), tuple(devices)))


@fault(
    breaks="executables in memory are found by the set of their devices, whatever the order",
    family="cache",
    rules=("cache.mesh", "result.placement"),
    component={"binder": "shard_map", "schedule": "devices"},
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    def held(devices):
        mesh = Mesh(np.array(devices), ("i",))
        f = jax.shard_map(lambda: lax.axis_index("i")[None], mesh=mesh, in_specs=(), out_specs=P("i"))
        return {s.device.id: int(s.data[0]) for s in jax.jit(f)().addressable_shards}
    four = jax.devices()[:4]
    good = [held(four), held(four[::-1])] == [{0: 0, 1: 1, 2: 2, 3: 3}, {0: 3, 1: 2, 2: 1, 3: 0}]
    """,
)
def ck_compile_device_order(jax):
    _executables(lambda text, devices: (text, frozenset(devices)))


def _lowering_forgets(argument):
    """One argument of the cache of lowered programs is replaced by the first that came with the same program."""
    import weakref

    from jax._src import pjit

    first = weakref.WeakKeyDictionary()

    @around(pjit, "_pjit_lower")
    def lower(original, jaxpr, *args, **kwargs):
        args = list(args)
        args[argument] = first.setdefault(jaxpr, args[argument])
        return original(jaxpr, *args, **kwargs)


@fault(
    breaks="lowered programs are found without their out_shardings",
    family="cache",
    rules=("result.placement", "cache.fresh"),
    component={"staging": "jit", "option": "out_shardings"},
    witness="""
    f = lambda x: x + 1
    a, b = (jax.sharding.SingleDeviceSharding(d) for d in jax.devices()[:2])
    where = [jax.jit(f, out_shardings=s)(np.ones(3)).devices() for s in (a, b)]
    good = where == [{jax.devices()[0]}, {jax.devices()[1]}]
    """,
)
def ck_out_shardings(jax):
    _lowering_forgets(1)


@fault(
    breaks="lowered programs are found without what they donate",
    family="cache",
    rules=("cache.signature", "cache.release"),
    component={"staging": "jit", "option": "donate_argnums"},
    witness="""
    f = lambda x: x + 1
    a, b = jnp.ones(3) * 2, jnp.ones(3) * 3
    jax.jit(f, donate_argnums=0)(a)
    jax.jit(f)(b)
    good = not b.is_deleted()
    """,
)
def ck_donation(jax):
    _lowering_forgets(4)
