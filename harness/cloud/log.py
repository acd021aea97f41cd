"""What the command tells: progress on the terminal, everything in a file, secrets in neither."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import sys
import threading
from pathlib import Path
from typing import TextIO

SECRETS = (
    (re.compile(r"ya29\.[-\w.]+"), "***"),
    (re.compile(r"(?i)(bearer|basic)\s+[-\w.~+/=]{8,}"), r"\1 ***"),
    (
        re.compile(
            r"(?i)\b(\w*(?:token|secret|password|passwd|api_?key|private_?key)\w*[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+"
        ),
        r"\1***",
    ),
    (re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@"), r"\1***@"),
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL),
        "***",
    ),
)
SECRET_NAME = re.compile(r"(?i)token|secret|password|passwd|credential|api_?key|private_?key")


def redact(text: str) -> str:
    """The text without what looks like a secret, and without the values of variables that are named like one."""
    for name, value in os.environ.items():
        if SECRET_NAME.search(name) and len(value) >= 8 and not os.path.exists(value):
            text = text.replace(value, "***")
    for pattern, instead in SECRETS:
        text = pattern.sub(instead, text)
    return text


class Log:
    """Writes lines with their time; safe for several threads.

    A terminal that was closed or a disk that is full must not keep a TPU from being deleted: where nothing can be
    written any more, nothing is.

    Args:
      path: file that gets everything, or None.
      screen: where people look (default: standard output).
    """

    def __init__(self, path: Path | None, screen: TextIO | None = None):
        self._lock = threading.Lock()
        self._screen = screen or sys.stdout
        self._file = path.open("a", encoding="utf-8") if path else None

    def say(self, text: str) -> None:
        """For the person who waits, and the file."""
        self._write(text, everywhere=True)

    def note(self, text: str) -> None:
        """For the file only."""
        self._write(text, everywhere=False)

    def loud(self, *lines: str) -> None:
        """What nobody may miss: a frame around it, and a marked line for GitHub where that runs us."""
        width = max(len(line) for line in lines) + 4
        for line in ("!" * width, *(f"! {line}" for line in lines), "!" * width):
            self.say(line)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            with self._lock:
                self._print(redact(f"::error title=Cloud TPU::{' '.join(lines)}"))

    def _write(self, text: str, everywhere: bool) -> None:
        now = datetime.datetime.now(datetime.UTC)
        clean = redact(text)
        with self._lock:
            if everywhere:
                self._print(f"{now:%H:%M:%S} {clean}")
            if self._file:
                with contextlib.suppress(OSError):
                    self._file.write(f"{now.isoformat(timespec='milliseconds')} {clean}\n")
                    self._file.flush()

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._screen, flush=True)
        except OSError:  # also what is still in its buffer goes nowhere, or Python would end with an error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._screen.fileno())

    def close(self) -> None:
        if self._file:
            self._file.close()
