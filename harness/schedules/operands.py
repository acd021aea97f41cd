"""Schedules of what a callable is called with and closes over."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from harness.errors import Illegal
from harness.schedules.base import Factored, Schedule, Step, by_factor, cached, one_environment, visits_of

if TYPE_CHECKING:
    from harness.program import Plan
    from harness.render import Script


class Closure(Factored):
    """The same code closed over different numbers: two callables that differ in nothing else."""

    word = "closure"
    rule = "cache.closure"

    def steps(self, plan: Plan) -> list[Step]:
        return by_factor(plan, (1, 3, 1, 3), "closed over", self.rule)

    def script(self, script: Script) -> list[str]:
        call = f"({script.arguments()})"
        return [
            "one, three = make(1), make(3)",
            "",
            "",
            "def steps():",
            *[f"    yield one{call}", f"    yield three{call}"] * 2,
        ]


class Reborn(Factored):
    """A callable is dropped and collected before the next is made, so that the next may get its address."""

    word = "reborn"
    rule = "cache.closure"

    def steps(self, plan: Plan) -> list[Step]:
        return by_factor(plan, (1, 2, 3, 2), "made with", self.rule, cold=True)

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


class Static(Factored):
    """A static argument: objects of one hash that are not equal, and equal objects that are not one."""

    word = "static"
    rule = "cache.static"

    def check(self, plan: Plan) -> None:
        super().check(plan)
        if [layer.word for layer in plan.case.layers[:1]] != ["jit"]:
            raise Illegal("static arguments are jit's: it must be the outermost layer")

    def steps(self, plan: Plan) -> list[Step]:
        return by_factor(plan, (1, 3, 1, 3), "static", self.rule)

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


class Weak(Schedule):
    """A NumPy scalar, a Python scalar of the same value (weakly typed), and each again."""

    word = "weak"
    rule = "cache.signature"
    flag = "(x * jnp.ones((), jnp.bfloat16)).dtype.itemsize"

    def check(self, plan: Plan) -> None:
        one_environment(plan)
        cached(plan)
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
        (visit,) = visits_of(plan)
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
