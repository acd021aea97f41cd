"""One TPU in the cloud, from the request to its proven absence."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterator
from typing import Any

from harness.cloud import commands
from harness.cloud.backoff import Deadline, delays
from harness.cloud.commands import Place, Worker
from harness.cloud.gcloud import Runner
from harness.cloud.log import Log
from harness.cloud.options import Options
from harness.cloud.troubles import (
    DEADLINE,
    DENIED,
    EXISTS,
    INVALID,
    MISSING,
    PREEMPTED,
    QUOTA,
    RATE,
    STOCK_OUT,
    UNKNOWN,
    WORKER,
    Trouble,
)

CALL_SECONDS = 180.0
"""A gcloud call that only asks."""
CREATE_SECONDS = 1800.0
"""`tpu-vm create` returns when the machine is there."""
QUEUE_WAITS = frozenset(
    {"CREATING", "ACCEPTED", "PROVISIONING", "WAITING_FOR_RESOURCES", "STATE_UNSPECIFIED", ""}
)
NODE_WAITS = frozenset({"CREATING", "STARTING", "RESTARTING", "REPAIRING", "STATE_UNSPECIFIED", ""})
REFUSALS = frozenset({STOCK_OUT, QUOTA, RATE, EXISTS, DENIED, INVALID})
"""Kinds of trouble that say for sure that nothing was created."""
NODE_GONE = frozenset({"PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "DELETING", "HIDDEN", "HIDING"})
QUEUE_GONE = frozenset({"SUSPENDING", "SUSPENDED", "DELETING"})


class Resource:
    """A TPU VM, or a queued resource with its nodes.

    Args:
      name: its name, ours alone.
      zones: where to ask, in turn.
      labels: marks by which `sweep` knows it.
    """

    def __init__(
        self,
        options: Options,
        name: str,
        zones: tuple[str, ...],
        labels: dict[str, str],
        gcloud: Runner,
        log: Log,
    ):
        self.options, self.name, self.labels = options, name, labels
        self.place = Place(zones[0], options.project)
        self._zones, self._gcloud, self._log = zones, gcloud, log
        self._asked: set[str] = set()
        self._unanswered = False

    @property
    def asked(self) -> bool:
        """Whether anything may exist."""
        return bool(self._asked)

    # Getting it

    def get(self) -> list[Worker]:
        """Asks until the TPU is ready, in one zone after the other; its workers.

        Raises Trouble when it cannot be had before the deadline or for a reason that does not pass.
        """
        deadline = Deadline(self.options.wait_deadline)
        pauses = delays(self.options.backoff, random.Random())
        for zone in self._turns():
            self.place = Place(zone, self.options.project)
            try:
                self._create()
                return self._wait(deadline)
            except Trouble as trouble:
                if not trouble.kind.again or deadline.over:
                    raise
                pause = min(next(pauses), deadline.left)
                self._log.say(f"{trouble}; asking again in {pause:.0f} s")
                if self.delete():
                    raise
                self._gcloud.pause(pause)
        raise AssertionError("zones never end")

    def _turns(self) -> Iterator[str]:
        while True:
            yield from self._zones

    def _create(self) -> None:
        what = "queued resource" if self.options.by_queue else "TPU VM"
        size = self.options.accelerator_type or f"{self.options.type} {self.options.topology}"
        self._log.say(f"creating {what} {self.name} ({size}) in {self.place.zone}")
        self._asked.add(
            self.place.zone
        )  # before the call: an answer that never comes may still have created it
        self._unanswered = True
        command = commands.create(self.options, self.name, self.place, self.labels)
        try:
            self._gcloud.call(command, CREATE_SECONDS)
        except Trouble as trouble:
            self._unanswered = trouble.kind not in REFUSALS
            if trouble.kind is EXISTS and not self._is_ours():
                self._asked.discard(self.place.zone)
            raise
        self._unanswered = False

    def _is_ours(self) -> bool:
        """Whether what has our name carries our labels; somebody else's is not ours to delete."""
        queued = self.options.by_queue
        try:
            return labels_of(self._describe(self.name, queued), queued) == self.labels
        except Trouble:
            return False

    def _wait(self, deadline: Deadline) -> list[Worker]:
        said = ""
        while True:
            state, reason = self.state()
            if state != said:
                self._log.say(f"{self.name}: {state}")
                said = state
            if state == "READY":
                return self.workers()
            if state in NODE_GONE | QUEUE_GONE:
                raise Trouble(PREEMPTED, f"{self.name} is {state} before it was ever used")
            if state == "FAILED":
                raise Trouble(STOCK_OUT if _no_room(reason) else UNKNOWN, f"{self.name} failed: {reason}")
            if deadline.over:
                raise Trouble(
                    DEADLINE, f"{self.name} is still {state} after {deadline.seconds:.0f} s (--wait_deadline)"
                )
            self._gcloud.pause(min(self.options.poll, deadline.left))

    # Asking about it

    def state(self) -> tuple[str, str]:
        """Its state, READY only if every node is and is healthy, and what the service says about it."""
        if self.options.by_queue:
            told = self._describe(self.name, queued=True).get("state", {})
            state = told.get("state", "")
            if state != "ACTIVE":
                return state, _error_of(told)
        nodes = [self._describe(node) for node in self.nodes()]
        for node in nodes:
            if node.get("state") != "READY":
                return node.get("state", ""), node.get("healthDescription", "")
            if node.get("health", "HEALTHY") not in ("HEALTHY", "HEALTH_UNSPECIFIED", "TIMEOUT"):
                return "REPAIRING", node.get("health", "")
        return "READY", ""

    def nodes(self) -> list[str]:
        """Names of its TPU VMs."""
        if self.options.node_count > 1:
            return [f"{self.name}-{number}" for number in range(self.options.node_count)]
        return [self.name]

    def workers(self) -> list[Worker]:
        """Every host of every node, in the order of their ranks."""
        found = []
        for node in self.nodes():
            for index, endpoint in enumerate(self._describe(node).get("networkEndpoints", [])):
                found.append(Worker(node, index, endpoint.get("ipAddress", "")))
        if not found:
            raise Trouble(UNKNOWN, f"{self.name} names no network endpoint")
        return found

    def check(self) -> None:
        """Raises Trouble when it is no longer there to be worked with; silent when the service does not answer."""
        try:
            state, reason = self.state()
        except Trouble as trouble:
            if trouble.kind in (MISSING, INVALID):
                raise Trouble(WORKER, f"{self.name} is gone: {trouble.message}") from None
            return
        if state in NODE_GONE | QUEUE_GONE:
            raise Trouble(PREEMPTED, f"{self.name} is {state} {reason}".strip())

    def _describe(self, name: str, queued: bool = False) -> dict[str, Any]:
        return self._gcloud.json(commands.describe(name, self.place, queued), CALL_SECONDS)

    # Letting it go

    def delete(self) -> list[str]:
        """Deletes it wherever it was asked for; what could not be shown to be gone, as commands that delete it."""
        left = []
        for zone in sorted(self._asked):
            place = Place(zone, self.options.project)
            settle = self.options.settle if self._unanswered else 0.0
            if remove(self.name, place, self.options, self._gcloud, self._log, settle=settle):
                self._asked.discard(zone)
            else:
                command = commands.delete(self.name, place, self.options.by_queue)
                left.append(f"gcloud {shlex.join(command)}")
        return left


