"""One results folder out of the journals of all ranks, wherever they were fetched from. Imports no JAX."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import expectations, journal
from harness.case import parse, parse_line
from harness.errors import UsageError
from harness.expectations import Expectation
from harness.multihost.merge import merge
from harness.multihost.ranks import FOLDER, entries
from harness.parameters import KEYS
from harness.session import write_down
from harness.verdicts import Verdict, worst

Result = dict[str, Any]


@dataclasses.dataclass
class Told:
    """What one rank's journals tell.

    Attributes:
      answers: its last answer about each line it was asked.
      settled: its final result of each case.
    """

    rank: int
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    settled: dict[str, Result] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Collected:
    """Attributes:
    promised: every case the run was to decide.
    absent: ranks that left no journal.
    """

    promised: set[str]
    absent: list[int]


def collect(folders: Sequence[Path], out: Path, known: Path) -> Collected:
    """Writes the verdicts of all ranks, merged, into a results folder.

    Args:
      folders: each with `ranks/K.jsonl` of some ranks (or those files themselves).
      out: the results folder to write; it must hold no run yet.
      known: folder of expectation files.
    """
    if (out / journal.RESULTS).exists():
        raise UsageError(f"--results {out}: already holds a run")
    told = _read(folders)
    first = told[min(told)]
    count = max(rank.facts.get("process_count", 1) for rank in told.values())
    absent = [rank for rank in range(count) if rank not in told]
    entries_ = _entries(known, first.facts)
    lines = _lines(told)
    written = journal.Journal(out, "merge")
    cases = [case for line in lines for case in map(str, parse_line(line))]
    for case in dict.fromkeys(cases):
        result = _result(case, told, absent)
        if result is not None:
            write_down(result, parse(case), entries_, written)
    written.close()
    hosts = {rank: each.facts.get("host") for rank, each in sorted(told.items())}
    journal.write_environment(out, {**first.facts, "run": _without_lines(first.facts), "hosts": hosts})
    return Collected(set(cases), absent)


def _read(folders: Sequence[Path]) -> dict[int, Told]:
    """What every rank's journals tell; those of a rank that was on several hosts are read in the order of time."""
    found: dict[int, list[dict[str, Any]]] = {}
    facts: dict[int, dict[str, Any]] = {}
    for folder in folders:
        place = folder / FOLDER if (folder / FOLDER).is_dir() else folder
        journals = [path for path in sorted(place.glob("*.jsonl")) if path.stem.isdecimal()]
        if not journals:
            raise UsageError(f"--merge {folder}: holds no {FOLDER}/K.jsonl")
        for path in journals:
            rank = int(path.stem)
            found.setdefault(rank, []).extend(entries(path))
            facts[rank] = facts.get(rank) or _facts(path)
    return {rank: _told(rank, facts[rank], lines) for rank, lines in found.items()}


def _facts(path: Path) -> dict[str, Any]:
    """The environment of a rank beside its journal; a torn file tells nothing."""
    try:
        return json.loads(path.with_name(f"{path.stem}.environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _told(rank: int, facts: dict[str, Any], lines: list[dict[str, Any]]) -> Told:
    told = Told(rank, facts)
    for entry in sorted(lines, key=lambda entry: str(entry.get("time", ""))):
        if "answer" in entry:
            for result in entry["answer"]["results"]:
                told.answers[result["case"]] = {**entry["answer"], "results": [result]}
        if "settled" in entry:
            told.settled[entry["settled"]["case"]] = entry["settled"]
    return told


def _lines(told: dict[int, Told]) -> list[str]:
    """The lines of the run: as the ranks were given them, or what they met where no environment file has them."""
    for each in told.values():
        lines = each.facts.get("run", {}).get("lines")
        if lines:
            return list(lines)
    return list(dict.fromkeys(case for each in told.values() for case in (*each.settled, *each.answers)))


def _result(case: str, told: dict[int, Told], absent: list[int]) -> Result | None:
    """The verdict on a case, the worst that any rank settled; None where no rank ever met it."""
    settled = {rank: each.settled[case] for rank, each in told.items() if case in each.settled}
    answers = {rank: each.answers[case] for rank, each in told.items() if case in each.answers}
    without = [*absent, *(rank for rank in told if rank not in settled)]
    if without:
        return _unsettled(case, answers, settled, without, len(told) + len(absent))
    verdict = worst([Verdict(each["verdict"]) for each in settled.values()])
    result = next(each for each in settled.values() if each["verdict"] == verdict)
    if verdict == Verdict.PASS:
        return merge(answers, len(told))[0]
    at_fault = [*result.get("culprits", ()), *sorted(answers)]
    for field in ("reproducer", "log"):
        texts = [answers[rank]["results"][0].get(field) for rank in at_fault if rank in answers]
        result = {**result, field: next(filter(None, texts), None)}
    return result


def _unsettled(
    case: str, answers: dict[int, dict[str, Any]], settled: dict[int, Result], without: list[int], count: int
) -> Result | None:
    """The result of a case that some rank did not settle: what the ranks last said, if all did; else it is missing."""
    if len(answers) == count:
        merged = merge(answers, count)[0]
        if merged["verdict"] not in (Verdict.PASS, Verdict.NOT_APPLICABLE):
            return merged
    if not answers and not settled:
        return None
    base = next(iter([*settled.values(), *(answer["results"][0] for answer in answers.values())]))
    named = ", ".join(f"rank {rank}" for rank in sorted(without))
    return {
        **base,
        "verdict": Verdict.MISSING,
        "message": f"{named} did not settle it",
        "culprits": sorted(without),
    }


def _entries(folder: Path, facts: dict[str, Any]) -> list[Expectation]:
    known = expectations.load(folder, KEYS)
    return [entry for entry in known if "jax" in facts and entry.applies(facts)]


def _without_lines(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.get("run", {}).items() if key != "lines"}
