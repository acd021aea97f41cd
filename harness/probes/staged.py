"""Lowered, compiled, exported and merely evaluated programs."""

from harness.probes.base import Probe

SUITE = "staged"

PROGRAMS = {
    "shapes": "[((lambda x: x + 1), (np.ones(n, 'float32'),)) for n in (2, 3, 5)]",
    "dtypes": "[((lambda x: x + 1), (np.ones(2, d),)) for d in ('float32', 'int32', 'uint32', 'int8')]",
    "constants": "[((lambda x, k=k: x * k), (np.ones(2, 'float32'),)) for k in (2.0, 3.0, 4.0)]",
    "arrays": "[((lambda x, k=k: x * np.full(2, k, 'float32')), (np.ones(2, 'float32'),)) for k in (2, 3)]",
    "sizes": "[((lambda x, n=n: jax.vmap(lambda v: v * lax.psum(1, 'i'), axis_name='i', axis_size=n)(x)), (np.ones(n, 'int32'),)) for n in (2, 3)]",
    "order": "[((lambda x: (x + 1) * 2), (np.ones(2, 'int32'),)), ((lambda x: (x * 2) + 1), (np.ones(2, 'int32'),))]",
    "dimension": "[((lambda x, d=d: x.sum(d)), (np.arange(4, dtype='int32').reshape(2, 2),)) for d in (0, 1)]",
    "direction": "[((lambda x, r=r: lax.cumsum(x, 0, reverse=r)), (np.arange(4, dtype='int32'),)) for r in (False, True)]",
    "results": "[((lambda x, y: (x, y)), (np.ones(2, 'int32'), np.zeros(2, 'int32'))), ((lambda x, y: (y, x)), (np.ones(2, 'int32'), np.zeros(2, 'int32')))]",
}
NUMPY = {
    "shapes": "[np.full(n, 2, 'float32') for n in (2, 3, 5)]",
    "dtypes": "[np.full(2, 2, d) for d in ('float32', 'int32', 'uint32', 'int8')]",
    "constants": "[np.full(2, k, 'float32') for k in (2, 3, 4)]",
    "arrays": "[np.full(2, k, 'float32') for k in (2, 3)]",
    "sizes": "[np.full(n, n, 'int32') for n in (2, 3)]",
    "order": "[np.full(2, 4, 'int32'), np.full(2, 3, 'int32')]",
    "dimension": "[np.array([2, 4], 'int32'), np.array([1, 5], 'int32')]",
    "direction": "[np.array([0, 1, 3, 6], 'int32'), np.array([6, 6, 5, 3], 'int32')]",
    "results": "[(np.ones(2, 'int32'), np.zeros(2, 'int32')), (np.zeros(2, 'int32'), np.ones(2, 'int32'))]",
}
IMPORTS = ("import numpy as np", "from jax import lax")

