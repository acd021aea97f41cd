"""What caches keep, for how long, and for whom: memory, eviction, clearing, threads, the disk."""

from harness.probes.base import Probe

SUITE = "lifetimes"

USES = {
    "jit": "lambda f: jax.jit(f)",
    "jit_of_jit": "lambda f: jax.jit(lambda x: jax.jit(f)(x))",
    "vmap_of_jit": "lambda f: lambda x: jax.vmap(jax.jit(f), axis_name='i')(x[None])[0]",
    "jit_of_vmap": "lambda f: jax.jit(lambda x: jax.vmap(f, axis_name='i')(x[None])[0])",
    "scan": "lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]",
    "jit_of_scan": "lambda f: jax.jit(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0])",
    "while_loop": "lambda f: lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]",
    "fori_loop": "lambda f: lambda x: lax.fori_loop(0, 2, lambda k, c: f(c), x)",
    "cond": "lambda f: lambda x: lax.cond(True, f, lambda v: v, x)",
    "switch": "lambda f: jax.jit(lambda x: lax.switch(1, [lambda v: v, f], x))",
    "checkpoint": "lambda f: jax.grad(lambda x: jax.checkpoint(f)(x).sum())",
    "grad": "lambda f: jax.grad(lambda x: jax.jit(f)(x).sum())",
    "vjp": "lambda f: lambda x: jax.vjp(f, x)[1](x)[0]",
    "linearize": "lambda f: lambda x: jax.linearize(jax.jit(f), x)[1](x)",
    "custom_vjp": "lambda f: custom(f)",
    "eval_shape": "lambda f: lambda x: (jax.eval_shape(f, x), x)[1] + 0",
    "lower": "lambda f: lambda x: jax.jit(f).lower(x).compile()(x)",
    "make_jaxpr": "lambda f: lambda x: (str(jax.make_jaxpr(f)(x)), x + 0)[1]",
    "pmap": "lambda f: lambda x: jax.pmap(f, axis_name='i')(x[None])[0]",
    "static": "lambda f: lambda x: jax.jit(lambda v, k: f(v), static_argnums=1)(x, 3)",
    "donated": "lambda f: lambda x: jax.jit(f, donate_argnums=0)(x + 0)",
}

CUSTOM = """
            def custom(f):
                wrapped = jax.custom_vjp(f)
                wrapped.defvjp(lambda x: (f(x), None), lambda _, g: (g,))
                return jax.grad(lambda x: wrapped(x).sum())
"""

PROGRAMS = {
    "constants": "[((lambda x, k=k: x * k), np.full(4, k, 'int32')) for k in (2, 3, 5)]",
    "large_constants": "[((lambda x, k=k: x * np.arange(k, k + 4)), np.arange(k, k + 4, dtype='int32')) for k in (2, 3)]",
    "order": "[((lambda x: (x + 1) * 3), np.full(4, 6, 'int32')), ((lambda x: (x * 3) + 1), np.full(4, 4, 'int32'))]",
    "permutations": "[(mapped(lambda v, k=k: lax.ppermute(v * lax.axis_index('i'), 'i', [(s, (s + k) % 4) for s in range(4)])),"
    " np.roll(np.arange(4, dtype='int32'), k)) for k in (1, 2, 3)]",
    "groups": "[(mapped(lambda v, g=g: lax.all_gather(v * lax.axis_index('i'), 'i', axis_index_groups=g)[0]), w) for g, w in "
    "(([[0, 1], [2, 3]], np.array([0, 0, 2, 2], 'int32')), ([[0, 2], [1, 3]], np.array([0, 1, 0, 1], 'int32')),"
    " ([[1, 0], [3, 2]], np.array([1, 1, 3, 3], 'int32')))]",
    "reductions": "[(mapped(lambda v, r=r: r(v * lax.axis_index('i'), 'i')), np.full(4, w, 'int32')) for r, w in "
    "((lax.psum, 6), (lax.pmax, 3), (lax.pmin, 0))]",
    "signs": "[(mapped(lambda v, d=d: lax.pmax((v * lax.axis_index('i') * 85).astype(d), 'i').astype('int32')), np.full(4, w, 'int32'))"
    " for d, w in (('int8', 85), ('uint8', 255))]",
    "gathered": "[(mapped(lambda v, a=a: lax.all_gather((v * 4 * lax.axis_index('i') + np.arange(4)).reshape(2, 2), 'i', axis=a, tiled=True)"
    ".reshape(16)), np.tile(np.concatenate(np.arange(16).reshape(4, 2, 2), a).reshape(16), (4, 1))) for a in (0, 1)]",
    "dimensions": "[((lambda x, d=d: (x * np.arange(4)).reshape(2, 2).sum(d).repeat(2)), w) for d, w in "
    "((0, np.array([2, 2, 4, 4], 'int32')), (1, np.array([1, 1, 5, 5], 'int32')))]",
    "names": "[((lambda program: program)(f), w) for f, w in ((lambda x: x + 1, np.full(4, 2, 'int32')), (lambda x: x - 1, np.zeros(4, 'int32')))]",
    "devices": "[(mapped(lambda v: v * lax.axis_index('i'), order), np.arange(4, dtype='int32'), order) for order in "
    "([0, 1, 2, 3], [3, 2, 1, 0], [4, 5, 6, 7])]",
    "direction": "[((lambda x, r=r: lax.cumsum(x, 0, reverse=r)), np.arange(1, 5, dtype='int32')[:: -1 if r else 1]) for r in (0 > 1, 1 > 0)]",
}

