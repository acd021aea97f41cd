"""What makes a call of a jitted function another one, and what does not."""

from harness.probes.base import Probe

SUITE = "signatures"

ARGUMENTS = {
    "dtype": '[np.ones(3, d) for d in "bool int8 uint8 int16 uint16 int32 uint32 float16 float32 complex64".split()]',
    "narrow": "[np.ones(3, d) for d in (jnp.bfloat16, np.float16, np.int16, np.uint16, np.float32, np.int32)]",
    "shape": "[np.ones(s) for s in [(), (6,), (2, 3), (3, 2), (6, 1), (1, 6), (1, 2, 3), (3, 1, 2), (0,), (0, 3), (3, 0)]]",
    "many_shapes": "[np.ones(n) for n in range(1, 14)]",
    "weak": "[np.float32(1), 1.0, np.int32(1), 1, np.complex64(1), 1j, True]",
    "tree": "[(X, X), [X, X], {'a': X, 'b': X}, {'a': X, 'c': X}, Pair(X, X), Other(X, X), OrderedDict(a=X, b=X)]",
    "nested": "[((X,), X), (X, (X,)), ((X, X),), (((X, X)),), [(X,), X], {'a': (X, X)}, {'a': {'b': X}, 'b': X}]",
    "none": "[(X, None), (None, X), (X,), (X, ()), (None, X, None), X, [None, X], {'a': X, 'b': None}]",
    "node": "[Node(X, 0), Node(X, 1), Node(X, 'one'), Node(X, None), Node(X, (0, 1)), Twin(X, 0), Record(X, 0), Record(X, 1), Record(X, 'one')]",
}

DEFINITIONS = """
            Pair = collections.namedtuple("Pair", ["first", "second"])
            Other = collections.namedtuple("Other", ["first", "second"])
            X = np.arange(3, dtype="float32")

            @jax.tree_util.register_pytree_node_class
            class Node:
                def __init__(self, x, tag):
                    self.x, self.tag = x, tag

                def tree_flatten(self):
                    return (self.x,), self.tag

                @classmethod
                def tree_unflatten(cls, tag, children):
                    return cls(*children, tag)

            @jax.tree_util.register_pytree_node_class
            class Twin(Node):
                pass

            @functools.partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["tag"])
            @dataclasses.dataclass
            class Record:
                x: object
                tag: object
"""

