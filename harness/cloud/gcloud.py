"""Runs gcloud: every command and answer into the log, never through a shell, never without a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from harness.cloud.backoff import Deadline
from harness.cloud.commands import Command
from harness.cloud.log import Log
from harness.cloud.troubles import INTERRUPTED, SLOW, UNKNOWN, Trouble, kind_of, what_was_said
from harness.errors import UsageError

ENVIRONMENT = {"CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1"}


class Runner(Protocol):
    """What the rest of the package needs of gcloud: the real one below, or a dry run."""

    def call(self, command: Command, seconds: float) -> str: ...
    def stream(self, command: Command, silence: float) -> Iterator[bytes | None]: ...
    def json(self, command: Command, seconds: float) -> Any: ...
    def pause(self, seconds: float) -> None: ...
    def check(self) -> None: ...
    def halt(self) -> None: ...
    def go_on(self) -> None: ...


class Gcloud:
    """The gcloud command.

    Args:
      program: its name or path.
      log: where commands and answers are noted.
      check: called at least each second while the main thread waits; may raise to end the waiting.
    """

    def __init__(self, program: str, log: Log, check: Callable[[], None] = lambda: None):
        self.program, self._log, self.check = program, log, check
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._halted = False

    def call(self, command: Command, seconds: float) -> str:
        """Standard output of a command; raises Trouble with what gcloud said when it fails or takes too long."""
        started = time.monotonic()
        with self._process(command, merge=False) as process:
            out, err = self._answer(process, command, seconds)
        text = err.decode(errors="replace")
        took = time.monotonic() - started
        self._log.note(f"  exit {process.returncode} after {took:.1f} s {text.strip()[-2000:]}")
        if "--format=json" not in command and out.strip():
            self._log.note("  said " + out.decode(errors="replace").strip()[-8000:])
        said = out.decode(errors="replace")
        if process.returncode:
            raise Trouble(kind_of(text), f"{' '.join(command[2:5])}: {what_was_said(text, said)}")
        return said

    def _answer(
        self, process: subprocess.Popen[bytes], command: Command, seconds: float
    ) -> tuple[bytes, bytes]:
        """What a process wrote when it ended."""
        deadline = Deadline(seconds)
        while True:
            self.check()
            try:
                return process.communicate(timeout=min(0.2, deadline.left))
            except subprocess.TimeoutExpired:
                if deadline.over:
                    raise Trouble(SLOW, f"no answer within {seconds:.0f} s: {shlex.join(command)}") from None

    def json(self, command: Command, seconds: float) -> Any:
        text = self.call(command, seconds)
        try:
            return json.loads(text)
        except ValueError:
            raise Trouble(UNKNOWN, f"{shlex.join(command)} printed no JSON: {text[:200]!r}") from None

    def stream(self, command: Command, silence: float) -> Iterator[bytes | None]:
        """Lines of a command's output as they come, and None each second in between; ends with the command.

        The command is killed when it is silent for longer than `silence` seconds, or when the iterator is closed.
        """
        import select

        with self._process(command, merge=True) as process:
            assert process.stdout is not None
            descriptor = process.stdout.fileno()
            rest, last = b"", time.monotonic()
            while True:
                if not select.select([descriptor], [], [], 1.0)[0]:
                    if time.monotonic() - last > silence:
                        self._log.note(f"silent for {silence:.0f} s: {shlex.join(command)}")
                        return
                    yield None
                    continue
                block = os.read(descriptor, 1 << 16)
                last = time.monotonic()
                *lines, rest = (rest + block).split(b"\n")
                yield from lines
                if not block:
                    if rest:
                        yield rest
                    break
            process.wait()
            self._log.note(f"  exit {process.returncode}: {shlex.join(command)[:200]}")

    def pause(self, seconds: float) -> None:
        deadline = Deadline(seconds)
        while True:
            self.check()
            if deadline.over:
                return
            time.sleep(min(0.2, deadline.left))

    def halt(self) -> None:
        """Ends the commands that helper threads wait for, and lets these threads start no other."""
        with self._lock:
            self._halted = True
            running = list(self._running)
        for process in running:
            _kill(process)

    def go_on(self) -> None:
        """Takes `halt` back."""
        self._halted = False

    @contextlib.contextmanager
    def _process(self, command: Command, merge: bool) -> Iterator[subprocess.Popen[bytes]]:
        """A gcloud process in a session of its own: Ctrl-C is for us to handle, and must not end a deletion."""
        self._log.note(f"$ {shlex.join([self.program, *command])}")
        with self._lock:
            if self._halted and threading.current_thread() is not threading.main_thread():
                raise Trouble(INTERRUPTED, "the run is being stopped")
            process = self._start(command, merge)
            self._running.add(process)
        try:
            yield process
        finally:
            self._running.discard(process)
            _kill(process)
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()

    def _start(self, command: Command, merge: bool) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [self.program, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merge else subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, **ENVIRONMENT},
            )
        except OSError as error:
            raise UsageError(
                f"--gcloud={self.program}: cannot be run ({error.strerror}); install the Google Cloud CLI"
            ) from error


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
