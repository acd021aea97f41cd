"""Covering arrays over a `Space`: few cheap lines that together meet every feasible combination asked for.

A *design* is a tuple of factors; it asks for every combination of their values that some legal row has. Rows are made
greedily: from a combination not yet met, improved one factor at a time, then joined by further leaves of the same
program. What is feasible is found out by trying `harness.program.plan`. Everything is deterministic.
"""

from __future__ import annotations

import functools
import itertools
import operator
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from harness import expectations
from harness.case import Case, parse_line
from harness.dims import ONE
from harness.errors import Illegal
from harness.exact import inexact
from harness.expectations import Expectation
from harness.layers.base import Layer
from harness.layers.binders import Binder
from harness.parameters import KEYS, parameters
from harness.program import Plan, plan, unit_of
from harness.space import FACTORS, LAYERS, Row, Space
from harness.verdicts import Kind, Verdict

Design = tuple[str, ...]
Key = tuple[int, ...]
"""Numbers of the values of one combination, ascending: values are numbered through all factors."""

EXPECTATIONS = Path(__file__).resolve().parent.parent / "configs" / "expectations"
REMEMBERED = 20
"""Legal rows kept for each value, to start searches from."""
STEPS = 8
"""Rows whose neighbours are looked at before a combination is taken to be infeasible."""


class Feasible:
    """Which rows of a space are legal, and which combinations of values some legal row has.

    Only programs whose every value is exact count as legal, since results are compared bit for bit.
    """

    def __init__(self, space: Space):
        self.space = space
        starts = [0, *itertools.accumulate(len(table) for table in space.table)]
        self.number = [dict(zip(table, itertools.count(start))) for table, start in zip(space.table, starts)]
        self.value = [(factor, word) for factor, table in enumerate(space.table) for word in table]
        self.varied = [factor for factor, table in enumerate(space.table) if len(table) > 1]
        self.random = random.Random(space.suite)
        self._reasons: dict[Row, str] = {}
        self._none: set[Key] = set()
        self._near_value: list[list[Row]] = [[] for _ in self.value]
        self._chosen: list[list[Row]] = [[] for _ in self.value]

    def legal(self, row: Row) -> bool:
        """Whether JAX promises to run the row's program, exactly."""
        return not self.reason(row)

    def reason(self, row: Row) -> str:
        """Why a row is not legal, or ""."""
        if row not in self._reasons:
            try:
                self._reasons[row] = "" if _exact(self.space.plan([row])) else "inexact"
            except Illegal as reason:
                self._reasons[row] = str(reason)
            if not self._reasons[row]:
                self._remember(row)
        return self._reasons[row]

    def _remember(self, row: Row) -> None:
        for factor, word in enumerate(row):
            rows = self._near_value[self.number[factor][word]]
            if len(rows) < REMEMBERED:
                rows.append(row)
            elif self.random.random() < 0.1:
                rows[self.random.randrange(len(rows))] = row

    def find(self, key: Key) -> Row | None:
        """A legal row with that combination, or None when none was found.

        Starts from the plainest row and from known legal rows that have one of the values, and goes on, one change at
        a time, from rows that are illegal for a reason not yet seen. Where all starts are illegal for one and the same
        reason, which can then only come from the combination, one of them is enough.
        """
        if any(
            part in self._none
            for size in range(1, len(key) + 1)
            for part in itertools.combinations(key, size)
        ):
            return None
        fixed = dict(self.value[number] for number in key)
        free = [factor for factor in self.varied if factor not in fixed]
        row = next(filter(self.legal, self._candidates(self._starts(key, fixed), free)), None)
        if row is None:
            self._none.add(key)
        return row

    def choose(self, row: Row) -> None:
        """Tells that a row is part of the array: when combinations are tried again, it is a start."""
        for factor, word in enumerate(row):
            self._chosen[self.number[factor][word]].append(row)

    def again(self) -> None:
        """Combinations given up may be tried again, now from all rows of the array."""
        self._none.clear()
        self._near_value = [list(dict.fromkeys(rows)) for rows in self._chosen]

    def _starts(self, key: Key, fixed: dict[int, str]) -> list[Row]:
        known = itertools.chain(*(self._near_value[number] for number in key))
        plain = tuple(table[0] for table in self.space.table)
        return list(dict.fromkeys(_with(row, fixed) for row in (plain, *known)))

    def _candidates(self, starts: list[Row], free: list[int]) -> Iterator[Row]:
        """The starts, then what is one change away from them, then from what is illegal for a reason not yet seen."""
        yield from starts
        queue = {self.reason(start): start for start in reversed(starts)}
        waiting = list(queue.values())
        for row in itertools.islice(_growing(waiting), 1 if len(waiting) == 1 and len(starts) > 3 else STEPS):
            for near in self.near(row, free):
                yield near
                if self.reason(near) not in queue:
                    queue[self.reason(near)] = near
                    waiting.append(near)

    def near(self, row: Row, factors: list[int]) -> Iterator[Row]:
        """The rows that differ in one of these factors."""
        for factor in factors:
            for word in self.space.table[factor]:
                if word != row[factor]:
                    yield (*row[:factor], word, *row[factor + 1 :])


