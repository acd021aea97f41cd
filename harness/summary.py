"""The end of a run on the terminal: the matrix, the findings, and what is missing. Imports no JAX."""

from __future__ import annotations

import collections
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness import journal
from harness.verdicts import Verdict

SHOWN = 12
"""Findings shown on the terminal; the results folder has all."""



def one(result: dict[str, Any], folder: Path) -> str:
    """A verdict with its cause and where its reproducer is, in a few lines."""
    lines = [f"{result['verdict'].upper()} {result['case']}", f"  {result['rule']}: {result['kind'] or result['verdict']}"]
    lines += [f"  {line}" for line in result["message"].splitlines()[:8]]
    if result["also"]:
        lines.append(f"  also: {'; '.join(result['also'][:4])}")
    for field in ("reproducer", "log"):
        if result.get(field):
            lines.append(f"  {field}: {folder / result[field]}")
    return "\n".join(lines)


def problems(folder: Path, promised: Collection[str], accepted: Collection[str], strict: bool) -> str:
    """Why the run is not a success, in a few words; "" when it is one."""
    results = {result["case"]: result for result in journal.read(folder)}
    bad = sum(result["verdict"] not in accepted for result in results.values())
    missing = [case for case in promised if case not in results]
    found = [f"{bad} unexpected verdicts"] if bad else []
    if missing:
        found.append(f"{len(missing)} of {len(promised)} promised cases have no verdict, the first: {missing[0]}")
    if not results:
        found.append("no case was run")
    if strict:
        unmet = [place for place, count in expectations_met(folder).items() if not count]
        if unmet:
            found.append(f"expectations that matched nothing: {'; '.join(unmet)}")
        found += [f"expectation without a reason covers {r['case']}" for r in results.values() if r.get("expectation") == ""]
    return "; ".join(found)


def expectations_met(folder: Path) -> dict[str, int]:
    """How many cases each entry that holds here covered, over all workers."""
    total: collections.Counter[str] = collections.Counter()
    for path in folder.glob("expectations-*.json"):
        for place, count in json.loads(path.read_text()).items():
            total[place] += count
    return dict(total)


def screen(folder: Path, failure: str) -> Iterator[str]:
    """The lines that end a run."""
    results = list(journal.read(folder))
    yield from matrix(results)
    counts = collections.Counter(result["verdict"] for result in results)
    yield ""
    yield f"{len(results)} cases: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    bad = [r for r in results if r["verdict"] not in (Verdict.PASS, Verdict.NOT_APPLICABLE, Verdict.SKIPPED, Verdict.EXPECTED_FAIL)]
    for group in _alike(bad)[:SHOWN]:
        yield ""
        yield from one(group[0], folder).splitlines()
        if len(group) > 1:
            yield f"  and {len(group) - 1} more like it"
    if len(_alike(bad)) > SHOWN:
        yield f"... and {len(_alike(bad)) - SHOWN} more kinds of finding"
    yield f"results: {folder}"
    if failure:
        yield f"not a success: {failure}"


def _alike(results: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for result in results:
        key = (result["verdict"], result["rule"], result["kind"], *result["parameters"]["leaf"])
        groups.setdefault(key, []).append(result)
    return sorted(groups.values(), key=len, reverse=True)


def transform_of(result: dict[str, Any]) -> str:
    """The column of the matrix: the innermost control flow, else derivative, staging, binder."""
    for family in ("control", "derivative", "staging", "binder"):
        words = result["parameters"][family]
        if words != ["none"]:
            return words[-1]
    return "none"


def matrix(results: list[dict[str, Any]]) -> Iterator[str]:
    """Rule x transform: how many cases held each rule, or how many broke it of how many."""
    cells: dict[tuple[str, str], collections.Counter[str]] = {}
    for result in results:
        column = transform_of(result)
        for rule in {*result["rules"], result["rule"]}:
            verdict = result["verdict"] if rule == result["rule"] else Verdict.PASS
            if result["verdict"] in (Verdict.NOT_APPLICABLE, Verdict.SKIPPED):
                verdict = result["verdict"]
            cells.setdefault((rule, column), collections.Counter())[verdict] += 1
    rules = sorted({rule for rule, _ in cells})
    columns = sorted({column for _, column in cells})
    width = max((len(rule) for rule in rules), default=4)
    heads = [column[:9] for column in columns]
    yield f"{'rule':{width}} " + " ".join(f"{head:>9}" for head in heads)
    for rule in rules:
        row = [_cell(cells.get((rule, column))) for column in columns]
        yield f"{rule:{width}} " + " ".join(f"{text:>9}" for text in row)


def _cell(counts: collections.Counter[str] | None) -> str:
    """`12` all held; `2!/12` two broke it; `3x/12` three as expected; `-` not applicable."""
    if not counts:
        return ""
    total = sum(counts.values()) - counts[Verdict.NOT_APPLICABLE] - counts[Verdict.SKIPPED]
    if not total:
        return "-"
    expected = counts[Verdict.EXPECTED_FAIL]
    bad = total - counts[Verdict.PASS] - expected - counts[Verdict.UNEXPECTED_PASS]
    if bad:
        return f"{bad}!/{total}"
    return f"{expected}x/{total}" if expected else str(total)