MAPPED = """
            def mapped(function, order=(0, 1, 2, 3)):
                return jax.pmap(function, axis_name="i", devices=[jax.devices()[k] for k in order])

            programs = VALUE(mapped)
            x = np.ones(4, "int32")

            def wrong(functions):
                found = []
                for function, (_, wanted, *order) in zip(functions, programs, strict=True):
                    got = function(x)
                    where = [s.device.id for s in got.addressable_shards]
                    if not np.array_equal(got, wanted) or order and where != order[0]:
                        found.append((np.asarray(got).tolist(), where, wanted.tolist()))
                return found

            def staged(function):
                if hasattr(function, "lower"):
                    return function
                function.__name__ = "program"  # a name says nothing of what is in it
                return jax.jit(function)
"""

# Of what asks for an axis: its answer where these axes are bound, each a name and a size, outermost first.
UNDER = """
facts = {}


def under(f, *bound):
    for axis, size in reversed(bound):
        f = jax.vmap(f, axis_name=axis, axis_size=size, out_axes=None)
    return int(f())


def refused(f, *bound):
    try:
        under(f, *bound)
        return False
    except NameError:
        return True


"""

ALIKE = (
    UNDER
    + """
import enum

stage = VALUE


class Name:  # every one is another name, and all have one hash
    def __init__(self, text):
        self.text = text

    def __hash__(self):
        return 7

    def __repr__(self):
        return self.text


class Member(enum.Enum):
    i = "i"


pairs = {
    "another ending": ("batch_row", "batch_column"),
    "another beginning": ("row_batch", "column_batch"),
    "capitals": ("i", "I"),
    "a blank": ("i", "i "),
    "an accent": ("e", "\u00e9"),
    "the empty name": ("i", ""),
    "text and number": ("1", 1),
    "text and tuple": ("(1,)", (1,)),
    "text and member": ("i", Member.i),
    "tuples in another order": (("i", "j"), ("j", "i")),
    "one hash": (Name("a"), Name("b")),
    "one hash and text": (Name("a"), Name("a")),
}
for word, (name, other) in pairs.items():
    f = stage(lambda: lax.psum(1, (name,)))
    facts[f"{word}: its own name"] = under(f, (name, 3)) == 3
    facts[f"{word}: the other name binds nothing"] = refused(f, (other, 3)) and refused(f, (other, 3))
    facts[f"{word}: its own name again"] = under(f, (name, 3)) == 3
    facts[f"{word}: both"] = [under(f, (name, 2), (other, 3)), under(f, (other, 2), (name, 3)), under(f, (name, 2), (other, 3))] == [2, 3, 2]
return facts
"""
)

