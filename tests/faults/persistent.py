"""Faults in the persistent compilation cache: what its key holds, what is read and written."""

import re

from .library import fault
from .patching import around

DISK = ("cache.disk",)

# A second compilation in this process, after the caches in memory were cleared, reads what the first one wrote.
ON_DISK = """
    import tempfile
    folder = tempfile.mkdtemp()
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    events = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    hits = lambda: sum("cache_hits" in event for event in events)
    from jax.sharding import Mesh, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
    def mapped(f, x):
        jax.clear_caches()
        def program(x): return f(x)
        return np.asarray(jax.jit(jax.shard_map(program, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(x))
    """


def without_groups(text):
    """The text of a module less replica groups and pairs, in each form StableHLO has for them."""
    text = re.sub(r"(replica_groups|source_target_pairs) = (dense<[^>]*> : tensor<[^>]*>|#\S+)", r"\1", text)
    return re.sub(r"#stablehlo\.replica_group_mesh_axes<[^\n]*", "groups", text)


def without_constants(text):
    """The text of a module less the values of its constants."""
    return re.sub(r"(stablehlo\.constant) dense<[^>]*>", r"\1", text)


def _key_of_text(canonical):
    """The module enters the key as `canonical(text)`."""
    from jax._src import cache_key

    @around(cache_key, "_hash_computation")
    def hash_computation(original, hash_obj, module, *options):
        hash_obj.update(canonical(str(module)).encode())


@fault(
    breaks="the key on disk ignores replica groups and source-target pairs",
    family="cache",
    rules=(*DISK, "ppermute.pairs"),
    component={"staging": "persistent cache", "leaf": "ppermute", "schedule": "disk"},
    witness=ON_DISK
    + """
    shift = lambda by: (lambda x: lax.ppermute(x, "i", [(k, (k + by) % 4) for k in range(4)]))
    got = [mapped(shift(by), jnp.arange(4)).tolist() for by in (1, 2)]
    good = got == [[3, 0, 1, 2], [2, 3, 0, 1]]
    """,
)
def ck_persist_replica_groups(jax):
    _key_of_text(without_groups)


@fault(
    breaks="the key on disk ignores the values of constants, such as folded axis sizes",
    family="cache",
    rules=(*DISK, "cache.closure"),
    component={"staging": "persistent cache", "operand": "constant", "schedule": "disk"},
    witness=ON_DISK
    + """
    got = [mapped(lambda x: x * n, jnp.ones(4)).tolist() for n in (2, 3)]
    good = got == [[2.0] * 4, [3.0] * 4]
    """,
)
def ck_persist_constants(jax):
    _key_of_text(without_constants)


@fault(
    breaks="the key on disk ignores element types",
    family="cache",
    rules=(*DISK, "result.type", "cache.signature"),
    component={"staging": "persistent cache", "dtype": "unsigned", "schedule": "disk"},
    witness=ON_DISK
    + """
    values = lambda dtype: np.array([1, 0, 2, 255], "uint8").astype(dtype)
    got = [int(mapped(lambda x: lax.pmax(x, "i"), values(d))[0]) for d in ("int8", "uint8")]
    good = got == [2, 255]
    """,
)
def ck_persist_signedness(jax):
    _key_of_text(lambda text: text.replace("ui", "i"))


@fault(
    breaks="the key on disk is the module's name and operand types",
    family="cache",
    rules=DISK,
    component={"staging": "persistent cache", "schedule": "disk"},
    witness=ON_DISK
    + """
    bodies = [lambda x: lax.psum(x, "i") + x, lambda x: lax.pmax(x, "i") + x]
    got = [mapped(body, jnp.arange(4)).tolist() for body in bodies]
    good = got == [[6, 7, 8, 9], [3, 4, 5, 6]]
    """,
)
def ck_persist_signature_only(jax):
    _key_of_text(lambda text: re.search(r"func\.func public @main.*", text).group())


@fault(
    breaks="the key on disk holds the set of operations of the module, not their order",
    family="cache",
    rules=DISK,
    component={"staging": "persistent cache", "schedule": "disk"},
    witness=ON_DISK
    + """
    bodies = [lambda x: lax.psum(x + x, "i") * x, lambda x: lax.psum(x * x, "i") + x]
    got = [mapped(body, jnp.arange(4)).tolist() for body in bodies]
    good = got == [[0, 12, 24, 36], [14, 15, 16, 17]]
    """,
)
def ck_persist_operations_only(jax):
    def canonical(text):
        return " ".join(sorted(set(re.findall(r"stablehlo\.\w+", text)))) + str(
            re.findall(r"tensor<[^>]*>", text)[0]
        )

    _key_of_text(canonical)


