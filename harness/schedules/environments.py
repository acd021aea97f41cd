"""Schedules of axis environments: the sizes and names one callable meets, and what empties its caches between."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from harness.errors import Illegal
from harness.schedules.base import Schedule, Step, cached, calls_to, one_environment, visits_of

if TYPE_CHECKING:
    from harness.program import Plan
    from harness.render import Script


class Sizes(Schedule):
    """Every environment in the order given, then all of them once more: each must be right both times, and the second
    time nothing is traced or compiled."""

    word = "sizes"
    rule = "cache.fresh"

    def steps(self, plan: Plan) -> list[Step]:
        return visits_of(plan) * 2

    def script(self, script: Script) -> list[str]:
        return [*script.run(), "def steps():", *calls_to(script, self.steps(script.plan))]


class Entries(Schedule):
    """Every environment five times over: no visit after the first adds a cache entry, a trace or an executable."""

    word = "entries"
    rule = "cache.entries"

    def check(self, plan: Plan) -> None:
        cached(plan)

    def steps(self, plan: Plan) -> list[Step]:
        return visits_of(plan) * 5

    def script(self, script: Script) -> list[str]:
        calls = calls_to(script, visits_of(script.plan))
        return [*script.run(), "def steps():", "    for _ in range(5):", *[f"    {line}" for line in calls]]


class Clear(Schedule):
    """All environments, `jax.clear_caches()`, all environments twice more."""

    word = "clear"
    rule = "cache.clear"

    def steps(self, plan: Plan) -> list[Step]:
        visits = visits_of(plan)
        cold = [
            dataclasses.replace(step, cold=True, about=f"{step.about} after clear_caches") for step in visits
        ]
        return visits + cold + visits

    def script(self, script: Script) -> list[str]:
        calls = calls_to(script, visits_of(script.plan))
        return [*script.run(), "def steps():", *calls, "    jax.clear_caches()", *calls, *calls]


class Swap(Schedule):
    """Two axes exchange their names under one inner callable, so that sizes by position stay and sizes by name do not."""

    word = "swap"
    rule = "cache.fresh"
    rebinds = True

    def check(self, plan: Plan) -> None:
        one_environment(plan)
        if plan.swapped is None:
            raise Illegal(
                "swapping needs exactly two named axes, and an operand whose shape says nothing of them"
            )

    def steps(self, plan: Plan) -> list[Step]:
        assert plan.swapped is not None
        (plain,), (other,) = visits_of(plan), visits_of(plan.swapped)
        plain = dataclasses.replace(plain, about="names as written")
        other = dataclasses.replace(other, about="names swapped", environment=("swapped",), variant="swapped")
        return [plain, other] * 2

    def script(self, script: Script) -> list[str]:
        return [*script.run(), "def steps():", *["    yield run()", "    yield run_swapped()"] * 2]


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
        visits = visits_of(plan)
        if plan.swapped is not None:
            visits += [
                dataclasses.replace(
                    s,
                    variant="swapped",
                    about=s.about + ", names swapped",
                    environment=(*s.environment, "swapped"),
                    sizes=s.sizes,
                )
                for s in visits_of(plan.swapped)
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
        first = script.call(visits_of(script.plan)[0].sizes)
        script.module.imports("from jax.experimental.compilation_cache import compilation_cache")
        calls = [f"    {line}" for line in calls_to(script, visits_of(script.plan))]
        if script.plan.swapped is not None:
            calls += [
                f"        yield {script.call(step.sizes, 'run_swapped')}"
                for step in visits_of(script.plan.swapped)
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


class Unseen(Schedule):
    """An unnamed vmap around everything, of one size and another: no name refers to it, so nothing is traced again."""

    word = "unseen"
    rule = "cache.unseen"

    def check(self, plan: Plan) -> None:
        one_environment(plan)
        if all(layer.word != "jit" for layer in plan.case.layers):
            raise Illegal("the callable that must not be traced again is jitted")
        if any(layer.word in ("compiled", "eval_shape", "pmap", "shard_map") for layer in plan.case.layers):
            raise Illegal("needs a program that a vmap can be put around without a new one")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = visits_of(plan)
        plain = dataclasses.replace(visit, rule=self.rule)
        around = [
            dataclasses.replace(plain, about=f"under an unnamed vmap of {k}", copies=k, compiles=True)
            for k in (2, 5)
        ]
        return [plain, *around, plain]

    def script(self, script: Script) -> list[str]:
        around = [f"    yield jax.vmap(lambda _: run())(np.arange({k}))" for k in (2, 5)]
        return [*script.run(), "def steps():", "    yield run()", *around, "    yield run()"]