ENVIRONMENTS = (
    UNDER
    + """
stage = VALUE
size, total, double = stage(lambda: lax.psum(1, "i")), stage(lambda x: lax.psum(x, "i")), stage(lambda x: x + x)


def shadowed(outer, inner):  # the size of i, of an inner i, and of the first again
    both = lambda: (size(), jax.vmap(size, axis_name="i", axis_size=inner, out_axes=None)(), size())
    return [int(n) for n in jax.vmap(both, axis_name="i", axis_size=outer, out_axes=None)()]


def mapped(outer, inner):
    return jax.vmap(jax.vmap(total, axis_name=inner), axis_name=outer)(jnp.arange(4.0).reshape(2, 2)).tolist()


def along(dim):
    return jax.vmap(total, axis_name="i", in_axes=dim, out_axes=None)(jnp.arange(9.0).reshape(3, 3)).tolist()


facts["sizes, back and forth"] = [under(size, ("i", n)) for n in (2, 3, 2, 5, 3)] == [2, 3, 2, 5, 3]
facts["an axis and another that shadows it"] = [shadowed(2, 3), shadowed(3, 2), shadowed(2, 3)] == [[2, 3, 2], [3, 2, 3], [2, 3, 2]]
facts["an axis shadowed by one of its size"] = shadowed(4, 4) == [4, 4, 4]
facts["an axis of size one"] = under(size, ("i", 1)) == 1
facts["unbound beside an axis of size one"] = refused(size, ("j", 1)) and refused(size) and refused(size, ("j", 1))
facts["beside an axis of size one"] = [under(size, ("i", 3), ("j", 1)), under(size, ("i", 1), ("j", 3)), under(size, ("j", 1), ("i", 3))] == [3, 1, 3]
facts["the inner of two"] = [under(size, ("j", 4), ("i", n)) for n in (2, 3, 2)] == [2, 3, 2]
facts["the outer of two"] = [under(size, ("i", n), ("j", 4)) for n in (2, 3, 2)] == [2, 3, 2]
facts["the middle of three"] = [under(size, ("k", 2), ("i", n), ("j", 2)) for n in (2, 3, 2)] == [2, 3, 2]
facts["two of one product"] = [under(size, ("i", n), ("j", 12 // n)) for n in (2, 3, 6)] == [2, 3, 6]
facts["two that change places"] = [under(size, ("i", 2), ("j", 3)), under(size, ("j", 2), ("i", 3)), under(size, ("i", 2), ("j", 3))] == [2, 3, 2]
facts["beside an axis of another name"] = [under(size, ("i", 2), (name, 2)) for name in ("j", "k", "j")] == [2, 2, 2] and refused(size, ("k", 2), ("j", 2))
facts["two of one size that change places"] = [mapped("i", "j"), mapped("j", "i"), mapped("i", "j")] == [[[2, 4], [2, 4]], [[1, 1], [5, 5]], [[2, 4], [2, 4]]]
facts["along another dimension"] = [along(0), along(1), along(0)] == [[9, 12, 15], [3, 12, 21], [9, 12, 15]]
facts["no name, several sizes"] = [jax.vmap(double)(jnp.ones(n)).tolist() for n in (2, 3, 2)] == [[2.0] * n for n in (2, 3, 2)]
facts["a name and none"] = [jax.vmap(double, axis_name=n)(jnp.ones(2)).tolist() for n in ("i", None, "j")] == [[2.0, 2.0]] * 3
return facts
"""
)

COLLECTED = """
traces = []
size = (VALUE)(lambda *x: traces.append(1) or lax.psum(1, "i"))


def under(count):
    return int(jax.vmap(size, axis_name="i", axis_size=count, out_axes=None)())


right = [under(2), under(3)] == [2, 3]
before = len(traces)
for _ in range(3):
    gc.collect()
right = right and [under(2), under(3)] == [2, 3]
return {"the answers": right, f"nothing is traced again after a garbage collection ({len(traces) - before} were)": len(traces) == before}
"""

# What may stand between an axis and what asks for it. Bodies are made once, so that caches can find them again.
SCAN = "(lambda body: lambda *x: lax.scan(body, x, None, length=1)[1][0])(lambda c, _: (c, f(*c)))"
COND = "(lambda other: lambda *x: lax.cond(True, f, other, *x))(lambda *x: -f(*x))"
STAGES = {
    "jit": "jax.jit",
    "scan": f"lambda f: {SCAN}",
    "cond": f"lambda f: {COND}",
    "jit_of_jit": "lambda f: jax.jit(jax.jit(f))",
    "jit_of_scan": f"lambda f: jax.jit({SCAN})",
    "scan_of_jit": f"lambda g: (lambda f: {SCAN})(jax.jit(g))",
    "jit_of_cond": f"lambda f: jax.jit({COND})",
}
TRANSPARENT = {"eager": "lambda f: f", "checkpoint": "jax.checkpoint"}  # these trace every time

