"""Where data is: what each device holds, and what stays true of it when it moves or is computed with."""

import textwrap

from harness.probes.base import Probe

SUITE = "placement"

HELPERS = '''
    def mesh_of(shape, order):
        devices = np.array([jax.devices()[k] for k in order], dtype=object).reshape(shape)
        return Mesh(devices, tuple("ijk"[: len(shape)]))

    def specs_of(mesh, dims):
        """Every way to give each axis of a mesh one dimension or none; two on one dimension in both orders."""
        found = []
        for places in itertools.product([None, *range(dims)], repeat=len(mesh.axis_names)):
            cut = [tuple(n for n, p in zip(mesh.axis_names, places) if p == dim) for dim in range(dims)]
            found += [cut] + [[names[::-1] for names in cut]] * any(len(names) > 1 for names in cut)
        return [P(*[names or None for names in cut]) for cut in found]

    def held(mesh, spec, whole):
        """Device id -> (index, data): a dimension is cut along its axes, the first of them major."""
        result = {}
        for at, device in np.ndenumerate(mesh.devices):
            place = dict(zip(mesh.axis_names, at))
            index = []
            for dim, size in enumerate(whole.shape):
                names = spec[dim] if dim < len(spec) else None
                names = (names,) if isinstance(names, str) else names or ()
                parts, part = 1, 0
                for name in names:
                    parts, part = parts * mesh.shape[name], part * mesh.shape[name] + place[name]
                step = size // parts
                index.append((part * step, (part + 1) * step))
            result[device.id] = (tuple(index), whole[tuple(slice(*ends) for ends in index)])
        return result

    def placed(array, mesh, spec, whole):
        """What is wrong with the place or the value of an array, in words; nothing if all is right."""
        wanted, wrong = held(mesh, spec, whole), []
        if array.shape != whole.shape or array.dtype != whole.dtype:
            return [f"it is {array.dtype}{array.shape}, not {whole.dtype}{whole.shape}"]
        replicas = {}
        for shard in array.addressable_shards:
            index, data = wanted.pop(shard.device.id, ((), None))
            ends = tuple(s.indices(size)[:2] for s, size in zip(shard.index, whole.shape))
            replicas.setdefault(index, []).append(shard.replica_id)
            if data is None:
                wrong.append(f"device {shard.device.id} has a part it should not have")
                continue
            if ends != index:
                wrong.append(f"device {shard.device.id} has index {ends}, should be {index}")
            if not np.array_equal(np.asarray(shard.data), data):
                wrong.append(f"device {shard.device.id} has {np.asarray(shard.data).tolist()}, should be {data.tolist()}")
            if shard.data.devices() != {shard.device}:
                wrong.append(f"the data of device {shard.device.id} is on {shard.data.devices()}")
        wrong += [f"device {device} has nothing" for device in wanted]
        if any(sorted(ids) != list(range(len(ids))) for ids in replicas.values()):
            wrong.append(f"replicas are numbered {replicas}")
        if not np.array_equal(np.asarray(array), whole):
            wrong.append("np.asarray puts it together wrongly")
        return wrong[:3]
'''

LAYOUTS = {
    "8": "((8,), range(8))",
    "8_reversed": "((8,), range(7, -1, -1))",
    "3_last": "((3,), (5, 6, 7))",
    "1_last": "((1,), (7,))",
    "2x4": "((2, 4), range(8))",
    "2x4_columns": "((2, 4), (0, 2, 4, 6, 1, 3, 5, 7))",
    "4x2_shuffled": "((4, 2), (3, 1, 7, 0, 6, 2, 5, 4))",
    "3x2_last": "((3, 2), (2, 3, 4, 5, 6, 7))",
    "2x1": "((2, 1), (4, 1))",
    "2x2x2": "((2, 2, 2), range(8))",
    "2x2x2_shuffled": "((2, 2, 2), (6, 4, 1, 3, 0, 2, 7, 5))",
}

FEW = ("8_reversed", "3_last", "2x4", "4x2_shuffled", "2x2x2_shuffled")