PROBES = {
    "argument_types": Probe(
        rule="cache.signature",
        suite=SUITE,
        values={
            word: f"lambda X, Pair, Other, Node, Twin, Record, OrderedDict=collections.OrderedDict: {source}"
            for word, source in ARGUMENTS.items()
        },
        imports=(
            "import collections",
            "import dataclasses",
            "import functools",
            "import jax.numpy as jnp",
            "import numpy as np",
        ),
        source=DEFINITIONS
        + """
            arguments = VALUE(X, Pair, Other, Node, Twin, Record)

            def weak(leaf):
                return type(leaf) in (int, float, complex)

            def said(tree, leaf):
                if isinstance(tree, (Node, Record)):
                    return type(tree).__name__, repr(tree.tag), said(tree.x, leaf)
                if isinstance(tree, dict):
                    return type(tree).__name__, [(key, said(tree[key], leaf)) for key in sorted(tree)]
                if isinstance(tree, (tuple, list)):
                    return type(tree).__name__, [said(item, leaf) for item in tree]
                return "None" if tree is None else leaf(tree)

            def outside(leaf):
                kinds = {float: "float32", int: "int32", complex: "complex64", bool: "bool"}
                dtype = kinds.get(type(leaf)) or str(np.asarray(leaf).dtype).replace("float64", "float32")
                return np.shape(leaf), dtype, weak(leaf)

            def inside(leaf):  # a weakly typed scalar gives way to a narrower type
                narrow = {"f": "bfloat16", "i": "int8", "c": "bfloat16"}.get(np.dtype(leaf.dtype).kind)
                other = narrow and jnp.ones((), narrow)
                gives_way = narrow is not None and leaf.shape == () and jnp.result_type(leaf, other) != leaf.dtype
                if np.dtype(leaf.dtype).kind == "c":
                    gives_way = leaf.aval.weak_type
                return leaf.shape, str(leaf.dtype), bool(gives_way)

            kinds = []

            def program(tree):
                traces.append(1)
                kinds.append(said(tree, inside))
                return len(kinds) - 1

            def mapped(tree):
                return jax.vmap(program, in_axes=None, out_axes=None, axis_size=2)(tree)

            def scanned(tree):
                return lax.scan(lambda c, _: (program(tree), None), 0, None, length=1)[0]

            facts = {}
            for about, function in (("jit", jax.jit(program)), ("jit of a jit", jax.jit(lambda t: inner(t))),
                                    ("jit of vmap", jax.jit(mapped)), ("jit of scan", jax.jit(scanned))):
                inner = jax.jit(program)
                for turn in ("first", "second", "third"):
                    before, wrong = len(traces), []
                    for argument in arguments if turn != "second" else arguments[::-1]:
                        found = kinds[int(function(argument))]
                        if repr(found) != repr(said(argument, outside)):
                            wrong.append((found, said(argument, outside)))
                    facts[f"{about}, {turn} time: each is traced for what it is: {wrong[:2]}"] = not wrong
                    if turn != "first":
                        facts[f"{about}, {turn} time: nothing is traced"] = len(traces) == before
            return facts
        """,
    ),
    "equal_signatures": Probe(
        rule="cache.retrace",
        suite=SUITE,
        imports=("import collections", "import dataclasses", "import functools"),
        source=DEFINITIONS
        + """
            @jax.jit
            def program(tree, **options):
                traces.append(1)
                return jax.tree.map(lambda v: v * 2, (tree, options))

            groups = {
                "keys in another order": [lambda: program({"a": X, "b": X + 1}), lambda: program({"b": X + 1, "a": X})],
                "keywords in another order": [lambda: program(X, a=X, b=X + 1), lambda: program(X, b=X + 1, a=X)],
                "NumPy arrays and JAX's": [lambda: program(X + 2), lambda: program(jnp.asarray(X + 2))],
                "other values": [lambda: program((X, X)), lambda: program((X - 9, X * 7))],
                "equal data of a node": [lambda: program(Node(X, (1, "a"))), lambda: program(Node(X, (1, "".join("a"))))],
                "a view and a copy": [lambda: program(np.arange(6.0)[::2]), lambda: program(np.arange(6.0)[::2].copy())],
                "results of itself": [lambda: program(X), lambda: program(program(X)[0])],
            }
            facts = {}
            for about, calls in groups.items():
                jax.clear_caches()
                first = calls[0]()
                before = len(traces)
                later = [call() for call in calls + calls]
                facts[f"{about}: nothing is traced again"] = len(traces) == before
                if about not in ("other values", "results of itself"):
                    facts[f"{about}: the results are equal"] = all(
                        np.array_equal(g, w) for got in later for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(first))
                    )
            return facts
        """,
    ),
    "static_arguments": Probe(
        rule="cache.static",
        suite=SUITE,
        values={
            "collide": "[Tag(1), Tag(2), Tag(3), Tag(40)]",
            "same_text": "[Mute(1), Mute(2), Mute(3)]",
            "strings": "['a', 'b', 'ab', '', 'a ']",
            "tuples": "[(1, 2), (2, 1), (1, 2, ()), ((1, 2),), ()]",
            "functions": "[abs, max, min, (lambda v: 1), (lambda v: 2)]",
            "numbers": "[-1, -2, 0, 2**61 - 1, 0.5]",
            "dtypes": "[np.dtype('int8'), np.dtype('uint8'), np.dtype('float32')]",
            "nothing": "[None, '', (), 'None', 0]",
            "slices": "[frozenset({1}), frozenset({2}), frozenset(), range(3), range(4)]",
        }
        | {},
        imports=("import copy", "import functools", "import numpy as np"),
        source="""
            class Tag:  # all of one hash
                def __init__(self, value):
                    self.value = value

                def __eq__(self, other):
                    return type(other) is type(self) and other.value == self.value

                def __hash__(self):
                    return 11

            class Mute(Tag):  # and of one text
                def __repr__(self):
                    return "Mute"

            values = VALUE(Tag, Mute)
            met = []

            def program(x, tag, other=0, *, key=0):
                traces.append(1)
                met.append((tag, other, key))
                return x + (len(met) - 1)

            def same(a, b):
                return a is b or (type(a) is type(b) and a == b)

            forms = {
                "by position": (jax.jit(program, static_argnums=1), lambda f, v: f(0, v), lambda m, v: same(m[0], v)),
                "by name": (jax.jit(program, static_argnames="tag"), lambda f, v: f(0, tag=v), lambda m, v: same(m[0], v)),
                "by a name that is keyword only": (
                    jax.jit(program, static_argnames=("tag", "key")), lambda f, v: f(0, 5, key=v), lambda m, v: same(m[2], v)
                ),
                "the second of two": (
                    jax.jit(program, static_argnums=(1, 2)), lambda f, v: f(0, "same", v), lambda m, v: same(m[1], v)
                ),
                "the first of two": (
                    jax.jit(program, static_argnums=(1, 2)), lambda f, v: f(0, v, "same"), lambda m, v: same(m[0], v)
                ),
            }
            facts = {}
            for about, (jitted, call, right) in forms.items():
                for turn in ("first", "second"):
                    before = len(traces)
                    wrong = [v for v in values if not right(met[int(call(jitted, copy.copy(v)))], v)]
                    facts[f"{about}, {turn} time: each gets its own trace: {wrong}"] = not wrong
                    traced = len(traces) - before
                    facts[f"{about}, {turn} time: {traced} traces"] = traced == (len(values) if turn == "first" else 0)
            return facts
        """,
    ),
    "static_names": Probe(
        rule="cache.static",
        suite=SUITE,
        source="""
            def program(x, **options):
                traces.append(1)
                return x + sum(v * {"a": 1, "b": 10, "c": 100}[k] for k, v in options.items())

            jitted = jax.jit(program, static_argnames=("a", "b"))
            wanted = [({"a": 1}, 1), ({"b": 1}, 10), ({"a": 2}, 2), ({"c": 1}, 100), ({"a": 1, "b": 2}, 21),
                      ({"a": 2, "b": 1}, 12), ({"b": 1, "c": 1}, 110), ({"a": 1, "c": 1}, 101)]
            facts = {}
            for turn in ("first", "second"):
                before = len(traces)
                for options, value in wanted:
                    facts[f"{turn} time: {options} gives {value}"] = int(jitted(0, **options)) == value
                if turn == "second":
                    facts["second time: nothing is traced"] = len(traces) == before

            def raises(kind, function):
                try:
                    function()
                except kind:
                    return True
                return False

            facts["a static argument without a hash raises"] = raises((ValueError, TypeError), lambda: jitted(0, a=[1]))
            facts["and works when it has one"] = int(jitted(0, a=1)) == 1
            traced = jax.jit(lambda x, k: x + (10 if k is None else k))
            facts["traced keywords are told apart by name"] = [
                int(jax.jit(lambda a=0, b=0: a + 2 * b)(**{k: 1})) for k in "abab"
            ] == [1, 2, 1, 2]
            both = jax.jit(lambda a=0, b=0: a + 2 * b)
            facts["also by one function"] = [int(both(**{k: 1})) for k in "abab"] == [1, 2, 1, 2]
            facts["None is no value"] = [int(traced(1, k)) for k in (None, 3, None)] == [11, 4, 11]
            return facts
        """,
    ),
    "call_forms": Probe(
        rule="jit.calls",
        suite=SUITE,
        imports=("import functools",),
        source="""
            def program(x, y=10, *rest, scale=1, **more):
                return (x + 2 * y + 3 * sum(rest)) * scale + sum(more.values())

            jitted = jax.jit(program)
            calls = {
                "one argument": lambda f: f(1),
                "two": lambda f: f(1, 5),
                "the second by name": lambda f: f(1, y=5),
                "both by name": lambda f: f(y=5, x=1),
                "more than are named": lambda f: f(1, 2, 3, 4),
                "a keyword": lambda f: f(1, scale=7),
                "an unknown keyword": lambda f: f(1, a=4),
                "all": lambda f: f(1, 2, 3, scale=2, b=1, a=2),
            }
            forms = {
                "jit": jitted,
                "jit of jit": jax.jit(jitted),
                "jit by partial": functools.partial(jax.jit)(program),
                "inline": jax.jit(lambda *given, **k: jax.jit(program, inline=True)(*given, **k)),
                "keep_unused": jax.jit(program, keep_unused=True),
                "wrapped": jax.jit(functools.wraps(program)(lambda *given, **k: program(*given, **k))),
                "lowered at each call": lambda *a, **k: jitted.lower(*a, **k).compile()(*a, **k),
                "an evaluated shape too": lambda *a, **k: (jitted.eval_shape(*a, **k), jitted(*a, **k))[1],
            }
            facts = {}
            for turn in ("first", "second"):
                for about, form in forms.items():
                    if about.startswith("lowered") and turn == "second":
                        continue
                    wrong = [name for name, call in calls.items() if int(call(form)) != call(program)]
                    facts[f"{about}, {turn} time: {wrong}"] = not wrong
            return facts
        """,
    ),
    "callables": Probe(
        rule="cache.closure",
        suite=SUITE,
        values={
            "jit": "jax.jit",
            "jit_of_jit": "lambda f: jax.jit(lambda x: jax.jit(f)(x))",
            "scan": "lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]",
            "cond": "lambda f: lambda x: lax.cond(True, f, lambda v: v, x)",
            "switch": "lambda f: jax.jit(lambda x: lax.switch(x[0], [lambda v: v, f], x))",
            "while_loop": "lambda f: lambda x: lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]",
            "checkpoint": "lambda f: jax.checkpoint(lambda x: f(x))",
            "vmap": "lambda f: lambda x: jax.vmap(jax.jit(f))(x[None])",
            "grad": "lambda f: jax.jit(lambda x: jax.vjp(lambda v: f(v), x.astype('float32'))[1](jnp.ones(3))[0])",
        },
        imports=("import functools", "from jax import lax"),
        source="""
            class Scaled:
                def __init__(self, k):
                    self.k = k

                def method(self, x):
                    traces.append(1)
                    return x * self.k

                def __call__(self, x):
                    traces.append(1)
                    return x * self.k

                @classmethod
                def named(cls, x):
                    return x * 13

                @staticmethod
                def still(x):
                    return x * 17

            class Equal(Scaled):  # all are equal and of one hash, yet each has a method of its own
                __slots__ = ()

            def scaled(k, x):
                traces.append(1)
                return x * k

            def default(k):
                def inner(x, k=k):
                    traces.append(1)
                    return x * k

                return inner

            def closed(k):
                def inner(x):
                    traces.append(1)
                    return x * k

                return inner

            def array(k):
                held = np.full(3, k, "int32")
                on_device = jnp.full(3, k, "int32")

                def inner(x):
                    traces.append(1)
                    return x * held + on_device - k

                return inner

            makers = {
                "bound methods": lambda k: Scaled(k).method,
                "callable objects": lambda k: Scaled(k),
                "partial": lambda k: functools.partial(scaled, k),
                "partial by keyword": lambda k: functools.partial(lambda x, k: scaled(k, x), k=k),
                "partial of a partial": lambda k: functools.partial(functools.partial(scaled), k),
                "default values": default,
                "closures": closed,
                "closures over arrays": array,
                "partial of tree_util": lambda k: jax.tree_util.Partial(scaled, k),
            }
            x = jnp.ones(3, "int32")
            facts = {}
            for about, make in makers.items():
                kept = {k: VALUE(make(k)) for k in (2, 3)}
                got = [np.asarray(kept[k](x)).reshape(3).tolist() for k in (2, 3, 2, 3)]
                facts[f"{about}: each is its own: {got}"] = got == [[k] * 3 for k in (2, 3, 2, 3)]
            one = Scaled(2)
            methods = jax.jit(one.method)
            before = len(traces)
            facts["one method is traced once"] = (int(methods(1)), int(methods(2)), len(traces) - before) == (2, 4, 1)
            facts["methods of a class and of none"] = (int(jax.jit(Scaled.named)(1)), int(jax.jit(Scaled.still)(1))) == (13, 17)
            equal = [Equal(2), Equal(3)]
            facts["methods of two objects"] = [int(jax.jit(o.method)(1)) for o in equal + equal] == [2, 3, 2, 3]
            return facts
        """,
    ),
    "option_sets": Probe(
        rule="jit.calls",
        suite=SUITE,
        devices=2,
        source="""
            def program(x, y=0):
                traces.append(1)
                return x + 2 * y

            def plain(x):
                return x + 1

            one, two = (jax.sharding.SingleDeviceSharding(d) for d in jax.devices()[:2])
            facts = {}
            a, b = jax.jit(program), jax.jit(program, static_argnums=1)
            got = [int(f(1, k)) for f in (a, b, a, b) for k in (3, 4)]
            facts["static and traced: each is right"] = got == [7, 9] * 4
            placed = [jax.jit(plain, out_shardings=s) for s in (one, two)]
            for turn in ("first", "second"):
                where = [f(np.ones(3)).devices() for f in (*placed, jax.jit(plain), placed[1], placed[0])]
                wanted = [{jax.devices()[k]} for k in (0, 1, 0, 1, 0)]
                facts[f"results are where each option puts them, {turn} time"] = where == wanted
            kept = [jnp.arange(4) + k for k in range(6)]
            donating, other = jax.jit(plain, donate_argnums=0), jax.jit(plain)
            results = [f(x) for f, x in zip((donating, other, donating, other, jax.jit(plain), other), kept)]
            facts["donated or not: each is right"] = all(
                np.array_equal(r, np.arange(4) + k + 1) for k, r in enumerate(results)
            )
            facts["what is not donated stays"] = not any(kept[k].is_deleted() for k in (1, 3, 4, 5))
            dropped = jax.jit(lambda x, unused: x + 1).lower(1.0, 2.0).compile()
            whole = jax.jit(lambda x, unused: x + 1, keep_unused=True).lower(1.0, 2.0)
            facts["keep_unused keeps"] = whole.as_text().count("%arg1") >= 1
            facts["and changes no result"] = float(dropped(1.0, 2.0)) == float(whole.compile()(1.0, 2.0)) == 2.0
            nested = [jax.jit(lambda x, i=i: jax.jit(plain, inline=i)(x) * 2) for i in (True, False)]
            facts["inline changes no result"] = [float(f(2.0)) for f in nested + nested] == [6.0] * 4
            return facts
        """,
    ),
    "donation": Probe(
        rule="jit.donation",
        suite=SUITE,
        values={
            "int32": '(np.arange(6, dtype="int32"), "first")',
            "matrix": '(np.ones((3, 5), "float32"), "second")',
            "by_name": '(np.arange(6, dtype="float32"), "name")',
            "tree": '({"a": np.arange(3), "b": [np.ones(2, "float32")]}, "first")',
            "both": '(np.ones((2, 2), "complex64"), "both")',
            "large": '(np.ones(1 << 18, "float32"), "first")',
            "second_of_three": '(np.arange(5, dtype="int32"), "middle")',
            "sharded": '(np.arange(24, dtype="int32"), "second")',
        },
        devices=2,
        imports=("import warnings", "import numpy as np"),
        source="""
            value, which = VALUE

            def program(x, y, z):
                return tuple(jax.tree.map(lambda v: v + k, t) for k, t in enumerate((x, y, z), 1))

            options = {
                "first": {"donate_argnums": 0},
                "second": {"donate_argnums": (1,)},
                "name": {"donate_argnames": "z"},
                "both": {"donate_argnums": (0, 1)},
                "middle": {"donate_argnames": ["y"]},
            }[which]
            gone = {"first": [0], "second": [1], "name": [2], "both": [0, 1], "middle": [1]}[which]
            jitted = jax.jit(program, **options)
            mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
            facts = {}
            for turn in ("first", "second", "third"):
                if jax.tree.leaves(value)[0].size == 24:
                    arguments = [jax.device_put(value, NamedSharding(mesh, P("i"))) for _ in range(3)]
                else:
                    arguments = [jax.tree.map(lambda v: jnp.asarray(v).copy(), value) for _ in range(3)]
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    got = jitted(*arguments[:2], z=arguments[2]) if which == "name" else jitted(*arguments)
                warned = any("donat" in str(w.message) for w in said)
                deleted = [[leaf.is_deleted() for leaf in jax.tree.leaves(a)] for a in arguments]
                for k, argument in enumerate(deleted):
                    if k in gone:
                        facts[f"{turn} call: argument {k} is gone, or JAX warns"] = all(argument) or warned
                    else:
                        facts[f"{turn} call: argument {k} stays"] = not any(argument)
                right = [jax.tree.map(lambda v: v + k, value) for k in (1, 2, 3)]
                facts[f"{turn} call: the results are right"] = all(
                    np.array_equal(g, w) for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(right), strict=True)
                )
            return facts
        """,
    ),
    "donated_again": Probe(
        rule="jit.donation",
        suite=SUITE,
        devices=2,
        since="0.10",  # JAX 0.6.2 may hang in it
        values={
            "one_device": "jax.devices()[0]",
            "sharded": 'NamedSharding(Mesh(np.array(jax.devices()[:2]), ("i",)), P("i"))',
            "replicated": 'NamedSharding(Mesh(np.array(jax.devices()[:2]), ("i",)), P())',
        },
        imports=("import numpy as np", "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P"),
        source="""
            x, y = jax.device_put((np.arange(24), np.arange(24)), VALUE)
            program = jax.jit(lambda x, y: (x + 1, y + 2), donate_argnums=1)
            program(x, y)
            if not y.is_deleted():
                return {"donation is not implemented here, so the argument stays": np.array_equal(y, np.arange(24))}
            facts = {"what was not donated stays": np.array_equal(x, np.arange(24))}
            uses = {
                "donating it again": lambda: program(x, y),
                "another function": lambda: jax.jit(lambda v: v * 2)(y),
                "an operator": lambda: y + 1,
                "np.asarray": lambda: np.asarray(y),
                "device_put": lambda: np.asarray(jax.device_put(y, jax.devices()[1])),
            }
            for about, use in uses.items():
                try:
                    use()
                    facts[f"{about} raises"] = False
                except (RuntimeError, ValueError):
                    facts[f"{about} raises"] = True
            return facts
        """,
    ),
    "keyword_named_as_rest": Probe(
        rule="jit.calls",
        suite=SUITE,
        source="""
            def program(*x, **options):
                return x[0] + 10 * options["x"]

            jitted = jax.jit(program)
            return {
                "a keyword may have the name of the other arguments": int(jitted(1, x=4)) == program(1, x=4),
                "a second time": int(jitted(2, x=5)) == program(2, x=5),
            }
        """,
    ),
}
for _word, _values in PROBES["static_arguments"].values.items():
    PROBES["static_arguments"].values[_word] = f"lambda Tag, Mute: {_values}"
