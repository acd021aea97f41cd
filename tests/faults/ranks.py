"""Faults that need several processes to show: one process that differs, parts at the wrong process, swapped groups."""

from __future__ import annotations

from .batching import _with_groups
from .library import fault
from .patching import around, around_lowering
from .processes import _two

TOTAL = """
def total(of, spec=jax.P()):
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
    x = jax.make_array_from_callback((16,), jax.NamedSharding(mesh, jax.P("i")), lambda k: np.arange(16.0)[k])
    body = jax.shard_map(of, mesh=mesh, in_specs=jax.P("i"), out_specs=spec, check_vma=False)
    return np.asarray(jax.jit(body)(x).addressable_data(0)).ravel().tolist()
"""


def _last(jax) -> bool:
    """Whether this is the last of several processes."""
    return jax.process_count() > 1 and jax.process_index() == jax.process_count() - 1


@fault(
    breaks="psum is lowered to pmax in the last process only",
    family="device",
    rules=("process.agree",),
    component={"leaf": "psum", "binder": "shard_map"},
    witness=_two(
        TOTAL
        + """
good = in_two_processes(lambda index: total(lambda x: lax.psum(x, "i"))) == [[120], [120]]
"""
    ),
)
def mp_last_process_max(jax):
    from jax._src.lax import parallel

    def lower(original, ctx, x, *, axes, **params):
        from jax._src.interpreters import mlir

        if not _last(jax):
            return original(ctx, x, axes=axes, **params)
        params.setdefault("axis_index_groups", None)
        return mlir._lowerings[parallel.pmax_p].rule(ctx, x, axes=axes, **params)

    around_lowering(parallel.psum_p)(lower)
    around_lowering(parallel.psum_invariant_p)(lower)  # psum where shard_map checks how values vary


@fault(
    breaks="axis_index is one too many in the last process only",
    family="device",
    rules=("process.agree",),
    component={"leaf": "axis_index", "binder": "shard_map"},
    witness=_two(
        TOTAL
        + """
def program(index):
    return total(lambda x: (x * 0 + lax.axis_index("i")), jax.P("i"))
good = in_two_processes(program) == [[0], [8]]
"""
    ),
)
def mp_last_process_index(jax):
    import numpy as np
    from jax._src.lax import parallel

    @around_lowering(parallel.axis_index_p)
    def lower(original, ctx, **params):
        from jax._src.interpreters import mlir
        from jax._src.lib.mlir.dialects import hlo

        (index,) = original(ctx, **params)
        if not _last(jax):
            return [index]
        return [hlo.add(index, mlir.ir_constant(np.int32(1)))]


