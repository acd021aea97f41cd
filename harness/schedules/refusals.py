"""Schedules of what must be refused: axes that nothing binds, and arguments that no collective takes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from harness.errors import Illegal
from harness.schedules.base import Schedule, Step, one_environment, visits_of

if TYPE_CHECKING:
    from harness.program import Plan
    from harness.render import Script


class Unbound(Schedule):
    """The callable is run with its axis bound, then without: that must raise, whatever the caches remember."""

    word = "unbound"
    rule = "error.unbound"

    def check(self, plan: Plan) -> None:
        one_environment(plan)
        if plan.inner_binder is None or ("x" in plan.params and plan.local is None):
            raise Illegal("needs a binder")

    rebinds = True

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = visits_of(plan)
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
        one_environment(plan)
        if not plan.case.leaf.error(plan.inside):
            raise Illegal("nothing here must raise")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = visits_of(plan)
        rule = plan.case.leaf.error(plan.inside)
        return [dataclasses.replace(visit, outcome="error", rule=rule)] * 2

    def script(self, script: Script) -> list[str]:
        return [*script.run(), *script.raised(), "def steps():", *["    yield raised(run)"] * 2]
