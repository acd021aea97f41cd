"""The program on one device: instructions one after the other, control flow, and where it waits for other devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from harness.aot.arrays import ARRAYS
from harness.aot.collectives import COMMUNICATES
from harness.aot.custom import custom_call
from harness.aot.elements import ELEMENTS
from harness.aot.folds import FOLDS
from harness.aot.program import Block, Instruction, Program, Values
from harness.errors import NotApplicable

Meeting = Generator["Waiting", Values, Any]
"""A device's run: it yields where it waits for others and is sent what the collective gives it."""

MOST_TRIPS = 100_000
"""Trips of a loop after which it is taken for endless: the suite's own make fewer than a hundred."""


class Stuck(Exception):
    """Devices wait for each other for ever: the program would hang."""


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A device at a collective."""

    instruction: Instruction
    operands: Values


class Device:
    """The program on one device."""

    def __init__(self, program: Program, number: int):
        self.program, self.number = program, number

    def call(self, block: Block, arguments: Values, outer: dict[int, Any] | None = None) -> Meeting:
        """Runs a block; `outer` holds the values around it, which regions may use."""
        known: dict[int, Any] = dict(outer or {})
        known.update(zip(block.arguments, arguments))
        for instruction in block.body:
            values = yield from self.step(instruction, known)
            known.update(zip(instruction.results, values))
        return [known[number] for number in block.returns]

    def step(self, instruction: Instruction, known: dict[int, Any]) -> Meeting:
        """The results of one instruction."""
        op, operands = instruction.op, [known[number] for number in instruction.operands]
        if op in COMMUNICATES:
            if not instruction.operands:
                return []
            given = yield Waiting(instruction, operands)
            return given
        if op in CONTROL:
            values = yield from CONTROL[op](self, instruction, operands, known)
            return values
        if op in ("stablehlo.partition_id", "stablehlo.replica_id"):  # one replica of many partitions
            return [np.asarray(self.number if op.endswith("partition_id") else 0, np.uint32)]
        result = _result(instruction, operands)
        return result if isinstance(result, list) else [_typed(result, instruction)]

    # Control flow

    def while_(self, instruction: Instruction, operands: Values, known: dict[int, Any]) -> Meeting:
        condition, body = instruction.regions
        state = operands
        for _ in range(MOST_TRIPS):
            (goes_on,) = yield from self.call(condition, state, known)
            if not goes_on:
                return state
            state = yield from self.call(body, state, known)
        raise Stuck(f"a loop goes on after {MOST_TRIPS} trips")

    def case(self, instruction: Instruction, operands: Values, known: dict[int, Any]) -> Meeting:
        which = int(operands[0])
        last = len(instruction.regions) - 1
        branch = instruction.regions[which if 0 <= which <= last else last]
        values = yield from self.call(branch, [], known)
        return values

    def if_(self, instruction: Instruction, operands: Values, known: dict[int, Any]) -> Meeting:
        values = yield from self.call(instruction.regions[0 if operands[0] else 1], [], known)
        return values

    def within(self, instruction: Instruction, operands: Values, known: dict[int, Any]) -> Meeting:
        """A fusion, an asynchronous start or a function: what is inside runs at once, with these arguments."""
        name = instruction.attributes.get("callee") or instruction.attributes.get("called_computation")
        block = (
            instruction.regions[0] if instruction.regions else self.program.functions[str(name).lstrip("@")]
        )
        values = yield from self.call(block, operands, known if instruction.regions else None)
        if instruction.op.endswith("async_start"):  # one handle, which `async_done` opens
            return [values]
        return values

    def opened(self, instruction: Instruction, operands: Values, known: dict[int, Any]) -> Meeting:
        yield from ()
        return list(operands[0])

    def passed(self, instruction: Instruction, operands: Values, known: dict[int, Any]) -> Meeting:
        yield from ()
        return operands


CONTROL: dict[str, Callable[[Device, Instruction, Values, dict[int, Any]], Meeting]] = {
    "stablehlo.while": Device.while_,
    "stablehlo.case": Device.case,
    "stablehlo.if": Device.if_,
    "mhlo.fusion": Device.within,
    "func.call": Device.within,
    "mhlo.async_start": Device.within,
    "stablehlo.async_start": Device.within,
    "mhlo.async_update": Device.passed,
    "stablehlo.async_update": Device.passed,
    "mhlo.async_done": Device.opened,
    "stablehlo.async_done": Device.opened,
    "stablehlo.optimization_barrier": Device.passed,
    "mhlo.copy": Device.passed,
    "mhlo.add_dependency": lambda self, i, operands, known: self.passed(i, operands[:1], known),
    "stablehlo.after_all": lambda self, i, operands, known: self.passed(i, [np.zeros((), bool)], known),
    "stablehlo.create_token": lambda self, i, operands, known: self.passed(i, [np.zeros((), bool)], known),
}


def _result(instruction: Instruction, operands: Values) -> Any:
    """What an operation gives that concerns one device only."""
    op = instruction.op
    if op in ELEMENTS:
        return ELEMENTS[op](*operands)
    if op in ARRAYS:
        return ARRAYS[op](instruction, operands)
    if op in FOLDS:
        return FOLDS[op](instruction, operands, apply)
    if op == "stablehlo.custom_call":
        return custom_call(instruction, operands)
    raise NotApplicable(f"the operation {op} is not executed here")


def _typed(value: Any, instruction: Instruction) -> np.ndarray:
    """The value in the dtype that the program states."""
    kind = instruction.types[0]
    array = np.asarray(value)
    return array if kind is None or array.dtype == kind.dtype else array.astype(kind.dtype)


def apply(region: Block, arguments: Values) -> Values:
    """A region without collectives, on arrays in the place of scalars."""
    run = Device(Program({}), 0).call(region, arguments)
    try:
        next(run)
    except StopIteration as end:
        return end.value
    raise NotApplicable("a collective inside a reduction")