def _growing(items: list[Row]) -> Iterator[Row]:
    """The items of a list that gets longer meanwhile."""
    at = 0
    while at < len(items):
        yield items[at]
        at += 1


def _exact(typed: Plan) -> bool:
    """Whether every value on the way is exact; asked only where few bits, or means of what wraps, put it in doubt."""
    doubt = typed.case.dtype in ("bfloat16", "float16") or typed.unit != ONE
    return not (doubt and inexact(typed))


def _picker(design: tuple[int, ...]) -> Callable[[Key], Key]:
    """Picks the numbers of a design's factors, as a tuple."""
    if len(design) == 1:
        (factor,) = design
        return lambda numbers: (numbers[factor],)
    return operator.itemgetter(*design)


def _with(row: Row, values: dict[int, str]) -> Row:
    return tuple(values.get(factor, word) for factor, word in enumerate(row))


class Covering:
    """What is still missing of the designs of one space, and the lines that meet it.

    Args:
      feasible: the space and what is legal in it.
      designs: which combinations of factors must be met.
      thrift: how much cheap lines are preferred to those that meet more (0: not at all).
    """

    def __init__(self, feasible: Feasible, designs: Iterable[Design], thrift: float):
        self.feasible, self.space, self.thrift = feasible, feasible.space, thrift
        self.number, self.value = feasible.number, feasible.value
        self.designs = list(dict.fromkeys(tuple(sorted(map(FACTORS.index, design))) for design in designs))
        self.pick = [_picker(design) for design in self.designs]
        self.touching = [
            [pick for pick, design in zip(self.pick, self.designs) if factor in design]
            for factor in range(len(FACTORS))
        ]
        self.missing = {
            key: None
            for design in self.designs
            for key in itertools.product(*(self.number[f].values() for f in design))
        }
        self.given_up: list[Key] = []
        self.retried = False
        self._company: dict[Row, tuple[str, ...] | None] = {}
        self._cost: dict[Row, float] = {}

    def _numbers(self, row: Row) -> Key:
        return tuple([table[word] for table, word in zip(self.number, row)])

    def keys(self, row: Row) -> list[Key]:
        """The combinations a row has."""
        numbers = self._numbers(row)
        return [pick(numbers) for pick in self.pick]

    def gain(self, row: Row, factor: int) -> int:
        """How many missing combinations with a value of this factor a row has."""
        numbers, missing = self._numbers(row), self.missing
        return len([None for pick in self.touching[factor] if pick(numbers) in missing])

    def meet(self, row: Row) -> None:
        """Takes a row as part of the array."""
        self.feasible.choose(row)
        for key in self.keys(row):
            self.missing.pop(key, None)

    def next(self, tries: int) -> list[Row] | None:
        """Rows of one line that meet the first missing combination and many others; None when all are met.

        The best of so many `tries` is taken.
        """
        while self.missing or self._again():
            key = next(iter(self.missing))
            start = self.feasible.find(key)
            if start is None:
                self.given_up.append(key)
                del self.missing[key]
                continue
            fixed = {self.value[number][0] for number in key}
            rows = max((self._joined(self._improved(start, fixed)) for _ in range(tries)), key=self._worth)
            for row in rows:
                self.meet(row)
            return rows
        return None

    def _again(self) -> bool:
        """Once: what was given up is missing again, since more legal rows are known now."""
        if self.retried or not self.given_up:
            return False
        self.retried = True
        self.feasible.again()
        self.missing = dict.fromkeys(self.given_up)
        return True

    def _worth(self, rows: list[Row]) -> float:
        met = {key for row in rows for key in self.keys(row) if key in self.missing}
        return len(met) / (0.02 + self.cost(rows[0]) + 0.03 * len(rows)) ** self.thrift

    def _improved(self, row: Row, fixed: set[int]) -> Row:
        """The row changed one factor at a time, as long as that meets more or costs less."""
        factors = [factor for factor in self.feasible.varied if factor not in fixed]
        self.feasible.random.shuffle(factors)
        for factor in factors:
            best, price = self.gain(row, factor), self.cost(row)
            gains = {near: self.gain(near, factor) for near in self.feasible.near(row, [factor])}
            for near in sorted(gains, key=lambda near: -gains[near]):
                if gains[near] < best:
                    break
                if self.feasible.legal(near) and (gains[near] > best or self.cost(near) < price):
                    row, best, price = near, gains[near], self.cost(near)
        return row

    def _joined(self, row: Row) -> list[Row]:
        """The row, and those with other leaves that meet something missing and can share its program."""
        rows, company = [row], self.company(row)
        others = (
            {(leaf, *row[1:]): 0 for leaf in self.space.table[0] if leaf != row[0]}
            if company is not None
            else {}
        )
        gains = {other: self.gain(other, 0) for other in others}
        for other in sorted(gains, key=lambda other: -gains[other]):
            if len(rows) == self.space.bundle or not gains[other]:
                break
            if self.feasible.legal(other) and self.company(other) == company and self._share([*rows, other]):
                rows.append(other)
        return rows

    def _share(self, rows: list[Row]) -> bool:
        """Whether rows that differ in their leaf only can be one program."""
        try:
            self.space.plan(rows)
        except Illegal:
            return False
        return True

    def company(self, row: Row) -> tuple[str, ...] | None:
        """Rows with equal answers may share a program; None: this one fails as a whole and would take others along."""
        if row not in self._company:
            case = self.space.case(row)
            self._company[row] = None if fails(case) else unit_of(case)
        return self._company[row]

    def cost(self, row: Row) -> float:
        if row not in self._cost:
            self._cost[row] = _cost(self.space.case(row), 1)
        return self._cost[row]

    def lines(self, rows: list[Row]) -> list[str]:
        """The lines of rows that differ in their leaf only."""
        order = self.space.table[0]
        rest = sorted(dict.fromkeys(rows), key=lambda row: order.index(row[0]))
        lines = []
        while rest:
            company = self.company(rest[0])
            size = self.space.bundle if company is not None else 1
            taken = [rest[0], *(row for row in rest[1:] if self.company(row) == company)][:size]
            rest = [row for row in rest if row not in taken]
            lines.append(self.space.line(taken))
        return lines


