"""Executes an optimized program in NumPy, one coroutine for each device; a collective is where they meet.

The program is the compiler's output (`harness.aot.program`). Only its logic is executed: how arrays are laid out, tiled
and placed in memory is left aside, except where an operation (bitcast) is defined by it. An operation that is not
known here raises NotApplicable with its name, so that what cannot be executed is never taken for wrong.

The meaning of every operation is that of the StableHLO specification and, for `mhlo` ones, of XLA's operation
semantics. NumPy only: XLA executes nothing here, so that its defects on the host are not taken for the compiler's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from harness.aot import memory
from harness.aot.program import Block, Instruction, Program
from harness.errors import NotApplicable

Values = list[np.ndarray]
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
            device: _Device(program, device).call(program.main, list(values))
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
            operands = {device: self.waiting.pop(device) for device in ready}
            given = _communicate(operands, self.count)
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


# Collectives


def groups(instruction: Instruction, count: int) -> list[list[int]]:
    """The groups of devices that communicate; all devices where none are written."""
    written = instruction.attributes.get("replica_groups")
    if written is None or (isinstance(written, np.ndarray) and not written.size):
        return [list(range(count))]
    if not isinstance(written, np.ndarray):
        raise NotApplicable(f"replica groups in a form that is not known here: {str(written)[:120]}")
    return [[int(member) for member in row if member >= 0] for row in written]


def pairs(instruction: Instruction) -> list[tuple[int, int]]:
    """The (source, destination) pairs of a permutation."""
    return [
        (int(a), int(b)) for a, b in np.asarray(instruction.attributes["source_target_pairs"]).reshape(-1, 2)
    ]


def partners(instruction: Instruction, count: int) -> dict[int, frozenset[int]]:
    """For each device those that must be there with it, itself included."""
    if instruction.op == "stablehlo.collective_permute":
        return _connected(pairs(instruction), count)
    found = {device: frozenset({device}) for device in range(count)}
    for group in groups(instruction, count):
        found.update((member, frozenset(group)) for member in group)
    return found


def _connected(edges: list[tuple[int, int]], count: int) -> dict[int, frozenset[int]]:
    found = {device: frozenset({device}) for device in range(count)}
    for a, b in edges:
        joined = found[a] | found[b]
        found.update((member, joined) for member in joined)
    return found


def _communicate(waiting: dict[int, Waiting], count: int) -> dict[int, Values]:
    """What each device of one group gets."""
    instruction = next(iter(waiting.values())).instruction
    operands = {device: each.operands for device, each in waiting.items()}
    if instruction.op == "stablehlo.collective_permute":
        sources = {b: a for a, b in pairs(instruction)}
        return {
            device: [
                operands[sources[device]][k] if device in sources else np.zeros_like(x)
                for k, x in enumerate(operands[device])
            ]
            for device in operands
        }
    (order,) = [group for group in groups(instruction, count) if set(group) == set(operands)] or [[*operands]]
    return COLLECTIVES[instruction.op](instruction, [operands[device] for device in order], order)


def _all_reduce(instruction: Instruction, operands: list[Values], order: list[int]) -> dict[int, Values]:
    total = operands[0]
    for other in operands[1:]:
        total = _combine(instruction.regions[0], total, other)
    return {device: list(total) for device in order}


def _combine(region: Block, left: Values, right: Values) -> Values:
    """A reduction's region applied to whole arrays; to each of them, or to all at once."""
    if len(region.arguments) == 2:
        return [_region(region, [a, b])[0] for a, b in zip(left, right)]
    return _region(region, [*left, *right])


def _region(region: Block, arguments: Values) -> Values:
    """A region without collectives, on arrays in the place of scalars."""
    run = _Device(Program({}), 0).call(region, arguments)
    try:
        next(run)
    except StopIteration as end:
        return end.value
    raise NotApplicable("a collective inside a reduction")


def _reduce_scatter(instruction: Instruction, operands: list[Values], order: list[int]) -> dict[int, Values]:
    total = _all_reduce(instruction, operands, order)[order[0]]
    dimension = instruction.attributes["scatter_dimension"]
    parts = [np.split(x, len(order), axis=dimension) for x in total]
    return {device: [part[k] for part in parts] for k, device in enumerate(order)}


