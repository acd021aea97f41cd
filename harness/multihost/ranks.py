"""The journal of one rank: `DIR/ranks/K.jsonl` and `DIR/ranks/K.environment.json`. Imports no JAX.

Three kinds of lines: `start` when a line is begun, `answer` with all that the rank, or its supervisor in its stead, had
to say of it, `settled` when the verdict on a case is final.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.journal import Lines
from harness.report.write import replace

FOLDER = "ranks"
BEGUN_AT_MOST = 3
"""A line that takes the supervisor with it so often is not begun again: a run that is resumed must end."""


class RankJournal:
    """One rank's journal, open for appending.

    Args:
      folder: the results folder, shared by the ranks or of this host alone.
      rank: whose it is.
    """

    def __init__(self, folder: Path, rank: int):
        self.folder, self.rank = folder / FOLDER, rank
        self.path = self.folder / f"{rank}.jsonl"
        before = list(entries(self.path)) if self.path.exists() else []
        self.begun = _unanswered(before)
        self.known = {entry["settled"]["case"]: entry["settled"] for entry in before if "settled" in entry}
        self._lines = Lines(self.path)

    def environment(self, facts: Mapping[str, Any]) -> None:
        try:
            replace(
                self.folder / f"{self.rank}.environment.json",
                json.dumps(facts, indent=2, sort_keys=True) + "\n",
            )
        except OSError as error:
            raise UsageError(f"results folder {self.folder} cannot be written: {error.strerror}") from error

    def started(self, line: str) -> None:
        self._lines.append({"start": line})

    def answered(self, answer: Mapping[str, Any]) -> None:
        self._lines.append({"answer": {key: value for key, value in answer.items() if key != "merged"}})

    def lost(self, line: str) -> str:
        """Why a line is not begun once more, or "": each time that it was, the supervisor was lost."""
        count = self.begun[line]
        return f"begun {count} times, and each time the supervisor was lost" if count >= BEGUN_AT_MOST else ""

    def settled(self, result: Mapping[str, Any]) -> None:
        """Notes a verdict; its texts are in the answers."""
        self.known[result["case"]] = dict(result)
        self._lines.append({"settled": {k: v for k, v in result.items() if k not in ("reproducer", "log")}})

    def close(self) -> None:
        self._lines.close()


def _unanswered(before: Iterable[Mapping[str, Any]]) -> collections.Counter[str]:
    """How often each line was begun and no answer noted, so that whoever notes them was lost."""
    found: collections.Counter[str] = collections.Counter()
    open_ = ""
    for entry in before:
        if "start" in entry:
            open_ = entry["start"]
            found[open_] += 1
        elif "answer" in entry and open_:
            found[open_] -= 1
            open_ = ""
    return found


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a rank's journal; torn ones are left out."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry
