"""The ranks of one supervisor, asked together and killed together. Imports no JAX."""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.isolate import Death, Parent, Runner

LOOK_SECONDS = 0.5
"""How often it is seen whether a rank is stopped (SIGSTOP, a debugger)."""
STOPPED_SECONDS = 4.0
LINGER_SECONDS = 1.0
"""After a death, time for the others to say what they still can: those inside a collective cannot."""
ANSWER_SECONDS = 10.0
"""Time for an answer to arrive in full once it has begun."""

Answer = dict[str, Any] | Death


class Group:
    """Forked ranks, in the order of their places.

    Args:
      parent: the process that has imported JAX and forks them.
      count: how many ranks this supervisor has.
    """

    def __init__(self, parent: Parent, count: int):
        self.folder = tempfile.TemporaryDirectory(prefix="ranks-")
        self.runners: list[Runner] = [parent.fork() for _ in range(count)]
        self.stopped: set[int] = set()

    def stage_path(self, place: int) -> Path:
        return Path(self.folder.name) / str(place)

    def ask(self, requests: Sequence[Mapping[str, Any]], seconds: float) -> list[Answer]:
        """Every rank's answer or death. When one has died the others get a moment more; one that is late is killed."""
        for runner, request in zip(self.runners, requests, strict=True):
            runner.send(request, ANSWER_SECONDS)
        answers: dict[int, Answer] = {}
        deadline = time.monotonic() + seconds
        since: dict[int, float] = {}
        while len(answers) < len(self.runners):
            waiting = {
                runner.channel: place for place, runner in enumerate(self.runners) if place not in answers
            }
            left = min(LOOK_SECONDS, deadline - time.monotonic())
            readable, _, _ = select.select(list(waiting), [], [], max(0.0, left))
            if not readable and time.monotonic() > deadline:
                break
            if self._long_stopped(waiting.values(), since):
                deadline = min(deadline, time.monotonic() + LINGER_SECONDS)
            for channel in readable:
                place = waiting[channel]
                answers[place] = self.runners[place].receive(ANSWER_SECONDS)
                if isinstance(answers[place], Death) or _misses_someone(answers[place]):
                    deadline = min(deadline, time.monotonic() + LINGER_SECONDS)
        for place, runner in enumerate(self.runners):
            if place not in answers:
                self.stopped |= {place} if _is_stopped(runner.pid) else set()
                answers[place] = runner.receive(0.001)
        return [answers[place] for place in range(len(self.runners))]

    def _long_stopped(self, places: Iterable[int], since: dict[int, float]) -> bool:
        """Whether some rank has been stopped for so long that it will not go on by itself."""
        now = time.monotonic()
        for place in places:
            if _is_stopped(self.runners[place].pid):
                since.setdefault(place, now)
            else:
                since.pop(place, None)
        return any(now - start > STOPPED_SECONDS for start in since.values())

    def progress(self, place: int) -> tuple[int, str]:
        """How far a rank had come, as it noted itself: (number of stages, the last in words)."""
        try:
            count, text = json.loads(self.stage_path(place).read_text())
            return int(count), str(text)
        except (OSError, ValueError):
            return 0, "not started"

    def pids(self) -> list[int]:
        return [runner.pid for runner in self.runners]

    def kill(self) -> None:
        """Ends all of them: SIGKILL, since JAX swallows SIGTERM in a rank."""
        for runner in self.runners:
            if _is_stopped(runner.pid):
                os.kill(runner.pid, signal.SIGKILL)
            runner.close()
        self.folder.cleanup()


def _misses_someone(answer: Answer) -> bool:
    """Whether a rank has told its verdict to nobody: then some other did not come for it."""
    return (
        isinstance(answer, dict)
        and isinstance(answer["results"], dict)
        and answer["results"].get("merged", 0) is None
    )


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal (SIGSTOP)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False