def _all_gather(instruction: Instruction, operands: list[Values], order: list[int]) -> dict[int, Values]:
    dimension = instruction.attributes["all_gather_dim"]
    gathered = [np.concatenate(parts, axis=dimension) for parts in zip(*operands)]
    return {device: gathered for device in order}


def _all_to_all(instruction: Instruction, operands: list[Values], order: list[int]) -> dict[int, Values]:
    a = instruction.attributes
    if "split_dimension" not in a:  # one operand for each member, none of them split
        return {device: [values[k] for values in operands] for k, device in enumerate(order)}
    blocks = [
        [np.split(x, a["split_count"], axis=a["split_dimension"]) for x in values] for values in operands
    ]
    return {
        device: [
            np.concatenate([member[n][k] for member in blocks], axis=a["concat_dimension"])
            for n in range(len(operands[0]))
        ]
        for k, device in enumerate(order)
    }


def _collective_broadcast(
    instruction: Instruction, operands: list[Values], order: list[int]
) -> dict[int, Values]:
    return {device: operands[0] for device in order}


COLLECTIVES: dict[str, Callable[[Instruction, list[Values], list[int]], dict[int, Values]]] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_broadcast": _collective_broadcast,
}


# One device


class _Device:
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
        if op in COLLECTIVES or op == "stablehlo.collective_permute":
            if not instruction.operands:
                return []
            given = yield Waiting(instruction, operands)
            return given
        if op in CONTROL:
            values = yield from CONTROL[op](self, instruction, operands, known)
            return values
        if op in ("stablehlo.partition_id", "stablehlo.replica_id"):  # one replica of many partitions
            return [np.asarray(self.number if op.endswith("partition_id") else 0, np.uint32)]
        if op in SIMPLE:
            return [_typed(SIMPLE[op](*operands), instruction)]
        if op in BY_ATTRIBUTES:
            result = BY_ATTRIBUTES[op](instruction, operands)
            return result if isinstance(result, list) else [_typed(result, instruction)]
        raise NotApplicable(f"the operation {_called(instruction)} is not executed here")

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


CONTROL: dict[str, Callable[[_Device, Instruction, Values, dict[int, Any]], Meeting]] = {
    "stablehlo.while": _Device.while_,
    "stablehlo.case": _Device.case,
    "stablehlo.if": _Device.if_,
    "mhlo.fusion": _Device.within,
    "func.call": _Device.within,
    "mhlo.async_start": _Device.within,
    "stablehlo.async_start": _Device.within,
    "mhlo.async_update": _Device.passed,
    "stablehlo.async_update": _Device.passed,
    "mhlo.async_done": _Device.opened,
    "stablehlo.async_done": _Device.opened,
    "stablehlo.optimization_barrier": _Device.passed,
    "mhlo.copy": _Device.passed,
    "mhlo.add_dependency": lambda self, i, operands, known: self.passed(i, operands[:1], known),
    "stablehlo.after_all": lambda self, i, operands, known: self.passed(i, [np.zeros((), bool)], known),
    "stablehlo.create_token": lambda self, i, operands, known: self.passed(i, [np.zeros((), bool)], known),
}


def _called(instruction: Instruction) -> str:
    target = str(instruction.attributes.get("call_target_name", "")).strip('"')
    return f"{instruction.op} {target}".strip()


def _typed(value: Any, instruction: Instruction) -> np.ndarray:
    """The value in the dtype that the program states."""
    kind = instruction.types[0]
    array = np.asarray(value)
    return array if kind is None or array.dtype == kind.dtype else array.astype(kind.dtype)


# Operations on elements


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a | b if a.dtype == bool else a + b


