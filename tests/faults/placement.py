"""Faults in where arrays are put and where results come out, at the first and at later executions."""

from __future__ import annotations

import contextlib
import weakref

from .leaves import is_traced
from .library import fault
from .patching import around


@fault(
    breaks="with_sharding_constraint is a no-op",
    family="device",
    rules=("result.placement",),
    component={"staging": "jit", "option": "with_sharding_constraint"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        rows = jax.NamedSharding(mesh, jax.P("i"))
        got = jax.jit(lambda x: lax.with_sharding_constraint(x, rows) * 1)(np.arange(8))
        good = got.sharding.is_equivalent_to(rows, 1)
    """,
)
def md_constraint_dropped(jax):
    from jax._src import pjit

    @around(pjit, "with_sharding_constraint")
    def with_sharding_constraint(original, x, shardings):
        return x


def _jit_without(jax, option):
    from jax._src import api

    @around(api, "jit")
    def jit(original, *args, **options):
        options.pop(option, None)
        return original(*args, **options)


@fault(
    breaks="jit ignores out_shardings",
    family="device",
    rules=("result.placement",),
    component={"staging": "jit", "option": "out_shardings"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        rows = jax.NamedSharding(mesh, jax.P("i"))
        got = jax.jit(lambda x: x * 1, out_shardings=rows)(np.arange(8))
        good = got.sharding.is_equivalent_to(rows, 1)
    """,
)
def md_out_shardings(jax):
    _jit_without(jax, "out_shardings")


@fault(
    breaks="jit ignores in_shardings",
    family="device",
    rules=("result.placement",),
    component={"staging": "jit", "option": "in_shardings"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        rows = jax.NamedSharding(mesh, jax.P("i"))
        got = jax.jit(lambda x: x * 1, in_shardings=rows)(np.arange(8))
        good = len(got.devices()) == 8
    """,
)
def md_in_shardings(jax):
    _jit_without(jax, "in_shardings")


@fault(
    breaks="jit ignores donate_argnums, so donated arrays stay alive",
    family="device",
    rules=("cache.release",),
    component={"staging": "jit", "option": "donate_argnums"},
    witness="""
        x = jnp.arange(8.0)
        jax.jit(lambda x: x + 1, donate_argnums=0)(x)
        good = x.is_deleted()
    """,
)
def md_donation_ignored(jax):
    _jit_without(jax, "donate_argnums")


@fault(
    breaks="jit donates the argument after the one it was told",
    family="device",
    rules=("cache.release",),
    component={"staging": "jit", "option": "donate_argnums"},
    witness="""
        x, y = jnp.arange(8.0), jnp.ones(8)
        jax.jit(lambda x, y: x + y, donate_argnums=0)(x, y)
        good = x.is_deleted() and not y.is_deleted()
    """,
)
def md_donation_shifted(jax):
    from jax._src import api

    @around(api, "jit")
    def jit(original, *args, **options):
        argument = options.get("donate_argnums")
        arity = getattr(args[0], "__code__", None) and args[0].__code__.co_argcount if args else None
        if arity and isinstance(argument, int) and argument + 1 < arity:
            options["donate_argnums"] = argument + 1
        return original(*args, **options)


def _around_device_put(jax):
    """Decorator: jax.device_put of an array to a NamedSharding; gets the original, both of them."""
    from jax._src import api

    def patch(replacement):
        @around(api, "device_put")
        def device_put(original, x, device=None, **options):
            if isinstance(device, jax.NamedSharding) and hasattr(x, "shape"):
                return replacement(lambda y, sharding: original(y, sharding, **options), x, device)
            return original(x, device, **options)

        return replacement

    return patch


def _on_devices(jax, sharding, devices):
    mesh = sharding.mesh
    other = jax.sharding.Mesh(
        devices.reshape(mesh.devices.shape), mesh.axis_names, axis_types=mesh.axis_types
    )
    return jax.NamedSharding(other, sharding.spec)


@fault(
    breaks="device_put to a mesh in another device order puts the shards in the order of the ids",
    family="device",
    rules=("result.placement", "device.order"),
    component={
        "option": "device order",
        "probe": (
            "device_put",
            "moved",
        ),
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[::-1]), ("i",))
        x = jax.device_put(np.arange(8), jax.NamedSharding(mesh, jax.P("i")))
        good = all(shard.device.id == 7 - shard.data[0] for shard in x.addressable_shards)
    """,
)
def md_device_put_order(jax):
    import numpy as np

    @_around_device_put(jax)
    def device_put(original, x, sharding):
        if not isinstance(sharding.mesh, jax.sharding.Mesh):
            return original(x, sharding)
        ordered = sorted(sharding.mesh.devices.flat, key=lambda device: device.id)
        return original(x, _on_devices(jax, sharding, np.array(ordered)))


@fault(
    breaks="device_put to a mesh that does not start at the first device uses the first devices",
    family="device",
    rules=("result.placement",),
    component={
        "option": "mesh offset",
        "probe": (
            "device_put",
            "moved",
        ),
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[4:]), ("i",))
        x = jax.device_put(np.arange(4), jax.NamedSharding(mesh, jax.P("i")))
        good = {device.id for device in x.devices()} == {4, 5, 6, 7}
    """,
)
def md_device_put_offset(jax):
    import numpy as np

    @_around_device_put(jax)
    def device_put(original, x, sharding):
        mesh = sharding.mesh
        everyone = jax.devices()
        if not isinstance(mesh, jax.sharding.Mesh) or everyone[0] in mesh.devices.flat:
            return original(x, sharding)
        return original(x, _on_devices(jax, sharding, np.array(everyone[: mesh.size])))


@fault(
    breaks="device_put of a square matrix reverses the dimensions of the spec",
    family="device",
    rules=("result.placement",),
    component={
        "shape": "square",
        "probe": (
            "device_put",
            "moved",
        ),
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        x = jax.device_put(np.zeros((8, 8)), jax.NamedSharding(mesh, jax.P("i", None)))
        good = x.addressable_shards[0].data.shape == (1, 8)
    """,
)
def md_device_put_transposed(jax):
    @_around_device_put(jax)
    def device_put(original, x, sharding):
        spec = tuple(sharding.spec)
        if len(spec) == 2 and x.shape[0] == x.shape[1]:
            sharding = jax.NamedSharding(sharding.mesh, jax.P(*spec[::-1]))
        return original(x, sharding)


def _exchange(jax, array):
    """The array with the data of its first two shards exchanged, where it has that many."""
    shards = array.addressable_shards
    if len(shards) < 2 or array.is_fully_replicated:
        return array
    data = [shard.data for shard in shards]
    data[:2] = data[1::-1]
    placed = [jax.device_put(piece, shard.device) for piece, shard in zip(data, shards, strict=True)]
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, placed)


