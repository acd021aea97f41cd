"""Faults in how configuration flags, meshes and devices enter the keys."""

from .library import fault
from .patching import around, context_without, rekey

CONFIG = ("cache.config",)


def traced_without(*names):
    """What jit traces and stages does not depend on these configurations once it was traced."""
    from jax._src import pjit
    from jax._src.interpreters import partial_eval as pe

    context = context_without(*names)
    rekey(pjit, "_infer_params_cached", context)
    rekey(pe, "trace_to_jaxpr", context)


@fault(
    breaks="jax_numpy_dtype_promotion is dropped from the keys of the Python trace caches",
    family="cache",
    rules=CONFIG,
    component={"schedule": "promotion", "option": "jax_numpy_dtype_promotion"},
    witness="""
    f = jax.jit(lambda x, y: x + y)
    args = jnp.ones((), "int32"), jnp.ones((), "float32")
    f(*args)
    try:
        with jax.numpy_dtype_promotion("strict"):
            f(*args)
        good = False
    except jax.errors.TypePromotionError if hasattr(jax.errors, "TypePromotionError") else Exception:
        good = True
    """,
)
def ck_numpy_dtype_promotion(jax):
    traced_without("jax_numpy_dtype_promotion")


@fault(
    breaks="jax_numpy_rank_promotion is dropped from the keys of the Python trace caches",
    family="cache",
    rules=CONFIG,
    component={"schedule": "rank", "option": "jax_numpy_rank_promotion"},
    witness="""
    f = jax.jit(lambda x, y: x + y)
    args = jnp.ones((2, 3)), jnp.ones(3)
    f(*args)
    try:
        with jax.numpy_rank_promotion("raise"):
            f(*args)
        good = False
    except ValueError:
        good = True
    """,
)
def ck_numpy_rank_promotion(jax):
    traced_without("jax_numpy_rank_promotion")


@fault(
    breaks="jax_enable_x64 is dropped from the keys of the Python trace caches",
    family="cache",
    rules=(*CONFIG, "result.type"),
    component={"schedule": "x64", "option": "jax_enable_x64"},
    witness="""
    f = jax.jit(lambda: jnp.asarray(lax.psum(2**20, "i") * 2.0))
    call = jax.vmap(f, axis_name="i", axis_size=2, out_axes=None)
    a = call().dtype.name
    with jax.enable_x64(True):
        b = call().dtype.name
    good = (a, b, call().dtype.name) == ("float32", "float64", "float32")
    """,
)
def ck_enable_x64(jax):
    traced_without("jax_enable_x64")


@fault(
    breaks="jax_default_matmul_precision is dropped from the keys of the Python trace caches",
    family="cache",
    rules=(*CONFIG, "lower.text"),
    component={"schedule": "precision", "option": "jax_default_matmul_precision"},
    witness="""
    f = jax.jit(lambda x: x @ x)
    x = jnp.ones((2, 2))
    plain = f.lower(x).as_text()
    with jax.default_matmul_precision("highest"):
        highest = f.lower(x).as_text()
    good = "HIGHEST" in highest and "HIGHEST" not in plain
    """,
)
def ck_matmul_precision(jax):
    traced_without("jax_default_matmul_precision")


@fault(
    breaks="jax_threefry_partitionable is dropped from the keys of the Python trace caches",
    family="cache",
    rules=(*CONFIG, "random.keyed"),
    component={"schedule": "prng", "option": "jax_threefry_partitionable", "leaf": "random"},
    witness="""
    draw = lambda: jax.random.bits(jax.random.fold_in(jax.random.key(0), lax.axis_index("i")), (4,))
    f = jax.jit(draw)
    call = lambda g: np.asarray(jax.vmap(g, axis_name="i", axis_size=2)())
    a = call(f)
    with jax.threefry_partitionable(False):
        b, fresh = call(f), call(jax.jit(lambda: draw()))
    good = np.array_equal(b, fresh) and not np.array_equal(a, b)
    """,
)
def ck_threefry_partitionable(jax):
    traced_without("jax_threefry_partitionable")


@fault(
    breaks="the debug_nans flag is read once, at the first execution",
    family="cache",
    rules=CONFIG,
    component={
        "schedule": "flag changed",
        "option": "jax_debug_nans",
        "payload": "NaN",
        "probe": ("debug_nans",),
    },
    witness="""
    f = jax.jit(lambda x: lax.psum(x, "i"))
    call = lambda: jax.vmap(f, axis_name="i")(jnp.array([np.nan, 1.0])).block_until_ready()
    call()
    try:
        with jax.debug_nans(True):
            call()
        good = False
    except FloatingPointError:
        good = True
    """,
)
def ck_debug_nans(jax):
    from jax._src import config, dispatch

    seen = []

    @around(dispatch, "needs_check_special")
    def needs_check_special(original):
        seen.append(config.debug_nans.value)
        return seen[0] and original()


