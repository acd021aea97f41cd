"""The whole way: get a TPU, run the suite on it, bring the results home, delete it; again where that makes sense.

    create -> wait -> prepare -> run -> fetch -> delete -> (again | merge) -> verdict

Whatever happens on the way, `delete` is reached: it stands in a `finally`, signals are only looked at where the run waits
and held back there while it deletes, and the TPU counts as created from the moment before it is asked for. What even that cannot cover, this very process killed or
the machine lost, is what `sweep` is for.
"""

from __future__ import annotations

import datetime
import random
import secrets
import shlex
import time
from pathlib import Path

from harness.cloud import collect, commands
from harness.cloud.backoff import delays
from harness.cloud.fleet import Fleet
from harness.cloud.gcloud import Runner
from harness.cloud.log import Log
from harness.cloud.options import Options
from harness.cloud.resource import Resource
from harness.cloud.signals import Interrupted, Signals
from harness.cloud.stage import Source, Stage
from harness.cloud.troubles import ASKED_WRONG, INTERRUPTED, UNKNOWN, WORLD, Trouble

GOOD, BAD, INFRASTRUCTURE, USAGE = 0, 1, 3, 4
"""Exit codes: every verdict as expected; not so; the cloud was in the way or a TPU was left; wrongly asked."""

RUN_LABEL, OWNER_LABEL, UNTIL_LABEL = "axis-conformance", "axis-conformance-owner", "axis-conformance-until"
MARGIN_SECONDS = 3600
"""Beyond its deadlines, before a run counts as dead."""


