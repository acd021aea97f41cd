"""A worker whose runners misbehave on request: `python -m misbehaving SOCKET_FD`, started by test_isolate only."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Any

from harness import worker


def endless() -> None:
    """A loop inside a compiled program, which no Python code can end."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    forever = jax.jit(lambda x: lax.while_loop(lambda x: x[0, 0] >= 0, lambda x: x @ x, x))
    forever(jnp.eye(64)).block_until_ready()  # a simpler loop would be optimized away


def flood() -> str:
    for _ in range(2000):
        os.write(2, b"noise " * 200 + b"\n")
    return "flooded"


WAYS = {
    "exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "sleep": lambda: ctypes.CDLL(None).sleep(1000),
    "endless": endless,
    "flood": flood,
    "raise": lambda: 1 // 0,
    "pid": os.getpid,
    "nap": lambda: time.sleep(0.3),
}


def handle(request: dict[str, Any]) -> Any:
    if "how" not in request:
        from harness import check

        return check.handle(request)
    return WAYS[request["how"]]()


if __name__ == "__main__":
    worker.main(int(sys.argv[1]), handle)
