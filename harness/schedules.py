"""What one callable goes through: the axis environments it meets, and what happens between them.

A schedule writes the generator `steps()` of the rendered module and says, step by step, what must come out. Every
schedule is one class; `SCHEDULES` is the table case lines read.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from harness.errors import Illegal

if TYPE_CHECKING:
    from harness.program import Plan
    from harness.render import Script


@dataclasses.dataclass(frozen=True)
class Step:
    """One value yielded by `steps()`.

    Attributes:
      about: how a person would name the step: "i=2".
      sizes: the size of every axis.
      environment: what the answer may depend on; a step whose environment was met before must be served from caches.
      cold: whether tracing is right although the environment was met before (caches were emptied, or the callable is
        a new one).
      compiles: whether another executable is right, though the trace must serve again.
      factor: what the operand is multiplied by.
      flag: what the output `flag` must be, where there is one.
      outcome: "value", "error" (must raise), or "facts" (a dict of booleans that must all be true).
      variant: which of the plan's variants gives the reference: "" or "swapped".
      order: the order of the devices, where the schedule changes it.
      copies: how many equal copies of the result stand along a new first dimension, or 0.
      wide: whether 64-bit types are on, so that integers of no stated width may have 64 bits.
      rule: the law this step is about, where it has its own.
    """

    about: str
    sizes: dict[str, int]
    environment: tuple
    cold: bool = False
    compiles: bool = False
    factor: int = 1
    flag: int | None = None
    outcome: str = "value"
    variant: str = ""
    order: str = ""
    copies: int = 0
    wide: bool = False
    rule: str = ""


class Schedule:
    """What subclasses say.

    Attributes:
      word: what case lines call it.
      rule: the law it is about.
      factor: name of a number every leaf's operand is multiplied by; the program is then made by `make(factor)`.
      flag: source of an output that shows a global setting as the trace saw it.
      rebinds: whether binders are built for each step, so that the step can change them.
      devices: whether the step says which devices are used.
      meets: whether leaves call `meet()` while they are traced.
    """

    word: ClassVar[str]
    rule: ClassVar[str]
    factor: ClassVar[str] = ""
    flag: ClassVar[str] = ""
    rebinds: ClassVar[bool] = False
    devices: ClassVar[bool] = False
    meets: ClassVar[bool] = False

    def check(self, plan: Plan) -> None:
        """Raises Illegal where the schedule has no meaning for the program."""

    def steps(self, plan: Plan) -> list[Step]:
        """What must come out, step by step."""
        raise TypeError

    def script(self, script: Script) -> list[str]:
        """The lines of the module after the program: `run` and `steps`."""
        raise TypeError


def _visits(plan: Plan) -> list[Step]:
    variables = tuple(axis.key for axis in plan.varying_sizes())
    return [
        Step(_about(sizes, variables), sizes, tuple(sizes[key] for key in variables)) for sizes in plan.steps
    ]


def _about(sizes: dict[str, int], variables: tuple[str, ...]) -> str:
    return ", ".join(f"{key}={sizes[key]}" for key in variables) or "the only environment"


def _one_environment(plan: Plan) -> None:
    if plan.varying_sizes():
        raise Illegal("this schedule takes one size for each axis")


def _cached(plan: Plan) -> None:
    if not any(layer.caches for layer in plan.case.layers):
        raise Illegal("this schedule needs a layer that keeps traces")


def _by_factor(plan: Plan, factors: tuple[int, ...], about: str, rule: str, cold: bool = False) -> list[Step]:
    """The only environment once for each factor; each factor is an environment of its own."""
    (visit,) = _visits(plan)
    return [
        dataclasses.replace(visit, about=f"{about} {k}", factor=k, environment=(k,), cold=cold, rule=rule)
        for k in factors
    ]


def _calls(script: Script, steps: list[Step]) -> list[str]:
    return [f"    yield {script.call(step.sizes)}" for step in steps]


class Sizes(Schedule):
    """Every environment in the order given, then all of them once more: each must be right both times, and the second
    time nothing is traced or compiled."""

    word = "sizes"
    rule = "cache.fresh"

    def steps(self, plan: Plan) -> list[Step]:
        return _visits(plan) * 2

    def script(self, script: Script) -> list[str]:
        return [*script.run(), "def steps():", *_calls(script, self.steps(script.plan))]


class Entries(Schedule):
    """Every environment five times over: no visit after the first adds a cache entry, a trace or an executable."""

    word = "entries"
    rule = "cache.entries"

    def check(self, plan: Plan) -> None:
        _cached(plan)

    def steps(self, plan: Plan) -> list[Step]:
        return _visits(plan) * 5

    def script(self, script: Script) -> list[str]:
        calls = _calls(script, _visits(script.plan))
        return [*script.run(), "def steps():", "    for _ in range(5):", *[f"    {line}" for line in calls]]


class Clear(Schedule):
    """All environments, `jax.clear_caches()`, all environments twice more."""

    word = "clear"
    rule = "cache.clear"

    def steps(self, plan: Plan) -> list[Step]:
        visits = _visits(plan)
        cold = [
            dataclasses.replace(step, cold=True, about=f"{step.about} after clear_caches") for step in visits
        ]
        return visits + cold + visits

    def script(self, script: Script) -> list[str]:
        calls = _calls(script, _visits(script.plan))
        return [*script.run(), "def steps():", *calls, "    jax.clear_caches()", *calls, *calls]


class Disk(Schedule):
    """The persistent compilation cache: all environments, memory emptied, all environments again, now from disk.

    With two axes the names are swapped as well, which changes nothing in the lowered program but its replica groups
    and constants.
    """

    word = "disk"
    rule = "cache.disk"
    rebinds = True

    def check(self, plan: Plan) -> None:
        if all(layer.word != "jit" for layer in plan.case.layers):
            raise Illegal("what is compiled to disk here is jitted")

    def steps(self, plan: Plan) -> list[Step]:
        visits = _visits(plan)
        if plan.swapped is not None:
            visits += [
                dataclasses.replace(
                    s,
                    variant="swapped",
                    about=s.about + ", names swapped",
                    environment=(*s.environment, "swapped"),
                    sizes=s.sizes,
                )
                for s in _visits(plan.swapped)
            ]
        visits = [dataclasses.replace(step, rule=self.rule) for step in visits]
        from_disk = [
            dataclasses.replace(step, cold=True, about=f"{step.about}, from disk") for step in visits
        ]
        elsewhere = dataclasses.replace(visits[0], cold=True, about=f"{visits[0].about}, in a second process")
        return [*visits, *from_disk, elsewhere]

    def script(self, script: Script) -> list[str]:
        for line in ("import linecache", "import os", "import subprocess", "import sys", "import tempfile"):
            script.module.imports(line)
        first = script.call(_visits(script.plan)[0].sizes)
        script.module.imports("from jax.experimental.compilation_cache import compilation_cache")
        calls = [f"    {line}" for line in _calls(script, _visits(script.plan))]
        if script.plan.swapped is not None:
            calls += [
                f"        yield {script.call(step.sizes, 'run_swapped')}"
                for step in _visits(script.plan.swapped)
            ]
        return [
            *script.run(),
            "def use_disk(folder):",
            '    jax.config.update("jax_compilation_cache_dir", folder)',
            '    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0 if folder else 1)',
            '    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1 if folder else 0)',
            "    compilation_cache.reset_cache()",
            "",
            "",
            "def second_process(folder):",
            "    code = \"import sys; scope = dict(__name__='second', __file__=''); exec(sys.stdin.read(), scope); scope['save'](sys.argv[1])\"",
            '    source = "".join(linecache.getlines(__file__))',
            '    subprocess.run([sys.executable, "-c", code, folder], input=source, text=True, check=True)',
            '    return dict(np.load(os.path.join(folder, "results.npz")))',
            "",
            "",
            "def save(folder):",
            "    use_disk(folder)",
            f'    np.savez(os.path.join(folder, "results.npz"), **jax.tree.map(np.asarray, {first}))',
            "",
            "",
            "def steps():",
            "    folder = tempfile.TemporaryDirectory()",
            "    use_disk(folder.name)",
            "    try:",
            *calls,
            "        jax.clear_caches()",
            *calls,
            "        yield second_process(folder.name)",
            "    finally:",
            "        use_disk(None)",
            "        folder.cleanup()",
        ]


class Swap(Schedule):
    """Two axes exchange their names under one inner callable, so that sizes by position stay and sizes by name do not."""

    word = "swap"
    rule = "cache.fresh"
    rebinds = True

    def check(self, plan: Plan) -> None:
        _one_environment(plan)
        if plan.swapped is None:
            raise Illegal("swapping needs exactly two named axes")

    def steps(self, plan: Plan) -> list[Step]:
        assert plan.swapped is not None
        (plain,), (other,) = _visits(plan), _visits(plan.swapped)
        plain = dataclasses.replace(plain, about="names as written")
        other = dataclasses.replace(other, about="names swapped", environment=("swapped",), variant="swapped")
        return [plain, other] * 2

    def script(self, script: Script) -> list[str]:
        return [*script.run(), "def steps():", *["    yield run()", "    yield run_swapped()"] * 2]


class Unbound(Schedule):
    """The callable is run with its axis bound, then without: that must raise, whatever the caches remember."""

    word = "unbound"
    rule = "error.unbound"

    def check(self, plan: Plan) -> None:
        _one_environment(plan)
        if plan.inner_binder is None or ("x" in plan.params and plan.local is None):
            raise Illegal("needs a binder")

    rebinds = True

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = _visits(plan)
        outside = dataclasses.replace(
            visit, about="outside its binder", outcome="error", environment=("outside",), rule=self.rule
        )
        return [visit, outside, visit, outside]

    def script(self, script: Script) -> list[str]:
        call = f"    yield raised(lambda: {script.kept}({script.local_arguments()}))"
        return [*script.run(), *script.raised(), "def steps():", *["    yield run()", call] * 2]


class Raises(Schedule):
    """A call that no JAX may answer: a name that is not bound, a name given twice, a permutation or groups that are
    none. It must raise a Python exception, each time."""

    word = "raises"
    rule = "error.names"

    def check(self, plan: Plan) -> None:
        _one_environment(plan)
        if not plan.case.leaf.error(plan.inside):
            raise Illegal("nothing here must raise")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = _visits(plan)
        rule = plan.case.leaf.error(plan.inside)
        return [dataclasses.replace(visit, outcome="error", rule=rule)] * 2

    def script(self, script: Script) -> list[str]:
        return [*script.run(), *script.raised(), "def steps():", *["    yield raised(run)"] * 2]


class Closure(Schedule):
    """The same code closed over different numbers: two callables that differ in nothing else."""

    word = "closure"
    rule = "cache.closure"
    factor = "factor"

    def check(self, plan: Plan) -> None:
        _one_environment(plan)

    def steps(self, plan: Plan) -> list[Step]:
        return _by_factor(plan, (1, 3, 1, 3), "closed over", self.rule)

    def script(self, script: Script) -> list[str]:
        call = f"({script.arguments()})"
        return [
            "one, three = make(1), make(3)",
            "",
            "",
            "def steps():",
            *[f"    yield one{call}", f"    yield three{call}"] * 2,
        ]


class Reborn(Schedule):
    """A callable is dropped and collected before the next is made, so that the next may get its address."""

    word = "reborn"
    rule = "cache.closure"
    factor = "factor"

    def check(self, plan: Plan) -> None:
        _one_environment(plan)

    def steps(self, plan: Plan) -> list[Step]:
        return _by_factor(plan, (1, 2, 3, 2), "made with", self.rule, cold=True)

    def script(self, script: Script) -> list[str]:
        script.module.imports("import gc")
        return [
            "def run(factor):",
            f"    return make(factor)({script.arguments()})",
            "",
            "",
            "def steps():",
            "    for factor in (1, 2, 3, 2):",
            "        yield run(factor)",
            "        gc.collect()",
        ]


class Static(Schedule):
    """A static argument: objects of one hash that are not equal, and equal objects that are not one."""

    word = "static"
    rule = "cache.static"
    factor = "factor"

    def check(self, plan: Plan) -> None:
        _one_environment(plan)
        if [layer.word for layer in plan.case.layers[:1]] != ["jit"]:
            raise Illegal("static arguments are jit's: it must be the outermost layer")

    def steps(self, plan: Plan) -> list[Step]:
        return _by_factor(plan, (1, 3, 1, 3), "static", self.rule)

    def script(self, script: Script) -> list[str]:
        script.module.imports("import dataclasses")
        script.module.imports("import functools")
        params = ", ".join([*script.plan.params, "factor"])
        inner = ", ".join(script.plan.params)
        call = ", ".join(filter(None, [script.arguments(), "Factor({k})"]))
        return [
            "@dataclasses.dataclass(frozen=True)",
            "class Factor:",
            "    value: int",
            "",
            "    def __hash__(self):  # unequal ones collide",
            "        return 7",
            "",
            "",
            '@functools.partial(jax.jit, static_argnames="factor")',
            f"def program({params}):",
            f"    return make(factor.value)({inner})",
            "",
            "",
            "def steps():",
            *[f"    yield program({call.format(k=k)})" for k in (1, 3, 1, 3)],
        ]


class Flag(Schedule):
    """A global setting is changed and changed back; the trace made under one value must not serve the other.

    Attributes:
      name: JAX's configuration option.
      values: the two values as Python source.
      seen: what the output `flag` is under each; None where the program must raise.
    """

    rule = "cache.config"
    name: ClassVar[str]
    values: ClassVar[tuple[str, str]]
    seen: ClassVar[tuple[int | None, int | None]]

    def check(self, plan: Plan) -> None:
        _one_environment(plan)
        _cached(plan)
        if any(
            layer.family in ("derivative", "control") and layer.word not in ("cond", "switch", "scan")
            for layer in plan.case.layers
        ):
            raise Illegal("the output `flag` fits no loop or derivative")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = _visits(plan)
        return [self._step(visit, k) for k in (0, 1, 0, 1)]

    def _step(self, visit: Step, k: int) -> Step:
        outcome = "error" if self.seen[k] is None else "value"
        return dataclasses.replace(
            visit,
            about=f"{self.name}={self.values[k]}",
            environment=(k,),
            flag=self.seen[k],
            outcome=outcome,
            wide=self.word == "x64" and k == 1,
            rule=self.rule if outcome == "error" else "",
        )

    def script(self, script: Script) -> list[str]:
        calls = [self._call(k) for k in (0, 1)]
        step = [
            f'        jax.config.update("{self.name}", {{value}})',
            "        yield {call}",
        ]
        body = [line.format(value=self.values[k], call=calls[k]) for k in (0, 1, 0, 1) for line in step]
        raised = script.raised() if None in self.seen else []
        before = f"    before = jax.config.{self.name}"
        restore = [f'        jax.config.update("{self.name}", before)']
        return [*script.run(), *raised, "def steps():", before, "    try:", *body, "    finally:", *restore]

    def _call(self, k: int) -> str:
        return "raised(run)" if self.seen[k] is None else "run()"


class X64(Flag):
    word = "x64"
    name, values, seen = "jax_enable_x64", ("False", "True"), (4, 8)
    flag = "jnp.zeros(()).dtype.itemsize"


class Promotion(Flag):
    word = "promotion"
    name, values, seen = "jax_numpy_dtype_promotion", ('"standard"', '"strict"'), (3, None)
    flag = '(jnp.full((), 1, "int32") + jnp.full((), 2, "float32")).astype("int32")'


class Rank(Flag):
    word = "rank"
    name, values, seen = "jax_numpy_rank_promotion", ('"allow"', '"raise"'), (6, None)
    flag = '(jnp.ones((2, 3), "int32") + jnp.zeros((3,), "int32")).sum().astype("int32")'


class Precision(Flag):
    word = "precision"
    name, values, seen = "jax_default_matmul_precision", ('"float32"', '"bfloat16"'), (7, 8)
    flag = "len(jax.config.jax_default_matmul_precision)"


class Prng(Flag):
    word = "prng"
    name, values, seen = "jax_default_prng_impl", ('"threefry2x32"', '"rbg"'), (2, 4)
    flag = "jax.random.key_data(jax.random.key(0)).size"


class Weak(Schedule):
    """A NumPy scalar, a Python scalar of the same value (weakly typed), and each again."""

    word = "weak"
    rule = "cache.signature"
    flag = "(x * jnp.ones((), jnp.bfloat16)).dtype.itemsize"

    def check(self, plan: Plan) -> None:
        _one_environment(plan)
        _cached(plan)
        if plan.operand is None or plan.operand.shape or plan.case.dtype != "float32":
            raise Illegal("needs a scalar float32 argument that no binder maps")
        if any(
            layer.family in ("derivative", "control") and layer.word not in ("cond", "switch")
            for layer in plan.case.layers
        ):
            raise Illegal("the output `flag` fits no loop or derivative")
        if not plan.case.leaf.uses_operand:
            raise Illegal("the leaf ignores its operand")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = _visits(plan)
        kinds = {"NumPy scalar": 4, "Python scalar": 2}
        return [
            dataclasses.replace(visit, about=about, environment=(about,), flag=flag, rule=self.rule)
            for about, flag in [*kinds.items()] * 2
        ]

    def script(self, script: Script) -> list[str]:
        rest = ", np.int32(2)" if "n" in script.plan.params else ""
        calls = [
            f"    yield program(np.float32(operand()){rest})",
            f"    yield program(float(operand()){rest})",
        ]
        return ["def steps():", *calls * 2]


class Threads(Schedule):
    """Two threads trace one callable at the same time under different sizes: each leaf waits for the other thread's.

    Where JAX lets only one trace run at a time the wait is given up; the answers must be right all the same.
    """

    word = "threads"
    rule = "cache.threads"
    meets = True

    def check(self, plan: Plan) -> None:
        if len(plan.steps) != 2:
            raise Illegal("two threads need two environments")

    def steps(self, plan: Plan) -> list[Step]:
        visits = _visits(plan)
        together = [
            dataclasses.replace(step, about=f"{step.about} in a thread", rule=self.rule) for step in visits
        ]
        return together + visits

    def script(self, script: Script) -> list[str]:
        script.module.imports("import threading")
        script.module.imports("from concurrent.futures import ThreadPoolExecutor")
        first, second = _visits(script.plan)
        return [
            *script.run(),
            "def steps():",
            "    with ThreadPoolExecutor(2) as pool:",
            f"        one = pool.submit(lambda: {script.call(first.sizes)})",
            f"        two = pool.submit(lambda: {script.call(second.sizes)})",
            "    yield one.result()",
            "    yield two.result()",
            "    together.abort()",
            *_calls(script, [first, second]),
        ]


class Unseen(Schedule):
    """An unnamed vmap around everything, of one size and another: no name refers to it, so nothing is traced again."""

    word = "unseen"
    rule = "cache.unseen"

    def check(self, plan: Plan) -> None:
        _one_environment(plan)
        if all(layer.word != "jit" for layer in plan.case.layers):
            raise Illegal("the callable that must not be traced again is jitted")
        if any(layer.word in ("compiled", "eval_shape", "pmap", "shard_map") for layer in plan.case.layers):
            raise Illegal("needs a program that a vmap can be put around without a new one")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = _visits(plan)
        plain = dataclasses.replace(visit, rule=self.rule)
        around = [
            dataclasses.replace(plain, about=f"under an unnamed vmap of {k}", copies=k, compiles=True)
            for k in (2, 5)
        ]
        return [plain, *around, plain]

    def script(self, script: Script) -> list[str]:
        around = [f"    yield jax.vmap(lambda _: run())(np.arange({k}))" for k in (2, 5)]
        return [*script.run(), "def steps():", "    yield run()", *around, "    yield run()"]


class Devices(Schedule):
    """The same mesh shape over other devices and in another order: values and placement follow the mesh of the step."""

    word = "devices"
    rule = "cache.mesh"
    devices = True
    rebinds = True
    orders = ("first", "reversed", "last", "interleaved")

    def check(self, plan: Plan) -> None:
        _one_environment(plan)
        if not any(axis.on_devices for axis in plan.axes):
            raise Illegal("needs a binder of devices")
        if any(getattr(layer, "devices", "first") != "first" for layer in plan.case.layers):
            raise Illegal("this schedule picks the devices itself")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = _visits(plan)
        return [
            dataclasses.replace(
                visit, about=f"devices {order}", order=order, environment=(order,), rule=self.rule
            )
            for order in self.orders
        ] * 2

    def script(self, script: Script) -> list[str]:
        calls = [f"    yield run(tuple({script.devices(order)}))" for order in self.orders]
        return [*script.run(), "def steps():", *calls * 2]


class Release(Schedule):
    """When the callable and its argument are dropped, nothing in JAX keeps them."""

    word = "release"
    rule = "cache.release"
    factor = "factor"

    def check(self, plan: Plan) -> None:
        _one_environment(plan)

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = _visits(plan)
        value = dataclasses.replace(visit, about="while it is alive")
        facts = dataclasses.replace(visit, about="after it was dropped", outcome="facts", rule=self.rule)
        return [value, facts]

    def script(self, script: Script) -> list[str]:
        for line in ("import gc", "import weakref"):
            script.module.imports(line)
        named = {"x": "x", "n": "n"}
        args = ", ".join(named[name] for name in script.plan.params)
        makes = [f"    {name} = jnp.asarray({source})" for name, source in script.values().items()]
        watched = [
            '"callable": weakref.ref(program)',
            *(f'"argument {n}": weakref.ref({n})' for n in script.plan.params),
        ]
        return [
            "def steps():",
            "    program = make(1)",
            *makes,
            f"    yield program({args})",
            f"    watched = {{{', '.join(watched)}}}",
            f"    del program{''.join(', ' + name for name in script.plan.params)}",
            "    gc.collect()",
            '    yield {f"{name} is gone": dropped() is None for name, dropped in watched.items()}',
        ]


@dataclasses.dataclass(frozen=True)
class Facts(Schedule):
    """A probe: one step of statements that must all be true. No case line asks for it by name."""

    word = "facts"
    rule: str  # type: ignore[misc]

    def steps(self, plan: Plan) -> list[Step]:
        return [Step("the statements", {}, (), outcome="facts", rule=self.rule)]


SCHEDULES: dict[str, Schedule] = {
    schedule.word: schedule
    for schedule in (
        Sizes(),
        Entries(),
        Clear(),
        Swap(),
        Unbound(),
        Raises(),
        Closure(),
        Reborn(),
        Static(),
        X64(),
        Promotion(),
        Rank(),
        Precision(),
        Prng(),
        Weak(),
        Threads(),
        Unseen(),
        Devices(),
        Release(),
        Disk(),
    )
}
