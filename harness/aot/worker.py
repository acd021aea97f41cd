"""The process that checks cases on a compile-only backend (see `harness.worker`)."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from harness import check, worker
from harness.aot import check as aot
from harness.backends import NAMED
from harness.errors import UsageError


@functools.cache
def way() -> check.Way:
    """How this process runs cases; the topology is made once, after the fork."""
    return aot.way(os.environ[NAMED])


def handle(request: dict[str, Any]) -> Any:
    """Answers a request as `harness.check.handle` does."""
    if request.get("facts"):
        try:
            return aot.facts(os.environ[NAMED])
        except UsageError as error:
            return {"unusable": str(error)}
    return check.handle(request, way())


if __name__ == "__main__":
    worker.main(int(sys.argv[1]), handle)
