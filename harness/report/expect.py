"""Brings expectation files in line with results: prunes and narrows entries, writes new ones for what fails now.

The file is edited entry by entry as text, so that comments, order and layout of everything else stay as they are.
Needs tomlkit, which a run does without.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import expectations
from harness.compat import Version, version
from harness.errors import UsageError
from harness.expectations import Expectation
from harness.parameters import KEYS
from harness.report import features
from harness.report.causes import Condition
from harness.report.diagnosis import diagnose
from harness.report.results import Result, Run
from harness.report.words import counted, first_line
from harness.verdicts import Verdict

START = re.compile(r"^\s*\[\[\s*expect\s*\]\]")
STEADY = frozenset({Verdict.FAIL, Verdict.CRASH, Verdict.HANG})
"""Verdicts an entry can foresee; flaky and order-dependent cases are for a person to look at."""


# The file as text


@dataclasses.dataclass
class Block:
    """One `[[expect]]` of a file with the comment right above it, or (entry None) what stands before the first."""

    lines: list[str]
    entry: Expectation | None = None

    @property
    def text(self) -> str:
        return "".join(self.lines)


def read_blocks(path: Path) -> list[Block]:
    """The blocks of a file, in order; raises UsageError where it is no expectation file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    blocks = [Block([])]
    waiting: list[str] = []
    for line in text.splitlines(keepends=True):
        if START.match(line):
            blocks.append(Block([*waiting, line]))
            waiting = []
        elif line.lstrip().startswith("#"):
            waiting.append(line)
        else:
            blocks[-1].lines += [*waiting, line]
            waiting = []
    blocks[-1].lines += waiting
    entries = expectations.load_file(path, KEYS) if path.exists() else []
    if len(entries) != len(blocks) - 1:
        raise UsageError(f"{path}: every entry must start with a line [[expect]] of its own")
    for block, entry in zip(blocks[1:], entries, strict=True):
        block.entry = entry
    return blocks


def edited(block: Block, **changes: Any) -> None:
    """Sets keys of a block's table in place, keeping its layout and comments; None takes a key away."""
    import tomlkit

    document = tomlkit.parse(block.text)
    table = document["expect"][0]  # type: ignore[index]
    for key, value in changes.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    block.lines = tomlkit.dumps(document).splitlines(keepends=True)


# What the runs say of an entry


@dataclasses.dataclass(frozen=True)
class Seen:
    """What one run says of a set of cases: how many break as foreseen, how many pass, an example of a passing one."""

    jax: Version
    release: str
    platform: str
    broken: int
    passing: int
    example: str


def look(runs: Sequence[Run], entry: Expectation) -> list[Seen]:
    """What each run says of the cases an entry covers; runs in which none was decided are left out."""
    seen = []
    for run in runs:
        covered = [result for result in run.results if _covers(entry, result)]
        broken = sum(_foreseen(entry, result) for result in covered)
        passing = [result for result in covered if result.passing]
        if broken or passing:
            release = str(run.environment.get("jax", ""))
            example = passing[0].case if passing else ""
            backend = str(run.environment.get("backend", ""))
            seen.append(Seen(version(release), release, backend, broken, len(passing), example))
    return seen


def _foreseen(entry: Expectation, result: Result) -> bool:
    """Whether a result is the failure an entry speaks of, already expected or not."""
    verdict = entry.verdict if result.verdict == Verdict.EXPECTED_FAIL else result.verdict
    return entry.foresees({"verdict": verdict, "kind": result.kind, "rule": result.rule})


def conditions(seen: Sequence[Seen], old: str = "") -> dict[str, Any]:
    """The `jax` and `platform` conditions that hold where cases break and not where they pass.

    A bound is written only where a run on its other side passes: nothing is claimed to be mended unseen. Bounds that
    were there are kept unless a closer one is found.
    """
    breaking = [one for one in seen if one.broken]
    sound = [one for one in seen if not one.broken]
    found: dict[str, Any] = {}
    platforms = {one.platform for one in breaking}
    if {one.platform for one in sound} - platforms:
        found["platform"] = sorted(platforms)
    sound = [one for one in sound if one.platform in platforms]
    low, high = min(breaking, key=_release), max(breaking, key=_release)
    older = [one for one in sound if one.jax < low.jax]
    newer = [one for one in sound if one.jax > high.jax]
    between = sorted({one.release for one in sound if low.jax < one.jax < high.jax}, key=version)
    parts = [part.strip() for part in old.split(",") if part.strip()]
    if older:
        parts = [f">={low.release}"] + [part for part in parts if not part.startswith((">", "=="))]
    if newer:
        parts = [part for part in parts if not part.startswith(("<", "=="))] + [
            f"<{min(newer, key=_release).release}"
        ]
    parts += [f"!={release}" for release in between if f"!={release}" not in parts]
    if parts:
        found["jax"] = ",".join(parts)
    return found


