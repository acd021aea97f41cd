"""Settings that change traces or results: inside and outside their context, the caches never mix them up."""

from harness.probes.base import Probe

SUITE = "settings"

SETTINGS = {
    "x64": '"jax_enable_x64", (False, True), lambda: jnp.zeros((), float).dtype.itemsize, (4, 8)',
    "promotion": '"jax_numpy_dtype_promotion", ("standard", "strict"), lambda: raises(lambda: jnp.int32(1) + jnp.float32(1)), (0, 1)',
    "rank": '"jax_numpy_rank_promotion", ("allow", "raise"), lambda: raises(lambda: jnp.ones((2, 3)) + jnp.ones(3)), (0, 1)',
    "precision": (
        '"jax_default_matmul_precision", ("float32", "bfloat16"), '
        'lambda: "HIGHEST" in str(jax.make_jaxpr(lambda a: a @ a)(np.ones((2, 2), "float32"))), (1, 0)'
    ),
}

PROBES = {
    "setting": Probe(
        rule="cache.config",
        suite=SUITE,
        values=SETTINGS,
        imports=("import jax.numpy as jnp", "import numpy as np"),
        source="""
            def raises(function):
                try:
                    function()
                except (TypeError, ValueError):
                    return 1
                return 0

            name, values, look, wanted = VALUE(raises)

            def seen(x):
                traces.append(1)
                return x + jnp.asarray(int(look()), "int32")

            @jax.custom_jvp
            def custom(x):
                return seen(x)

            custom.defjvp(lambda values, tangents: (seen(*values), *tangents))

            def loop(x):
                return lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + jnp.int8(1), seen(s[1])), (jnp.int8(0), x))[1]

            stages = {
                "jit": jax.jit(seen),
                "jit of jit": jax.jit(lambda x: inner(x)),
                "jit of scan": jax.jit(lambda x: lax.scan(body, x, None, length=1)[0]),
                "while_loop": loop,
                "cond": lambda x: lax.cond(True, seen, lambda v: v, x),
                "checkpoint": jax.checkpoint(seen),
                "jit of custom_jvp": jax.jit(custom),
                "vmap of jit": lambda x: jax.vmap(inner)(x[None])[0],
            }
            inner = jax.jit(seen)

            def body(c, _):
                return seen(c), None

            before = getattr(jax.config, name)
            facts = {}
            zero = np.int32(0)
            try:
                for turn in ("first", "second"):
                    for value, answer in zip(values, wanted):
                        jax.config.update(name, value)
                        got = {about: int(stage(jnp.asarray(zero))) for about, stage in stages.items()}
                        wrong = {about: v for about, v in got.items() if v != answer}
                        facts[f"{value}, {turn} time, {answer} in each: {wrong}"] = not wrong
                        before_jit = len(traces)
                        stages["jit"](jnp.asarray(zero))
                        facts[f"{value}, {turn} time: jit traces nothing more"] = len(traces) == before_jit
            finally:
                jax.config.update(name, before)
            return facts
        """,
    ),
    "setting_contexts": Probe(
        rule="cache.config",
        suite=SUITE,
        values={
            "precision": '(lambda: jax.default_matmul_precision("float32")), (lambda: jax.config.jax_default_matmul_precision == "float32"), (0, 1)',
            "promotion": '(lambda: jax.numpy_dtype_promotion("strict")), (lambda: jax.config.jax_numpy_dtype_promotion == "strict"), (0, 1)',
            "rank": '(lambda: jax.numpy_rank_promotion("raise")), (lambda: jax.config.jax_numpy_rank_promotion == "raise"), (0, 1)',
            "partitionable": (
                "(lambda: jax.threefry_partitionable(not DEFAULT)), "
                "(lambda: jax.config.jax_threefry_partitionable != DEFAULT), (0, 1)"
            ),
        },
        imports=("import threading",),
        source="""
            context, look, wanted = VALUE(jax.config.jax_threefry_partitionable)

            def seen(x):
                traces.append(1)
                return x + int(look())

            jitted = jax.jit(seen)
            facts = {}

            def check(about, answer):
                facts[about] = (int(jitted(0)), int(look())) == (answer, answer)

            def elsewhere():
                there = []
                thread = threading.Thread(target=lambda: there.append((int(jitted(0)), int(look()))))
                thread.start()
                thread.join()
                return there[0]

            for turn in ("first", "second", "third"):
                before = len(traces)
                check(f"{turn} time: outside", wanted[0])
                with context():
                    check(f"{turn} time: inside", wanted[1])
                    facts[f"{turn} time: another thread is outside"] = elsewhere() == (wanted[0], wanted[0])
                    check(f"{turn} time: inside, after the other thread", wanted[1])
                check(f"{turn} time: outside again", wanted[0])
                facts[f"{turn} time: one trace for each, then none"] = len(traces) - before == (2 if turn == "first" else 0)
            try:
                with context():
                    raise KeyError
            except KeyError:
                pass
            check("after a block that failed", wanted[0])
            return facts
        """,
    ),
    "debug_nans": Probe(
        rule="cache.config",
        suite=SUITE,
        values={
            "nans": '"jax_debug_nans", jax.debug_nans, lambda v: v - v',
            "infs": '"jax_debug_infs", jax.debug_infs, lambda v: v * 1',
            "updated_after_vmap": '"jax_debug_nans", None, lambda v: v - v',
        },
        source="""
            name, context, operation = VALUE
            before = getattr(jax.config, name)

            @contextlib.contextmanager
            def updated(value):
                jax.config.update(name, value)
                try:
                    yield
                finally:
                    jax.config.update(name, before)

            def program(x):
                traces.append(1)
                return operation(x) + 1

            jitted = jax.jit(program)
            good, bad = np.ones(3, "float32"), np.full(3, np.inf, "float32")

            def raises(value):
                try:
                    jax.block_until_ready(jitted(value))
                except FloatingPointError:
                    return True
                return False

            facts = {}
            for turn in ("first", "second"):
                if context is None:
                    jax.vmap(lambda v: v + 1)(np.ones(2))
                facts[f"{turn} time: nothing raises outside"] = not raises(bad) and not raises(good)
                with (updated if context is None else context)(True):
                    facts[f"{turn} time: it raises inside"] = raises(bad)
                    facts[f"{turn} time: what is finite does not"] = not raises(good)
                    facts[f"{turn} time: it raises inside once more"] = raises(bad)
            facts["nothing raises outside at the end"] = not raises(bad)
            return facts
        """,
        imports=("import contextlib",),
    ),
    "disable_jit": Probe(
        rule="cache.config",
        suite=SUITE,
        source="""
            def program(x):
                traces.append(1)
                return x + (100 if isinstance(x, jax.core.Tracer) else 0)

            jitted = jax.jit(program)
            facts = {}
            for turn in ("first", "second"):
                before = len(traces)
                facts[f"{turn} time: outside it is traced"] = int(jitted(jnp.int32(1))) == 101
                traced = len(traces)
                facts[f"{turn} time: {traced - before} traces"] = traced - before == (turn == "first")
                with jax.disable_jit():
                    got = [int(jitted(jnp.int32(k))) for k in (1, 2)]
                    facts[f"{turn} time: inside it runs: {got}"] = got == [1, 2] and len(traces) == traced + 2
                    branch = jax.jit(lambda v: v * 2 if v > 1 else v - 1)
                    facts[f"{turn} time: Python sees the values"] = [int(branch(jnp.int32(k))) for k in (1, 3)] == [0, 6]
                    with jax.disable_jit(False):
                        facts[f"{turn} time: jit may be enabled inside"] = int(jitted(jnp.int32(2))) == 102
                    loops = lax.scan(lambda c, v: (c + v, c), jnp.int32(0), jnp.arange(4, dtype="int32"))
                    facts[f"{turn} time: a scan gives the same"] = (int(loops[0]), loops[1].tolist()) == (6, [0, 0, 1, 3])
                    facts[f"{turn} time: so does a cond"] = int(lax.cond(True, lambda v: v + 1, lambda v: v, 1)) == 2
                facts[f"{turn} time: after it jit works"] = int(jitted(jnp.int32(3))) == 103
            return facts
        """,
    ),
    "default_device": Probe(
        rule="cache.config",
        suite=SUITE,
        devices=4,
        source="""
            devices = jax.devices()[:4]
            program = jax.jit(lambda: (traces.append(1), jnp.arange(3) * 2)[1])
            with_argument = jax.jit(lambda x: x + 1)
            makers = {
                "a jit without arguments": program,
                "a jit of a NumPy array": lambda: with_argument(np.arange(3)),
                "jnp.zeros": lambda: jnp.zeros(3),
                "jnp.asarray": lambda: jnp.asarray(np.arange(3)),
                "device_put": lambda: jax.device_put(np.arange(3)),
                "a random key": lambda: jax.random.PRNGKey(0),
                "vmap": lambda: jax.vmap(lambda v: lax.psum(v, "i"), axis_name="i")(np.arange(3)),
                "scan": lambda: lax.scan(lambda c, v: (c + v, c), 0, np.arange(3))[1],
            }
            bound = jax.device_put(np.arange(3), devices[3])
            facts = {}
            for turn in ("first", "second"):
                for k in (1, 0, 1):
                    with jax.default_device(devices[k]):
                        wrong = {about: str(d) for about, make in makers.items() if (d := make().devices()) != {devices[k]}}
                        facts[f"{turn} time, device {k}: everything is there: {wrong}"] = not wrong
                        facts[f"{turn} time, device {k}: what is bound stays"] = with_argument(bound).devices() == {devices[3]}
                wrong = {about: str(d) for about, make in makers.items() if (d := make().devices()) != {devices[0]}}
                facts[f"{turn} time, outside: everything is on the first: {wrong}"] = not wrong
            with jax.default_device(devices[2]):
                with jax.default_device(devices[1]):
                    facts["the inner one counts"] = jnp.zeros(3).devices() == {devices[1]}
                facts["the outer one returns"] = jnp.zeros(3).devices() == {devices[2]}
            return facts
        """,
    ),
    "leak_checking": Probe(
        rule="cache.config",
        suite=SUITE,
        source="""
            kept = []

            def leaks(x):
                kept.append(x)
                return x + 1

            def tight(x):
                return x * 2

            facts = {"outside nothing raises": float(jax.jit(leaks)(1.0)) == 2.0}
            kept.clear()
            with jax.checking_leaks():
                try:
                    jax.jit(lambda x: leaks(x))(1.0)
                    facts["a leak raises inside"] = False
                except Exception as error:
                    facts["a leak raises inside"] = "eak" in str(error)
                kept.clear()
                facts["what does not leak works inside"] = float(jax.jit(tight)(2.0)) == 4.0
                total = jax.vmap(lambda v: lax.psum(tight(v), "i"), axis_name="i")(np.arange(3.0))
                facts["collectives do not leak"] = np.array_equal(total, [6, 6, 6])
                facts["scans do not leak"] = float(lax.scan(lambda c, _: (tight(c), None), 1.0, None, length=3)[0]) == 8.0
                facts["gradients do not leak"] = float(jax.grad(lambda v: v * tight(v))(3.0)) == 12.0
            facts["after it nothing raises"] = float(jax.jit(lambda x: leaks(x))(1.0)) == 2.0
            return facts
        """,
    ),
    "random_bits": Probe(
        rule="cache.config",
        suite=SUITE,
        source="""
            before = jax.config.jax_threefry_partitionable
            key = jax.random.key(7)
            draw = jax.jit(lambda k: jax.random.bits(k, (6,)))
            scanned = jax.jit(lambda k: lax.scan(lambda c, _: (c, jax.random.bits(c, (6,))), k, None, length=1)[1][0])
            facts, plain = {}, {}
            try:
                for turn in ("first", "second"):
                    for value in (False, True):
                        jax.config.update("jax_threefry_partitionable", value)
                        bits = np.asarray(jax.random.bits(key, (6,))).tolist()
                        plain.setdefault(value, bits)
                        facts[f"{value}, {turn} time: the same as before"] = bits == plain[value]
                        facts[f"{value}, {turn} time: jit draws the same"] = draw(key).tolist() == bits
                        facts[f"{value}, {turn} time: scan draws the same"] = scanned(key).tolist() == bits
                facts["the setting matters"] = plain[False] != plain[True]
            finally:
                jax.config.update("jax_threefry_partitionable", before)
            return facts
        """,
    ),
}

for _word, _value in SETTINGS.items():
    SETTINGS[_word] = f"lambda raises: ({_value})"
for _word, _value in PROBES["setting_contexts"].values.items():
    PROBES["setting_contexts"].values[_word] = f"lambda DEFAULT: ({_value})"
