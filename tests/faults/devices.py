"""Faults in the devices themselves: their order, meshes of them, and what their shards say."""

from __future__ import annotations

from .leaves import meshes_of_bodies, names_of
from .library import fault
from .patching import around


@fault(
    breaks="Array.addressable_shards lists the shard data in reversed order",
    family="device",
    rules=("result.placement",),
    component={"binder": "shard_map", "payload": "shards"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        x = jax.device_put(jnp.arange(8), jax.NamedSharding(mesh, jax.P("i")))
        good = all(shard.data[0] == shard.index[0].start for shard in x.addressable_shards)
    """,
)
def md_addressable_shards(jax):
    from jax._src.array import ArrayImpl, Shard

    shards_of = ArrayImpl.addressable_shards.fget

    def addressable_shards(self):
        shards = shards_of(self)
        pairs = zip(shards, reversed(shards), strict=True)
        return [Shard(here.device, self.sharding, self.shape, there.data) for here, there in pairs]

    ArrayImpl.addressable_shards = property(addressable_shards)


@fault(
    breaks="the index of a shard of a matrix has its two dimensions exchanged",
    family="device",
    rules=("result.placement",),
    component={"binder": "shard_map", "shape": "matrix", "payload": "shards"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        x = np.arange(16).reshape(4, 4)
        placed = jax.device_put(x, jax.NamedSharding(mesh, jax.P("i", "j")))
        good = all(np.array_equal(shard.data, x[shard.index]) for shard in placed.addressable_shards)
    """,
)
def md_shard_index(jax):
    from jax._src.array import Shard

    index_of = Shard.index.func
    Shard.index = property(lambda self: index_of(self)[::-1])


@fault(
    breaks="every shard says that it is replica 0",
    family="device",
    rules=("result.placement",),
    component={
        "operand": "replicated",
        "payload": "shards",
        "probe": (
            "fetched",
            "device_put",
            "constraint",
            "callback",
        ),
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        x = jax.device_put(jnp.arange(4), jax.NamedSharding(mesh, jax.P("j")))
        good = sorted(shard.replica_id for shard in x.addressable_shards) == [0] * 4 + [1] * 4
    """,
)
def md_replica_id(jax):
    from jax._src.array import Shard

    Shard.replica_id = property(lambda self: 0)


@fault(
    breaks="np.asarray of an array on a mesh in another device order puts the shards together by device id",
    family="device",
    rules=("result.placement", "device.order"),
    component={
        "option": "device order",
        "probe": (
            "device_put",
            "fetched",
        ),
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[::-1]), ("i",))
        x = jax.device_put(np.arange(8), jax.NamedSharding(mesh, jax.P("i")))
        good = np.array_equal(x, np.arange(8))
    """,
)
def md_asarray_device_order(jax):
    import numpy as np
    from jax._src.array import ArrayImpl

    value_of = ArrayImpl._value.fget

    def value(self):
        shards = sorted(self.addressable_shards, key=lambda shard: shard.device.id)
        if self.is_fully_replicated or len(shards) < 2:
            return value_of(self)
        whole = np.empty(self.shape, self.dtype)
        indices = self.sharding.devices_indices_map(self.shape).values()  # in the order of the mesh
        for index, shard in zip(indices, shards, strict=True):
            whole[index] = np.asarray(shard.data)
        return whole

    ArrayImpl._value = property(value)


@fault(
    breaks="jax.devices() lists devices in descending id order",
    family="device",
    rules=("device.order",),
    component={
        "option": "device order",
        "probe": (
            "device_order",
            "make_mesh",
        ),
    },
    witness="""
        good = [device.id for device in jax.devices()] == list(range(8))
    """,
)
def md_devices_reversed(jax):
    devices = jax.devices
    jax.devices = lambda *args, **options: devices(*args, **options)[::-1]


@fault(
    breaks="jax.local_devices() leaves out the last device",
    family="device",
    rules=("device.order", "process.identity"),
    component={
        "option": "device order",
        "probe": (
            "device_order",
            "process_identity",
        ),
    },
    witness="""
        good = jax.local_devices() == jax.devices()
    """,
)
def md_local_devices(jax):
    devices = jax.local_devices
    jax.local_devices = lambda *args, **options: devices(*args, **options)[:-1]


@fault(
    breaks="jax.make_mesh runs through every second row of devices backwards",
    family="device",
    rules=("device.order", "result.placement"),
    component={"binder": "shard_map", "option": "make_mesh"},
    witness="""
        mesh = jax.make_mesh((2, 4), ("i", "j"))
        good = [device.id for device in mesh.devices.flat] == list(range(8))
    """,
)
def md_make_mesh_snake(jax):
    from jax._src import sharding_impls

    @around(sharding_impls, "make_mesh")
    def make_mesh(original, *args, **options):
        mesh = original(*args, **options)
        rows = mesh.devices.reshape(-1, mesh.devices.shape[-1]).copy()
        rows[1::2] = rows[1::2, ::-1]
        return jax.sharding.Mesh(
            rows.reshape(mesh.devices.shape),
            mesh.axis_names,
            axis_types=mesh.axis_types,
        )


@fault(
    breaks="jax.make_mesh ignores axis_types",
    family="device",
    rules=("result.type", "cache.mesh"),
    component={"binder": "shard_map", "option": "axis_types"},
    witness="""
        explicit = jax.sharding.AxisType.Explicit
        mesh = jax.make_mesh((8,), ("i",), axis_types=(explicit,))
        x = jax.device_put(jnp.arange(8), jax.NamedSharding(mesh, jax.P("i")))
        good = jax.typeof(x).sharding.spec == jax.P("i")
    """,
)
def md_make_mesh_axis_types(jax):
    from jax._src import sharding_impls

    @around(sharding_impls, "make_mesh")
    def make_mesh(original, axis_sizes, axis_names, axis_types=None, **options):
        return original(
            axis_sizes,
            axis_names,
            (jax.sharding.AxisType.Auto,) * len(axis_names),
            **options,
        )


@fault(
    breaks="the mesh of jax.set_mesh stays set when its block ends",
    family="device",
    rules=("cache.mesh",),
    component={"option": "set_mesh", "schedule": "bound, then unbound", "probe": ("mesh_context",)},
    witness="""
        mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
        with jax.set_mesh(mesh):
            pass
        good = jax.sharding.get_abstract_mesh().empty
        jax.set_mesh(None)
    """,
)
def md_set_mesh_leak(jax):
    jax.set_mesh.__exit__ = lambda self, *error: None


@fault(
    breaks="pmap sorts the devices it is given by id",
    family="device",
    rules=("result.placement", "device.order"),
    component={"binder": "pmap", "option": "devices"},
    witness="""
        got = jax.pmap(lambda x: x, axis_name="i", devices=jax.devices()[::-1])(jnp.arange(8))
        good = all(shard.device.id == 7 - shard.data[0] for shard in got.addressable_shards)
    """,
)
def md_pmap_device_order(jax):
    from jax._src import pmap

    @around(pmap, "_get_mesh_devices")
    def mesh_devices(original, devices, *args):
        return original(devices and tuple(sorted(devices, key=lambda d: d.id)), *args)


@fault(
    breaks="pmap over fewer devices than there are takes the last ones",
    family="device",
    rules=("result.placement",),
    component={"binder": "pmap", "sizes": "< devices"},
    witness="""
        got = jax.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.arange(3))
        good = {device.id for device in got.devices()} == {0, 1, 2}
    """,
)
def md_pmap_last_devices(jax):
    from jax._src import pmap

    @around(pmap, "_get_mesh_devices")
    def mesh_devices(original, devices, backend, size, *args):
        return original(devices or tuple(jax.local_devices()[-size:]), backend, size, *args)


@fault(
    breaks="the pairs of ppermute over a one-axis mesh mean device ids instead of places in the mesh",
    family="device",
    rules=("ppermute.pairs", "device.order"),
    component={"leaf": "ppermute", "binder": "shard_map", "option": "device order"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[::-1]), ("i",))
        pairs = [(k, (k + 1) % 8) for k in range(8)]
        shift = jax.shard_map(lambda x: lax.ppermute(x, "i", pairs), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P("i"))
        good = np.array_equal(shift(jnp.arange(8)), np.roll(np.arange(8), 1))
    """,
)
def md_ppermute_device_id(jax):
    from jax._src.lax import parallel

    meshes = meshes_of_bodies()

    @around(parallel, "ppermute")
    def ppermute(original, x, axis_name, perm):
        mesh = meshes[-1] if meshes else None
        if isinstance(mesh, jax.sharding.Mesh) and mesh.axis_names == names_of(axis_name):
            ids = [device.id for device in mesh.devices]
            if sorted(ids) == list(range(len(ids))):
                perm = [(ids.index(a), ids.index(b)) for a, b in perm]
        return original(x, axis_name, perm)
