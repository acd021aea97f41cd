"""What several processes promise of each other. In a run of one process these say nothing.

Every process states what it can see itself: its own devices, its own parts of arrays. Values are numbered by device, so
that a part in the wrong place tells where it belongs.
"""

from typing import Any

from harness.probes.base import Probe

LAYOUTS = {
    "rows": "lambda ids, count: ids.reshape(count, -1)",
    "columns": "lambda ids, count: ids.reshape(count, -1).T",
    "reversed": "lambda ids, count: ids[::-1].reshape(count, -1)",
    "interleaved": "lambda ids, count: ids.reshape(count, -1).T.reshape(count, -1)",
    "one_row": "lambda ids, count: ids.reshape(1, -1)",
    "one_column": "lambda ids, count: ids.reshape(-1, 1)",
}
"""How the axes i and j of a mesh lie across the processes: numbers of devices as a matrix."""

SIZES = {
    "empty": "0",
    "one": "1",
    "odd": "1023",
    "4KiB": "2**10",
    "1MiB": "2**18",
    "16MiB": "2**22",
    "64MiB": "2**24",
}
"""int32 elements that each device has."""


def _probe(rule: str, source: str, **fields: Any) -> Probe:
    """A probe of two processes or more."""
    return Probe(rule, source, "processes", processes=2, alone=False, **fields)