PROBES = {
    "released": Probe(
        rule="cache.release",
        suite=SUITE,
        values={word: f"lambda custom: {use}" for word, use in USES.items()},
        imports=("import gc", "import weakref", "from jax import lax"),
        source=CUSTOM
        + """
            class Owner:
                pass

            use = VALUE(custom)
            watched = {}

            def once(size):
                owner = Owner()
                captured = jnp.arange(size, dtype="float32") + 5

                def function(x):
                    traces.append(owner is None)
                    return x * 2 + captured

                x = jnp.arange(size, dtype="float32") + 1
                program = use(function)
                results = [program(x) for _ in range(3)]
                jax.block_until_ready(results)
                for name, thing in (("the function", function), ("what it closes over", owner), ("the array it closes over", captured),
                                    ("the argument", x), ("the first result", results[0]), ("the last result", results[-1])):
                    watched[f"{name} is gone ({size} elements)"] = weakref.ref(thing)

            once(3)
            once(1 << 18)
            gc.collect()
            jax.jit(lambda v: v + 1)(1.0)  # what only the last call keeps does not count
            gc.collect()
            return {name: reference() is None for name, reference in watched.items()}
        """,
    ),
    "failed_traces": Probe(
        rule="cache.release",
        suite=SUITE,
        values={
            "jit": "lambda f, x: jax.jit(lambda v: f(v))(x)",
            "vmap": "lambda f, x: jax.vmap(f, axis_name='i')(x)",
            "vmap_of_jit": "lambda f, x: jax.vmap(jax.jit(f), axis_name='i')(x)",
            "jit_of_vmap": "lambda f, x: jax.jit(jax.vmap(f, axis_name='i'))(x)",
            "pmap": "lambda f, x: jax.pmap(f, axis_name='i')(x[:1])",
            "scan": "lambda f, x: jax.vmap(lambda v: lax.scan(lambda c, _: (f(c), None), v, None, length=2), axis_name='i')(x)",
            "grad": "lambda f, x: jax.grad(lambda v: jax.vmap(f, axis_name='i')(v).sum())(x)",
        },
        imports=("import gc", "import weakref"),
        source="""
            class Owner:
                pass

            facts = {}

            def fails(x):
                lax.psum(x, "i")
                raise KeyError("meant to fail")

            def once(use):
                owner, x = Owner(), jnp.arange(5.0) + 1

                def function(v):
                    if owner is not None:
                        return fails(v)

                try:
                    use(function, x)
                except (KeyError, NameError):
                    return weakref.ref(owner), weakref.ref(x), True
                return weakref.ref(owner), weakref.ref(x), False

            def unbound():
                try:
                    jax.jit(lambda: lax.psum(1, "i"))()
                except NameError:
                    return True
                return False

            for turn in ("first", "second"):
                owner, x, raised = once(VALUE)
                gc.collect()
                facts[f"{turn} time: the error comes through"] = raised
                facts[f"{turn} time: what failed is gone"] = owner() is None
                facts[f"{turn} time: so is the argument"] = x() is None
                facts[f"{turn} time: no name stays bound"] = unbound()
                sizes = [int(jax.vmap(lambda v: lax.psum(1, "i"), axis_name="i")(np.ones(n))[0]) for n in (2, 3)]
                facts[f"{turn} time: the next sizes are right"] = sizes == [2, 3]
            return facts
        """,
    ),
    "steady_memory": Probe(
        rule="memory.steady",
        suite=SUITE,
        values={
            word: f"lambda custom: {use}"
            for word, use in USES.items()
            if word in ("jit", "vmap_of_jit", "jit_of_scan", "switch", "pmap", "donated")
        },
        imports=("import gc", "from jax import lax"),
        source=CUSTOM
        + """
            program = VALUE(custom)(lambda x: x * 2 + 1)
            facts = {}
            for size in (3, 1 << 18):
                value = np.ones(size, "float32")
                for _ in range(2):
                    jax.block_until_ready(program(jnp.asarray(value)))
                gc.collect()
                before = len(jax.live_arrays())
                for k in range(20):
                    jax.block_until_ready(program(jnp.asarray(value * k)))
                gc.collect()
                facts[f"{size} elements: 20 calls leave no array"] = len(jax.live_arrays()) <= before
                del program
                program = VALUE(custom)(lambda x: x * 2 + 1)
            held = jnp.ones(7) * 3
            facts["an array that is held is live"] = any(a is held for a in jax.live_arrays())
            count = len(jax.live_arrays())
            del held
            facts["and no longer when it is dropped"] = len(jax.live_arrays()) == count - 1
            return facts
        """,
    ),
    "many_entries": Probe(
        rule="cache.retrace",
        suite=SUITE,
        imports=("import gc",),
        source="""
            operands = [np.ones(n, "float32") for n in range(1, 13)]
            kept = jax.jit(lambda x: (traces.append(1), x * 2)[1])
            others = [jax.jit(lambda x: (traces.append(1), x + 1)[1]) for _ in range(8)]
            named = jax.jit(lambda x: (traces.append(1), x * lax.psum(1, "i"))[1])

            def over(x):
                return jax.vmap(named, axis_name="i")(x)

            facts = {}
            for turn in ("first", "second", "after a collection"):
                before = len(traces)
                right = all(np.array_equal(kept(x), x * 2) for x in operands)
                right = right and all(np.array_equal(over(x), x * len(x)) for x in operands)
                right = right and all(float(f(1.0)) == 2.0 for f in others)
                facts[f"{turn}: each is right"] = right
                if turn != "first":
                    facts[f"{turn}: nothing is traced again ({len(traces) - before})"] = len(traces) == before
                gc.collect()
            return facts
        """,
    ),
    "clearing": Probe(
        rule="cache.clear",
        suite=SUITE,
        source="""
            counts = {}

            def counted(name, k):
                def function(x):
                    counts[name] = counts.get(name, 0) + 1
                    return x + k

                return jax.jit(function)

            one, two = counted("one", 1), counted("two", 2)
            outer = jax.jit(lambda x: (counts.update(outer=counts.get("outer", 0) + 1), one(x) + two(x))[1])

            def run():
                got = [int(one(1)), int(two(1)), int(outer(1))]
                got += jax.vmap(lambda _: two(1))(np.ones(2)).tolist()  # by way of Python
                return got == [2, 3, 5, 3, 3], dict(counts)

            facts = {}
            facts["each is right"], first = run()
            facts["each is right again"], second = run()
            facts["nothing is traced the second time"] = second == first
            one.clear_cache()
            facts["after clear_cache() of one each is right"], third = run()
            facts["that one is traced again"] = third["one"] > second["one"]
            facts["the others are not"] = (third["two"], third["outer"]) == (second["two"], second["outer"])
            facts["and once only"] = run() == (True, third)
            jax.clear_caches()
            facts["after clear_caches() each is right"], fourth = run()
            facts["each is traced again"] = all(fourth[name] > third[name] for name in counts)
            facts["but then never"] = run() == (True, fourth)
            return facts
        """,
    ),
    "executables": Probe(
        rule="cache.fresh",
        suite=SUITE,
        devices=8,
        values={word: f"lambda mapped: {source}" for word, source in PROGRAMS.items()},
        imports=("import numpy as np", "from jax import lax"),
        source=MAPPED
        + """
            functions = [staged(function) for function, *_ in programs]
            facts = {}
            for turn in ("first", "second", "third"):
                found = wrong(functions)
                facts[f"{turn} time: each has its own: {found}"] = not found
            compiled = [function.lower(x).compile() for function in functions]
            found = wrong(functions)
            facts[f"after they were compiled ahead of time: {found}"] = not found
            if not any(order for _, _, *order in programs):
                found = wrong(compiled)
                facts[f"compiled ahead of time: {found}"] = not found
            return facts
        """,
    ),
    "disk": Probe(
        rule="cache.disk",
        suite=SUITE,
        devices=8,
        values={word: f"lambda mapped: {source}" for word, source in PROGRAMS.items()},
        imports=(
            "import os",
            "import tempfile",
            "import numpy as np",
            "from jax import lax",
            "from jax.experimental.compilation_cache import compilation_cache",
        ),
        source=MAPPED
        + """
            def use(folder):
                jax.config.update("jax_compilation_cache_dir", folder)
                jax.config.update("jax_persistent_cache_min_compile_time_secs", 0 if folder else 1)
                jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1 if folder else 0)
                compilation_cache.reset_cache()

            hits = []

            def listen(event, **_):
                if event == "/jax/compilation_cache/cache_hits":
                    hits.append(event)

            facts = {}
            folder = tempfile.TemporaryDirectory()
            jax.monitoring.register_event_listener(listen)
            use(folder.name)
            try:
                for turn in ("compiled", "from disk", "from disk again"):
                    jax.clear_caches()
                    before, files = len(hits), {name for name in os.listdir(folder.name) if not name.endswith("-atime")}
                    found = wrong([staged(function) for function, *_ in programs])
                    facts[f"{turn}: each has its own: {found}"] = not found
                    if turn != "compiled":
                        now = {name for name in os.listdir(folder.name) if not name.endswith("-atime")}
                        facts[f"{turn}: no file is written"] = now == files
                        facts[f"{turn}: the files are used"] = len(hits) - before >= len(programs)
            finally:
                use(None)
                folder.cleanup()
            return facts
        """,
    ),
    "together": Probe(
        rule="cache.threads",
        suite=SUITE,
        devices=4,
        imports=("import threading", "from concurrent.futures import ThreadPoolExecutor"),
        source="""
            sizes = [1, 2, 3, 4, 5, 6]
            gate = threading.Barrier(len(sizes))
            program = jax.jit(lambda x: (traces.append(1), x * lax.psum(1, "i") + lax.axis_index("i"))[1])
            plain = jax.jit(lambda x: (traces.append(1), x + 1)[1])

            def unbound():
                try:
                    jax.jit(lambda: lax.psum(1, "i"))()
                except NameError:
                    return True
                return False

            def work(n):
                gate.wait(20)
                found = []
                for _ in range(5):
                    got = jax.vmap(program, axis_name="i")(np.full(n, 10, "int32"))
                    found += [got.tolist() == [10 * n + k for k in range(n)], unbound()]
                    with jax.default_device(jax.devices()[n % 4]):
                        found.append(plain(np.float32(n)).devices() == {jax.devices()[n % 4]})
                return found

            with ThreadPoolExecutor(len(sizes)) as pool:
                results = dict(zip(sizes, pool.map(work, sizes)))
            facts = {f"the thread of size {n} has its own answers": all(found) for n, found in results.items()}
            before = len(traces)
            jax.vmap(program, axis_name="i")(np.full(3, 10, "int32"))
            facts["what a thread traced serves this one"] = len(traces) == before
            with ThreadPoolExecutor(1) as pool:
                value = pool.submit(lambda: jax.vmap(program, axis_name="i")(np.full(2, 10, "int32")).tolist()).result()
            facts["and a new thread"] = (value, len(traces)) == ([20, 21], before)
            inside = []

            def looks(x):
                thread = threading.Thread(target=lambda: inside.append(unbound()))
                thread.start()
                thread.join()
                return lax.psum(x, "i")

            facts["a trace that starts a thread is right"] = jax.vmap(looks, axis_name="i")(np.arange(3)).tolist() == [3, 3, 3]
            facts["no name is bound in a thread it started"] = inside == [True]
            return facts
        """,
    ),
    "names_alike": Probe(
        "cache.names",
        ALIKE,
        "lifetimes",
        STAGES | TRANSPARENT,
        imports=("import jax.numpy as jnp", "from jax import lax"),
    ),
    "environments": Probe(
        "cache.fresh",
        ENVIRONMENTS,
        "lifetimes",
        STAGES | TRANSPARENT,
        imports=("import jax.numpy as jnp", "from jax import lax"),
    ),
    "collected": Probe(
        "cache.retrace",
        COLLECTED,
        "lifetimes",
        STAGES,
        imports=("import gc", "import jax.numpy as jnp", "from jax import lax"),
    ),
}
