"""Executes an optimized program in NumPy, one coroutine for each device; a collective is where they meet.

The program is the compiler's output (`harness.aot.program`). Only its logic is executed: how arrays are laid out, tiled
and placed in memory is left aside, except where an operation (bitcast) is defined by it. An operation that is not
known here raises NotApplicable with its name, so that what cannot be executed is never taken for wrong.

The meaning of every operation is that of the StableHLO specification and, for `mhlo` ones, of XLA's operation
semantics. NumPy only: XLA executes nothing here, so that its defects on the host are not taken for the compiler's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.aot.collectives import communicate, partners
from harness.aot.device import Device, Meeting, Stuck, Waiting, apply
from harness.aot.program import Program, Values


def execute(program: Program, inputs: Sequence[Values]) -> list[Values]:
    """The results of each device.

    Args:
      program: what is executed.
      inputs: the program's arguments, for each device in the order of partitions.

    Raises:
      NotApplicable: an operation is not known here.
      Stuck: some devices never reach a collective that others wait in.
    """
    with np.errstate(all="ignore"):  # wrap-around, NaN and infinity are values like others
        return _Devices(program, inputs).run()


class _Devices:
    """All devices of one run."""

    def __init__(self, program: Program, inputs: Sequence[Values]):
        self.count = len(inputs)
        self.runs: dict[int, Meeting] = {
            device: Device(program, device).call(program.main, list(values))
            for device, values in enumerate(inputs)
        }
        self.waiting: dict[int, Waiting] = {}
        self.results: dict[int, Values] = {}

    def run(self) -> list[Values]:
        for device in range(self.count):
            self.advance(device, None)
        while len(self.results) < self.count:
            ready = self.ready()
            if not ready:
                names = {d: w.instruction.op for d, w in self.waiting.items()}
                raise Stuck(f"devices wait for ever: {names}, ended: {sorted(self.results)}")
            instruction = self.waiting[ready[0]].instruction
            operands = {device: self.waiting.pop(device).operands for device in ready}
            given = communicate(instruction, operands, self.count, apply)
            for device in ready:
                self.advance(device, given[device])
        return [self.results[device] for device in range(self.count)]

    def advance(self, device: int, values: Values | None) -> None:
        try:
            run = self.runs[device]
            self.waiting[device] = next(run) if values is None else run.send(values)
        except StopIteration as end:
            self.results[device] = end.value

    def ready(self) -> list[int]:
        """The devices of a group that all wait at the same collective; none where there is no such group."""
        for device, waiting in self.waiting.items():
            members = partners(waiting.instruction, self.count)[device]
            if all(
                member in self.waiting and self.waiting[member].instruction is waiting.instruction
                for member in members
            ):
                return sorted(members)
        return []
