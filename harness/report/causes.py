"""What a diagnosis says: conditions, causes, contrasts and lone failures."""

from __future__ import annotations

import dataclasses
import itertools

from harness.report import features as vocabulary
from harness.report import statements
from harness.report.results import Result


@dataclasses.dataclass(frozen=True)
class Condition:
    """`key` has one of `values`."""

    key: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return vocabulary.phrase(self.key, self.values)


@dataclasses.dataclass(frozen=True)
class Cause:
    """One explanation of failures.

    Attributes:
      conditions: what the failing cases have in common; all of them hold.
      alternatives: for each condition, others that hold in exactly the same cases.
      failing, held: how many cases with the conditions fail, of how many that could.
      elsewhere: how many cases fail that no cause explains, of how many without any cause's conditions.
      rules, kinds: laws broken and kinds of wrong, the most frequent first, with their numbers.
      cases: the failing cases it explains, the simplest first.
      contrast: the passing case most like the first one and what differs, or None.
      sure: whether it saves more than it takes to say; if not, it is only what the cases happen to share.
    """

    conditions: tuple[Condition, ...]
    alternatives: tuple[tuple[Condition, ...], ...]
    failing: int
    held: int
    elsewhere: tuple[int, int]
    rules: tuple[tuple[str, int], ...]
    kinds: tuple[tuple[str, int], ...]
    cases: tuple[Result, ...]
    contrast: Contrast | None = None
    sure: bool = True

    def __str__(self) -> str:
        if not self.conditions:
            return f"everything fails: all {self.failing:,} cases that ran"
        return f"{self.adverb} where {self.where} ({self.counts}){self.untrue}"

    @property
    def untrue(self) -> str:
        """What probes among the cases found untrue, as the end of a sentence, or ""."""
        shown = statements.shown(self.cases)
        return f"; untrue: {shown}" if shown else ""

    @property
    def where(self) -> str:
        return " and ".join(map(str, self.conditions)) or "anything runs"

    @property
    def adverb(self) -> str:
        if not self.sure:
            return "perhaps fails"
        if self.failing < self.held:
            often = "mostly fails" if 2 * self.failing > self.held else "sometimes fails"
            return often if self.elsewhere[0] else f"{often}, and nowhere else,"
        return "always fails" if self.elsewhere[0] else "fails exactly"

    @property
    def counts(self) -> str:
        without = f"{self.elsewhere[0]:,} of {self.elsewhere[1]:,} without"
        return f"{self.failing:,} of {self.held:,} with, {without if self.elsewhere[1] else 'none without'}"

    @property
    def parameters(self) -> dict[str, frozenset[str]]:
        """The case parameters it names, by key: what a person would look at first."""
        named: dict[str, set[str]] = {}
        first = self.cases[0].parameters if self.cases else {}
        for condition in itertools.chain(self.conditions, *self.alternatives):
            for key, value in vocabulary.concerns(condition.key, condition.values, first):
                named.setdefault(key, set()).add(value)
        for key, value in statements.spoken(self.cases):
            named.setdefault(key, set()).add(value)
        return {key: frozenset(values) for key, values in named.items()}


@dataclasses.dataclass(frozen=True)
class Contrast:
    """A passing case next to a failing one.

    Attributes:
      differences: (key, values in the failing case, values in the passing one).
    """

    case: str
    differences: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        words = vocabulary.WORDS
        return "; ".join(
            f"{words.get(key, key)} = {theirs} instead of {own}" for key, own, theirs in self.differences
        )


@dataclasses.dataclass(frozen=True)
class Lone:
    """A failure no cause explains."""

    result: Result
    contrast: Contrast | None


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What a run's failures have in common.

    Attributes:
      failing, passing: how many cases failed unexpectedly, and how many passed.
      causes: the most telling first.
      suspicions: for failures without a cause, by law and kind, what they share and few passing cases have.
      lone: failures without a cause, the simplest first; only the first few have a contrast.
    """

    failing: int
    passing: int
    causes: tuple[Cause, ...] = ()
    suspicions: tuple[Cause, ...] = ()
    lone: tuple[Lone, ...] = ()


def symptom(result: Result) -> str:
    """What kind of wrong, in one or two words."""
    return result.kind or str(result.verdict).replace("_", " ")


def simplicity(result: Result) -> tuple[int, int, str]:
    """Sorts the easiest case to look at first: fewest layers, then the shortest line."""
    return (result.case.count(">"), len(result.case), result.case)
