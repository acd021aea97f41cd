"""What changed between runs: other JAX, other backend, other commit.

The first run is the baseline and every other one is compared with it, case by case. A case is worse only if it was
decided and good before: a case that nobody had run before says nothing about what changed.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence

from harness.report import markdown
from harness.report.causes import Diagnosis, symptom
from harness.report.diagnosis import diagnose
from harness.report.results import UNDECIDED, Result, Run
from harness.report.words import counted, diagnosis_lines, first_line
from harness.verdicts import Verdict

SLOWER, SECONDS = 2.0, 0.5
"""A case is called slower when it takes so many times as long, and so many seconds more."""
SHOWN = 20


class Change(enum.StrEnum):
    """What became of a case, from the worst on."""

    NEW = "new failure"
    MISSING = "missing"
    CHANGED = "fails differently"
    KNOWN = "fails as expected, passed before"
    UNKNOWN = "fails, not decided before"
    AWAY = "no longer applicable"
    FIXED = "fixed"
    DECIDED = "newly decided"
    SAME = "same"


class Outcome(enum.IntEnum):
    """The exit code, as `git bisect run` reads it."""

    SAME_OR_BETTER = 0
    WORSE = 1
    CANNOT_TELL = 125


@dataclasses.dataclass(frozen=True)
class Difference:
    """One case that is not the same in both runs."""

    case: str
    change: Change
    before: Result | None
    after: Result | None

    @property
    def words(self) -> str:
        return f"{said(self.before)} -> {said(self.after)}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes:
      differences: the worst first.
      shared: cases decided in both.
      seconds: time spent in the shared cases, in each.
      slower: shared cases that take much longer, the worst first.
      diagnosis: what the new failures have in common.
    """

    before: Run
    after: Run
    differences: tuple[Difference, ...]
    shared: int
    seconds: tuple[float, float]
    slower: tuple[Difference, ...]
    diagnosis: Diagnosis

    def of(self, change: Change) -> list[Difference]:
        return [difference for difference in self.differences if difference.change == change]

    @property
    def outcome(self) -> Outcome:
        if self.of(Change.NEW):
            return Outcome.WORSE
        if not self.shared or self.of(Change.MISSING) or self.after.undecided:
            return Outcome.CANNOT_TELL
        return Outcome.SAME_OR_BETTER

    @property
    def verdict(self) -> str:
        """The outcome in words, with its reason."""
        if self.outcome == Outcome.WORSE:
            return f"WORSE: {counted(len(self.of(Change.NEW)), 'new failure')}"
        if self.outcome == Outcome.CANNOT_TELL:
            missing = len(self.of(Change.MISSING)) + self.after.undecided
            return (
                f"CANNOT TELL: {counted(missing, 'case')} missing"
                if self.shared
                else "CANNOT TELL: no case in common"
            )
        fixed = self.of(Change.FIXED)
        return f"BETTER: {len(fixed):,} fixed" if fixed else "SAME"


def said(result: Result | None) -> str:
    """A verdict in the words of a comparison: `pass`, `wrong value (psum.sum)`, `absent`."""
    if result is None:
        return "absent"
    return f"{symptom(result)} ({result.rule})" if result.failing else str(result.verdict).replace("_", " ")


def compare(before: Run, after: Run) -> Comparison:
    """Compares a run with its baseline."""
    old = {result.case: result for result in before.results}
    new = {result.case: result for result in after.results}
    order = list(Change)
    differences = [
        Difference(case, change_of(old.get(case), new.get(case)), old.get(case), new.get(case))
        for case in {**old, **new}
    ]
    shared = [d for d in differences if _decided(d.before) and _decided(d.after)]
    worse = {difference.case for difference in differences if difference.change == Change.NEW}
    evidence = [result for result in after.results if result.case in worse or result.passing]
    differences.sort(key=lambda difference: order.index(difference.change))
    return Comparison(
        before,
        after,
        tuple(difference for difference in differences if difference.change != Change.SAME),
        len(shared),
        (sum(_seconds(d.before) for d in shared), sum(_seconds(d.after) for d in shared)),
        tuple(sorted(filter(_slower, shared), key=lambda d: _seconds(d.before) - _seconds(d.after))),
        diagnose(evidence),
    )


def change_of(before: Result | None, after: Result | None) -> Change:
    """What became of one case."""
    if not _decided(after):
        if not _decided(before):
            return Change.SAME
        away = after is not None and after.verdict == Verdict.NOT_APPLICABLE
        return Change.AWAY if away else Change.MISSING
    assert after is not None
    if not _decided(before):
        return Change.UNKNOWN if after.failing else Change.DECIDED
    assert before is not None
    if _broken(before) != _broken(after):
        return Change.FIXED if _broken(before) else Change.NEW if after.failing else Change.KNOWN
    if _broken(after) and _failure(before, after) != _failure(after, before):
        return Change.CHANGED
    return Change.SAME


def _broken(result: Result) -> bool:
    """Whether a law was seen broken, expected or not: expectations may differ between the runs, JAX is what counts."""
    return result.failing or result.verdict == Verdict.EXPECTED_FAIL


def _failure(result: Result, other: Result) -> tuple[str, ...]:
    """What kind of failure it is, in the words both results have."""
    verdict = result.verdict if result.failing and other.failing else ""
    return (verdict, result.kind, result.rule)


def _decided(result: Result | None) -> bool:
    return result is not None and result.verdict not in UNDECIDED


def _seconds(result: Result | None) -> float:
    return result.seconds if result else 0.0


def _slower(difference: Difference) -> bool:
    before, after = _seconds(difference.before), _seconds(difference.after)
    return after > SLOWER * before and after - before > SECONDS


def lines(comparison: Comparison, width: int = 100) -> Iterator[str]:
    """The comparison for a terminal."""
    yield f"{comparison.before.name} -> {comparison.after.name}: {comparison.verdict}"
    yield f"{counted(comparison.shared, 'case')} decided in both; {time_words(comparison)}"
    for change in Change:
        found = comparison.of(change)
        if not found:
            continue
        yield ""
        yield f"{change}: {len(found):,}"
        if change == Change.NEW:
            yield from (f"  {line}" for line in diagnosis_lines(comparison.diagnosis, width - 2, 16))
        if change != Change.DECIDED:
            yield from (f"  {difference.words}: {difference.case}" for difference in found[:SHOWN])
            if len(found) > SHOWN:
                yield f"  and {len(found) - SHOWN:,} more"
    if comparison.slower:
        yield ""
        yield f"slower: {len(comparison.slower):,}"
        for difference in comparison.slower[:SHOWN]:
            yield f"  {_seconds(difference.before):.1f} s -> {_seconds(difference.after):.1f} s: {difference.case}"


def time_words(comparison: Comparison) -> str:
    before, after = comparison.seconds
    ratio = f" ({after / before:.2f} times)" if before else ""
    return f"{before:.1f} s -> {after:.1f} s{ratio}"


def markdown_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """All comparisons with one baseline, as Markdown."""
    for comparison in comparisons:
        names = f"{comparison.before.name} → {comparison.after.name}"
        yield f"## {markdown.text(names)}: {markdown.text(comparison.verdict)}"
        yield ""
        yield f"{counted(comparison.shared, 'case')} decided in both; {markdown.text(time_words(comparison))}."
        yield ""
        yield from markdown.table(
            ["change", "cases"], ([str(c), f"{len(comparison.of(c)):,}"] for c in Change if comparison.of(c))
        )
        yield ""
        for cause in comparison.diagnosis.causes:
            yield f"- **{markdown.text(str(cause))}**: {markdown.code(cause.cases[0].case)}"
        yield ""
        shown = [d for d in comparison.differences if d.change != Change.DECIDED][: 5 * SHOWN]
        if shown:
            rows = ([str(d.change), markdown.text(d.words), markdown.code(d.case)] for d in shown)
            yield from markdown.table(["change", "verdicts", "case"], rows)
            yield ""


def page(comparisons: Sequence[Comparison]) -> str:
    """All comparisons with one baseline, as one HTML page (needs jinja2)."""
    from harness.report.html import environment

    template = environment().get_template("compare.html.jinja")
    return template.render(
        comparisons=comparisons, changes=list(Change), said=said, time_words=time_words, first_line=first_line
    )


def worst(comparisons: Sequence[Comparison]) -> Outcome:
    """The outcome of several: worse if any is, else unknown if any is."""
    found = {comparison.outcome for comparison in comparisons}
    order = (Outcome.WORSE, Outcome.CANNOT_TELL, Outcome.SAME_OR_BETTER)
    return next((outcome for outcome in order if outcome in found), Outcome.CANNOT_TELL)