def _release(seen: Seen) -> Version:
    return seen.jax


# Existing entries


@dataclasses.dataclass
class Update:
    """The new text of a file and what was done to it, one line each."""

    path: Path
    text: str
    notes: list[str]
    removed: int = 0
    narrowed: int = 0
    added: int = 0


def update(
    path: Path,
    runs: Sequence[Run],
    others: Sequence[Expectation] = (),
    prune: bool = False,
    reason: str = "",
    add: bool = True,
) -> Update:
    """Brings one file in line with the runs.

    Args:
      path: the file; it need not exist.
      runs: results of any number of versions and platforms.
      others: entries of other files, which may foresee a failure already.
      prune: whether entries that no case of any run matches go too.
      add: whether failures nothing foresees get entries here.
      reason: what new entries say; "" leaves it to be filled in, and a strict run fails until it is.
    """
    blocks = read_blocks(path)
    changed = Update(path, "", [])
    kept = [block for block in blocks if block.entry is None or _settled(block, runs, prune, changed)]
    known = [*others, *(block.entry for block in kept if block.entry is not None)]
    new = list(new_entries(runs, known)) if add else []
    for entry, seen in new:
        kept.append(Block([_written(entry, seen, reason)]))
        changed.added += 1
        changed.notes.append(f"added {_named(entry)}: {counted(sum(one.broken for one in seen), 'case')}")
    changed.text = _joined(kept)
    tomllib.loads(changed.text)
    return changed


def _settled(block: Block, runs: Sequence[Run], prune: bool, changed: Update) -> bool:
    """Narrows an entry to where it holds; False where it is to go."""
    entry = block.entry
    assert entry is not None
    seen = look([run for run in runs if entry.applies({"jax": "0", "backend": "", **run.environment})], entry)
    if not seen:
        changed.notes.append(
            f"{'removed' if prune else 'kept'} {_named(entry)}: no case of these runs matches it"
        )
        changed.removed += prune
        return not prune
    if not any(one.broken for one in seen):
        changed.removed += 1
        where = ", ".join(sorted({f"jax {one.release} {one.platform}" for one in seen}))
        changed.notes.append(f"removed {_named(entry)}: passes on {where}")
        return False
    for one in seen:
        if one.broken and one.passing:
            many = f"{one.passing:,} of {one.broken + one.passing:,} cases pass on jax {one.release} {one.platform}"
            changed.notes.append(f"too wide: {_named(entry)}: {many}, such as {one.example}")
    new = {key: value for key, value in conditions(seen, entry.jax).items() if value != getattr(entry, key)}
    if new:
        edited(block, **new)
        block.entry = dataclasses.replace(entry, **new)
        changed.narrowed += 1
        changed.notes.append(
            f"narrowed {_named(entry)}: {', '.join(f'{key} = {value}' for key, value in new.items())}"
        )
    return True


def _named(entry: Expectation) -> str:
    return (
        entry.reason
        or " and ".join(f"{key} = {' or '.join(values)}" for key, values in entry.where.items())
        or entry.place
    )


def _joined(blocks: Iterable[Block]) -> str:
    """The blocks under each other with one empty line between entries."""
    texts = [block.text.strip("\n") for block in blocks]
    return "\n\n".join(text for text in texts if text) + "\n" if any(texts) else ""


# New entries


def new_entries(
    runs: Sequence[Run], known: Sequence[Expectation]
) -> Iterator[tuple[Expectation, list[Seen]]]:
    """Entries for the failures nothing foresees: by parameters where those separate them exactly, else by case."""
    left = [[result for result in run.results if _unforeseen(result, run, known)] for run in runs]
    for entry in _candidates(runs, left):
        seen = look(runs, entry)
        if not all(_pure(run, entry) for run in runs):
            continue
        before = sum(map(len, left))
        left = [[result for result in results if not _covered(entry, result)] for results in left]
        if sum(map(len, left)) < before:
            yield dataclasses.replace(entry, **conditions(seen)), seen
    yield from _by_case(runs, left)


def _unforeseen(result: Result, run: Run, known: Sequence[Expectation]) -> bool:
    if result.verdict not in STEADY:
        return False
    facts = {"jax": "0", "backend": "", **run.environment}
    return not any(e.applies(facts) and _covered(e, result) for e in known)


def _covered(entry: Expectation, result: Result) -> bool:
    return _covers(entry, result) and _foreseen(entry, result)


def _covers(entry: Expectation, result: Result) -> bool:
    """Whether an entry is about a case; a journal that lacks one of its parameters says nothing."""
    keys = {key.removeprefix("not_") for key in entry.where}
    return keys <= result.parameters.keys() and entry.covers(result.case, result.parameters)


def _pure(run: Run, entry: Expectation) -> bool:
    """Whether a run's decided cases under an entry all fail, or all pass."""
    covered = [result for result in run.results if _covers(entry, result)]
    passing = sum(result.passing for result in covered)
    return passing == 0 or not any(
        result.failing or result.verdict == Verdict.EXPECTED_FAIL for result in covered
    )