def _multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a & b if a.dtype == bool else a * b


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whole numbers are divided towards zero; by zero they give -1 (all ones)."""
    if a.dtype.kind not in "iu":
        return a / b
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    quotient = a // safe
    rounded = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, np.asarray(-1).astype(a.dtype), rounded.astype(a.dtype))


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sign is the dividend's."""
    if a.dtype.kind not in "iu":
        return np.fmod(a, b)
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    return np.where(b == 0, a, np.fmod(a, safe))


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(np.dtype(f"uint{8 * x.dtype.itemsize}")) if x.dtype.kind == "i" else x


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = _unsigned(b) >= 8 * a.dtype.itemsize
    return np.where(wide, np.zeros((), a.dtype), a << np.where(wide, 0, b).astype(a.dtype))


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Logical: zeros come in from the left."""
    a, b = np.asarray(a), np.asarray(b)
    wide = _unsigned(b) >= 8 * a.dtype.itemsize
    bits = _unsigned(a)
    return np.where(wide, np.zeros((), bits.dtype), bits >> np.where(wide, 0, b).astype(bits.dtype)).astype(
        a.dtype
    )


def _shift_right_signed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    most = 8 * a.dtype.itemsize - 1
    return a >> np.minimum(_unsigned(b), most).astype(a.dtype)


def _not(a: np.ndarray) -> np.ndarray:
    return ~a


def _rounded_even(a: np.ndarray) -> np.ndarray:
    return np.rint(a)


def _finite(a: np.ndarray) -> np.ndarray:
    return np.isfinite(a.astype(np.float64))


def _sign(a: np.ndarray) -> np.ndarray:
    return np.where(a == 0, a, np.sign(a)).astype(a.dtype)


def _count_bits(a: np.ndarray) -> np.ndarray:
    return np.bitwise_count(_unsigned(a)).astype(a.dtype)


def _leading_zeros(a: np.ndarray) -> np.ndarray:
    bits = 8 * a.dtype.itemsize
    wide = _unsigned(a).astype(np.uint64)
    length = np.zeros(np.shape(a), np.int64)
    for shift in range(bits):
        length = np.where((wide >> np.uint64(shift)) != 0, shift + 1, length)
    return (bits - length).astype(a.dtype)


def _select(which: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.where(which, yes, no)


def _clamp(low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(x, low), high)


def _real(a: np.ndarray) -> np.ndarray:
    return np.real(a)


SIMPLE: dict[str, Callable[..., Any]] = {
    "stablehlo.add": _add,
    "stablehlo.subtract": lambda a, b: a ^ b if a.dtype == bool else a - b,
    "stablehlo.multiply": _multiply,
    "stablehlo.divide": _divide,
    "stablehlo.remainder": _remainder,
    "stablehlo.maximum": lambda a, b: a | b if a.dtype == bool else np.maximum(a, b),
    "stablehlo.minimum": lambda a, b: a & b if a.dtype == bool else np.minimum(a, b),
    "stablehlo.and": lambda a, b: a & b,
    "stablehlo.or": lambda a, b: a | b,
    "stablehlo.xor": lambda a, b: a ^ b,
    "stablehlo.not": _not,
    "stablehlo.negate": lambda a: -a,
    "stablehlo.abs": np.abs,
    "stablehlo.sign": _sign,
    "stablehlo.power": np.power,
    "stablehlo.sqrt": np.sqrt,
    "stablehlo.rsqrt": lambda a: 1 / np.sqrt(a),
    "stablehlo.exponential": np.exp,
    "stablehlo.log": np.log,
    "stablehlo.floor": np.floor,
    "stablehlo.ceil": np.ceil,
    "stablehlo.round_nearest_even": _rounded_even,
    "stablehlo.is_finite": _finite,
    "stablehlo.shift_left": _shift_left,
    "stablehlo.shift_right_logical": _shift_right,
    "stablehlo.shift_right_arithmetic": _shift_right_signed,
    "stablehlo.popcnt": _count_bits,
    "stablehlo.count_leading_zeros": _leading_zeros,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.real": _real,
    "stablehlo.imag": np.imag,
    "stablehlo.complex": lambda a, b: _joined(a, b, np.result_type(a.dtype, np.complex64)),
}


# Operations that their attributes define

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}


def _word(attribute: Any) -> str:
    """`EQ` of `#stablehlo<comparison_direction EQ>`."""
    return re.findall(r"\w+", str(attribute))[-1]


def _compare(instruction: Instruction, operands: Values) -> Any:
    a, b = operands
    if _word(instruction.attributes.get("compare_type", "NOTYPE")) == "TOTALORDER":
        a, b = _total_order(a), _total_order(b)
    return COMPARISONS[_word(instruction.attributes["comparison_direction"])](a, b)


def _total_order(x: np.ndarray) -> np.ndarray:
    """Bits of a float as a whole number of the same order: -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    signed = x.view(np.dtype(f"int{8 * x.dtype.itemsize}"))
    return np.where(signed < 0, signed ^ np.iinfo(signed.dtype).max, signed)