@fault(
    breaks="device_put from one sharding on several devices to another exchanges the first two shards",
    family="device",
    rules=("result.placement",),
    component={"operand": "sharded", "option": "reshard", "probe": ("resharded",)},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        x = jax.device_put(np.arange(8), jax.NamedSharding(mesh, jax.P("i")))
        good = np.array_equal(jax.device_put(x, jax.NamedSharding(mesh, jax.P("j"))), np.arange(8))
    """,
)
def md_reshard_exchanged(jax):
    @_around_device_put(jax)
    def device_put(original, x, sharding):
        y = original(x, sharding)
        several = isinstance(x, jax.Array) and not is_traced(x) and len(x.devices()) > 1
        return _exchange(jax, y) if several and not x.sharding.is_equivalent_to(sharding, x.ndim) else y


@fault(
    breaks="make_array_from_callback asks the callback for the shards in reverse",
    family="device",
    rules=("result.placement",),
    component={"option": "make_array_from_callback", "probe": ("callback",)},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        rows = jax.NamedSharding(mesh, jax.P("i"))
        x = jax.make_array_from_callback((8,), rows, lambda index: np.arange(8)[index])
        good = np.array_equal(x, np.arange(8))
    """,
)
def md_callback_reversed(jax):
    from jax._src import array

    @around(array, "make_array_from_callback")
    def from_callback(original, shape, sharding, callback, *args, **options):
        indices = list(
            {str(index): index for index in sharding.devices_indices_map(tuple(shape)).values()}.values()
        )
        other = {str(index): indices[-1 - place] for place, index in enumerate(indices)}
        return original(shape, sharding, lambda index: callback(other[str(index)]), *args, **options)