@fault(
    breaks="groups of devices over a mesh axis that spans processes take the processes' devices crosswise",
    family="device",
    rules=("psum.sum", "process.mesh", "all_gather.order"),
    component={"leaf": "psum", "binder": "shard_map"},
    witness=_two("""
        def program(index):
            mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 8), ("i", "j"))
            x = jax.make_array_from_callback((2, 8), jax.NamedSharding(mesh, jax.P("i", "j")),
                                             lambda k: np.arange(16.0).reshape(2, 8)[k])
            body = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=jax.P("i", "j"),
                                 out_specs=jax.P(None, "j"))
            return np.asarray(jax.jit(body)(x).addressable_data(0)).ravel().tolist()
        good = in_two_processes(program) == [[8], [8]]
    """),
)
def mp_groups_crosswise(jax):
    def change(groups, mesh, names):
        local = mesh.size // max(1, jax.process_count())
        across = jax.process_count() > 1 and len(groups) > 1
        if not across or {device // local for device in groups[0]} != set(range(jax.process_count())):
            return groups
        ends = [group[-1] for group in groups]
        return tuple((*group[:-1], end) for group, end in zip(groups, [*ends[1:], ends[0]], strict=True))

    _with_groups(change)


@fault(
    breaks="make_array_from_process_local_data gives the devices of a process its rows in reverse",
    family="device",
    rules=("process.data",),
    component={"option": "make_array_from_process_local_data", "probe": "local_data"},
    witness=_two("""
        def program(index):
            mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
            rows = np.arange(8.0) + 8 * index
            x = jax.make_array_from_process_local_data(jax.NamedSharding(mesh, jax.P("i")), rows)
            return np.asarray(x.addressable_data(0)).tolist()
        good = in_two_processes(program) == [[0], [8]]
    """),
)
def mp_local_data_reversed(jax):
    import numpy as np

    original = jax.make_array_from_process_local_data

    def reversed_(sharding, local_data, *rest, **options):
        many = jax.process_count() > 1 and np.ndim(local_data) and not sharding.is_fully_replicated
        return original(sharding, local_data[::-1] if many else local_data, *rest, **options)

    jax.make_array_from_process_local_data = reversed_


@fault(
    breaks="make_array_from_callback asks the last process for other processes' parts as well",
    family="device",
    rules=("process.data",),
    component={"option": "make_array_from_callback", "probe": "from_callback"},
    witness=_two("""
        def program(index):
            asked = []
            mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
            jax.make_array_from_callback((16,), jax.NamedSharding(mesh, jax.P("i")),
                                         lambda k: asked.append(k) or np.arange(16.0)[k])
            return len(asked)
        good = in_two_processes(program) == [8, 8]
    """),
)
def mp_callback_for_all(jax):
    original = jax.make_array_from_callback

    def asking(shape, sharding, callback, *rest, **options):
        if _last(jax):
            for index in sharding.devices_indices_map(shape).values():
                callback(index)
        return original(shape, sharding, callback, *rest, **options)

    jax.make_array_from_callback = asking


@fault(
    breaks="process_allgather gives every process what it has itself, as often as there are processes",
    family="device",
    rules=("process.gather", "process.identity"),
    component={"option": "process_allgather", "probe": "gathers"},
    witness=_two("""
        def program(index):
            return multihost_utils.process_allgather(np.array([index])).ravel().tolist()
        good = in_two_processes(program) == [[0, 1], [0, 1]]
    """),
)
def mp_allgather_own(jax):
    import numpy as np
    from jax.experimental import multihost_utils

    @around(multihost_utils, "process_allgather")
    def allgather(original, tree, tiled=False):
        def own(gathered):
            if tiled:
                parts = np.split(np.asarray(gathered), jax.process_count())
                return np.concatenate([parts[jax.process_index()]] * len(parts))
            return np.stack([np.asarray(gathered)[jax.process_index()]] * len(gathered))

        return jax.tree.map(own, original(tree, tiled)) if jax.process_count() > 1 else original(tree, tiled)


@fault(
    breaks="the devices of the last process hold replicated results with their last bit changed at every third reading",
    family="device",
    rules=("repeat.bitwise", "process.gradient"),
    component={"option": "addressable_data", "probe": "gradient_across"},
    witness=_two(
        TOTAL
        + """
def program(index):
    return [total(lambda x: lax.psum(x, "i")) for _ in range(3)]
good = in_two_processes(program) == [[[120], [120], [120]]] * 2
"""
    ),
)
def mp_last_bit(jax):
    import numpy as np
    from jax._src import array

    original, read = array.ArrayImpl.addressable_data, []

    def addressable_data(self, index):
        data = original(self, index)
        read.append(1)
        if not _last(jax) or str(data.dtype) != "float32" or not data.size or len(read) % 3:
            return data
        return jax.numpy.asarray(np.nextafter(np.asarray(data), np.float32(np.inf)))

    array.ArrayImpl.addressable_data = addressable_data


@fault(
    breaks="the last process forgets what it traced, and traces anew at every call",
    family="cache",
    rules=("cache.retrace", "process.order"),
    component={"binder": "shard_map", "staging": "jit"},
    witness=_two("""
        def program(index):
            traces = []
            f = jax.jit(lambda x: traces.append(1) or x + 1)
            f(1), f(1)
            return len(traces)
        good = in_two_processes(program) == [1, 1]
    """),
)
def mp_last_process_forgets(jax):
    original = jax.jit

    def jit(fun=None, **options):
        if fun is None:
            return lambda fun: jit(fun, **options)
        inner = original(fun, **options)
        return Forgetful(inner, jax)

    class Forgetful:
        def __init__(self, inner, jax):
            self.inner, self.jax = inner, jax

        def __call__(self, *args, **kwargs):
            if _last(self.jax):
                self.inner.clear_cache()
            return self.inner(*args, **kwargs)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    jax.jit = jit
