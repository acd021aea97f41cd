"""Reads the folder a run wrote: `results.jsonl`, `environment.json`, `reproducers/`, `logs/`.

The journal is written by processes that may die at any moment, so its last line may be torn and a case may stand in it
twice (a resumed run): the later line counts, and what cannot be read is counted, never guessed.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.verdicts import GOOD, Verdict

JOURNAL = "results.jsonl"
ENVIRONMENT = "environment.json"

FAILING = frozenset({Verdict.FAIL, Verdict.CRASH, Verdict.HANG, Verdict.FLAKY, Verdict.ORDER_DEPENDENT})
"""Verdicts that say the case was seen to break a law, and nobody expected it."""
PASSING = frozenset({Verdict.PASS, Verdict.UNEXPECTED_PASS})
"""Verdicts that say the case was seen to keep its laws."""
UNDECIDED = frozenset({Verdict.NOT_APPLICABLE, Verdict.SKIPPED, Verdict.MISSING})
"""Verdicts that say nothing about the laws."""


@dataclasses.dataclass(frozen=True)
class Result:
    """One case's verdict, as the journal has it.

    Attributes:
      case: the case line.
      rule: the law broken, or the case's own.
      rules: every law the case is held to.
      kind: what kind of wrong (harness.verdicts.Kind), "" unless failing.
      also: further laws it broke, as `rule: kind`.
      parameters: values by key (harness.parameters).
      reproducer, log: paths within the folder, or "".
      reduced: the smaller case its reproducer is of, or "".
      expectation: the reason of the expectation that matched, or "".
    """

    case: str
    verdict: Verdict
    rule: str = ""
    suite: str = ""
    rules: tuple[str, ...] = ()
    kind: str = ""
    message: str = ""
    also: tuple[str, ...] = ()
    seconds: float = 0.0
    time: str = ""
    worker: str = ""
    parameters: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    reproducer: str = ""
    log: str = ""
    reduced: str = ""
    expectation: str = ""

    @property
    def failing(self) -> bool:
        return self.verdict in FAILING

    @property
    def passing(self) -> bool:
        return self.verdict in PASSING


@dataclasses.dataclass(frozen=True)
class Run:
    """A whole results folder.

    Attributes:
      folder: where it was read from.
      results: one for each case, in the order first decided.
      environment: `environment.json`, {} when there is none.
      torn: lines of the journal that cannot be read.
    """

    folder: Path
    results: tuple[Result, ...]
    environment: Mapping[str, Any]
    torn: int = 0

    @property
    def counts(self) -> dict[Verdict, int]:
        """Cases by verdict, worst first; verdicts nobody got are left out."""
        found = collections.Counter(result.verdict for result in self.results)
        return {verdict: found[verdict] for verdict in reversed(Verdict) if found[verdict]}

    @property
    def promised(self) -> int | None:
        """How many cases the profile promised, where the run wrote it down."""
        value = self.environment.get("promised")
        return value if isinstance(value, int) else None

    @property
    def applicable(self) -> int:
        """Cases that ought to have a verdict about a law: all that were promised, less those not applicable."""
        away = sum(result.verdict == Verdict.NOT_APPLICABLE for result in self.results)
        return len(self.results) + self.undecided - away

    @property
    def passed(self) -> int:
        return sum(result.passing for result in self.results)

    @property
    def seconds(self) -> float:
        """Time spent in cases, over all workers."""
        return sum(result.seconds for result in self.results)

    @property
    def undecided(self) -> int:
        """Promised cases for which there is no line at all."""
        return max(0, (self.promised or 0) - len(self.results))

    @property
    def good(self) -> bool:
        """Whether nothing unexpected was seen and nothing promised is missing."""
        return (
            bool(self.results)
            and not self.undecided
            and all(result.verdict in GOOD for result in self.results)
        )

    @property
    def name(self) -> str:
        """The run in a few words: `jax 0.10.2, cpu x8`."""
        environment = self.environment
        if "jax" not in environment:
            return self.folder.name
        return f"jax {environment['jax']}, {environment.get('backend', '?')} x{environment.get('device_count', '?')}"


def load(folder: Path | str) -> Run:
    """Reads a results folder (or its journal); raises UsageError when there is no journal."""
    folder = Path(folder)
    journal = folder if folder.is_file() else folder / JOURNAL
    if not journal.is_file():
        raise UsageError(f"{folder}: no {JOURNAL} there; expected the folder of a run")
    results, torn = read_journal(journal)
    return Run(journal.parent, tuple(results), _environment(journal.parent / ENVIRONMENT), torn)


def read_journal(journal: Path) -> tuple[list[Result], int]:
    """(the last result of every case, how many lines could not be read)."""
    found: dict[str, Result] = {}
    torn = 0
    with journal.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                result = read_result(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                torn += 1
                continue
            found[result.case] = result
    return list(found.values()), torn


def read_result(record: Mapping[str, Any]) -> Result:
    """One line of the journal; keys that are not ours are ignored, so that older reports read newer journals."""
    text = {key: str(record.get(key) or "") for key in _TEXTS}
    return Result(
        verdict=Verdict(record["verdict"]),
        rules=tuple(record.get("rules") or ()),
        also=tuple(record.get("also") or ()),
        seconds=float(record.get("seconds") or 0.0),
        parameters={key: tuple(values) for key, values in (record.get("parameters") or {}).items()},
        **{**text, "case": str(record["case"])},
    )


_TEXTS = ("rule", "suite", "kind", "message", "time", "worker", "reproducer", "log", "reduced", "expectation")


def _environment(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def failing(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.failing]
