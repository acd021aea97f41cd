"""Covering arrays over a `Space`: few lines that together meet every feasible combination asked for.

A *design* is a tuple of factors; it asks for every combination of their values that some legal row has. Rows are found
greedily, each from a combination not yet met and improved one factor at a time, and lines carry several leaves, which
is what an off-the-shelf array cannot give. Everything is deterministic.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable, Iterator

from harness import expectations
from harness.case import Case, parse_line
from harness.expectations import Expectation
from harness.layers.base import Layer
from harness.layers.binders import Binder
from harness.parameters import KEYS, parameters
from harness.program import plan, unit_of
from harness.space import FACTORS, Row, Space
from harness.verdicts import Kind, Verdict

Design = tuple[str, ...]
Key = tuple[int, ...]
"""Numbers of the values of one combination, ascending."""


class Covering:
    """What is met so far of one space.

    Args:
      space: the table.
      designs: which combinations of factors must be met.
      weight: how much cheap lines are preferred to those that meet more.
    """

    def __init__(self, space: Space, designs: Iterable[Design], weight: float):
        self.space, self.weight = space, weight
        self.designs = [tuple(sorted(FACTORS.index(name) for name in design)) for design in dict.fromkeys(designs)]
        self.number = [dict(zip(table, itertools.count(start))) for table, start in zip(space.table, _starts(space))]
        self.value = [(factor, word) for factor, table in enumerate(space.table) for word in table]
        self.random = random.Random(space.suite)
        self.touching = [[design for design in self.designs if factor in design] for factor in range(len(FACTORS))]
        self.missing = {key: None for design in self.designs for key in self._product(design)}
        self._companies: dict[Row, tuple[str, ...] | None] = {}
        self.infeasible: set[Key] = set()
        self.pool: list[list[Row]] = [[] for _ in self.value]

    def _product(self, design: tuple[int, ...]) -> Iterator[Key]:
        yield from itertools.product(*(self.number[factor].values() for factor in design))

    def keys(self, row: Row, designs: Iterable[tuple[int, ...]]) -> list[Key]:
        numbers = [self.number[factor][word] for factor, word in enumerate(row)]
        return [tuple([numbers[factor] for factor in design]) for design in designs]

    def gain(self, row: Row, factor: int | None = None) -> int:
        """How many missing combinations a row meets (those that involve one factor)."""
        numbers = [self.number[at][word] for at, word in enumerate(row)]
        missing, count = self.missing, 0
        for design in self.designs if factor is None else self.touching[factor]:
            if tuple([numbers[at] for at in design]) in missing:
                count += 1
        return count

    def meet(self, row: Row) -> None:
        """Takes a legal row as part of the array."""
        for key in self.keys(row, self.designs):
            self.missing.pop(key, None)
        self.remember(row)

    def company(self, row: Row) -> tuple[str, ...] | None:
        """Rows with equal answers may share a program; None: this one fails as a whole and would take others along."""
        if row not in self._companies:
            case = self.space.case(row)
            fails = case.leaf.declined(plan(case).inside) or any(_covers(entry, case) for entry in failing())
            self._companies[row] = None if fails else unit_of(case)
        return self._companies[row]

    def cost(self, row: Row) -> float:
        return row_cost(self.space, row)

    def remember(self, row: Row) -> None:
        for factor, word in enumerate(row):
            known = self.pool[self.number[factor][word]]
            if len(known) < 40:
                known.append(row)

    # Feasibility

    def find(self, key: Key) -> Row | None:
        """A legal row with that combination, or None when there is none.

        Starts from legal rows known to have one of the values, and changes one more factor, or two, at a time.
        """
        if any(part in self.infeasible for size in (1, 2, 3) for part in itertools.combinations(key, size)):
            return None
        fixed = dict(self.value[number] for number in key)
        free = [factor for factor in range(len(FACTORS)) if factor not in fixed and len(self.space.table[factor]) > 1]
        starts = [row for number in key for row in self.pool[number][:3] + self.pool[number][-3:]]
        starts.append(tuple(table[0] for table in self.space.table))
        tried: set[Row] = set()
        for start in starts:
            row = tuple(fixed.get(factor, word) for factor, word in enumerate(start))
            for near in itertools.chain([row], self._near(row, free)):
                if near not in tried and self.space.legal(near):
                    self.remember(near)
                    return near
                tried.add(near)
        for _ in range(300):
            row = self.random.choice(starts)
            row = tuple(
                fixed.get(factor) or (self.random.choice(self.space.table[factor]) if self.random.random() < 0.4 else word)
                for factor, word in enumerate(row)
            )
            if self.space.legal(row):
                self.remember(row)
                return row
        self.infeasible.add(key)
        return None

    def _near(self, row: Row, free: list[int]) -> Iterator[Row]:
        for factor in free:
            for word in self.space.table[factor]:
                if word != row[factor]:
                    yield (*row[:factor], word, *row[factor + 1 :])

    # Rows

    def improve(self, row: Row, fixed: set[int]) -> Row:
        """The row changed one factor at a time, as long as that meets more that is missing."""
        factors = [factor for factor in range(len(FACTORS)) if factor not in fixed and len(self.space.table[factor]) > 1]
        self.random.shuffle(factors)
        for factor in factors:
            gains = {near: self.gain(near, factor) for near in self._near(row, [factor])}
            best, price = self.gain(row, factor), self.cost(row)
            for near in sorted(gains, key=lambda near: -gains[near]):
                if gains[near] < best:
                    break
                if self.space.legal(near) and (gains[near] > best or self.cost(near) < price):
                    row, best, price = near, gains[near], self.cost(near)
        return row

    def bundle(self, row: Row) -> list[Row]:
        """The row with further leaves that meet something missing and can share its program."""
        rows, company = [row], self.company(row)
        if company is None:
            return rows
        others = [(leaf, *row[1:]) for leaf in self.space.table[0] if leaf != row[0]]
        ranked = sorted(others, key=lambda other: -self.gain(other, 0))
        for other in ranked:
            if len(rows) == self.space.bundle or not self.gain(other, 0):
                break
            if self.space.legal(other) and self.company(other) == company and self.space.fits([*rows, other]):
                rows.append(other)
        return sorted(rows, key=lambda other: self.space.table[0].index(other[0]))

    def next(self, tries: int = 3) -> list[Row] | None:
        """Rows (of one line) that meet the first missing combination and as many others as can be had cheaply."""
        while self.missing:
            key = next(iter(self.missing))
            start = self.find(key)
            if start is None:
                del self.missing[key]
                continue
            fixed = {self.value[number][0] for number in key}
            best: tuple[float, list[Row]] | None = None
            for _ in range(tries):
                rows = self.bundle(self.improve(self.improve(start, fixed), fixed))
                met = {key for row in rows for key in self.keys(row, self.designs) if key in self.missing}
                score = len(met) / (self.cost(rows[0]) + 0.1) ** self.weight
                if best is None or score > best[0]:
                    best = score, rows
            assert best is not None
            for row in best[1]:
                self.meet(row)
            return best[1]
        return None


    def lines(self, rows: list[Row]) -> list[str]:
        """The lines of rows that differ in their leaf only, at most `bundle` leaves in each."""
        order = self.space.table[0]
        rest = sorted(dict.fromkeys(rows), key=lambda row: order.index(row[0]))
        lines = []
        while rest:
            company = self.company(rest[0])
            size = self.space.bundle if company is not None else 1
            taken = [rest[0], *[row for row in rest[1:] if self.company(row) == company]][:size]
            rest = [row for row in rest if row not in taken]
            lines.append(self.space.line(taken))
        return lines


def _starts(space: Space) -> list[int]:
    return [0, *itertools.accumulate(len(table) for table in space.table)]


@functools.cache
def failing() -> list[Expectation]:
    """Expectations of programs that raise or end the process, under whatever version."""
    entries = expectations.load(Path(__file__).resolve().parent.parent / "configs" / "expectations", KEYS)
    return [entry for entry in entries if entry.kind == Kind.RAISED or entry.verdict in (Verdict.CRASH, Verdict.HANG)]


def _covers(entry: Expectation, case: Case) -> bool:
    return entry.covers(str(case), parameters(case))


# What the profiles ask for


def designs(name: str, space: Space) -> list[Design]:
    """The combinations a profile must have."""
    varied = [factor for factor, table in zip(FACTORS, space.table) if len(table) > 1]
    each: list[Design] = [(factor,) for factor in FACTORS]
    if name == "quick":
        return each
    layers = [factor for factor in ("middle", "control") if factor in varied]
    if name == "standard":
        return [*each, *itertools.combinations(varied, 2), *(("binder", layer, "leaf") for layer in layers[-1:])]
    return [*each, *itertools.combinations(varied, 2), *itertools.combinations(varied, 3)]


WEIGHT = {"quick": 1.0, "standard": 0.3, "full": 0.3}
"""How much cheap lines are preferred."""

ENVIRONMENT = 0.06
"""Seconds that a compiled program takes for each axis environment."""
EAGER_LEAF = 0.25
"""Seconds that a leaf takes in a shard_map that nothing compiles, for each environment."""


def line_cost(line: str) -> float:
    """Seconds that a line takes on one core, roughly."""
    case = parse_line(line)[0]
    return _cost(case.layers, line.count(" & ") + 1)


def row_cost(space: Space, row: Row) -> float:
    return _cost(space.case(row).layers, 1)


def _cost(layers: tuple[Layer, ...], leaves: int) -> float:
    sizes = [sizes for layer in layers if isinstance(layer, Binder) for _, sizes in layer.bindings]
    steps = max(map(len, sizes), default=1)
    environments = len({tuple(axis[step % len(axis)] for axis in sizes) for step in range(steps)})
    if eager(layers):
        return EAGER_LEAF * leaves * environments + 0.3
    return ENVIRONMENT * environments * (1 + 0.1 * leaves)


def eager(layers: tuple[Layer, ...]) -> bool:
    """Whether a shard_map's body is dispatched primitive by primitive."""
    words = [layer.word for layer in layers]
    if "shard_map" not in words:
        return False
    at = words.index("shard_map")
    outside = {"jit", "compiled", "eval_shape"} & set(words[:at])
    inside = [word for word in words[at + 1 :] if word != "vmap"][:1]
    return not outside and not ({"jit", "checkpoint", "scan", "while_loop", "fori_loop", "cond", "switch"} & set(inside))
