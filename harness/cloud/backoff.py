"""Pauses between tries."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

LONGEST = 600.0
"""Seconds; no pause is longer."""


def delays(first: float, rng: random.Random) -> Iterator[float]:
    """Seconds to wait before each further try: doubled each time, with up to a quarter more so that runs that failed
    together do not come back together."""
    delay = first
    while True:
        yield min(delay, LONGEST) * (1 + rng.random() / 4)
        delay *= 2


class Deadline:
    """A moment after which something is given up.

    Args:
      seconds: from now.
      clock: seconds, monotonic.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.seconds, self._clock = seconds, clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - self._clock())

    @property
    def over(self) -> bool:
        return self.left <= 0
