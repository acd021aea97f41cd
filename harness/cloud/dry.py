"""A dry run: every command is printed and none is run; what the rest of the code asks is answered as if all went well."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.cloud import agent
from harness.cloud.commands import Command
from harness.cloud.troubles import MISSING, Trouble

EMPTY_ARCHIVE = bytes(10240)
"""A tar file without members."""


class DryGcloud:
    """Stands in for gcloud, and prints.

    Args:
      workers: how many each node is taken to have.
    """

    def __init__(self, program: str, workers: int):
        self._program, self._workers = program, workers
        self._deleted: set[str] = set()
        self._lock = threading.Lock()

    def call(self, command: Command, seconds: float) -> str:
        with self._lock:
            print(shlex.join([self._program, *command]), flush=True)
        verb, name = self._parts(command)
        if verb == "delete":
            self._deleted.add(name)
        if verb == "describe" and name in self._deleted:
            raise Trouble(MISSING, f"NOT_FOUND: {name}")
        if verb == "scp" and ":" in command[command.index("scp") + 1]:
            Path(command[command.index("scp") + 2]).write_bytes(EMPTY_ARCHIVE)
        return self._answer(verb, "queued-resources" in command)

    def _parts(self, command: Command) -> tuple[str, str]:
        at = next(i for i, word in enumerate(command) if word in ("tpu-vm", "queued-resources")) + 1
        return command[at], command[at + 1]

    def _answer(self, verb: str, queued: bool) -> str:
        if verb == "list":
            return "[]"
        if verb == "describe" and queued:
            return json.dumps({"state": {"state": "ACTIVE"}})
        if verb == "describe":
            endpoints = [{"ipAddress": f"10.0.0.{number + 2}"} for number in range(self._workers)]
            return json.dumps({"state": "READY", "networkEndpoints": endpoints})
        if verb == "ssh":
            said = {"prepared": True, "sha256": hashlib.sha256(EMPTY_ARCHIVE).hexdigest()}
            return f"{agent.MARK}{json.dumps(said)}"
        return ""

    def json(self, command: Command, seconds: float) -> Any:
        return json.loads(self.call(command, seconds))

    def stream(self, command: Command, silence: float) -> Iterator[bytes | None]:
        self.call(command, silence)
        statuses = b'{"step": "dry run", "exit": 0}\n{"done": true}\n'
        data = base64.b64encode(statuses).decode()
        yield f"{agent.MARK}{json.dumps({'file': agent.STATUS, 'at': 0, 'data': data})}".encode()
        yield f"{agent.MARK}{json.dumps({'ended': True})}".encode()

    def pause(self, seconds: float) -> None:
        pass

    def check(self) -> None:
        pass

    def halt(self) -> None:
        pass

    def go_on(self) -> None:
        pass