class Run:
    """One call of the command.

    Args:
      target: the results folder; our own files are in `cloud/` below it.
    """

    def __init__(
        self, options: Options, suite: Source, target: Path, gcloud: Runner, log: Log, signals: Signals
    ):
        self.options, self.suite, self.target = options, suite, target
        self._gcloud, self._log, self._signals = gcloud, log, signals
        self.id = f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        self._cloud = target / "cloud"
        self._codes: list[int] = []
        self._left: list[str] = []
        self._merged: int | None = None

    def go(self) -> int:
        """Runs and returns the exit code."""
        try:
            trouble = self._tries()
        except Interrupted as reason:
            trouble = Trouble(INTERRUPTED, f"{reason}")
        return self._verdict(trouble)

    def _tries(self) -> Trouble | None:
        done = len(list(self._cloud.glob("attempt-*")))
        pauses = delays(self.options.backoff, random.Random())
        for number in range(1, self.options.attempts + 1):
            last = number == self.options.attempts
            trouble = self._try(done + number, last)
            if trouble is None or last or not trouble.kind.again or self._left:
                return trouble
            pause = next(pauses)
            self._log.say(f"{trouble}; try {number + 1} of {self.options.attempts} in {pause:.0f} s")
            self._gcloud.pause(pause)
        raise AssertionError("there is at least one try")

    def _try(self, number: int, last: bool) -> Trouble | None:
        """One TPU from request to deletion; what went wrong with it, if anything."""
        resource = Resource(
            self.options, self._name(number), self._zones(number), self._labels(), self._gcloud, self._log
        )
        trouble: Trouble | None = None
        try:
            trouble = self._use(resource, self._cloud / f"attempt-{number}")
        finally:
            final = last or trouble is None or not trouble.kind.again
            with self._signals.held():
                self._left += self._keep(resource) if self.options.keep and final else resource.delete()
        return trouble

    def _name(self, number: int) -> str:
        name = self.options.name or f"axis-conformance-{self.id}"
        return name if number == 1 else f"{name}-t{number}"

    def _zones(self, number: int) -> tuple[str, ...]:
        first = (number - 1) % len(self.options.zone)
        return self.options.zone[first:] + self.options.zone[:first]

    def _labels(self) -> dict[str, str]:
        patience = ("wait_deadline", "setup_deadline", "run_deadline", "delete_deadline")
        until = time.time() + sum(getattr(self.options, name) for name in patience) + MARGIN_SECONDS
        return {RUN_LABEL: self.id, OWNER_LABEL: self.options.who, UNTIL_LABEL: str(int(until))}

    def _use(self, resource: Resource, home: Path) -> Trouble | None:
        """Runs the suite on a TPU and fetches what it left, also after trouble."""
        home.mkdir(parents=True)
        try:
            workers = resource.get()
        except Trouble as refused:
            return refused
        folder = f"axis-conformance-{self.id}"
        fleet = Fleet(
            self.options, workers, resource.place, folder, home, self._gcloud, self._log, resource.check
        )
        trouble = self._run_on(fleet, home)
        if trouble is not None:
            self._log.say(str(trouble))
            fleet.stop()
        for note in fleet.fetch():
            self._log.say(note)
        self._gather()
        # several ranks are judged by their merged journals, of which each knows a part only
        self._codes = fleet.codes() if len(workers) == 1 else []
        return trouble or self._wrong_world(len(workers))

    def _run_on(self, fleet: Fleet, home: Path) -> Trouble | None:
        try:
            earlier = self._gather()
            stage = Stage(home / "stage", self.options, self.suite, earlier)
            fleet.prepare(stage)
            stage.clear()
            self._log.say(f"running on {len(fleet.workers)} workers")
            fleet.start()
            fleet.follow()
        except Trouble as trouble:
            return trouble
        return None

    def _gather(self) -> Path | None:
        """What all workers of all tries left so far, in one folder; None before there is anything."""
        folders = collect.worker_folders(self._cloud)
        if not folders:
            return None
        collect.gather(folders, self._cloud / "gathered")
        return self._cloud / "gathered"

    def _wrong_world(self, count: int) -> Trouble | None:
        """Whether the workers were one world: as many ranks as workers left their journals."""
        if count == 1 or self.options.dry_run:
            return None
        found = collect.ranks(self._cloud / "gathered")
        if found == set(range(count)):
            return None
        return Trouble(
            WORLD, f"{count} workers left the journals of ranks {sorted(found)}, expected 0 to {count - 1}"
        )

    # The end

    def _keep(self, resource: Resource) -> list[str]:
        if resource.asked:
            command = commands.delete(resource.name, resource.place, self.options.by_queue)
            self._log.loud(
                f"{resource.name} in {resource.place.zone} was KEPT, as --keep says, and costs money until you delete it:",
                f"gcloud {shlex.join(command)}",
            )
        return []

    def _verdict(self, trouble: Trouble | None) -> int:
        """Merges and reports; the exit code."""
        if self.options.dry_run:
            return GOOD
        gathered = self._gather()
        self._merged = (
            collect.merge(gathered, self.target, self.suite, self.options.expectations, self._log)
            if gathered
            else None
        )
        if trouble is None and self._merged is None:
            trouble = Trouble(UNKNOWN, "there are no results: no worker left a journal, or merging failed")
        if trouble is None and self._merged not in (GOOD, BAD):
            trouble = Trouble(UNKNOWN, f"the results could not be merged (exit code {self._merged})")
        code = self._code(trouble)
        told = collect.counts(self.target)
        if told:
            self._log.say(f"{'verdicts' if trouble is None else 'verdicts until then'}: {told}")
        if trouble:
            self._log.loud(str(trouble))
        if self._left:
            self._log.loud("NOT DELETED, costs money, delete it by hand:", *self._left)
        self._log.say(f"results: {self.target}")
        self._log.say(f"exit code {code}: {_MEANING[code]}")
        return code

    def _code(self, trouble: Trouble | None) -> int:
        if trouble is not None:
            return USAGE if trouble.kind in ASKED_WRONG and not self._left else INFRASTRUCTURE
        if self._left:
            return INFRASTRUCTURE
        return BAD if self._merged == BAD or BAD in self._codes else GOOD


_MEANING = {
    GOOD: "every verdict was expected",
    BAD: "the suite found something",
    INFRASTRUCTURE: "the infrastructure was in the way; this says nothing of the JAX that was tested",
    USAGE: "asked for something that cannot be",
}
