"""The process that runs cases: forked from a parent that has imported JAX but started no backend.

`python -m harness.worker SOCKET_FD` is that parent. On its socket it gets one request for each runner wanted, together
with the runner's own socket; it forks, answers with the process id, and later with how the process ended. A runner
reads one JSON line for each program and answers with one JSON line. Runners die by any means at any moment: nothing
here is worth keeping.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any

Handler = Callable[[dict[str, Any]], Any]


def main(descriptor: int, handle: Handler | None = None) -> None:
    """Serves fork requests until the controller goes away, and takes its runners along.

    Args:
      descriptor: of the socket to the controller.
      handle: answers one request in a runner; `harness.check.handle` where none is given.
    """
    control = socket.socket(fileno=descriptor)
    import jax

    from harness import check  # before forking, so that runners start in milliseconds

    handle = handle or check.handle
    control.sendall(json.dumps({"ready": jax.__version__}).encode() + b"\n")
    children: dict[int, None] = {}
    while True:
        readable, _, _ = select.select([control], [], [], 0.02 if children else None)
        _report_ended(control, children)
        if not readable:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 65536, 2)
        if not message:
            _end_all(children)
        runner, log = descriptors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of forking; no backend has been started yet
            pid = os.fork()
        if pid == 0:
            control.close()
            _run(socket.socket(fileno=runner), log, handle)
        os.close(runner)
        os.close(log)
        children[pid] = None
        control.sendall(json.dumps({"pid": pid}).encode() + b"\n")


def _report_ended(control: socket.socket, children: dict[int, None]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            del children[pid]
            control.sendall(
                json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}).encode() + b"\n"
            )


def _end_all(children: Iterable[int]) -> None:
    """A runner that hangs would not notice that nobody listens any more. Never returns."""
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _run(channel: socket.socket, log: int, handle: Handler) -> None:
    """A runner: one answer for each request, until the socket closes. Never returns."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    status = 0
    try:
        _serve(channel, handle)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except BaseException:
        traceback.print_exc()
        status = 1
    os._exit(status)


def _serve(channel: socket.socket, handle: Handler) -> None:
    with channel.makefile("r", encoding="utf-8") as requests:
        for line in requests:
            answer: dict[str, Any] = {"seconds": 0.0}
            start = time.perf_counter()
            try:
                answer["results"] = handle(json.loads(line))
            except Exception:  # a defect of the harness, not a verdict on JAX
                answer["defect"] = traceback.format_exc()
            answer["seconds"] = time.perf_counter() - start
            channel.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
