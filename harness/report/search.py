"""Finds the smallest combinations of parameter values that separate failing from passing cases, and says them in words.

The measure is description length: an explanation is worth the bits it saves in telling which cases fail, less the
bits it takes to say it. So an explanation that holds by chance does not pay for itself, a shorter one beats a longer
one that fits no better, and a cause that shows up in half of its cases is still found. Causes are taken one after
the other, each from the failures that no earlier one explains.

Laws are looked at apart where the law itself says which cases could have broken it (a case with a single environment
says nothing about stale entries), and together where one defect shows up in many of them (a wrong value under scan
breaks psum's law and pmax's).
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence

from harness.report import features as vocabulary
from harness.report.causes import Condition
from harness.report.features import Feature
from harness.report.results import Result

CONDITIONS = 3
"""An explanation combines at most so many conditions."""
BEAM, WORK = 64, 1_000_000
"""Combinations of each length that are kept to be lengthened: so many, or fewer where there are so many cases that
BEAM times their number exceeds WORK."""
CAUSES = 8
"""Causes looked for in one group of laws."""
PURITIES = (0.95, 0.5, 0.0)
"""Least share of failing cases within a cause that is asked for; the shortest description wins."""
CAUSE_BITS = 5.0
"""What it takes to say that there is one more cause, and the least it must save."""
LIFT = 2.0
"""Least factor by which a cause is likelier to fail than the rest."""
UNION = 6
"""A condition names at most so many values."""
Bits = int
"""A set of cases: bit k stands for the k-th."""


@dataclasses.dataclass
class Draft:
    """A cause while it is being looked for: its conditions and the failures it explains."""

    conditions: tuple[Condition, ...]
    alternatives: tuple[tuple[Condition, ...], ...]
    failing: list[Result]
    passing: int
    names: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(frozen=True)
class Atom:
    """A condition as sets of failing and passing cases, with the conditions that hold in the same cases."""

    condition: Condition
    failing: Bits
    passing: Bits
    bits: float
    twins: tuple[Condition, ...] = ()


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A conjunction of atoms."""

    atoms: tuple[int, ...]
    failing: Bits
    passing: int
    gain: float


def explain(failing: Sequence[Result], passing: Sequence[Result]) -> list[Draft]:
    """The causes of one group of failures, given the passing cases they are to be told from."""
    table = Table(failing, passing)
    covers = [table.cover(purity) for purity in range(len(PURITIES))]
    best = min(covers, key=table.length)
    drafts = []
    for candidate in best:
        atoms = sorted((table.atoms[k] for k in candidate.atoms), key=_telling)
        members = [failing[k] for k in _members(candidate.failing)]
        drafts.append(
            Draft(
                tuple(a.condition for a in atoms), tuple(a.twins for a in atoms), members, candidate.passing
            )
        )
    return drafts


def _telling(atom: Atom) -> tuple[int, str, str]:
    """Order of conditions in a sentence: the collective first."""
    return vocabulary.rank((atom.condition.key, atom.condition.values[0]))


