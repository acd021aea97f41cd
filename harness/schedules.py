"""What one callable goes through: the axis environments it meets, and what happens between them.

A schedule writes the generator `steps()` of the rendered module and says, step by step, what must come out.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

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
      fresh: whether caches were emptied before it, so that tracing again is right.
      factor: what the operand is multiplied by.
      flag: what the output `flag` must be, where there is one.
      outcome: "value", "error" (must raise), or "facts" (yields a dict of booleans that must all be true).
      variant: which of the plan's variants gives the reference ("" or "swapped").
      rule: the law this step is about, where it has its own.
    """

    about: str
    sizes: dict[str, int]
    environment: tuple
    fresh: bool = False
    factor: int = 1
    flag: int | None = None
    outcome: str = "value"
    variant: str = ""
    rule: str = ""


def about(sizes: dict[str, int], variables: tuple[str, ...]) -> str:
    """`i=2, j=3` for the axes that change."""
    return ", ".join(f"{key}={sizes[key]}" for key in variables) or "the only environment"


class Schedule:
    """Subclasses say what is done; `word` is what case lines call it."""

    word: ClassVar[str]
    rule: ClassVar[str] = ""
    factor: ClassVar[str] = ""
    flag: ClassVar[str] = ""
    built: ClassVar[tuple[str, ...]] = ()

    def steps(self, plan: Plan) -> list[Step]:
        """What must come out, step by step."""
        raise TypeError

    def script(self, script: Script) -> list[str]:
        """The lines of the module after the program: `run` and `steps`."""
        raise TypeError

    def check(self, plan: Plan) -> None:
        """Raises Illegal where the schedule has no meaning for the program."""


def _visits(plan: Plan) -> list[Step]:
    variables = tuple(axis.key for axis in plan.varying_sizes())
    return [
        Step(about(sizes, variables), sizes, tuple(sizes[key] for key in variables)) for sizes in plan.steps
    ]


class Sizes(Schedule):
    """Every environment in the order given, then all of them once more: each must be right both times, and the second
    time nothing is traced or compiled."""

    word = "sizes"
    rule = "cache.fresh"

    def steps(self, plan: Plan) -> list[Step]:
        return _visits(plan) * 2

    def script(self, script: Script) -> list[str]:
        return [*script.run(), "def steps():", *(f"    yield {script.call(s.sizes)}" for s in self.steps(script.plan))]


class Clear(Schedule):
    """All environments, `jax.clear_caches()`, all environments twice more."""

    word = "clear"
    rule = "cache.fresh"

    def steps(self, plan: Plan) -> list[Step]:
        visits = _visits(plan)
        first = [dataclasses.replace(step, fresh=True, about=step.about + " after clear_caches") for step in visits]
        return visits + first + visits

    def script(self, script: Script) -> list[str]:
        calls = [f"    yield {script.call(step.sizes)}" for step in _visits(script.plan)]
        return [*script.run(), "def steps():", *calls, "    jax.clear_caches()", *calls, *calls]


SCHEDULES: dict[str, Schedule] = {schedule.word: schedule for schedule in (Sizes(), Clear())}