@fault(
    breaks="make_array_from_single_device_arrays goes by the order of the list, not by the device of each",
    family="device",
    rules=("result.placement",),
    component={"option": "make_array_from_single_device_arrays", "probe": ("single_device_arrays",)},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        rows = jax.NamedSharding(mesh, jax.P("i"))
        pieces = [jax.device_put(jnp.array([device.id]), device) for device in jax.devices()[::-1]]
        good = np.array_equal(jax.make_array_from_single_device_arrays((8,), rows, pieces), np.arange(8))
    """,
)
def md_single_device_arrays(jax):
    from jax._src import array

    @around(array, "make_array_from_single_device_arrays")
    def from_arrays(original, shape, sharding, arrays, **options):
        devices = sharding.addressable_devices_indices_map(tuple(shape))
        placed = [jax.device_put(piece, device) for piece, device in zip(arrays, devices, strict=True)]
        return original(shape, sharding, placed, **options)


@fault(
    breaks="make_array_from_process_local_data lays the rows of a process out over its devices in reverse",
    family="device",
    rules=("result.placement",),
    component={"option": "make_array_from_process_local_data", "probe": ("process_local_data",)},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        rows = jax.NamedSharding(mesh, jax.P("i"))
        good = np.array_equal(jax.make_array_from_process_local_data(rows, np.arange(8)), np.arange(8))
    """,
)
def md_process_local_data(jax):
    from jax._src import array

    @around(array, "make_array_from_process_local_data")
    def from_local_data(original, sharding, data, *args, **options):
        return original(sharding, jax.tree.map(lambda rows: rows[::-1], data), *args, **options)


@fault(
    breaks="jax.default_device is ignored",
    family="device",
    rules=("result.placement",),
    component={
        "option": "default_device",
        "probe": (
            "default_device",
            "commitment",
        ),
    },
    witness="""
        with jax.default_device(jax.devices()[3]):
            good = jnp.zeros(2).devices() == {jax.devices()[3]}
    """,
)
def md_default_device(jax):
    jax.default_device = lambda device: contextlib.nullcontext()


def _later_executions(jax, change):
    """Pass the results of a program on several devices through `change` from its second execution on."""
    from jax._src import pjit
    from jax._src.interpreters import pxla

    seen = weakref.WeakSet()

    # Without the C++ fast path every execution comes through here.
    @around(pjit, "_get_fastpath_data")
    def no_fast_path(original, *args, **options):
        return None

    @around(pxla.ExecuteReplicated, "__call__")
    def execute(original, self, *args):
        results = original(self, *args)
        if self not in seen or len(self._local_devices) < 2:
            seen.add(self)
            return results
        return [change(array) for array in results]


@fault(
    breaks="from the second execution of a program on several devices on, output shards 0 and 1 are swapped",
    family="device",
    rules=("result.placement", "repeat.bitwise"),
    component={"binder": "shard_map", "schedule": "second call"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        twice = jax.jit(jax.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P("i")))
        first, second = twice(jnp.arange(8)), twice(jnp.arange(8))
        good = np.array_equal(first, second)
    """,
)
def md_second_call_shard_swap(jax):
    _later_executions(jax, lambda array: _exchange(jax, array))


@fault(
    breaks="from the second execution of a program on several devices on, float results are off by one bit",
    family="device",
    rules=("repeat.bitwise",),
    component={"binder": "shard_map", "schedule": "second call", "dtype": "float32"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        total = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P())
        total = jax.jit(total)
        good = np.array_equal(total(jnp.ones(8)), total(jnp.ones(8)))
    """,
)
def md_second_call_rounding(jax):
    import numpy as np

    def next_float(array):
        if array.dtype != "float32":
            return array
        return jax.device_put(np.nextafter(np.asarray(array), np.float32(np.inf)), array.sharding)

    _later_executions(jax, next_float)


@fault(
    breaks="from the second execution of a program on several devices on, its results are on one device",
    family="device",
    rules=("result.placement",),
    component={"binder": "shard_map", "schedule": "second call"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        twice = jax.jit(jax.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P("i")))
        first, second = twice(jnp.arange(8)), twice(jnp.arange(8))
        good = first.sharding == second.sharding
    """,
)
def md_second_call_gathered(jax):
    _later_executions(jax, lambda array: jax.device_put(array, jax.devices()[0]))