# What the profiles ask for


def designs(name: str, space: Space) -> list[Design]:
    """The combinations a profile must have: values (quick), pairs (standard), triples of layers (full).

    Within a suite the pairs of binder and leaf are the triples of binder, the suite's own layer, and leaf; the triples
    of full are a pair of binders, or a binder and what stands around, with the suite's own layer and the leaf.
    """
    varied = [factor for factor, table in zip(FACTORS, space.table) if len(table) > 1]
    wider: list[Design] = list(itertools.combinations(varied, 2)) if name != "quick" else []
    if name == "full":
        layers = [factor for factor in LAYERS if factor in varied and factor != "binder"]
        wider += [("leaf", "binder", layer) for layer in layers]
    return [*((factor,) for factor in FACTORS), *wider]


TRIES = {"quick": 4, "standard": 3, "full": 1}
THRIFT = {"quick": 1.0, "standard": 0.7, "full": 0.5}


@functools.cache
def _failing() -> list[Expectation]:
    """Known failures of whole programs, under whatever version."""
    entries = expectations.load(EXPECTATIONS, KEYS)
    return [
        entry
        for entry in entries
        if entry.strict and (entry.kind == Kind.RAISED or entry.verdict in (Verdict.CRASH, Verdict.HANG))
    ]


def fails(case: Case) -> bool:
    """Whether a case is known to raise or to end the process, so that it should have a line of its own."""
    if case.schedule not in ("raises", "unbound") and case.leaf.declined(plan(case).inside):
        return True
    return any(entry.covers(str(case), parameters(case)) for entry in _failing())


# What a line costs

PROBE = 0.6
"""Seconds of a law with a program of its own."""

STAGED = frozenset({"jit", "pmap", "compiled", "eval_shape"})
"""Layers whose inside is compiled as a whole."""


def line_cost(line: str) -> float:
    """Seconds of one core that a line takes, roughly: a linear model fitted to a few hundred lines."""
    cases = parse_line(line)
    return _cost(cases[0], len(cases))


def _cost(case: Case, leaves: int) -> float:
    layers = case.layers
    if not layers:
        return PROBE
    if case.schedule == "raises" or layers[0].word == "eval_shape":
        return 0.01 * leaves
    staged = next((at for at, layer in enumerate(layers) if layer.word in STAGED), len(layers))
    eager = layers[:staged]
    compiled = any(layer.word in STAGED or layer.family == "control" for layer in layers)
    each = 0.015 + 0.03 * leaves
    each += 0.03 * sum(layer.family == "derivative" for layer in layers)
    each += (
        0.1 * leaves * sum(1 + 2 * (layer.word == "grad") for layer in eager if layer.family == "derivative")
    )
    each += 0.08 * sum(layer.family == "control" for layer in eager)
    each += 0.2 * sum(layer.family == "control" and "index" in str(layer) for layer in layers)
    each += (0.1 if compiled else 0.4) * any(layer.word == "shard_map" for layer in eager)
    return each * _environments(layers) * (1 if case.schedule == "sizes" else 2.5)


def _environments(layers: tuple[Layer, ...]) -> int:
    sizes = [sizes for layer in layers if isinstance(layer, Binder) for _, sizes in layer.bindings]
    return len(
        {tuple(axis[step % len(axis)] for axis in sizes) for step in range(max(map(len, sizes), default=1))}
    )
