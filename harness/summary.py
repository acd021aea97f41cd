"""Whether a run is a success and why not, and one verdict in a few lines. Imports no JAX."""

from __future__ import annotations

import collections
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from harness import journal


def one(result: dict[str, Any], folder: Path) -> str:
    """A verdict with its cause and where its reproducer is, in a few lines."""
    lines = [
        f"{result['verdict'].upper()} {result['case']}",
        f"  {result['rule']}: {result['kind'] or result['verdict']}",
    ]
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
        found.append(
            f"{len(missing)} of {len(promised)} promised cases have no verdict, the first: {missing[0]}"
        )
    if not results:
        found.append("no case was run")
    if strict:
        unmet = [place for place, count in expectations_met(folder).items() if not count]
        if unmet:
            found.append(f"expectations that matched nothing: {'; '.join(unmet)}")
        found += [
            f"expectation without a reason covers {r['case']}"
            for r in results.values()
            if r.get("expectation") == ""
        ]
    return "; ".join(found)


def expectations_met(folder: Path) -> dict[str, int]:
    """How many cases each entry that holds here covered, over all workers."""
    total: collections.Counter[str] = collections.Counter()
    for path in folder.glob("expectations-*.json"):
        for place, count in json.loads(path.read_text()).items():
            total[place] += count
    return dict(total)
