"""Which devices there are, and what meshes make of them; the gathers over processes in the case of one."""

from harness.probes.base import Probe

SUITE = "devices"

MESHES = {
    "8": '((8,), "i")',
    "2x4": '((2, 4), "ij")',
    "4x2": '((4, 2), "ij")',
    "2x2x2": '((2, 2, 2), "ijk")',
    "1x8": '((1, 8), "ij")',
    "8x1": '((8, 1), "ij")',
}

PROBES = {
    "device_order": Probe(
        rule="device.order",
        suite=SUITE,
        alone=False,
        source="""
            ids = [device.id for device in jax.devices()]
            local = [device.id for device in jax.local_devices()]
            own = [device.id for device in jax.devices() if device.process_index == jax.process_index()]
            return {
                "ids ascend": ids == sorted(ids),
                "ids differ": len(set(ids)) == len(ids),
                "local_devices() are those of this process": local == own,
                "the count agrees": jax.device_count() == len(ids),
                "the local count agrees": jax.local_device_count() == len(local) > 0,
                "a second call gives the same": jax.devices() == jax.devices(),
                "devices of the default backend are devices()": jax.devices(jax.default_backend()) == jax.devices(),
                "a device is itself by equality and hash": len(set(jax.devices() + jax.local_devices())) == len(ids),
            }
        """,
    ),
    "process_identity": Probe(
        rule="process.identity",
        suite=SUITE,
        alone=False,
        source="""
            owners = {device.process_index for device in jax.devices()}
            own = {device.process_index for device in jax.local_devices()}
            return {
                "process_index() owns the local devices": own == {jax.process_index()},
                "process_index() is below process_count()": 0 <= jax.process_index() < jax.process_count(),
                "every process has devices": owners == set(range(jax.process_count())),
                "process_indices() lists them": set(jax.process_indices()) == owners,
                "local_devices(process_index=own) are the local devices": (
                    jax.local_devices(process_index=jax.process_index()) == jax.local_devices()
                ),
            }
        """,
    ),
    "make_mesh": Probe(
        rule="device.order",
        suite=SUITE,
        devices=8,
        values=MESHES,
        source="""
            shape, names = VALUE
            mesh = jax.make_mesh(shape, tuple(names))
            devices = list(mesh.devices.flat)
            some = jax.devices()[::-1][:2]
            given = jax.make_mesh((2,), ("i",), devices=some)
            facts = {
                "the shape is as asked": mesh.devices.shape == shape,
                "sizes go with their names": dict(mesh.shape) == dict(zip(names, shape)),
                "the names are as asked": mesh.axis_names == tuple(names),
                "every device is in it once": sorted(d.id for d in devices) == sorted(d.id for d in jax.devices()),
                "devices that were given are those it has": set(given.devices.flat) == set(some),
            }
            if jax.default_backend() == "cpu":  # elsewhere the order may follow the wires
                facts["devices stand in ascending order"] = devices == jax.devices()
            return facts
        """,
    ),
    "mesh_identity": Probe(
        rule="cache.mesh",
        suite=SUITE,
        devices=8,
        since="0.6.2",
        imports=("from jax.sharding import AxisType",),
        source="""
            ids = np.arange(8)
            devices = np.array(jax.devices()[:8])

            def mesh(order, shape, names, kind=AxisType.Auto):
                return Mesh(devices[order].reshape(shape), names, axis_types=(kind,) * len(names))

            plain = mesh(ids, (2, 4), ("i", "j"))
            others = {
                "devices in another order": mesh(ids[::-1], (2, 4), ("i", "j")),
                "two devices exchanged": mesh([1, 0, *range(2, 8)], (2, 4), ("i", "j")),
                "another shape": mesh(ids, (4, 2), ("i", "j")),
                "the names the other way round": mesh(ids, (2, 4), ("j", "i")),
                "other names": mesh(ids, (2, 4), ("i", "k")),
                "explicit axes": mesh(ids, (2, 4), ("i", "j"), AxisType.Explicit),
                "fewer devices": mesh(ids[:4], (2, 2), ("i", "j")),
            }
            facts = {f"{about} make another mesh": other != plain for about, other in others.items()}
            same = mesh(ids, (2, 4), ("i", "j"))
            facts["equal meshes are equal by equality and hash"] = same == plain and hash(same) == hash(plain)
            facts["each has the devices it was given"] = all(
                [d.id for d in other.devices.flat] == wanted
                for other, wanted in (
                    (plain, list(range(8))),
                    (others["devices in another order"], list(range(8))[::-1]),
                    (others["fewer devices"], list(range(4))),
                )
            )
            facts["axis types are those given"] = set(others["explicit axes"].axis_types) == {AxisType.Explicit}
            made = jax.make_mesh((2, 4), ("i", "j"), axis_types=(AxisType.Explicit, AxisType.Auto))
            facts["make_mesh gives the axis types asked for"] = made.axis_types == (AxisType.Explicit, AxisType.Auto)
            return facts
        """,
    ),
    "mesh_context": Probe(
        rule="cache.mesh",
        suite=SUITE,
        devices=8,
        since="0.8.3",
        imports=("from jax.sharding import AxisType",),
        source="""
            def mesh(shape, names, order=slice(None)):
                devices = np.array(jax.devices()[:8])[order].reshape(shape)
                return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))

            def current():
                return dict(jax.sharding.get_abstract_mesh().shape)

            kept = jax.jit(lambda x: traces.append(1) or x + sum(k * v for k, v in enumerate(current().values(), 1)))
            expected = {(8,): 8, (2, 4): 10, (4, 2): 8, (): 0}
            facts = {"no mesh is set at first": current() == {}}
            for turn in ("first", "second"):
                for shape, names in (((8,), "i"), ((2, 4), "ij"), ((4, 2), "ij")):
                    before = len(traces)
                    with jax.set_mesh(mesh(shape, tuple(names))):
                        got = int(kept(np.int32(0)))
                        facts[f"{turn} time in {shape}: the mesh is seen"] = current() == dict(zip(names, shape))
                    facts[f"{turn} time in {shape}: the trace saw it"] = got == expected[shape]
                    if turn == "second":
                        facts[f"second time in {shape}: nothing is traced"] = len(traces) == before
                facts[f"{turn} time: the mesh goes when its block ends"] = current() == {}
                facts[f"{turn} time: outside the trace sees none"] = int(kept(np.int32(0))) == 0
            with jax.set_mesh(mesh((8,), ("i",))):
                with jax.set_mesh(mesh((2, 4), ("i", "j"))):
                    facts["the inner mesh is seen"] = current() == {"i": 2, "j": 4}
                facts["the outer one returns"] = current() == {"i": 8}
            try:
                with jax.set_mesh(mesh((8,), ("i",))):
                    raise KeyError
            except KeyError:
                pass
            facts["the mesh goes when its block fails"] = current() == {}
            return facts
        """,
    ),
    "pmap_devices": Probe(
        rule="result.placement",
        suite=SUITE,
        devices=8,
        values={
            "unnamed": "None",
            "first": "[0, 1, 2]",
            "reversed": "[7, 6, 5, 4, 3, 2, 1, 0]",
            "last": "[5, 6, 7]",
            "shuffled": "[3, 0, 6, 1]",
        },
        source="""
            order = VALUE or [0, 1, 2, 3]
            devices = VALUE and [jax.devices()[k] for k in order]
            program = jax.pmap(lambda x: x * 3 + jax.lax.axis_index("i"), axis_name="i", devices=devices)
            x = np.arange(5 * len(order), dtype="int32").reshape(len(order), 5)
            whole = x * 3 + np.arange(len(order), dtype="int32")[:, None]
            facts = {}
            for turn in ("first", "second", "third"):
                got = program(x)
                rows = {s.device.id: np.asarray(s.data).reshape(5).tolist() for s in got.addressable_shards}
                facts[f"{turn} call: device k of the list has row k"] = rows == dict(zip(order, whole.tolist()))
                facts[f"{turn} call: the rows are in order"] = np.array_equal(np.asarray(got), whole)
            return facts
        """,
    ),
    "one_process_gather": Probe(
        rule="process.gather",
        suite=SUITE,
        imports=("from jax.experimental import multihost_utils",),
        source="""
            x = np.arange(6, dtype="int16").reshape(2, 3)
            tree = {"a": x, "b": [np.float32(1.5), x > 2]}
            stacked = multihost_utils.process_allgather(tree)
            tiled = multihost_utils.process_allgather(x, tiled=True)
            sent = multihost_utils.broadcast_one_to_all(tree)

            def like(got, wanted):
                pairs = zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True)
                return all(np.array_equal(g, w) and np.asarray(g).dtype == np.asarray(w).dtype for g, w in pairs)

            multihost_utils.assert_equal(tree, "the same in every process")
            multihost_utils.sync_global_devices("here")
            return {
                "process_allgather stacks the one process": like(stacked, jax.tree.map(lambda v: np.asarray(v)[None], tree)),
                "tiled it concatenates": like(tiled, x),
                "broadcast_one_to_all gives what was sent": like(sent, tree),
            }
        """,
    ),
}
