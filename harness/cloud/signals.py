"""Ctrl-C, termination and a closed terminal end the run in order: they are raised once, and never during a deletion."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from harness.cloud.log import Log

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked for the end. Not an Exception, so that nothing on the way takes it for a failure."""


class Signals:
    """A context in which the first signal raises Interrupted and further ones are only answered."""

    def __init__(self, log: Log):
        self._log = log
        self._received = self._deferred = self._pending = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        for number in HANDLED:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._deferred:
            self._pending = self._pending or not self._received
            self._log.say(f"{name}: still cleaning up; killing this now would leave a TPU that costs money")
        elif not self._received:
            self._received = True
            self._log.say(f"{name}: stopping, then deleting what was created")
            raise Interrupted(name)

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals wait while the body runs; a first one is raised after it."""
        before, self._deferred = self._deferred, True
        try:
            yield
        finally:
            self._deferred = before
        if self._pending and not self._deferred:
            self._pending, self._received = False, True
            raise Interrupted("deferred")