def _candidates(runs: Sequence[Run], left: list[list[Result]]) -> Iterator[Expectation]:
    """An entry for each cause of each run and each kind of failure it shows as, the ones with most cases first."""
    found: collections.Counter[tuple] = collections.Counter()
    for run, results in zip(runs, left, strict=True):
        passing = [result for result in run.results if result.passing]
        for cause in diagnose([*results, *passing]).causes if passing else ():
            where = _where(cause.conditions, cause.cases)
            for (verdict, kind), count in collections.Counter(
                (r.verdict, r.kind) for r in cause.cases
            ).items():
                rules = {r.rule for r in cause.cases if (r.verdict, r.kind) == (verdict, kind)}
                rule = rules.pop() if len(rules) == 1 else ""
                found[tuple(where.items()), verdict, kind, rule] += count
    for (where, verdict, kind, rule), _ in found.most_common():
        if where:
            yield _entry(dict(where), (), verdict, kind, rule)


def _where(found: Iterable[Condition], cases: Sequence[Result]) -> dict[str, tuple[str, ...]]:
    """Conditions as an entry writes them, in plain parameters."""
    where: dict[str, set[str]] = {}
    for condition in found:
        if condition.key == "any":
            for family in condition.values:
                where.setdefault("not_" + family, set()).add("none")
            continue
        keys = {condition.key} if condition.key not in ("around", "class") else {"program"}
        if condition.key == "class":
            keys = {value.partition(":")[0] for value in condition.values}
        for key in keys:
            where.setdefault(key, set()).update(_values(condition, key, cases))
    return {key: tuple(sorted(values)) for key, values in where.items()}


def _values(condition: Condition, key: str, cases: Sequence[Result]) -> set[str]:
    """The values of a parameter that meet a condition, among those the failing cases have."""
    if key == condition.key:
        return set(condition.values)
    present = {value for result in cases for value in result.parameters.get(key, ())}
    wanted = {(condition.key, value) for value in condition.values}
    return {value for value in present if wanted & set(features.features_of(key, (value,)))}


def _by_case(runs: Sequence[Run], left: list[list[Result]]) -> Iterator[tuple[Expectation, list[Seen]]]:
    """Entries that name cases, one for each kind of failure and each set of runs that shows it."""
    where: dict[tuple, list[int]] = {}
    for number, results in enumerate(left):
        for result in results:
            where.setdefault((result.case, result.verdict, result.kind, result.rule), []).append(number)
    groups: dict[tuple, list[str]] = {}
    for (case, *signature), numbers in where.items():
        groups.setdefault((*signature, tuple(numbers)), []).append(case)
    for (verdict, kind, rule, _), cases in sorted(groups.items(), key=lambda item: -len(item[1])):
        entry = _entry({}, cases, verdict, kind, rule)
        seen = look(runs, entry)
        yield dataclasses.replace(entry, **conditions(seen)), seen


def _entry(
    where: Mapping[str, Sequence[str]], cases: Iterable[str], verdict: str, kind: str, rule: str
) -> Expectation:
    plain = {key: list(values) for key, values in where.items()}
    return Expectation("new", plain, frozenset(cases), "", [], str(verdict), kind, rule, "", "")


def _written(entry: Expectation, seen: Sequence[Seen], reason: str) -> str:
    """A new entry as TOML, with what it was seen in as a comment."""
    import tomlkit

    table = tomlkit.table()
    runs = ", ".join(f"{one.broken:,} on jax {one.release} {one.platform}" for one in seen if one.broken)
    table.add(tomlkit.comment(f"cases: {runs}"))
    if entry.where:
        where = tomlkit.inline_table()
        where.update(entry.where)
        table.add("where", where)
    else:
        cases = tomlkit.array()
        cases.extend(sorted(entry.cases))
        table.add("case", cases.multiline(True))
    plain = {
        "jax": entry.jax,
        "platform": entry.platform,
        "verdict": entry.verdict,
        "kind": entry.kind,
        "rule": entry.rule,
    }
    for key, value in plain.items():
        if value:
            table.add(key, value)
    table.add("reason", reason)
    document = tomlkit.document()
    document.add("expect", tomlkit.aot())
    document["expect"].append(table)  # type: ignore[union-attr]
    return tomlkit.dumps(document)


def example(entry: Expectation, runs: Sequence[Run]) -> str:
    """The first message among the cases of an entry, for whoever fills in the reason."""
    for run in runs:
        for result in run.results:
            if _covered(entry, result) and result.message:
                return f"{result.case}: {first_line(result.message)}"
    return ""


def without_reason(entries: Iterable[Expectation]) -> list[str]:
    """The entries that give no reason."""
    return [entry.place for entry in entries if not entry.reason.strip()]