def _convert(instruction: Instruction, operands: Values) -> Any:
    kind = instruction.types[0]
    assert kind is not None
    (x,) = operands
    if kind.dtype == bool:
        return x != 0
    if x.dtype.kind == "c" and kind.dtype.kind != "c":
        return np.real(x).astype(kind.dtype)
    return x.astype(kind.dtype)


def _constant(instruction: Instruction, operands: Values) -> Any:
    return instruction.attributes["value"]


def _iota(instruction: Instruction, operands: Values) -> Any:
    kind = instruction.types[0]
    assert kind is not None
    at = instruction.attributes["iota_dimension"]
    along = np.arange(kind.shape[at]).reshape([-1 if d == at else 1 for d in range(len(kind.shape))])
    return np.broadcast_to(along, kind.shape)


def _broadcast(instruction: Instruction, operands: Values) -> Any:
    kind = instruction.types[0]
    assert kind is not None
    places = _list(instruction.attributes["broadcast_dimensions"])
    shape = [1] * len(kind.shape)
    for d, place in enumerate(places):
        shape[place] = operands[0].shape[d]
    order = [int(d) for d in np.argsort(places)]
    return np.broadcast_to(operands[0].transpose(order).reshape(shape), kind.shape)


def _list(attribute: Any) -> list[int]:
    return [int(item) for item in np.asarray(attribute).reshape(-1)]


def _reshape(instruction: Instruction, operands: Values) -> Any:
    kind = instruction.types[0]
    assert kind is not None
    return np.asarray(operands[0]).reshape(kind.shape)


def _transpose(instruction: Instruction, operands: Values) -> Any:
    return operands[0].transpose(_list(instruction.attributes["permutation"]))


def _bitcast(instruction: Instruction, operands: Values) -> Any:
    """The same elements in memory under another shape: layouts list dimensions from the minor one on."""
    kind, x = instruction.types[0], operands[0]
    assert kind is not None
    if (
        not kind.shape and x.size > 1 and x.dtype.itemsize == kind.dtype.itemsize
    ):  # in a region, on a whole array
        return np.ascontiguousarray(x).view(kind.dtype).reshape(x.shape)
    source = _list(instruction.attributes.get("source_layout", range(x.ndim)[::-1]))
    result = _list(instruction.attributes.get("result_layout", range(len(kind.shape))[::-1]))
    if len(source) != x.ndim or len(result) != len(kind.shape):
        raise NotApplicable("the operation mhlo.bitcast without its layouts is not executed here")
    if x.dtype.itemsize != kind.dtype.itemsize or x.size != int(np.prod(kind.shape)):  # tiles matter
        before, after = instruction.attributes["memory"]
        if before is None or after is None:
            raise NotApplicable(
                f"the operation mhlo.bitcast from {x.dtype} to {kind.dtype} is not executed here"
            )
        return memory.reinterpret(x, before, kind.shape, kind.dtype, after)
    stored = x.transpose(source[::-1])
    if x.dtype != kind.dtype:
        stored = np.ascontiguousarray(stored).view(kind.dtype)
    order = result[::-1]
    return stored.reshape([kind.shape[d] for d in order]).transpose(np.argsort(order))


def _bitcast_convert(instruction: Instruction, operands: Values) -> Any:
    kind, x = instruction.types[0], np.ascontiguousarray(operands[0])
    assert kind is not None
    narrow, wide = x.dtype.itemsize, kind.dtype.itemsize
    if narrow == wide:
        return x.view(kind.dtype).reshape(np.shape(operands[0]))
    flat = np.frombuffer(x.tobytes(), kind.dtype)
    return flat.reshape(kind.shape)


def _slice(instruction: Instruction, operands: Values) -> Any:
    a = instruction.attributes
    starts, ends, steps = (_list(a[name]) for name in ("start_indices", "limit_indices", "strides"))
    return operands[0][tuple(slice(*span) for span in zip(starts, ends, steps))]


def _starts(x: np.ndarray, starts: Values, sizes: Sequence[int]) -> list[int]:
    """Starts moved so that the block lies inside, as XLA does."""
    return [int(min(max(int(s), 0), n - size)) for s, n, size in zip(starts, x.shape, sizes)]


def _dynamic_slice(instruction: Instruction, operands: Values) -> Any:
    sizes = _list(instruction.attributes["slice_sizes"])
    starts = _starts(operands[0], operands[1:], sizes)
    return operands[0][tuple(slice(s, s + n) for s, n in zip(starts, sizes))]


