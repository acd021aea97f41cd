"""How many processes and devices a run has, and which cases mean something there. Imports no JAX."""

from __future__ import annotations

import dataclasses

from harness.case import Case
from harness.errors import Illegal
from harness.layers.binders import Pmap, ShardMap
from harness.layers.probe import ProbeLeaf
from harness.program import plan

ONE_PROCESS_SCHEDULES = {
    "threads": "its threads would run collectives in another order in each process",
    "disk": "its second process would be no rank",
}


@dataclasses.dataclass(frozen=True)
class World:
    """Attributes:
    processes: how many.
    devices: of each process.
    """

    processes: int
    devices: int

    @property
    def total(self) -> int:
        return self.processes * self.devices

    def __str__(self) -> str:
        return f"{self.processes}x{self.devices}"

    def declines(self, case: Case) -> str:
        """Why a case says nothing across the processes of this world, or ""."""
        if isinstance(case.leaf, ProbeLeaf):
            return ""  # the rank itself knows
        if case.schedule in ONE_PROCESS_SCHEDULES:
            return f"a schedule of one process: {ONE_PROCESS_SCHEDULES[case.schedule]}"
        if any(isinstance(layer, Pmap) for layer in case.layers):
            return "pmap takes each process's own part, and the program gives it the whole operand"
        try:
            typed = plan(case)
        except Illegal as reason:
            return f"illegal: {reason}"
        if not any(axis.on_devices for axis in typed.axes):
            return "binds no axis over devices: each process would repeat what one does"
        for sizes in typed.steps:
            left_out = self._spans(typed.devices(sizes), _order(case))
            if left_out:
                return left_out
        return ""

    def _spans(self, count: int, order: str) -> str:
        """Why a mesh of that many devices leaves a process out, or ""."""
        if count > self.total:
            return f"needs {count} devices, the world {self} has {self.total}"
        picked = range(self.total - count, self.total) if order == "last" else range(count)
        owners = {number // self.devices for number in picked}
        if len(owners) < self.processes:
            return f"its mesh of {count} devices leaves processes of the world {self} out"
        return ""


def _order(case: Case) -> str:
    return next((layer.devices for layer in case.layers if isinstance(layer, ShardMap)), "first")
