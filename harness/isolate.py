"""Runs cases in processes that may die or hang: the controller's side. Imports no JAX.

One parent process imports JAX once and forks a runner whenever one is wanted, so that a fresh process costs a
fraction of a second. A runner that does not answer in time is asked for the stacks of all its threads and killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 180.0
"""Importing JAX takes seconds; minutes on a machine that starts many processes at once."""
STACK_SECONDS = 2.0
LOG_TAIL = 6000


class BackendError(Exception):
    """The backend could not be started at all: no verdict can be given."""


class HarnessDefect(Exception):
    """The harness itself went wrong in a runner: the case stays without a verdict, and the run is no success."""


@dataclasses.dataclass(frozen=True)
class Death:
    """How a runner ended while it had work.

    Attributes:
      hang: whether it was killed for not answering in time.
      status: exit code, or minus the signal.
      log: the end of what it wrote, with the stacks of its threads.
    """

    hang: bool
    status: int | None
    log: str

    def __str__(self) -> str:
        """How a process that did not hang ended, with the first thing it wrote."""
        if self.status is None:
            how = "an unknown status"
        else:
            how = f"signal {-self.status}" if self.status < 0 else f"exit code {self.status}"
        first = next((text for text in self.log.splitlines() if text.strip()), "")
        return f"the process ended with {how}: {first[:300]}"


class Lines:
    """Lines from a socket. Unlike a file made of it, it can be read on after a timeout."""

    def __init__(self, channel: socket.socket):
        self.channel, self.buffer = channel, b""

    def read(self, seconds: float) -> str:
        """The next line, or "" at the end of the stream; raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            self.channel.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                more = self.channel.recv(1 << 16)
            except ConnectionError:
                more = b""
            if not more:
                return ""
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()


class Parent:
    """The process that has imported JAX and forks runners.

    Args:
      environment: variables added to this process's own.
      module: what it runs; it calls `harness.worker.main`.
    """

    def __init__(self, environment: Mapping[str, str], module: str = "harness.worker"):
        ours, theirs = socket.socketpair()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno())],  # -P: not what lies in this folder
            env=_with_root({**os.environ, **environment}),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        theirs.close()
        self.control = ours
        self.messages = Lines(ours)
        self.ended: dict[int, int] = {}
        self.jax_version = self._read("ready", START_SECONDS)

    def _read(self, key: str, seconds: float) -> Any:
        """The next message with that key; what runners' ends it meets on the way is remembered."""
        while True:
            try:
                line = self.messages.read(seconds)
            except TimeoutError:
                line = ""
            if not line:
                raise BackendError(
                    f"the process that imports JAX ended or did not answer:\n{_tail(self.log)}"
                )
            message = json.loads(line)
            if "ended" in message:
                self.ended[message["ended"]] = message["status"]
            if key in message and (key != "ended"):
                return message[key]

    def fork(self) -> Runner:
        """A fresh process with JAX imported and no backend started."""
        ours, theirs = socket.socketpair()
        log = tempfile.TemporaryFile()
        try:
            socket.send_fds(self.control, [b"fork"], [theirs.fileno(), log.fileno()])
        except ConnectionError:
            raise BackendError(f"the process that imports JAX has ended:\n{_tail(self.log)}") from None
        theirs.close()
        pid = int(self._read("pid", START_SECONDS))
        self.ended.pop(pid, None)  # of an earlier process with that number
        return Runner(self, pid, ours, log)

    def status(self, pid: int, seconds: float = 5.0) -> int | None:
        """The exit status of a runner that has ended."""
        try:
            while pid not in self.ended:
                line = self.messages.read(seconds)
                if not line:
                    return None
                message = json.loads(line)
                if "ended" in message:
                    self.ended[message["ended"]] = message["status"]
        except TimeoutError:
            return None
        return self.ended.pop(pid)

    def close(self) -> None:
        _kill(self.process.pid)
        self.process.wait()
        self.control.close()
        self.log.close()


class Runner:
    """A forked process that checks cases one line at a time."""

    def __init__(self, parent: Parent, pid: int, channel: socket.socket, log: IO[bytes]):
        self.parent, self.pid, self.channel, self.log = parent, pid, channel, log
        self.answers = Lines(channel)
        self.history: list[str] = []
        self.asked: Mapping[str, Any] = {}

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | Death:
        """The answer to a request, or how the runner died of it (it is gone then)."""
        self.send(request, seconds)
        return self.receive(seconds)

    def send(self, request: Mapping[str, Any], seconds: float) -> None:
        """Sends a request, the answer to which is received later; a runner that is gone shows itself then."""
        if "line" in request:
            self.history.append(request["line"])
        self.asked = request
        self.channel.settimeout(seconds)
        with contextlib.suppress(TimeoutError, ConnectionError):
            self.channel.sendall(json.dumps(request).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any] | Death:
        """The answer to what was sent, or how the runner died of it (it is gone then)."""
        try:
            line = self.answers.read(seconds)
        except TimeoutError:
            return self._die(hang=True)
        except ConnectionError:
            line = ""
        if not line:
            return self._die(hang=False)
        answer = json.loads(line)
        if "defect" in answer:
            raise HarnessDefect(f"{self.asked}: {answer['defect']}")
        return answer

    def _die(self, hang: bool) -> Death:
        if hang:
            self._dump_stacks()
        self._end()
        death = Death(hang, self.parent.status(self.pid), _tail(self.log))
        self.close()
        return death

    def _dump_stacks(self) -> None:
        """Has faulthandler write the stacks of all threads into the log, which it can do even inside XLA."""
        before = _size(self.log)
        try:
            os.kill(self.pid, signal.SIGUSR1)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + STACK_SECONDS
        while time.monotonic() < deadline and _size(self.log) == before:
            time.sleep(0.05)
        time.sleep(0.1)

    def _end(self) -> None:
        _kill(self.pid)

    def close(self) -> None:
        if self.channel.fileno() == -1:  # closed before: the number may be another process's by now
            return
        self._end()
        self.channel.close()
        self.log.close()


def _kill(pid: int) -> None:
    """Ends a process and its group; SIGKILL, since JAX may swallow anything milder."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _tail(file: IO[bytes]) -> str:
    size = _size(file)
    return os.pread(file.fileno(), LOG_TAIL, max(0, size - LOG_TAIL)).decode(errors="replace").strip()


def _with_root(environment: dict[str, str]) -> dict[str, str]:
    """The environment with this project importable from anywhere."""
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}