def _dynamic_update(instruction: Instruction, operands: Values) -> Any:
    x, update = np.array(operands[0]), operands[1]
    starts = _starts(x, operands[2:], update.shape)
    x[tuple(slice(s, s + n) for s, n in zip(starts, update.shape))] = update
    return x


def _concatenate(instruction: Instruction, operands: Values) -> Any:
    return np.concatenate(operands, axis=instruction.attributes["dimension"])


def _pad(instruction: Instruction, operands: Values) -> Any:
    x, value = operands
    a = instruction.attributes
    low, high, inner = (
        _list(a[name]) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    spread = np.full([max(n + (n - 1) * k, 0) for n, k in zip(x.shape, inner)], value, x.dtype)
    spread[tuple(slice(None, None, k + 1) for k in inner)] = x
    out = np.full([n + a_ + b for n, a_, b in zip(spread.shape, low, high)], value, x.dtype)
    to = tuple(slice(max(a_, 0), max(a_, 0) + n) for a_, n in zip(low, _kept(spread.shape, low, high)))
    from_ = tuple(slice(max(-a_, 0), max(-a_, 0) + n) for a_, n in zip(low, _kept(spread.shape, low, high)))
    out[to] = spread[from_]
    return out


def _kept(shape: Sequence[int], low: Sequence[int], high: Sequence[int]) -> list[int]:
    """How many elements are left where negative padding cuts some off."""
    return [max(n + min(a, 0) + min(b, 0), 0) for n, a, b in zip(shape, low, high)]


def _reverse(instruction: Instruction, operands: Values) -> Any:
    return np.flip(operands[0], tuple(_list(instruction.attributes["dimensions"])))


def _reduce(instruction: Instruction, operands: Values) -> Values:
    """Folds the dimensions away, one element after the other, with the region as the operation."""
    half = len(operands) // 2
    arrays, starts = operands[:half], operands[half:]
    dims = sorted(_list(instruction.attributes["dimensions"]))
    kept = [d for d in range(arrays[0].ndim) if d not in dims]
    shape = [arrays[0].shape[d] for d in kept]
    flat = [x.transpose([*dims, *kept]).reshape(-1, *shape) for x in arrays]
    total = [np.broadcast_to(start, shape) for start in starts]
    for k in range(flat[0].shape[0]):
        total = _region(instruction.regions[0], [*total, *[x[k] for x in flat]])
    return [np.asarray(x, kind.dtype) for x, kind in zip(total, instruction.types) if kind is not None]


def _reduce_window(instruction: Instruction, operands: Values) -> Values:
    a, (x, start) = instruction.attributes, operands
    rank = x.ndim
    window = _list(a["window_dimensions"])
    strides, dilation = (_list(a.get(name, [1] * rank)) for name in ("window_strides", "window_dilations"))
    padding = np.asarray(a.get("padding", np.zeros((rank, 2), int))).reshape(rank, 2)
    if any(d != 1 for d in _list(a.get("base_dilations", [1] * rank))):
        raise NotApplicable(
            "the operation stablehlo.reduce_window with dilated operands is not executed here"
        )
    lengths = [n + int(p[0]) + int(p[1]) for n, p in zip(x.shape, padding)]
    padded = np.full(lengths, start, x.dtype)
    padded[tuple(slice(int(p[0]), int(p[0]) + n) for n, p in zip(x.shape, padding))] = x
    kind = instruction.types[0]
    assert kind is not None
    total = np.broadcast_to(start, kind.shape)
    for offset in np.ndindex(*window):
        index = tuple(
            slice(o * d, o * d + s * (n - 1) + 1, s)
            for o, d, s, n in zip(offset, dilation, strides, kind.shape)
        )
        (total,) = _region(instruction.regions[0], [total, padded[index]])
    return [np.asarray(total, kind.dtype)]


def _dot(instruction: Instruction, operands: Values) -> Any:
    text = str(instruction.attributes["dot_dimension_numbers"])
    numbers = {
        name: [int(n) for n in re.findall(r"\d+", found)]
        for name, found in re.findall(r"(\w+_dimensions) = \[([^\]]*)\]", text)
    }
    a, b = operands
    kind = instruction.types[0]
    assert kind is not None
    ba, bb = numbers.get("lhs_batching_dimensions", []), numbers.get("rhs_batching_dimensions", [])
    ca, cb = numbers.get("lhs_contracting_dimensions", []), numbers.get("rhs_contracting_dimensions", [])
    left, right = list(range(a.ndim)), [a.ndim + d for d in range(b.ndim)]
    for da, db in [*zip(ba, bb), *zip(ca, cb)]:
        right[db] = left[da]
    out = [
        *(left[d] for d in ba),
        *(left[d] for d in range(a.ndim) if d not in (*ba, *ca)),
        *(right[d] for d in range(b.ndim) if d not in (*bb, *cb)),
    ]
    return np.einsum(_wide(a, kind.dtype), left, _wide(b, kind.dtype), right, out)


def _wide(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The type sums are taken in: the result's, and for the narrow ones that NumPy does not sum, float32."""
    return x.astype(dtype if dtype.kind in "fciu" and dtype.itemsize >= 4 else np.float32)


def _gather(instruction: Instruction, operands: Values) -> Any:
    x, indices = operands
    kind = instruction.types[0]
    assert kind is not None
    numbers = _numbers(instruction.attributes["dimension_numbers"])
    offset, collapsed = numbers["offset_dims"], numbers["collapsed_slice_dims"]
    batching, batching_at = numbers["operand_batching_dims"], numbers["start_indices_batching_dims"]
    starts, at = numbers["start_index_map"], (numbers["index_vector_dim"] or [0])[0]
    sizes = _list(instruction.attributes["slice_sizes"])
    batch = [d for d in range(len(kind.shape)) if d not in offset]
    kept = [d for d in range(x.ndim) if d not in (*collapsed, *batching)]
    out = np.empty(kind.shape, x.dtype)
    for place in np.ndindex(*[kind.shape[d] for d in batch]):
        vector = _vector(indices, place, at)
        first = [0] * x.ndim
        for k, d in enumerate(starts):
            first[d] = min(max(int(vector[k]), 0), x.shape[d] - sizes[d])
        outside = [p for p in place]
        for d, b in zip(batching, batching_at):
            first[d] = outside[b if b < at else b - 1]
        part = x[tuple(slice(f, f + n) for f, n in zip(first, sizes))]
        target: list[Any] = [slice(None)] * len(kind.shape)
        for d, p in zip(batch, place):
            target[d] = p
        out[tuple(target)] = part.reshape([part.shape[d] for d in kept])
    return out


def _scatter(instruction: Instruction, operands: Values) -> Any:
    if len(operands) != 3:
        raise NotApplicable("the operation stablehlo.scatter of several arrays is not executed here")
    x, indices, updates = np.array(operands[0]), operands[1], operands[2]
    numbers = _numbers(instruction.attributes["scatter_dimension_numbers"])
    window, inserted = numbers["update_window_dims"], numbers["inserted_window_dims"]
    batching, batching_at = numbers["input_batching_dims"], numbers["scatter_indices_batching_dims"]
    starts, at = numbers["scatter_dims_to_operand_dims"], (numbers["index_vector_dim"] or [0])[0]
    outer = [d for d in range(updates.ndim) if d not in window]
    kept = [d for d in range(x.ndim) if d not in (*inserted, *batching)]
    for place in np.ndindex(*[updates.shape[d] for d in outer]):
        vector = _vector(indices, place, at)
        base = [0] * x.ndim
        for k, d in enumerate(starts):
            base[d] = int(vector[k])
        for d, b in zip(batching, batching_at):
            base[d] = place[b if b < at else b - 1]
        for inside in np.ndindex(*[updates.shape[d] for d in window]):
            source, target = [0] * updates.ndim, list(base)
            for d, p in zip(outer, place):
                source[d] = p
            for d, p in zip(window, inside):
                source[d] = p
            for d, p in zip(kept, inside):
                target[d] += p
            if all(0 <= t < n for t, n in zip(target, x.shape)):  # what lies outside is dropped
                there = tuple(target)
                pair = [np.asarray(x[there]), np.asarray(updates[tuple(source)])]
                x[there] = _region(instruction.regions[0], pair)[0]
    return x


def _numbers(attribute: Any) -> dict[str, list[int]]:
    """The lists of a dimension-numbers attribute; what it leaves out is empty."""
    text = str(attribute)
    found = {
        name: [int(n) for n in re.findall(r"\d+", items)]
        for name, items in re.findall(r"(\w+) = \[([^\]]*)\]", text)
    }
    found.update((name, [int(n)]) for name, n in re.findall(r"(\w+) = (\d+)", text))
    return _Lists(found)


class _Lists(dict[str, list[int]]):
    def __missing__(self, key: str) -> list[int]:
        return []


def _vector(indices: np.ndarray, place: Sequence[int], at: int) -> np.ndarray:
    """The index vector at one place; dimension `at` holds its components, or none does and it is one number."""
    if at == indices.ndim:
        return np.asarray([indices[tuple(place)]])
    index: list[Any] = list(place)
    index.insert(at, slice(None))
    return indices[tuple(index)]


def _sort(instruction: Instruction, operands: Values) -> Values:
    """Stable insertion by the comparator, along one dimension, the others at once."""
    axis = instruction.attributes["dimension"] % operands[0].ndim
    arrays = [np.array(np.moveaxis(x, axis, 0)) for x in operands]
    for end in range(1, arrays[0].shape[0]):
        for k in range(end, 0, -1):
            arguments = [part for x in arrays for part in (x[k], x[k - 1])]
            (before,) = _region(instruction.regions[0], arguments)
            for x in arrays:
                x[k - 1], x[k] = np.where(before, x[k], x[k - 1]), np.where(before, x[k - 1], x[k])
    return [np.moveaxis(x, 0, axis) for x in arrays]


def _reduce_precision(instruction: Instruction, operands: Values) -> Any:
    from harness.dtypes import numpy_dtype

    bits = (instruction.attributes["exponent_bits"], instruction.attributes["mantissa_bits"])
    names = {(8, 23): "float32", (8, 7): "bfloat16", (5, 10): "float16"}
    if bits not in names:
        raise NotApplicable(f"the operation stablehlo.reduce_precision to {bits} bits is not executed here")
    return operands[0].astype(numpy_dtype(names[bits])).astype(operands[0].dtype)


PARTS = re.compile(r"X(64|128)(SplitLow|SplitHigh|Combine)")


def _custom_call(instruction: Instruction, operands: Values) -> Any:
    """What the TPU compiler calls by name. TPUs have no 64-bit types: it takes such a number apart into two of half the
    width, computes with these, and joins them again."""
    target = str(instruction.attributes.get("call_target_name", "")).strip('"')
    kind = instruction.types[0]
    parts = PARTS.fullmatch(target)
    if parts and kind is not None:
        if parts.group(2) == "Combine":
            return _joined(operands[0], operands[1], kind.dtype)
        return _half(operands[0], parts.group(2) == "SplitHigh", kind.dtype)
    if target in ("Sharding", "AssumeGatherIndicesInBound", "LayoutConstraint"):
        return operands[0]
    if target == "AllocateBuffer" and kind is not None:  # memory that a loop fills
        return np.zeros(kind.shape, kind.dtype)
    raise NotApplicable(f"the operation {_called(instruction)} is not executed here")


def _half(x: np.ndarray, high: bool, dtype: np.dtype) -> np.ndarray:
    if x.dtype.kind == "c":
        return (np.imag(x) if high else np.real(x)).astype(dtype)
    if x.dtype.kind == "f":  # the nearest float32, and what is left
        if not np.isfinite(x).all():
            raise NotApplicable("what X64Split makes of infinity and NaN is not documented")
        nearest = x.astype(np.float32)
        return (nearest if high else x - nearest.astype(x.dtype)).astype(dtype)
    bits = _unsigned(x)
    return (bits >> np.uint64(32) if high else bits & np.uint64(0xFFFFFFFF)).astype(dtype)


def _joined(low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "c":
        out = np.empty(low.shape, dtype)
        out.real, out.imag = low, high
        return out
    if dtype.kind == "f":
        wide = high.astype(dtype)
        return np.where(low == 0, wide, wide + low.astype(dtype))  # keeps the sign of a zero
    joined = (_unsigned(high).astype(np.uint64) << np.uint64(32)) | _unsigned(low).astype(np.uint64)
    return joined.astype(dtype)


BY_ATTRIBUTES: dict[str, Callable[[Instruction, Values], Any]] = {
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.reshape": _reshape,
    "stablehlo.transpose": _transpose,
    "mhlo.bitcast": _bitcast,
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.slice": _slice,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.dot_general": _dot,
    "stablehlo.gather": _gather,
    "stablehlo.scatter": _scatter,
    "stablehlo.sort": _sort,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.custom_call": _custom_call,
}