@fault(
    breaks="the key on disk ignores attributes that say along which dimension",
    family="cache",
    rules=(*DISK, "all_gather.order"),
    component={"staging": "persistent cache", "schedule": "disk", "leaf": "all_gather", "option": "axis"},
    witness=ON_DISK
    + """
    x = jnp.arange(16).reshape(4, 4)
    def gathered(axis):
        rows = lambda v: lax.all_gather(v.reshape(2, 2), "i", axis=axis, tiled=True).reshape(1, 16)
        return mapped(rows, x)[0].tolist()
    expected = [np.concatenate([np.arange(4 * d, 4 * d + 4).reshape(2, 2) for d in range(4)], axis).ravel().tolist()
                for axis in (0, 1)]
    good = [gathered(axis) for axis in (0, 1)] == expected
    """,
)
def ck_persist_dimensions(jax):
    def canonical(text):
        text = re.sub(r"all_gather_dim = \d+ : i64", "", text)
        return re.sub(r"tensor<(8x2|2x8)x", "tensor<16x", text)

    _key_of_text(canonical)


@fault(
    breaks="the key on disk ignores sharding attributes",
    family="cache",
    rules=(*DISK, "result.placement"),
    component={"staging": "persistent cache", "schedule": "disk", "option": "out_shardings"},
    witness=ON_DISK
    + """
    from jax.sharding import NamedSharding
    def run(spec):
        jax.clear_caches()
        f = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, spec))
        return sorted((s.device.id, np.asarray(s.data).tolist()) for s in f(jnp.arange(4)).addressable_shards)
    whole, parts = run(P()), run(P("i"))
    good = whole == [(d, [0, 2, 4, 6]) for d in range(4)] and parts == [(d, [2 * d]) for d in range(4)]
    """,
)
def ck_persist_shardings(jax):
    _key_of_text(
        lambda text: re.sub(r"sdy\.sharding = #sdy\.sharding<[^>]*>|mhlo\.sharding = \"[^\"]*\"", "", text)
    )


@fault(
    breaks="the key on disk is cut to one hexadecimal digit",
    family="cache",
    rules=DISK,
    component={"staging": "persistent cache", "schedule": "disk"},
    witness=ON_DISK
    + """
    got = [float(mapped(lambda x: x * n, jnp.ones(4))[0]) for n in range(2, 22)]
    good = got == list(range(2, 22))
    """,
)
def ck_persist_short_key(jax):
    from jax._src import cache_key

    @around(cache_key, "get")
    def get(original, *args, **kwargs):
        name, _, digest = original(*args, **kwargs).rpartition("-")
        return f"{name}-{digest[:1]}"


@fault(
    breaks="the key on disk contains something of this process, so nothing is ever found",
    family="cache",
    rules=(*DISK, "cache.recompile"),
    component={"staging": "persistent cache", "schedule": "disk"},
    witness=ON_DISK
    + """
    for _ in range(2):
        before = hits()
        mapped(lambda x: lax.psum(x, "i"), np.arange(4))
    good = hits() > before
    """,
)
def ck_persist_never_hits(jax):
    import itertools

    from jax._src import cache_key

    calls = itertools.count()

    @around(cache_key, "get")
    def get(original, *args, **kwargs):
        return f"{original(*args, **kwargs)}-{next(calls)}"


@fault(
    breaks="programs with collectives are never written to disk",
    family="cache",
    rules=(*DISK, "cache.recompile"),
    component={"staging": "persistent cache", "leaf": "any", "schedule": "disk"},
    witness=ON_DISK
    + """
    for _ in range(2):
        before = hits()
        mapped(lambda x: lax.psum(x, "i"), np.arange(4))
    good = hits() > before
    """,
)
def ck_persist_no_collectives(jax):
    from jax._src import compiler

    @around(compiler, "_cache_write")
    def cache_write(original, key, seconds, name, backend, executable, *rest):
        text = executable.hlo_modules()[0].to_string()
        if not re.search(r"all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter", text):
            original(key, seconds, name, backend, executable, *rest)


@fault(
    breaks="the key on disk of a named function is the name of its module",
    family="cache",
    rules=DISK,
    component={"staging": "persistent cache", "schedule": "disk"},
    witness=ON_DISK
    + """
    bodies = [lambda x: lax.psum(x, "i") + x, lambda x: lax.pmax(x, "i") + x]
    got = [mapped(body, jnp.arange(4)).tolist() for body in bodies]
    good = got == [[6, 7, 8, 9], [3, 4, 5, 6]]
    """,
)
def ck_persist_by_name(jax):
    from jax._src import cache_key

    @around(cache_key, "get")
    def get(original, module, *args, **kwargs):
        key = original(module, *args, **kwargs)
        # A name the user gave is taken to be unique.
        return f"{key.rpartition('-')[0]}-{'0' * 64}" if key.startswith("jit_program") else key