def _probe(
    source: str, values: tuple[str, ...] | dict[str, str] = FEW, **fields: str | tuple[str, ...]
) -> Probe:
    """A probe whose source has the helpers before it and, for a choice of layouts, `mesh` and `specs` of VALUE."""
    layouts = {word: LAYOUTS[word] for word in values} if isinstance(values, tuple) else values
    start = (
        "mesh = mesh_of(*VALUE)\nspecs = specs_of(mesh, 2)\n" if isinstance(values, tuple) and values else ""
    )
    text = textwrap.dedent(HELPERS) + "\n" + start + textwrap.dedent(source).lstrip("\n")
    rule = str(fields.pop("rule", "result.placement"))
    given = ("import itertools", "from jax.sharding import PartitionSpec as P", *fields.pop("imports", ()))
    return Probe(rule, text, SUITE, layouts, devices=8, imports=given, **fields)  # type: ignore[arg-type]


PROBES = {
    "device_put": _probe(
        """
            facts = {}
            for shape in ((24, 24), (24, 48)):
                whole = np.arange(shape[0] * shape[1], dtype="int32").reshape(shape)
                for spec in specs:
                    array = jax.device_put(whole, NamedSharding(mesh, spec))
                    wrong = placed(array, mesh, spec, whole)
                    facts[f"{shape} by {spec} is placed: {wrong}"] = not wrong
            spec = specs[-1]
            array = jax.device_put(whole, NamedSharding(mesh, spec))
            parts = {d.id: i for d, i in array.sharding.devices_indices_map(array.shape).items()}
            shards = {s.device.id: s.index for s in array.addressable_shards}
            facts["devices_indices_map says where the shards are"] = parts == shards
            facts["shard_shape is the shape of a shard"] = all(
                s.data.shape == array.sharding.shard_shape(array.shape) for s in array.addressable_shards
            )
            facts["addressable_data(k) is the data of shard k"] = all(
                np.array_equal(array.addressable_data(k), s.data) for k, s in enumerate(array.addressable_shards)
            )
            facts["devices() are those of the mesh"] = array.devices() == set(mesh.devices.flat)
            scalar = jax.device_put(np.float32(2.5), NamedSharding(mesh, P()))
            facts["a scalar is on every device"] = not placed(scalar, mesh, P(), np.asarray(2.5, "float32"))
            tree = jax.device_put({"a": whole, "b": whole[:, 0]}, NamedSharding(mesh, P("i")))
            facts["every leaf of a tree is placed"] = not (
                placed(tree["a"], mesh, P("i"), whole) + placed(tree["b"], mesh, P("i"), whole[:, 0])
            )
            return facts
        """,
        values=tuple(LAYOUTS),
    ),
    "moved": _probe(
        """
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            chosen = list(dict.fromkeys([specs[1], specs[-1], specs[len(specs) // 2], P()]))
            facts = {}
            for first, second in itertools.permutations(chosen, 2):
                array = jax.device_put(whole, NamedSharding(mesh, first))
                moved = jax.device_put(array, NamedSharding(mesh, second))
                wrong = placed(moved, mesh, second, whole) + placed(array, mesh, first, whole)
                facts[f"from {first} to {second}: {wrong}"] = not wrong
            other = Mesh(mesh.devices.reshape(-1)[::-1].reshape(mesh.devices.shape), mesh.axis_names)
            for _ in range(2):
                array = jax.device_put(array, NamedSharding(other, chosen[1]))
                wrong = placed(array, other, chosen[1], whole)
                facts[f"to the same mesh backwards: {wrong}"] = not wrong
                array = jax.device_put(array, NamedSharding(mesh, chosen[1]))
                wrong = placed(array, mesh, chosen[1], whole)
                facts[f"and back: {wrong}"] = not wrong
            one = jax.device_put(array, jax.devices()[6])
            facts["to one device"] = one.devices() == {jax.devices()[6]} and np.array_equal(one, whole)
            return facts
        """,
    ),
    "resharded": _probe(
        """
            mesh = mesh_of(*VALUE)
            mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Explicit,) * len(mesh.axis_names))
            specs = specs_of(mesh, 2)
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            facts = {}
            with jax.set_mesh(mesh):
                for first, second in ((specs[1], specs[-1]), (specs[-1], P()), (P(), specs[1])):
                    array = jax.device_put(whole, NamedSharding(mesh, first))
                    for about, function in (("eagerly", jax.reshard), ("jitted", jax.jit(jax.reshard, static_argnums=1))):
                        got = function(array, second)
                        wrong = placed(got, mesh, second, whole)
                        facts[f"{about} from {first} to {second}: {wrong}"] = not wrong
            return facts
        """,
        values={word: LAYOUTS[word] for word in FEW},
        since="0.9.2",
        imports=("from jax.sharding import AxisType",),
    ),
    "constraint": _probe(
        """
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            facts = {}
            for spec in list(dict.fromkeys([specs[1], specs[-1], specs[len(specs) // 2]])):
                sharding = NamedSharding(mesh, spec)
                program = jax.jit(lambda x: lax.with_sharding_constraint(x, sharding) * 1)
                for about, call in (("jitted", program), ("again", program), ("nested", jax.jit(lambda x: program(x)))):
                    wrong = placed(call(whole), mesh, spec, whole)
                    facts[f"{spec} {about}: {wrong}"] = not wrong
                wrong = placed(lax.with_sharding_constraint(jnp.asarray(whole), sharding), mesh, spec, whole)
                facts[f"{spec} eagerly: {wrong}"] = not wrong
                loop = jax.jit(lambda x: lax.fori_loop(0, 2, lambda k, c: lax.with_sharding_constraint(c + k, sharding), x))
                facts[f"{spec} in a loop keeps the values"] = np.array_equal(loop(whole), whole + 1)
            return facts
        """,
    ),
    "jit_shardings": _probe(
        """
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            first, second = specs[1], specs[-1]
            a, b = NamedSharding(mesh, first), NamedSharding(mesh, second)

            def program(x, y):
                return {"sum": x + y, "rest": [x - y, x]}

            facts = {}
            for about, ins, outs in (
                ("the same for all", a, b),
                ("one each", (a, b), {"sum": b, "rest": [a, b]}),
                ("one for a subtree", (b, a), {"sum": a, "rest": b}),
                ("the first ones again", (a, b), {"sum": b, "rest": [a, b]}),
            ):
                jitted = jax.jit(program, in_shardings=ins, out_shardings=outs)
                compiled = jitted.lower(whole, whole + 1).compile()
                wanted = ins if isinstance(ins, tuple) else (ins, ins)
                took = compiled.input_shardings[0]
                facts[f"{about}: arguments come in as asked"] = all(
                    t.is_equivalent_to(w, 2) for t, w in zip(took, wanted, strict=True)
                )
                each = [outs] * 3 if outs is b else [outs["sum"], *(outs["rest"] if outs["rest"] != b else [b, b])]
                values = [whole * 2 + 1, np.full_like(whole, -1), whole]
                for turn in ("first", "second", "third"):
                    got = jitted(whole, whole + 1)
                    for array, sharding, value in zip([got["sum"], *got["rest"]], each, values):
                        wrong = placed(array, mesh, sharding.spec, value)
                        facts[f"{about}, {turn} call: {wrong}"] = not wrong
            placed_x = jax.device_put(whole, a)
            got = jax.jit(program, in_shardings=(a, None), out_shardings=a)(placed_x, placed_x)
            facts["an argument without a sharding keeps its own"] = not placed(got["sum"], mesh, first, whole * 2)
            return facts
        """,
    ),
    "callback": _probe(
        """
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            facts = {}
            for spec in list(dict.fromkeys([specs[0], specs[1], specs[-1], specs[len(specs) // 2]])):
                asked = []

                def part(index):
                    asked.append(tuple(s.indices(24)[:2] for s in index))
                    return whole[index]

                array = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, spec), part)
                wrong = placed(array, mesh, spec, whole)
                facts[f"{spec}: {wrong}"] = not wrong
                wanted = {index for index, _ in held(mesh, spec, whole).values()}
                facts[f"{spec}: it asks for the parts there are"] = set(asked) == wanted
            return facts
        """,
    ),
    "single_device_arrays": _probe(
        """
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            facts = {}
            for spec in list(dict.fromkeys([specs[0], specs[1], specs[-1]])):
                sharding = NamedSharding(mesh, spec)
                parts = held(mesh, spec, whole)
                by_id = {device.id: device for device in mesh.devices.flat}
                arrays = [jax.device_put(data, by_id[device]) for device, (_, data) in parts.items()]
                for about, listed in (("in order", arrays), ("in reverse", arrays[::-1]), ("turned", arrays[1:] + arrays[:1])):
                    array = jax.make_array_from_single_device_arrays(whole.shape, sharding, listed)
                    wrong = placed(array, mesh, spec, whole)
                    facts[f"{spec}, given {about}: {wrong}"] = not wrong
            return facts
        """,
    ),
    "process_local_data": _probe(
        """
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            facts = {}
            for spec in list(dict.fromkeys([specs[0], specs[1], specs[-1]])):
                sharding = NamedSharding(mesh, spec)
                for about, shape in (("of the given shape", whole.shape), ("of its own shape", None)):
                    array = jax.make_array_from_process_local_data(sharding, whole, shape)
                    wrong = placed(array, mesh, spec, whole)
                    facts[f"{spec} {about}: {wrong}"] = not wrong
            return facts
        """,
    ),
    "commitment": _probe(
        """
            home, *rest = jax.devices()
            free = jnp.arange(3)
            bound = [jax.device_put(np.arange(3), device) for device in rest[:3]]
            jitted = jax.jit(lambda x, y: x + y)
            facts = {}
            for about, add in (("eagerly", lambda x, y: x + y), ("jitted", jitted), ("jitted, again", jitted)):
                for k in (1, 0, 1):
                    facts[f"{about}: what is free follows what is bound to device {k + 1}"] = (
                        add(free, bound[k]).devices() == add(bound[k], free).devices() == {rest[k]}
                    )
                facts[f"{about}: free operands stay at home"] = add(free, free).devices() == {home}
                try:
                    add(bound[0], bound[1])
                    facts[f"{about}: operands bound to two devices raise"] = False
                except ValueError:
                    facts[f"{about}: operands bound to two devices raise"] = True
                result = add(free, free)
                facts[f"{about}: the result of free operands is free"] = add(result, bound[2]).devices() == {rest[2]}
            facts["device_put without a device leaves an array free"] = (
                jitted(jax.device_put(np.arange(3)), bound[1]).devices() == {rest[1]}
            )
            facts["device_put of a bound array without a device leaves it"] = jax.device_put(bound[1]).devices() == {rest[1]}
            return facts
        """,
        values={},
    ),
    "second_call": _probe(
        """
            first, second = specs[1], specs[-1]
            x = np.linspace(0.1, 7.7, 24 * 24, dtype="float32").reshape(24, 24)
            inputs = jax.device_put(x, NamedSharding(mesh, first))
            kept = NamedSharding(mesh, second)
            programs = {
                "elementwise": jax.jit(lambda v: v * 3 + 1),
                "a product": jax.jit(lambda v: jnp.sin(v) @ v.T),
                "a sum": jax.jit(lambda v: jnp.cumsum(v, 1).sum(0)),
                "constrained": jax.jit(lambda v: lax.with_sharding_constraint(v * 3, kept)),
                "placed results": jax.jit(lambda v: (v, v * 2), out_shardings=kept),
                "a vmap": jax.jit(jax.vmap(lambda v: v - lax.pmax(v, "n"), axis_name="n")),
            }
            facts = {}

            def seen(result):
                return [
                    (leaf.sharding, [(s.device.id, s.index, np.asarray(s.data).tobytes()) for s in leaf.addressable_shards])
                    for leaf in jax.tree.leaves(result)
                ]

            for about, program in programs.items():
                before = seen(program(inputs))
                for turn in ("second", "third", "fourth"):
                    facts[f"{about}: the {turn} call gives the same bits in the same places"] = seen(program(inputs)) == before
            exact = programs["elementwise"](jax.device_put(np.arange(24 * 24, dtype="int32").reshape(24, 24), kept))
            facts["the value is right"] = not placed(exact, mesh, second, np.arange(1, 24 * 24 * 3, 3, dtype="int32").reshape(24, 24))
            return facts
        """,
        rule="repeat.bitwise",
    ),
    "fetched": _probe(
        """
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            facts = {}
            for spec in list(dict.fromkeys([specs[0], specs[1], specs[-1]])):

                def array():
                    return jax.device_put(whole, NamedSharding(mesh, spec))

                started = array()
                started.copy_to_host_async()
                tree = jax.device_get({"a": array(), "b": (array(), 3)})
                facts[f"{spec}: np.asarray"] = np.array_equal(np.asarray(array()), whole)
                facts[f"{spec}: after copy_to_host_async"] = np.array_equal(np.asarray(started), whole)
                facts[f"{spec}: device_get of a tree"] = (
                    np.array_equal(tree["a"], whole) and np.array_equal(tree["b"][0], whole) and tree["b"][1] == 3
                )
                facts[f"{spec}: device_get gives NumPy arrays"] = type(tree["a"]) is np.ndarray
                facts[f"{spec}: tolist"] = array().tolist() == whole.tolist()
                facts[f"{spec}: iteration"] = all(np.array_equal(g, w) for g, w in zip(array(), whole, strict=True))
                facts[f"{spec}: np.asarray of another dtype"] = np.array_equal(np.asarray(array(), "float64"), whole)
                facts[f"{spec}: one element"] = int(array()[5, 7]) == whole[5, 7]
            return facts
        """,
    ),
    "computed_with": _probe(
        """
            whole = np.arange(24 * 24, dtype="int32").reshape(24, 24)
            operations = {
                "rows": lambda np_, v: v[5:17],
                "every third row": lambda np_, v: v[::3],
                "rows backwards": lambda np_, v: v[::-1],
                "columns and one row": lambda np_, v: v[4, 2:9],
                "chosen rows": lambda np_, v: v[np_.array([3, 20, 3, 11])],
                "a transpose": lambda np_, v: v.T,
                "a new shape": lambda np_, v: v.reshape(12, 48),
                "halves exchanged": lambda np_, v: np_.concatenate([v[12:], v[:12]]),
                "itself twice, side by side": lambda np_, v: np_.concatenate([v, v], 1),
                "a stack": lambda np_, v: np_.stack([v, v + 1], 1),
                "turned": lambda np_, v: np_.roll(v, 5, 0),
                "the sum of columns": lambda np_, v: v.sum(0, dtype="int32"),
                "the sum of rows": lambda np_, v: v.sum(1, dtype="int32"),
                "the running sum": lambda np_, v: np_.cumsum(v, 1, dtype="int32"),
                "a product": lambda np_, v: v @ v,
                "the largest": lambda np_, v: v.max(1),
            }

            def everything(v):
                return {about: operation(jnp, v) for about, operation in operations.items()}

            jitted = jax.jit(everything)
            facts = {}
            for spec in list(dict.fromkeys([specs[1], specs[-1]])):
                got = jitted(jax.device_put(whole, NamedSharding(mesh, spec)))
                for about, operation in operations.items():
                    wanted = operation(np, whole)
                    facts[f"{spec}: {about}"] = np.array_equal(got[about], wanted) and got[about].dtype == wanted.dtype
            return facts
        """,
        values=("8_reversed", "3_last", "2x4"),
        rule="result.sharded",
        imports=("import jax.numpy as jnp",),
    ),
}
