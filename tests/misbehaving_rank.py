"""A rank that goes wrong on request: `python -m misbehaving_rank SOCKET_FD`, started by test_multihost_faults only.

What it does stands in the variable RANK_TROUBLE as JSON: `{"rank": 1, "how": "kill", "when": "inside", "line": "pmax"}`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from harness import run, worker
from harness.multihost.rank import Rank

TROUBLE: dict[str, Any] = json.loads(os.environ.get("RANK_TROUBLE", "{}"))


def raise_() -> None:
    raise ZeroDivisionError("trouble")


WAYS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exit": lambda: os._exit(3),
    "raise": raise_,
    "sleep": lambda: time.sleep(TROUBLE["seconds"]),
}


class Misbehaving(Rank):
    """Goes wrong in the line that is asked for: before its first collective, inside it, or after it."""

    def check(self, line: str, seconds: float) -> dict[str, Any]:
        assert self.channel is not None
        here = bool(TROUBLE) and self.channel.rank == TROUBLE["rank"] and TROUBLE["line"] in line
        once = TROUBLE.get("once")
        if here and once and os.path.exists(once):
            here = False
        if here and once:
            open(once, "w").close()
        compare, output = self.agreement.compare, run._output
        act = WAYS[TROUBLE["how"]] if here else (lambda: None)

        def around(*arguments: Any) -> None:
            if TROUBLE.get("when") == "before":
                act()
            compare(*arguments)
            if TROUBLE.get("when") == "inside":
                act()

        def after(value: Any) -> Any:
            if TROUBLE.get("when") == "after":
                act()
            return output(value)

        self.agreement.compare, run._output = around, after  # type: ignore[method-assign]
        try:
            return super().check(line, seconds)
        finally:
            self.agreement.compare, run._output = compare, output  # type: ignore[method-assign]


if __name__ == "__main__":
    worker.main(int(sys.argv[1]), Misbehaving().handle)