class Table:
    """The failing and passing cases of a group as bit sets by feature."""

    def __init__(self, failing: Sequence[Result], passing: Sequence[Result]):
        self.count = len(failing), len(passing)
        self.all = (1 << len(failing)) - 1
        self.log = _log_factorials(len(failing) + len(passing) + 1)
        sets = bits_of(failing, None)
        self.price = math.log2(max(len(sets), 2))
        self.atoms = self._atoms(sets, bits_of(passing, set(sets)))
        self._passing: dict[tuple[int, ...], Bits] = {}
        self._found: dict[Bits, list[Candidate | None]] = {}

    def _atoms(self, failing: dict[Feature, Bits], passing: dict[Feature, Bits]) -> list[Atom]:
        """One atom for all features that hold in the same cases: the plainest, the rest as its twins."""
        same: dict[tuple[Bits, Bits], list[Feature]] = {}
        for feature, members in failing.items():
            same.setdefault((members, passing.get(feature, 0)), []).append(feature)
        atoms = []
        for (fails, passes), group in same.items():
            if fails == self.all and passes.bit_count() == self.count[1]:
                continue
            group.sort(key=lambda feature: (vocabulary.weight(feature), vocabulary.rank(feature)))
            first, *twins = (Condition(key, (value,)) for key, value in group)
            atoms.append(
                Atom(first, fails, passes, self.price * vocabulary.weight(group[0]), tuple(twins[:3]))
            )
        return atoms

    def cover(self, purity: int) -> list[Candidate]:
        """Causes one after the other until none pays for itself, each as pure as PURITIES[purity] asks."""
        left = self.all
        found: list[Candidate] = []
        while left and len(found) < CAUSES:
            if left not in self._found:
                self._found[left] = self._best(left)
            best = self._found[left][purity]
            if best is None:
                break
            found.append(best)
            left &= ~best.failing
        return found

    def length(self, found: list[Candidate]) -> float:
        """Bits to tell which cases fail, given these causes."""
        total, left, passing = 0.0, self.all, self.count[1]
        for candidate in found:
            inside, outside = (candidate.failing & left).bit_count(), min(candidate.passing, passing)
            left &= ~candidate.failing
            passing -= outside
            total += (
                CAUSE_BITS
                + sum(self.atoms[k].bits for k in candidate.atoms)
                + self._label_bits(inside, outside)
            )
        return total + self._label_bits(left.bit_count(), passing)

    def _label_bits(self, failing: int, passing: int) -> float:
        """Bits to say which of so many cases are the failing ones."""
        return self.log[failing + passing] - self.log[failing] - self.log[passing]

    def _best(self, left: Bits) -> list[Candidate | None]:
        """For each purity the combination that saves most bits over the failures left, where one is worth it."""
        search = Search(self, left)
        singles = [
            k for k, atom in enumerate(self.atoms) if len(atom.condition.values) == 1 and atom.failing & left
        ]
        singles += self._unions(search, singles)
        level = [candidate for k in singles if (candidate := search.candidate((k,)))]
        for size in range(1, CONDITIONS + 1):
            for candidate in level:
                search.consider(candidate)
            if size < CONDITIONS:
                level = search.longer(level, singles)
        return [best if best is not None and best.gain > CAUSE_BITS else None for best in search.best]

    def passing_of(self, atoms: tuple[int, ...]) -> Bits:
        """The passing cases in which all the atoms hold."""
        if len(atoms) == 1:
            return self.atoms[atoms[0]].passing
        if atoms not in self._passing:
            self._passing[atoms] = self.passing_of(atoms[:-1]) & self.atoms[atoms[-1]].passing
        return self._passing[atoms]

    def _unions(self, search: Search, singles: list[int]) -> list[int]:
        """For each key the best set of values, as new atoms: `collective = psum or pmean`."""
        by_key: dict[str, list[int]] = {}
        for k in singles:
            if self.atoms[k].condition.key not in ("class", "any", "around"):
                by_key.setdefault(self.atoms[k].condition.key, []).append(k)
        made = []
        for members in by_key.values():
            atom = search.union([self.atoms[k] for k in members])
            if atom is not None:
                self.atoms.append(atom)
                made.append(len(self.atoms) - 1)
        return made


