"""Schedules of where and by whom a callable is run, and of what is left of it: threads, devices, memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from harness.errors import Illegal
from harness.schedules.base import Factored, Schedule, Step, calls_to, one_environment, visits_of

if TYPE_CHECKING:
    from harness.program import Plan
    from harness.render import Script


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
        visits = visits_of(plan)
        together = [
            dataclasses.replace(step, about=f"{step.about} in a thread", rule=self.rule) for step in visits
        ]
        return together + visits

    def script(self, script: Script) -> list[str]:
        script.module.imports("import threading")
        script.module.imports("from concurrent.futures import ThreadPoolExecutor")
        first, second = visits_of(script.plan)
        return [
            *script.run(),
            "def steps():",
            "    with ThreadPoolExecutor(2) as pool:",
            f"        one = pool.submit(lambda: {script.call(first.sizes)})",
            f"        two = pool.submit(lambda: {script.call(second.sizes)})",
            "    yield one.result()",
            "    yield two.result()",
            "    together.abort()",
            *calls_to(script, [first, second]),
        ]


class Devices(Schedule):
    """The same mesh shape over other devices and in another order: values and placement follow the mesh of the step."""

    word = "devices"
    rule = "cache.mesh"
    devices = True
    rebinds = True
    orders = ("first", "reversed", "last", "interleaved")

    def check(self, plan: Plan) -> None:
        one_environment(plan)
        if not any(axis.on_devices for axis in plan.axes):
            raise Illegal("needs a binder of devices")
        if any(getattr(layer, "devices", "first") != "first" for layer in plan.case.layers):
            raise Illegal("this schedule picks the devices itself")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = visits_of(plan)
        return [
            dataclasses.replace(
                visit, about=f"devices {order}", order=order, environment=(order,), rule=self.rule
            )
            for order in self.orders
        ] * 2

    def script(self, script: Script) -> list[str]:
        calls = [f"    yield run(tuple({script.devices(order)}))" for order in self.orders]
        return [*script.run(), "def steps():", *calls * 2]


class Release(Factored):
    """When the callable and its argument are dropped, nothing in JAX keeps them."""

    word = "release"
    rule = "cache.release"

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = visits_of(plan)
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
