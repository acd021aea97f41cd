"""The append-only record of a run: `results.jsonl`, one verdict a line, written the moment it falls."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError

RESULTS = "results.jsonl"
ENVIRONMENT = "environment.json"


class Lines:
    """A file of JSON lines open for appending; several processes may append to one file at once."""

    def __init__(self, path: Path):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            _end_torn_line(path, self._file)
        except OSError as error:
            raise UsageError(f"results folder {path.parent} cannot be written: {error.strerror}") from error

    def append(self, entry: Mapping[str, Any]) -> None:
        """Writes one line with a single write, so that lines of several processes never mix; raises UsageError."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({**entry, "time": now}, ensure_ascii=False).encode() + b"\n"
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from error
        if written < len(line):  # what is there is no line: it is ended and left out when the file is read
            raise UsageError(f"{self.path} cannot be written: no space left on the device")

    def close(self) -> None:
        os.close(self._file)


class Journal:
    """A results folder open for appending; several processes may append to one folder at once."""

    def __init__(self, folder: Path, worker: str = "main"):
        self.folder, self.worker = folder, worker
        self._lines = Lines(folder / RESULTS)
        try:
            (folder / "reproducers").mkdir(exist_ok=True)
            (folder / "logs").mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"results folder {folder} cannot be written: {error.strerror}") from error

    def append(self, result: Mapping[str, Any]) -> None:
        self._lines.append({**result, "worker": self.worker})

    def attach(self, kind: str, case: str, text: str, suffix: str) -> str:
        """Stores a text beside the journal and returns its path relative to the folder."""
        path = f"{kind}/{slug(case)}{suffix}"
        (self.folder / path).write_text(text, encoding="utf-8")
        return path

    def close(self) -> None:
        self._lines.close()


def _end_torn_line(path: Path, descriptor: int) -> None:
    """A process that died while writing may have left half a line: end it, so that the next one stands alone."""
    size = path.stat().st_size
    if size:
        with path.open("rb") as file:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                os.write(descriptor, b"\n")


def slug(case: str) -> str:
    """A file name for a case: readable, and unique by a hash of the whole line."""
    import hashlib

    words = re.sub(r"[^a-z0-9]+", "_", case.lower()).strip("_")[:80]
    return f"{words}_{hashlib.sha256(case.encode()).hexdigest()[:8]}"


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """The verdicts of a results folder, the last one for each case; torn lines are left out."""
    path = folder / RESULTS
    if not path.exists():
        raise UsageError(f"{folder} holds no {RESULTS}: not a results folder")
    latest: dict[str, dict[str, Any]] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                result = json.loads(line)
                latest[result["case"]] = result
            except (ValueError, KeyError, TypeError):
                continue
    yield from latest.values()


def write_environment(folder: Path, facts: Mapping[str, Any]) -> None:
    (folder / ENVIRONMENT).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read_environment(folder: Path) -> dict[str, Any]:
    path = folder / ENVIRONMENT
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
