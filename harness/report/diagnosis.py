"""Says over all the verdicts of a run what its failures have in common (see `harness.report.search`), and what they are."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence

from harness.report import features as vocabulary
from harness.report.causes import Cause, Condition, Diagnosis, Lone, simplicity, symptom
from harness.report.contrast import Index
from harness.report.features import Feature
from harness.report.results import Result
from harness.report.search import CONDITIONS, Bits, Draft, bits_of, explain
from harness.verdicts import Verdict

NEIGHBOURS = 5
"""Lone failures that are compared with the passing cases nearest to them."""


def diagnose(results: Sequence[Result]) -> Diagnosis:
    """Explains the failing cases of a run; cases that were not run, or whose failure was expected, say nothing."""
    failing = [result for result in results if result.failing]
    passing = [result for result in results if result.passing]
    if not failing:
        return Diagnosis(0, len(passing))
    if not passing:
        return _everything(failing)
    drafts: list[Draft] = []
    explained: set[str] = set()
    for group in _groups(failing).values():
        held = _held(group, passing)
        drafts += explain(group, held) if held else []
    drafts = _merged(drafts)
    for draft in drafts:
        explained.update(result.case for result in draft.failing)
    alone = sorted((result for result in failing if result.case not in explained), key=simplicity)
    causes = sorted(_finish(drafts, passing, len(alone)), key=lambda cause: -len(cause.cases))
    index = Index(passing if alone else [])
    suspicions = sorted(_suspicions(alone, passing), key=lambda cause: -len(cause.cases))
    lone = [Lone(result, index.nearest(result)) for result in alone[:NEIGHBOURS]]
    return Diagnosis(
        len(failing),
        len(passing),
        tuple(causes),
        tuple(suspicions),
        tuple(lone + [Lone(r, None) for r in alone[NEIGHBOURS:]]),
    )


def _everything(failing: list[Result]) -> Diagnosis:
    """Nothing passes: the backend or the set-up, not a combination of parameters."""
    ordered = tuple(sorted(failing, key=simplicity))
    rules, kinds = _tally(result.rule for result in failing), _tally(map(symptom, failing))
    cause = Cause((), (), len(failing), len(failing), (0, 0), rules, kinds, ordered)
    return Diagnosis(len(failing), 0, (cause,))


def _groups(failing: Iterable[Result]) -> dict[str, list[Result]]:
    """Failures that may have one cause: by law for the laws not every case is held to, else together."""
    groups: dict[str, list[Result]] = {}
    for result in failing:
        groups.setdefault(_group(result), []).append(result)
    return groups


def _group(result: Result) -> str:
    if result.verdict in (Verdict.CRASH, Verdict.HANG):
        return str(result.verdict)
    family = result.rule.partition(".")[0]
    return result.rule if family in ("cache", "error", "repeat") else "value"


def _held(group: list[Result], passing: list[Result]) -> list[Result]:
    """The passing cases that could have failed as the group does."""
    name = _group(group[0])
    if "." not in name:
        return passing
    return [result for result in passing if name in result.rules]


def _merged(drafts: list[Draft]) -> list[Draft]:
    """Causes of several laws whose conditions are the same become one."""
    merged: dict[frozenset[Condition], Draft] = {}
    for draft in drafts:
        known = merged.setdefault(frozenset(draft.conditions), draft)
        if known is not draft:
            cases = {result.case for result in known.failing}
            known.failing += [result for result in draft.failing if result.case not in cases]
    return list(merged.values())


def _finish(drafts: list[Draft], passing: list[Result], alone: int) -> Iterator[Cause]:
    """Counts each cause over all the cases that could have failed of it."""
    wanted = {(c.key, value) for draft in drafts for c in draft.conditions for value in c.values}
    rows = bits_of(passing, wanted)
    inside = [_meeting(draft.conditions, rows) for draft in drafts]
    covered = functools.reduce(operator.or_, inside, 0)
    index = Index(passing)
    for draft, members in zip(drafts, inside, strict=True):
        held = _held_bits({_group(result) for result in draft.failing}, passing)
        cases = sorted(draft.failing, key=simplicity)
        passes = (members & held).bit_count()
        without = (held & ~covered).bit_count() + alone
        yield Cause(
            draft.conditions,
            draft.alternatives,
            len(cases),
            len(cases) + passes,
            (alone, without),
            _tally(result.rule for result in cases),
            _tally(map(symptom, cases)),
            tuple(cases),
            index.nearest(cases[0]),
        )


def _meeting(conditions: Iterable[Condition], rows: dict[Feature, Bits]) -> Bits:
    """The cases in which all the conditions hold."""
    unions = [
        functools.reduce(operator.or_, (rows.get((c.key, value), 0) for value in c.values))
        for c in conditions
    ]
    return functools.reduce(operator.and_, unions)


def _held_bits(groups: set[str], passing: list[Result]) -> Bits:
    """The passing cases held to one of the groups' laws."""
    if any("." not in name for name in groups):
        return (1 << len(passing)) - 1
    flags = ("1" if groups & set(result.rules) else "0" for result in reversed(passing))
    return int("".join(flags) or "0", 2)


def _suspicions(alone: list[Result], passing: list[Result]) -> Iterator[Cause]:
    """For failures of one law and kind that no cause explains: what they share and the fewest passing cases have."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in alone:
        groups.setdefault((result.rule, symptom(result)), []).append(result)
    for (rule, kind), cases in itertools.islice(groups.items(), NEIGHBOURS):
        held = _held(cases, passing) or passing
        conditions, twins, remaining = _shared(cases, held)
        if conditions:
            count, outside = len(cases), len(held) - remaining
            counts = (count, count + remaining, (0, outside), ((rule, count),), ((kind, count),))
            yield Cause(conditions, twins, *counts, tuple(cases), sure=False)


def _shared(
    cases: list[Result], held: list[Result]
) -> tuple[tuple[Condition, ...], tuple[tuple[Condition, ...], ...], int]:
    """(conditions all the cases meet, those that single out the same passing cases, how many of these there are)."""
    everyone = (1 << len(cases)) - 1
    common = [feature for feature, members in bits_of(cases, None).items() if members == everyone]
    common.sort(key=lambda feature: (vocabulary.weight(feature), vocabulary.rank(feature)))
    rows = bits_of(held, set(common))
    left = (1 << len(held)) - 1
    found: list[tuple[Condition, tuple[Condition, ...]]] = []
    while left and len(found) < CONDITIONS:
        best = min(common, key=lambda feature: (left & rows.get(feature, 0)).bit_count(), default=None)
        if best is None:
            break
        remaining = left & rows.get(best, 0)
        if 2 * remaining.bit_count() > left.bit_count():
            break
        twins = [f for f in common if f != best and left & rows.get(f, 0) == remaining]
        found.append(
            (Condition(best[0], (best[1],)), tuple(Condition(key, (value,)) for key, value in twins[:3]))
        )
        left = remaining
    return tuple(one for one, _ in found), tuple(twins for _, twins in found), left.bit_count()


def meets(result: Result, conditions: Iterable[Condition]) -> bool:
    """Whether a case has all the conditions."""
    own = set(vocabulary.features(result.parameters))
    return all(any((condition.key, value) in own for value in condition.values) for condition in conditions)


def _tally(words: Iterable[str]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
