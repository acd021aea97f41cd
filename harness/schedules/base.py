"""What a schedule is: steps, and the generator `steps()` that makes them."""

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


def visits_of(plan: Plan) -> list[Step]:
    variables = tuple(axis.key for axis in plan.varying_sizes())
    return [
        Step(about(sizes, variables), sizes, tuple(sizes[key] for key in variables)) for sizes in plan.steps
    ]


def about(sizes: dict[str, int], variables: tuple[str, ...]) -> str:
    return ", ".join(f"{key}={sizes[key]}" for key in variables) or "the only environment"


def one_environment(plan: Plan) -> None:
    if plan.varying_sizes():
        raise Illegal("this schedule takes one size for each axis")


def cached(plan: Plan) -> None:
    if not any(layer.caches for layer in plan.case.layers):
        raise Illegal("this schedule needs a layer that keeps traces")


class Factored(Schedule):
    """A schedule whose program is made for a number that every leaf's operand is multiplied by."""

    factor = "factor"

    def check(self, plan: Plan) -> None:
        one_environment(plan)


def by_factor(plan: Plan, factors: tuple[int, ...], about: str, rule: str, cold: bool = False) -> list[Step]:
    """The only environment once for each factor; each factor is an environment of its own."""
    (visit,) = visits_of(plan)
    return [
        dataclasses.replace(visit, about=f"{about} {k}", factor=k, environment=(k,), cold=cold, rule=rule)
        for k in factors
    ]


def calls_to(script: Script, steps: list[Step]) -> list[str]:
    return [f"    yield {script.call(step.sizes)}" for step in steps]


@dataclasses.dataclass(frozen=True)
class Facts(Schedule):
    """A probe: one step of statements that must all be true. No case line asks for it by name."""

    word = "facts"
    rule: str  # type: ignore[misc]

    def steps(self, plan: Plan) -> list[Step]:
        return [Step("the statements", {}, (), outcome="facts", rule=self.rule)]