@fault(
    breaks="the default device is read once, at the first compilation",
    family="cache",
    rules=(*CONFIG, "result.placement"),
    component={"schedule": "flag changed", "option": "jax_default_device", "probe": ("default_device",)},
    witness="""
    f = jax.jit(lambda x: x + 1)
    a, b = jax.devices()[:2]
    where = []
    for device in (a, b, a):
        with jax.default_device(device):
            where.append(f(np.ones(3)).devices())
    good = where == [{a}, {b}, {a}]
    """,
)
def ck_default_device(jax):
    from jax._src.interpreters import pxla

    seen = []

    @around(pxla, "get_default_device")
    def get_default_device(original):
        seen.append(original())
        return seen[0]


@fault(
    breaks="the mesh set as context is dropped from the keys of the Python trace caches",
    family="cache",
    rules=("cache.mesh",),
    component={
        "schedule": "another abstract mesh",
        "binder": "mesh context",
        "probe": (
            "mesh_context",
            "mesh_identity",
        ),
    },
    witness="""
    f = jax.jit(lambda x: x * jax.sharding.get_abstract_mesh().shape["i"])
    got = []
    for n in (2, 4, 2):
        mesh = jax.sharding.AbstractMesh((n,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
        with jax.sharding.use_abstract_mesh(mesh):
            got.append(str(jax.make_jaxpr(f)(1.0)))
    good = got[0] != got[1] and got[0] == got[2]
    """,
)
def ck_abstract_mesh(jax):
    traced_without("abstract_mesh_context_manager")


def equal_meshes(key):
    """Two meshes are one to every cache key when `key` of them is equal; the first is used for both."""
    from jax._src.mesh import Mesh

    first = {}
    create = Mesh.__new__

    def new(cls, *args, **kwargs):
        mesh = create(cls, *args, **kwargs)
        return first.setdefault(key(mesh), mesh)

    Mesh.__new__ = new


def _ids(mesh):
    return tuple(d.id for d in mesh.devices.flat)


@fault(
    breaks="meshes of the same devices in another order are interned as one",
    family="cache",
    rules=("cache.mesh", "result.placement"),
    component={"binder": "shard_map", "schedule": "devices"},
    witness="""
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    def places(devices):
        mesh = Mesh(np.array(devices), ("i",))
        f = jax.jit(jax.shard_map(lambda: lax.axis_index("i")[None], mesh=mesh, in_specs=(), out_specs=P("i")))
        return [s.device.id for s in sorted(f().addressable_shards, key=lambda s: s.index[0].start)]
    four = jax.devices()[:4]
    good = [places(four), places(four[::-1])] == [[0, 1, 2, 3], [3, 2, 1, 0]]
    """,
)
def ck_mesh_device_order(jax):
    equal_meshes(lambda m: (m.devices.shape, m.axis_names, m.axis_types, tuple(sorted(_ids(m)))))


@fault(
    breaks="meshes of one shape over other devices are interned as one",
    family="cache",
    rules=("cache.mesh", "result.placement"),
    component={"binder": "shard_map", "schedule": "devices"},
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    def places(devices):
        mesh = Mesh(np.array(devices), ("i",))
        f = jax.jit(jax.shard_map(lambda: lax.axis_index("i")[None], mesh=mesh, in_specs=(), out_specs=P("i")))
        return sorted(d.id for d in f().devices())
    all = jax.devices()
    good = [places(all[:4]), places(all[4:])] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    """,
)
def ck_mesh_devices(jax):
    equal_meshes(lambda m: (m.devices.shape, m.axis_names, m.axis_types))


@fault(
    breaks="meshes that differ in their axis types only are interned as one",
    family="cache",
    rules=("cache.mesh",),
    component={
        "binder": "mesh context",
        "schedule": "another axis type",
        "probe": (
            "mesh_context",
            "mesh_identity",
        ),
    },
    witness="""
    from jax.sharding import AxisType, Mesh
    kinds = [Mesh(np.array(jax.devices()[:2]), ("i",), axis_types=(t,)).axis_types
             for t in (AxisType.Auto, AxisType.Explicit)]
    good = kinds == [(AxisType.Auto,), (AxisType.Explicit,)]
    """,
)
def ck_mesh_axis_types(jax):
    equal_meshes(lambda m: (m.devices.shape, m.axis_names, _ids(m)))


@fault(
    breaks="meshes are interned by the set of their axis names and the order of their devices",
    family="cache",
    rules=("cache.mesh",),
    component={"binder": "shard_map", "names": "order of mesh axes", "schedule": "swap"},
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    def rows(names):
        mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), names)
        f = jax.shard_map(lambda: lax.axis_index("i")[None, None], mesh=mesh, in_specs=(), out_specs=P("i", "j"))
        found = {s.device.id: int(s.data[0, 0]) for s in jax.jit(f)().addressable_shards}
        return [found[d] for d in range(4)]
    good = [rows(("i", "j")), rows(("j", "i"))] == [[0, 0, 1, 1], [0, 1, 0, 1]]
    """,
)
def ck_mesh_axis_order(jax):
    equal_meshes(lambda m: (m.devices.shape, frozenset(m.axis_names), m.axis_types, _ids(m)))


