"""Ctrl-C, termination and a closed terminal end the run in order.

A signal is only noted when it comes; it is raised where the run waits, so that no step is torn in its middle, and never
during a deletion.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from harness.cloud.log import Log

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked for the end. Not an Exception, so that nothing on the way takes it for a failure."""


class Signals:
    """A context in which signals are noted, and raised once by `check`."""

    def __init__(self, log: Log):
        self._log = log
        self._received = ""
        self._raised = False
        self._held = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        for number in HANDLED:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._received or self._held:
            self._log.say(f"{name}: still cleaning up; killing this now would leave a TPU that costs money")
        else:
            self._log.say(f"{name}: stopping, then deleting what was created")
        self._received = self._received or name

    def check(self) -> None:
        """Raises Interrupted in the main thread, once, if a signal came and is not held back."""
        waiting = self._received and not self._raised and not self._held
        if waiting and threading.current_thread() is threading.main_thread():
            self._raised = True
            raise Interrupted(self._received)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Signals wait while the body runs."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