PROBES = {
    "world": _probe(
        rule="process.identity",
        imports=("from jax.experimental import multihost_utils",),
        source="""
            import zlib

            count, own = jax.process_count(), jax.process_index()
            known = repr([(device.id, device.process_index, device.device_kind) for device in jax.devices()])
            said = np.array([own, count, jax.device_count(), jax.local_device_count(), zlib.crc32(known.encode())])
            told = multihost_utils.process_allgather(said.astype("uint32"))
            version = zlib.crc32(f"{jax.__version__} {jax.default_backend()}".encode())
            versions = multihost_utils.process_allgather(np.array([version], "uint32"))
            return {
                "one group of all, not many of one": told.shape == (count, 5),
                "every index is there once, in order": told[:, 0].tolist() == list(range(count)),
                "all count the same processes": set(told[:, 1].tolist()) == {count},
                "all count the same devices": set(told[:, 2].tolist()) == {jax.device_count()},
                "the local devices are all devices": int(told[:, 3].sum()) == jax.device_count(),
                "all list the same devices with the same owners": len(set(told[:, 4].tolist())) == 1,
                "all have one version and backend": len(set(versions.ravel().tolist())) == 1,
            }
        """,
    ),
    "local_data": _probe(
        rule="process.data",
        imports=("from jax.sharding import NamedSharding", "from jax.experimental import multihost_utils"),
        source="""
            count, own, all_ = jax.process_count(), jax.process_index(), jax.device_count()
            ids = np.array([device.id for device in jax.devices()])
            mesh = Mesh(np.array(jax.devices()).reshape(count, -1), ("i", "j"))
            whole = np.arange(all_ * 6, dtype="int32").reshape(all_, 6)
            rows = np.split(whole, count)[own]
            split = NamedSharding(mesh, P(("i", "j")))
            given = jax.make_array_from_process_local_data(split, rows)
            same = jax.make_array_from_process_local_data(NamedSharding(mesh, P()), whole)
            columns = jax.make_array_from_process_local_data(
                NamedSharding(mesh, P(None, "i")), np.tile(rows[:, :3] * 0 + own, (1, 1)), (len(rows), 3 * count)
            )
            made = multihost_utils.host_local_array_to_global_array(rows, mesh, P(("i", "j")))
            back = multihost_utils.global_array_to_host_local_array(made, mesh, P(("i", "j")))

            def right(array, values):
                shards = array.addressable_shards
                own_parts = len(shards) == jax.local_device_count() and array.shape == values.shape
                return own_parts and all(np.array_equal(s.data, values[s.index]) for s in shards)

            return {
                "rows of each process make the whole": right(given, whole),
                "not all of it is here": not given.is_fully_addressable,
                "what all have is everywhere": right(same, whole) and same.is_fully_replicated,
                "columns of each process stand side by side": right(
                    columns, np.repeat(np.arange(count, dtype="int32"), 3)[None].repeat(len(rows), 0)
                ),
                "host-local parts make the whole": right(made, whole),
                "and come back": np.array_equal(np.asarray(back), rows),
            }
        """,
    ),
    "from_callback": _probe(
        rule="process.data",
        imports=("from jax.sharding import NamedSharding",),
        source="""
            all_ = jax.device_count()
            whole = np.arange(all_ * 3, dtype="int32").reshape(all_, 3)
            facts = {}
            for name, order in (("forwards", jax.devices()), ("backwards", jax.devices()[::-1])):
                sharding = NamedSharding(Mesh(np.array(order), ("i",)), P("i"))
                asked = []
                array = jax.make_array_from_callback(whole.shape, sharding, lambda k: asked.append(k) or whole[k])
                held = {s.device.id: np.asarray(s.data).tolist() for s in array.addressable_shards}
                place = {device.id: k for k, device in enumerate(order)}
                local = [device.id for device in jax.local_devices()]
                facts[f"{name}: only parts of this process are asked for"] = len(asked) == len(local)
                facts[f"{name}: each device has its own"] = held == {k: whole[place[k]][None].tolist() for k in local}
            return facts
        """,
    ),
    "gathers": _probe(
        rule="process.gather",
        imports=("from jax.experimental import multihost_utils", "from jax.sharding import NamedSharding"),
        source="""
            count, own = jax.process_count(), jax.process_index()
            each = [np.arange(6, dtype="int16").reshape(2, 3) + 10 * k for k in range(count)]
            tree = {"a": each[own], "b": [np.float32(own + 0.5), each[own] > 3]}
            stacked = multihost_utils.process_allgather(tree)
            tiled = multihost_utils.process_allgather(each[own], tiled=True)
            sent = multihost_utils.broadcast_one_to_all(tree)
            last = multihost_utils.broadcast_one_to_all(each[own], is_source=own == count - 1)
            whole = np.arange(jax.device_count() * 2, dtype="int32")
            spread = NamedSharding(Mesh(np.array(jax.devices()), ("i",)), P("i"))
            array = jax.make_array_from_callback(whole.shape, spread, lambda k: whole[k])
            gathered = multihost_utils.process_allgather(array, tiled=True)

            def like(got, wanted):
                got, wanted = np.asarray(got), np.asarray(wanted)
                return got.dtype == wanted.dtype and np.array_equal(got, wanted)

            return {
                "process_allgather stacks in the order of processes": like(stacked["a"], np.stack(each)),
                "scalars too": like(stacked["b"][0], np.arange(count, dtype="float32") + 0.5),
                "booleans too": like(stacked["b"][1], np.stack(each) > 3),
                "tiled it concatenates": like(tiled, np.concatenate(each)),
                "broadcast_one_to_all gives what process 0 has": like(sent["a"], each[0]) and like(sent["b"][0], np.float32(0.5)),
                "or the source": like(last, each[-1]),
                "an array over all processes comes whole": like(gathered, whole),
            }
        """,
    ),
    "meeting": _probe(
        rule="process.gather",
        imports=("from jax.experimental import multihost_utils",),
        source="""
            own = jax.process_index()

            def refused(value):
                try:
                    multihost_utils.assert_equal(value, "differ")
                    return False
                except AssertionError:
                    return True

            facts = {}
            for turn in range(3):
                multihost_utils.sync_global_devices(f"turn {turn}")
                facts[f"turn {turn}: equal values are taken"] = not refused(np.array([turn, 7]))
                facts[f"turn {turn}: values that are not process 0's are refused"] = refused(np.array([own])) or own == 0
            return facts
        """,
    ),
    "mesh_across": _probe(
        rule="process.mesh",
        values=LAYOUTS,
        imports=("from jax.sharding import NamedSharding",),
        source="""
            layout = VALUE(np.arange(jax.device_count()), jax.process_count())
            mesh = Mesh(np.array(jax.devices())[layout], ("i", "j"))
            m, n = layout.shape
            x = np.arange(1, m * n + 1, dtype="int32").reshape(m, n) ** 2
            spread = NamedSharding(mesh, P("i", "j"))
            operand = jax.make_array_from_callback(x.shape, spread, lambda k: x[k])
            ring = [(k, (k + 1) % m) for k in range(m)]

            def body(x):
                results = {
                    "psum over i": lax.psum(x, "i"),
                    "psum over j": lax.psum(x, "j"),
                    "psum over both": lax.psum(x, ("i", "j")),
                    "pmax over i": lax.pmax(x, "i"),
                    "ppermute over i": lax.ppermute(x, "i", ring),
                    "index": x * 0 + lax.axis_index("i") * n + lax.axis_index("j"),
                    "index, j major": x * 0 + lax.axis_index(("j", "i")),
                }
                gathered = {
                    "all_gather over i": lax.all_gather(x[0, 0], "i"),
                    "all_gather over both": lax.all_gather(x[0, 0], ("i", "j")),
                }
                return {k: v[None, None] if k in gathered else v for k, v in {**results, **gathered}.items()}

            def everywhere(value):
                return np.broadcast_to(value, (m, n))

            i, j = np.indices((m, n), dtype="int32")
            wanted = {
                "psum over i": everywhere(x.sum(0, keepdims=True)),
                "psum over j": everywhere(x.sum(1, keepdims=True)),
                "psum over both": everywhere(x.sum()),
                "pmax over i": everywhere(x.max(0, keepdims=True)),
                "ppermute over i": np.roll(x, 1, 0),
                "index": i * n + j,
                "index, j major": j * m + i,
                "all_gather over i": np.broadcast_to(x.T[None], (m, n, m)),
                "all_gather over both": np.broadcast_to(x.ravel(), (m, n, m * n)),
            }
            program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i", "j"), out_specs=P("i", "j"), check_vma=False))
            facts = {}
            for turn in ("first", "second"):
                for name, got in jax.block_until_ready(program(operand)).items():
                    shards = got.addressable_shards
                    facts[f"{turn} call: {name}"] = len(shards) == jax.local_device_count() and all(
                        np.array_equal(s.data, wanted[name][s.index]) for s in shards
                    )
                    facts[f"{turn} call: {name} stands where the mesh says"] = all(
                        mesh.devices[s.index[0].start or 0, s.index[1].start or 0] == s.device for s in shards
                    )
            return facts
        """,
    ),
    "gradient_across": _probe(
        rule="process.gradient",
        imports=("from jax.sharding import NamedSharding", "from jax.experimental import multihost_utils"),
        source="""
            all_ = jax.device_count()
            mesh = Mesh(np.array(jax.devices()), ("i",))
            rows = (np.arange(all_ * 4, dtype="float32") % 7 - 3).reshape(all_, 4)
            w = np.arange(1, 5, dtype="float32")
            spread = NamedSharding(mesh, P("i"))
            x = jax.make_array_from_callback(rows.shape, spread, lambda k: rows[k])

            def part(w, x):
                return lax.psum(((x @ w) ** 2).sum(), "i")

            loss = jax.shard_map(part, mesh=mesh, in_specs=(P(), P("i")), out_specs=P())
            step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
            auto = jax.jit(jax.value_and_grad(lambda w, x: ((x @ w) ** 2).sum(), argnums=(0, 1)))
            product = rows @ w
            facts = {}
            for name, program in (("shard_map", step), ("auto", auto)):
                value, (by_w, by_x) = jax.block_until_ready(program(w, x))
                facts[f"{name}: the loss is the sum over all"] = float(value.addressable_data(0)) == (product**2).sum()
                facts[f"{name}: the gradient by what all have is summed over all"] = all(
                    np.array_equal(s.data, (2 * product @ rows)[s.index]) for s in by_w.addressable_shards
                )
                facts[f"{name}: the gradient by each part is its own"] = all(
                    np.array_equal(s.data, (2 * product[:, None] * w)[s.index]) for s in by_x.addressable_shards
                )
                bits = multihost_utils.process_allgather(np.asarray(by_w.addressable_data(0)).view("uint32"))
                facts[f"{name}: all processes hold the same bits"] = bool((bits == bits[0]).all())
            return facts
        """,
    ),
    "same_order": _probe(
        rule="process.order",
        imports=("from jax.sharding import NamedSharding",),
        source="""
            count, all_ = jax.process_count(), jax.device_count()
            devices = np.array(jax.devices()).reshape(count, -1)
            meshes = {"rows": Mesh(devices, ("i", "j")), "columns": Mesh(devices.T, ("i", "j"))}

            @jax.jit
            def kept(x):
                traces.append(1)
                return lax.psum(x, "i"), lax.psum(1, "i")

            def across(mesh):
                body = jax.shard_map(kept, mesh=mesh, in_specs=P("i", "j"), out_specs=(P(None, "j"), P()), check_vma=False)
                return jax.jit(body)

            programs = {name: across(mesh) for name, mesh in meshes.items()}
            facts = {}
            for turn, name in enumerate(("rows", "columns", "rows", "columns", "columns", "rows")):
                mesh = meshes[name]
                x = np.arange(all_, dtype="int32").reshape(mesh.devices.shape)
                operand = jax.make_array_from_callback(x.shape, NamedSharding(mesh, P("i", "j")), lambda k: x[k])
                before = len(traces)
                total, size = jax.block_until_ready(programs[name](operand))
                facts[f"turn {turn}, {name}: the sum"] = all(
                    np.array_equal(s.data, x.sum(0, keepdims=True)[s.index]) for s in total.addressable_shards
                )
                facts[f"turn {turn}, {name}: the size of i"] = int(size.addressable_data(0)) == mesh.shape["i"]
                if turn > 1:
                    facts[f"turn {turn}, {name}: nothing is traced"] = len(traces) == before
            return facts
        """,
    ),
    "own_meshes": _probe(
        rule="process.mesh",
        source="""
            own = jax.process_index()
            local = jax.local_devices()
            mesh = Mesh(np.array(local), ("i",))
            program = jax.jit(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
            whole = Mesh(np.array(jax.devices()), ("i",))
            index = jax.shard_map(lambda: lax.psum(lax.axis_index("i"), "i"), mesh=whole, in_specs=(), out_specs=P())
            everyone = jax.jit(index)
            facts = {}
            for turn in range(3):  # each process on its own devices, at the same time, between sums over all
                x = np.arange(len(local), dtype="int32") + 100 * own + turn
                facts[f"turn {turn}: the sum over this process's devices"] = int(program(x)[0]) == int(x.sum())
                total = int(jax.block_until_ready(everyone()).addressable_data(0))
                facts[f"turn {turn}: the sum over all"] = total == sum(range(jax.device_count()))
            return facts
        """,
    ),
    "payload_sizes": _probe(
        rule="process.mesh",
        values=SIZES,
        imports=("from jax.sharding import NamedSharding",),
        source="""
            length, all_ = VALUE, jax.device_count()
            mesh = Mesh(np.array(jax.devices()), ("i",))
            spread = NamedSharding(mesh, P("i"))
            place = {device.id: k for k, device in enumerate(jax.devices())}

            def part(k):  # what device k has: host work does not grow with the number of devices
                return (np.arange(length, dtype="int32") % 1009 + 7 * k).reshape(1, length)

            def own_part(index):
                return part(index[0].start or 0)

            x = jax.make_array_from_callback((all_, length), spread, own_part)

            def sharded(body):
                return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i")))

            ring = [(k, (k + 1) % all_) for k in range(all_)]
            total = all_ * part(0) + 7 * (all_ * (all_ - 1) // 2)
            facts = {}
            for name, body, wanted in (
                ("psum", lambda x: lax.psum(x, "i") + 0 * x, lambda k: total),
                ("ppermute", lambda x: lax.ppermute(x, "i", ring), lambda k: part((k - 1) % all_)),
                ("pmax", lambda x: lax.pmax(x, "i") + 0 * x, lambda k: part(all_ - 1)),
            ):
                got = jax.block_until_ready(sharded(body)(x))
                facts[name] = got.shape == x.shape and got.dtype == x.dtype
                for shard in got.addressable_shards if length else ():  # no element lives anywhere
                    facts[name] &= np.array_equal(shard.data, wanted(place[shard.device.id]))
            return facts
        """,
    ),
    "stable_bits": _probe(
        rule="repeat.bitwise",
        imports=("from jax.sharding import NamedSharding", "from jax.experimental import multihost_utils"),
        source="""
            all_ = jax.device_count()
            mesh = Mesh(np.array(jax.devices()), ("i",))
            rows = np.sin(np.arange(all_ * 512, dtype="float32")).reshape(all_, 512)
            spread = NamedSharding(mesh, P("i"))
            x = jax.make_array_from_callback(rows.shape, spread, lambda k: rows[k])
            body = lambda x: (lax.psum(x, "i")[0], lax.psum(x.sum(), "i"))
            program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=(P(), P())))

            def bits():
                outputs = jax.block_until_ready(program(x))
                return np.concatenate([np.asarray(y.addressable_data(0)).view("uint32").ravel() for y in outputs])

            first = bits()
            facts = {f"run {turn}: the same bits as at first": np.array_equal(bits(), first) for turn in range(8)}
            everywhere = multihost_utils.process_allgather(first)
            facts["the same bits in every process"] = bool((everywhere == everywhere[0]).all())
            exact = rows.astype("float64").sum(0)
            facts["the sum, to rounding"] = bool(np.abs(first[:512].view("float32") - exact).max() < 1e-4)
            return facts
        """,
    ),
}