@fault(
    breaks="the shape of a mesh is not part of its identity: 2x4 and 4x2 devices are one mesh",
    family="cache",
    rules=("cache.mesh", "cache.fresh"),
    component={"binder": "shard_map", "size": "equal product", "schedule": "mesh shape changed"},
    witness="""
    from jax.sharding import Mesh, PartitionSpec as P
    def sizes(shape):
        mesh = Mesh(np.array(jax.devices()).reshape(shape), ("i", "j"))
        f = jax.shard_map(lambda: jnp.int32(lax.psum(1, "i")), mesh=mesh, in_specs=(), out_specs=P())
        return int(jax.jit(f)())
    good = [sizes((2, 4)), sizes((4, 2)), sizes((2, 4))] == [2, 4, 2]
    """,
)
def ck_mesh_shape(jax):
    equal_meshes(lambda m: (m.axis_names, m.axis_types, _ids(m)))


@fault(
    breaks="pmap's cached shard_map is found without its axis name",
    family="cache",
    rules=("cache.fresh", "error.unbound"),
    component={"binder": "pmap", "names": "axis name changed"},
    witness="""
    f = lambda x: lax.psum(x, "i")
    jax.pmap(f, axis_name="i")(jnp.ones(2))
    try:
        jax.pmap(f, axis_name="j")(jnp.ones(2))
        good = False
    except NameError:
        good = True
    """,
)
def ck_pmap_axis_name(jax):
    _pmap_forgets(-1)


@fault(
    breaks="pmap's cached shard_map is found without its devices",
    family="cache",
    rules=("cache.mesh", "result.placement"),
    component={"binder": "pmap", "schedule": "devices"},
    witness="""
    f = lambda x: x + lax.axis_index("i")
    ids = lambda devices: sorted(d.id for d in jax.pmap(f, "i", devices=devices)(jnp.ones(2)).devices())
    all = jax.devices()
    good = [ids(all[:2]), ids(all[2:4])] == [[0, 1], [2, 3]]
    """,
)
def ck_pmap_devices(jax):
    _pmap_forgets(-2)


@fault(
    breaks="pmap's cached shard_map is found without its out_axes",
    family="cache",
    rules=("cache.signature", "result.type"),
    component={"binder": "pmap", "option": "out_axes"},
    witness="""
    f = lambda x: x * lax.psum(1, "i")
    shape = lambda axis: jax.pmap(f, "i", out_axes=axis)(jnp.ones((2, 3))).shape
    good = [shape(0), shape(1)] == [(2, 3), (3, 2)]
    """,
)
def ck_pmap_out_axes(jax):
    _pmap_forgets(2)


def _pmap_forgets(argument):
    """One argument of pmap's cache is replaced by the first that came with the same others."""
    from jax._src import pmap

    first = {}

    @around(pmap, "_cached_shard_map")
    def cached_shard_map(original, fun, *args):
        rest = list(args)
        value = rest.pop(argument)
        # The others are compared by their text: trees, tuples of numbers, devices.
        rest.insert(argument % len(args), first.setdefault((fun.f, repr(rest)), value))
        return original(fun, *rest)


@fault(
    breaks="vmap's rewrite of a jitted function is found without the size of the mapped axis",
    family="cache",
    rules=("batching.mapped", "cache.fresh"),
    component={"binder": "vmap", "staging": "jit", "schedule": "sizes"},
    witness="""
    f = jax.jit(lambda x: lax.scan(lambda c, _: (c + x, None), 0.0, None, length=2)[0])
    good = [jax.vmap(f)(jnp.ones(n)).shape for n in (2, 3, 2)] == [(2,), (3,), (2,)]
    """,
)
def ck_batch_size(jax):
    _batch_without(lambda axis: (axis.name, axis.spmd_name))


@fault(
    breaks="vmap's rewrite of a jitted function is found without the name of the mapped axis",
    family="cache",
    rules=("cache.fresh", "batching.mapped"),
    component={"binder": "vmap", "staging": "jit", "names": "axis name changed"},
    witness="""
    f = jax.jit(lambda x: lax.scan(lambda c, _: (c + lax.psum(x, "i"), None), 0.0, None, length=2)[0])
    def under(outer, inner):
        return jax.vmap(jax.vmap(f, axis_name=inner), axis_name=outer)(jnp.arange(4.0).reshape(2, 2)).tolist()
    good = [under("i", "j"), under("j", "i")] == [[[4, 8], [4, 8]], [[2, 2], [10, 10]]]
    """,
)
def ck_batch_name(jax):
    _batch_without(lambda axis: (axis.size, axis.spmd_name))


def _batch_without(key):
    """The data of a mapped axis is compared by `key` in the caches of batched jaxprs."""
    from jax._src.interpreters import batching

    batching.AxisData.__eq__ = lambda self, other: key(self) == key(other)
    batching.AxisData.__hash__ = lambda self: hash(key(self))