class Search:
    """The search for the combination that best explains the failures left."""

    def __init__(self, table: Table, left: Bits):
        self.table, self.left, self.many = table, left, left.bit_count()
        self.null = table._label_bits(self.many, table.count[1])
        self.beam = max(16, min(BEAM, WORK // sum(table.count)))
        self.best: list[Candidate | None] = [None] * len(PURITIES)

    def saved(self, inside: int, outside: int) -> float:
        """Bits saved by looking at the cases within (so many failing, so many passing) apart from the rest."""
        label = self.table._label_bits
        return self.null - label(inside, outside) - label(self.many - inside, self.table.count[1] - outside)

    def candidate(self, atoms: tuple[int, ...]) -> Candidate | None:
        """A combination; None when it could not be the best even if no passing case met it."""
        table = self.table
        failing = table.all
        cost = 0.0
        for k in atoms:
            failing &= table.atoms[k].failing
            cost += table.atoms[k].bits
        inside = (failing & self.left).bit_count()
        if not inside or self.saved(inside, 0) - cost <= self._bar():
            return None
        passing = table.passing_of(atoms).bit_count()
        return Candidate(atoms, failing, passing, self.saved(inside, passing) - cost)

    def _bar(self) -> float:
        """What the purest explanation saves; one that saves less, pure or not, is not looked for."""
        pure = self.best[0]
        return pure.gain if pure is not None else 0.0

    def consider(self, candidate: Candidate) -> None:
        inside = (candidate.failing & self.left).bit_count()
        share = inside / (inside + candidate.passing)
        base = self.many / (self.many + self.table.count[1])
        for k, purity in enumerate(PURITIES):
            best = self.best[k]
            if share >= max(purity, min(LIFT * base, PURITIES[0])) and (
                best is None or candidate.gain > best.gain
            ):
                self.best[k] = candidate

    def longer(self, level: list[Candidate], singles: list[int]) -> list[Candidate]:
        """Each of the best combinations with each further condition that takes passing cases away from it."""
        made: dict[tuple[int, ...], Candidate | None] = {}
        for candidate in heapq.nlargest(self.beam, level, key=lambda candidate: candidate.gain):
            if not candidate.passing:
                continue
            for k in singles:
                atoms = tuple(sorted({*candidate.atoms, k}))
                if len(atoms) == len(candidate.atoms) or atoms in made:
                    continue
                made[atoms] = self.candidate(atoms)
        return [candidate for candidate in made.values() if candidate is not None]

    def union(self, atoms: list[Atom]) -> Atom | None:
        """The best set of several values of one key; of each width it is that of the values most of whose cases fail."""

        def share(atom: Atom) -> float:
            fails = (atom.failing & self.left).bit_count()
            return fails / (fails + atom.passing.bit_count())

        ordered = sorted(atoms, key=share, reverse=True)[:UNION]
        failing = passing = 0
        best, gain = None, 0.0
        for width, atom in enumerate(ordered, 1):
            failing, passing = failing | atom.failing, passing | atom.passing
            bits = ordered[0].bits + math.log2(max(len(atoms), 2)) * (width - 1)
            saved = self.saved((failing & self.left).bit_count(), passing.bit_count()) - bits
            if saved > gain:
                values = tuple(
                    sorted((other.condition.values[0] for other in ordered[:width]), key=_by_number)
                )
                best, gain = Atom(Condition(atom.condition.key, values), failing, passing, bits), saved
        return best if best is not None and len(best.condition.values) > 1 else None


def _by_number(value: str) -> tuple[int, str]:
    return (int(value) if value.isdecimal() else 0, value)


@functools.cache
def _log_factorials(count: int) -> list[float]:
    """log2(k!) for k below count + 1."""
    return list(itertools.accumulate(range(1, count + 1), lambda total, k: total + math.log2(k), initial=0.0))


def bits_of(results: Sequence[Result], wanted: set[Feature] | None) -> dict[Feature, Bits]:
    """The cases that have each feature (each of `wanted`, where given)."""
    size = len(results) // 8 + 1
    items: dict[tuple[str, tuple[str, ...]], bytearray] = {}
    for k, result in enumerate(results):
        byte, bit = k >> 3, 1 << (k & 7)
        for item in result.parameters.items():
            row = items.get(item)
            if row is None:
                row = items[item] = bytearray(size)
            row[byte] |= bit
    found: dict[Feature, Bits] = {}
    for (key, values), row in items.items():
        members = int.from_bytes(row, "little")
        for feature in vocabulary.features_of(key, values):
            if wanted is None or feature in wanted:
                found[feature] = found.get(feature, 0) | members
    return found


def _members(bits: Bits) -> Iterator[int]:
    for byte, value in enumerate(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        while value:
            yield 8 * byte + (value & -value).bit_length() - 1
            value &= value - 1