def remove(
    name: str,
    place: Place,
    options: Options,
    gcloud: Runner,
    log: Log,
    queued: bool | None = None,
    settle: float = 0.0,
) -> bool:
    """Deletes one resource and looks whether it is gone, again and again until the deadline.

    Args:
      queued: whether it is a queued resource (default: as the options say).
      settle: seconds after which it must still be gone: a request that was under way may be carried out later.
    """
    queued = options.by_queue if queued is None else queued
    deadline = Deadline(options.delete_deadline)
    pauses = delays(min(options.backoff, 10.0), random.Random())
    log.say(f"deleting {name} in {place.zone}")
    while True:
        try:
            gcloud.call(commands.delete(name, place, queued), max(60.0, deadline.left))
        except Trouble as trouble:
            if trouble.kind is not MISSING:
                log.say(f"{name} was not deleted: {trouble.message}")
        if _is_gone(name, place, queued, gcloud):
            gcloud.pause(settle)
            if not settle or _is_gone(name, place, queued, gcloud):
                log.say(f"{name} is gone")
                return True
            continue
        if deadline.over:
            return False
        gcloud.pause(min(next(pauses), deadline.left))


def labels_of(resource: dict[str, Any], queued: bool) -> dict[str, str]:
    """The labels of a TPU VM, or those that a queued resource gives its nodes."""
    if not queued:
        return resource.get("labels", {})
    found: dict[str, str] = {}
    for node in resource.get("tpu", {}).get("nodeSpec", []):
        found |= node.get("node", {}).get("labels", {})
    return found


def _is_gone(name: str, place: Place, queued: bool, gcloud: Runner) -> bool:
    """Whether the service says that there is no such resource."""
    try:
        gcloud.call(commands.describe(name, place, queued), CALL_SECONDS)
    except Trouble as trouble:
        return trouble.kind is MISSING
    return False


def _error_of(state: dict[str, Any]) -> str:
    """What a queued resource says about its failure."""
    for data in state.values():
        if isinstance(data, dict) and isinstance(data.get("error"), dict):
            return str(data["error"].get("message", ""))
    return ""


def _no_room(reason: str) -> bool:
    return bool(re.search(STOCK_OUT.pattern + "|valid.until|expired", reason, re.IGNORECASE))
