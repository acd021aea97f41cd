"""The copy of a worker's files here, which grows while the suite runs, so that a lost worker costs seconds."""

from __future__ import annotations

import base64
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.cloud import agent

ALLOWED = re.compile(rf"({agent.LOG}|{agent.STATUS}|{agent.RESULTS}(/[\w.-]+)+)")


def parse(line: bytes) -> dict[str, Any] | None:
    """What the agent says in a line of the connection; None for anything that is not from it."""
    text = line.decode(errors="replace").strip()
    if not text.startswith(agent.MARK):
        return None
    try:
        frame = json.loads(text.removeprefix(agent.MARK))
    except ValueError:
        return None
    return frame if isinstance(frame, dict) else None


class Mirror:
    """One worker's files in a local folder.

    Args:
      folder: made where it does not exist.
      tell: called with each whole line that the log gains.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda line: None):
        self.folder, self._tell = folder, tell
        self._told = 0
        (folder / agent.RESULTS).mkdir(parents=True, exist_ok=True)

    def sizes(self) -> dict[str, int]:
        """What is here already, by path, as `agent.follow` wants it."""
        paths = [
            path for path in self.folder.rglob("*") if path.suffix in (".jsonl", ".txt") and path.is_file()
        ]
        return {
            name: path.stat().st_size
            for path in paths
            if ALLOWED.fullmatch(name := str(path.relative_to(self.folder)))
        }

    def take(self, frame: dict[str, Any]) -> None:
        """Writes a piece of a file where it belongs; a path that is not one of the agent's is left alone."""
        name = frame.get("file", "")
        if not isinstance(name, str) or not ALLOWED.fullmatch(name) or ".." in name.split("/"):
            return
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = base64.b64decode(frame["data"])
        if frame.get("whole"):
            path.write_bytes(data)
        else:
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.seek(frame["at"])
                file.write(data)
        if name == agent.LOG:
            self._tell_lines()

    def _tell_lines(self) -> None:
        with (self.folder / agent.LOG).open("rb") as file:
            file.seek(self._told)
            *lines, _ = file.read().split(b"\n")
        for line in lines:
            self._told += len(line) + 1
            self._tell(line.decode(errors="replace").rstrip())

    def statuses(self) -> list[dict[str, Any]]:
        """What the agent told of the suite's steps so far."""
        path = self.folder / agent.STATUS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def last_lines(self, count: int) -> list[str]:
        path = self.folder / agent.LOG
        return path.read_text(errors="replace").splitlines()[-count:] if path.exists() else []

    def verdicts(self) -> int:
        """How many verdicts the journals have."""
        journals = (self.folder / agent.RESULTS).rglob("*.jsonl")
        return sum(path.read_bytes().count(b'"verdict"') for path in journals)

    def unpack(self, archive: Path) -> None:
        """Replaces what was streamed by what was fetched; links and paths that lead out are refused by tarfile."""
        with tarfile.open(archive) as file:
            file.extractall(self.folder, filter="data")