PROBES = {
    "lowering": Probe(
        rule="lower.text",
        suite=SUITE,
        values={word: f"{source}, {NUMPY[word]}" for word, source in PROGRAMS.items()},
        imports=IMPORTS,
        source="""
            programs, wanted = VALUE

            def element(array):
                return f"tensor<{'x'.join(map(str, array.shape))}x{KINDS[str(array.dtype)]}>"

            KINDS = {"float32": "f32", "int32": "i32", "uint32": "ui32", "int8": "i8"}
            same = len({function.__code__ for function, _ in programs}) == 1 and all(
                function.__defaults__ is None for function, _ in programs
            )
            one = jax.jit(programs[0][0])
            jitted = [one if same else jax.jit(function) for function, _ in programs]
            texts = [f.lower(*arguments).as_text() for f, (_, arguments) in zip(jitted, programs)]
            again = [f.lower(*arguments).as_text() for f, (_, arguments) in zip(jitted, programs)]
            jax.clear_caches()
            anew = [jax.jit(function).lower(*arguments).as_text() for function, arguments in programs]
            facts = {
                "different programs have different texts": len(set(texts)) == len(texts),
                "the text is the same a second time": again == texts,
                "and when caches were emptied": anew == texts,
            }
            compiled = [f.lower(*arguments).compile() for f, (_, arguments) in zip(jitted, programs)]
            for k, (_, arguments) in enumerate(programs):
                facts[f"text {k} has the arguments' types"] = all(element(a) in texts[k] for a in arguments)
                facts[f"text {k} is that of one function main"] = texts[k].count("func.func public @main") == 1

            def right(got, want):
                pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
                return all(np.array_equal(g, w) and g.dtype == w.dtype for g, w in pairs)

            for turn in ("first", "second"):
                for k, (_, arguments) in enumerate(programs):
                    facts[f"compiled {k}, {turn} call"] = right(compiled[k](*arguments), wanted[k])
                    facts[f"jitted {k}, {turn} call"] = right(jitted[k](*arguments), wanted[k])
            jaxprs = [str(jax.make_jaxpr(function)(*arguments)) for function, arguments in programs]
            facts["make_jaxpr gives the same text a second time"] = jaxprs == [
                str(jax.make_jaxpr(function)(*arguments)) for function, arguments in programs
            ]
            return facts
        """,
    ),
    "compiled_arguments": Probe(
        rule="compiled.arguments",
        suite=SUITE,
        source="""
            jitted = jax.jit(lambda x, y: {"sum": x + y["a"], "twice": y["a"] * 2})
            x = np.arange(3, dtype="int32")
            compiled = jitted.lower(x, {"a": x}).compile()
            other = jitted.lower(x.astype("float32"), {"a": x}).compile()
            facts = {}
            for k in (0, 5, -3, 0):
                got = compiled(x + k, {"a": x * k})
                facts[f"arguments made with {k}"] = (
                    np.array_equal(got["sum"], x + k + x * k) and np.array_equal(got["twice"], x * k * 2)
                )
                real = other((x + k).astype("float32"), {"a": x})
                facts[f"beside another, with {k}"] = real["sum"].dtype == "float32" and np.array_equal(real["sum"], x + k + x)

            def refused(*arguments, **options):
                try:
                    compiled(*arguments, **options)
                except (TypeError, ValueError):
                    return True
                return False

            for about, arguments in {
                "another shape": (x[:2], {"a": x}),
                "another number of dimensions": (x[None], {"a": x}),
                "another dtype": (x.astype("float32"), {"a": x}),
                "another sign": (x.astype("uint32"), {"a": x}),
                "another key": (x, {"b": x}),
                "a tuple for the dictionary": (x, (x,)),
                "one argument less": (x,),
                "one argument more": (x, {"a": x}, x),
            }.items():
                facts[f"{about} is refused"] = refused(*arguments) and refused(*arguments)
            facts["in_tree and out_tree are those of the function"] = (
                compiled.in_tree == jax.tree.structure(((x, {"a": x}), {}))
                and compiled.out_tree == jax.tree.structure({"sum": 0, "twice": 0})
            )
            return facts
        """,
    ),
    "evaluated_shape": Probe(
        rule="result.type",
        suite=SUITE,
        devices=1,
        source="""
            ran = []

            def program(x, y):
                traces.append(1)
                jax.debug.callback(lambda: ran.append(1))
                return {"sum": x + y, "text": (x > y).sum(0), "gone": None}

            facts = {}
            kinds = {"float32": 4, "bfloat16": 2, "int32": 4, "int8": 1, "complex64": 8, "bool": 1}
            for dtype in kinds:
                for shape in ((), (3,), (2, 3), (0, 4)):
                    x = jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
                    got = jax.eval_shape(lambda v: (v[None], v.astype("int16")), x)
                    facts[f"{dtype}{shape}"] = (
                        (got[0].shape, got[0].dtype.name) == ((1, *shape), dtype)
                        and (got[1].shape, got[1].dtype.name) == (shape, "int16")
                    )
            x = np.ones((4, 2), "float32")
            jitted = jax.jit(program)
            for about, evaluate in (("jax.eval_shape", lambda *a: jax.eval_shape(program, *a)), ("of a jit", jitted.eval_shape)):
                got = evaluate(x, 1.0)
                facts[f"{about}: shapes and dtypes"] = (
                    (got["sum"].shape, got["sum"].dtype) == ((4, 2), "float32")
                    and (got["text"].shape, got["text"].dtype) == ((2,), "int32")
                    and got["gone"] is None
                )
            jax.effects_barrier()
            facts["nothing runs"] = not ran
            before = len(traces)
            jitted.eval_shape(x, 1.0)
            facts["a jit evaluated twice is traced once"] = len(traces) == before
            strong, weak = jax.eval_shape(lambda v, w: (v * 2, w * 2), np.float32(1), 1.0)
            facts["a weak type stays weak"] = weak.weak_type and not strong.weak_type
            facts["results of a weak type give way"] = [
                (r * jnp.ones((), jnp.bfloat16)).dtype.name for r in jax.jit(lambda v, w: (v * 2, w * 2))(np.float32(1), 1.0)
            ] == ["float32", "bfloat16"]
            for n in (2, 3, 2):
                seen = jax.vmap(lambda v: lax.all_gather(v, "i", axis=1), axis_name="i")(np.ones((n, 4, 5), "float32")).shape
                evaluated = jax.eval_shape(
                    jax.vmap(lambda v: lax.all_gather(v, "i", axis=1), axis_name="i"), np.ones((n, 4, 5), "float32")
                ).shape
                facts[f"all_gather over {n}"] = evaluated == seen == (n, 4, n, 5)
            return facts
        """,
    ),
    "exported": Probe(
        rule="export.roundtrip",
        suite=SUITE,
        values={
            "two_results": "(lambda np_, x: (x + 1, x * 2)), 'int32'",
            "three_results": "(lambda np_, x: (x, x - 1, x * 3)), 'float32'",
            "unsigned": "(lambda np_, x: x + 1), 'uint32'",
            "unsigned8": "(lambda np_, x: x * 200), 'uint8'",
            "signed8": "(lambda np_, x: x * 100), 'int8'",
            "complex": "(lambda np_, x: x * 1j), 'complex64'",
            "bool": "(lambda np_, x: ~x), 'bool'",
            "dictionary": "(lambda np_, x: {'b': x + 1, 'a': (x, x.T)}), 'int32'",
            "half": "(lambda np_, x: x + x), 'float16'",
        },
        imports=("import jax.numpy as jnp", "from jax import export"),
        source="""
            function, dtype = VALUE
            facts = {}
            exported = [export.export(jax.jit(lambda x: function(jnp, x)))(np.ones(s, dtype)) for s in ((2, 3), (3, 2))]
            for k in (0, 1, 0):
                shape = ((2, 3), (3, 2))[k]
                x = (np.arange(6) % 5).astype(dtype).reshape(shape)
                wanted = function(np, x)
                for about, call in (("called", exported[k].call), ("called in a jit", jax.jit(exported[k].call))):
                    got = call(x)
                    facts[f"{shape} {about}: the tree"] = jax.tree.structure(got) == jax.tree.structure(wanted)
                    facts[f"{shape} {about}: the values"] = all(
                        np.array_equal(g, w) and g.dtype == w.dtype and g.shape == w.shape
                        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(wanted))
                    )
                said = [(a.shape, a.dtype) for a in exported[k].out_avals]
                facts[f"{shape}: its types"] = said == [(w.shape, w.dtype) for w in jax.tree.leaves(wanted)]
            try:
                exported[0].call(np.ones((3, 2), dtype))
                facts["another shape is refused"] = False
            except (ValueError, TypeError):
                facts["another shape is refused"] = True
            return facts
        """,
    ),
    "exported_bytes": Probe(
        rule="export.roundtrip",
        suite=SUITE,
        requires="flatbuffers",
        imports=("from jax import export",),
        source="""
            def program(x, tree):
                return {"first": x * 2 + tree["a"], "second": (tree["b"] + 1, x - tree["a"])}

            x = np.arange(4, dtype="uint32")
            tree = {"a": x + 1, "b": np.ones((2, 3), "float16")}
            data = [export.export(jax.jit(program))(x, tree).serialize() for _ in range(2)]
            again = export.deserialize(data[0])
            got = again.call(x, tree)
            wanted = program(x, tree)
            pairs = list(zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True))
            return {
                "the same bytes twice": bytes(data[0]) == bytes(data[1]),
                "the tree": jax.tree.structure(got) == jax.tree.structure(wanted),
                "the values": all(np.array_equal(g, w) for g, w in pairs),
                "the types": all(g.dtype == w.dtype and g.shape == w.shape for g, w in pairs),
                "the text": again.mlir_module() == export.export(jax.jit(program))(x, tree).mlir_module(),
            }
        """,
    ),
}
