"""Supervisors: they start ranks, ask them line after line, replace the group after any failure, and settle verdicts.

A failure is run again in a new group of ranks before it counts, like one of a single process in a fresh one.
Imports no JAX.
"""

from __future__ import annotations

import collections
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from harness import compat, expectations
from harness.backends import Backend
from harness.case import Case, line_of, parse_line
from harness.errors import UsageError
from harness.expectations import Expectation
from harness.isolate import BackendError, Death, Parent
from harness.journal import Journal
from harness.judge import law_of_death
from harness.multihost.group import Answer, Group
from harness.multihost.merge import BAD, merge
from harness.multihost.ranks import RankJournal
from harness.multihost.world import World
from harness.parameters import parameters
from harness.program import plan
from harness.session import CONFIRMED_ALIKE, FRESH_RUNS, RUNNER_LINES, write_down
from harness.verdicts import Verdict, result_of

Result = dict[str, Any]

JOIN_SECONDS = 60.0
"""Time for all ranks of one machine to find each other and start the backend."""
JOIN_TRIES = 3
"""A port that was free may be taken by another program before the ranks have it."""
OVER_SECONDS = 5.0
"""How much longer a supervisor waits than a rank waits for the others, so that a late one is named by its peers."""
MODULE = "harness.multihost.rank"


class WorldError(BackendError):
    """The ranks are not one world: different versions, devices or flags, or not all of them."""


class Ranks(Protocol):
    """Whoever has ranks to run a line on."""

    world: World
    facts: dict[str, Any]

    def start(self) -> None:
        """Starts the ranks; raises BackendError."""

    def run(self, line: str) -> list[Result]:
        """The merged results of a line's cases."""

    def fresh(self) -> None:
        """Has the next line run in a new group."""

    def lost(self, line: str) -> str:
        """Why a line is not begun once more, or ""."""

    def settled(self, result: Result) -> None:
        """Notes a final result."""

    def close(self) -> None:
        """Ends the ranks."""


class Checker:
    """Checks lines over ranks and settles their verdicts; has what `harness.session.Session` has for a suite.

    Args:
      ranks: whoever has them.
      journal: where verdicts go, or None where only the ranks' own journals are written.
      entries: the expectations that hold here; filled in by whoever starts it.
    """

    def __init__(self, ranks: Ranks, journal: Journal | None):
        self.ranks, self.journal = ranks, journal
        self.entries: list[Expectation] = []
        self._confirmed: collections.Counter[tuple[Any, ...]] = collections.Counter()

    def start(self) -> dict[str, Any]:
        self.ranks.start()
        return self.ranks.facts

    def close(self) -> None:
        self.ranks.close()

    def check(self, line: str) -> list[Result]:
        """Final results of a line's cases, written to the journal."""
        cases = parse_line(line)
        declined = self.ranks.world.declines(cases[0])
        lost = self.ranks.lost(line)
        if declined or lost:
            verdict = Verdict.NOT_APPLICABLE if declined else Verdict.CRASH
            results = [result_of(case, verdict, message=declined or lost) for case in cases]
        else:
            results = self._decided(cases)
        written = []
        for case, result in zip(cases, results, strict=True):
            self.ranks.settled(result)
            if self.journal is None:
                written.append(expectations.settle(result, parameters(case), self.entries))
            else:
                written.append(write_down(result, case, self.entries, self.journal))
        return written

    def _decided(self, cases: Sequence[Case]) -> list[Result]:
        results = self.ranks.run(line_of(cases[0], [case.leaf for case in cases]))
        if all(result["verdict"] not in BAD for result in results):
            declined = len(cases) > 1 and results[0]["message"].startswith(compat.DECLINED)
            return [self._decided([case])[0] for case in cases] if declined else results
        self.ranks.fresh()
        if len(cases) == 1:
            return [self._confirm(cases[0], results[0])]
        return [
            result if result["verdict"] not in BAD else self._alone(case, result)
            for case, result in zip(cases, results)
        ]

    def _alone(self, case: Case, before: Result) -> Result:
        """The result of a case that failed together with others, in a program of its own."""
        result = self.ranks.run(str(case))[0]
        if result["verdict"] not in BAD:
            return result
        self.ranks.fresh()
        return result if self._known(result) else self._confirm(case, result)

    def _known(self, result: Result) -> bool:
        """Whether enough failures like this one have been confirmed."""
        signature = (result["rule"], result["verdict"], result["kind"])
        self._confirmed[signature] += 1
        return self._confirmed[signature] > CONFIRMED_ALIKE

    def _confirm(self, case: Case, first: Result) -> Result:
        """The failure again, in new groups: as before, or flaky."""
        if self._known(first):
            return first
        runs = [first]
        for _ in range(FRESH_RUNS):
            runs.append(self.ranks.run(str(case))[0])
            if runs[-1]["verdict"] in BAD:
                self.ranks.fresh()
            if len(runs) == 2 and runs[1]["verdict"] == first["verdict"]:
                return runs[1]
        failed = sum(run["verdict"] in BAD for run in runs)
        message = f"{failed} of {len(runs)} runs failed, each in a new group of ranks: {first['message']}"
        return {**first, "verdict": Verdict.FLAKY, "message": message}


class LocalRanks:
    """All ranks of a world on this machine.

    Args:
      backend: what they run on.
      world: how many of them, with how many devices each.
      deadline: seconds one line may take.
      folder: where the ranks' own journals go.
    """

    def __init__(self, backend: Backend, world: World, folder: Any, module: str = MODULE):
        refuse_compilers(backend)
        self.backend, self.world, self.module = backend, world, module
        self.deadline = backend.deadline
        self.facts: dict[str, Any] = {}
        self.journals = [RankJournal(folder, rank) for rank in range(world.processes)]
        self._parent: Parent | None = None
        self._group: Group | None = None
        self._lines = 0

    # Starting

    def start(self) -> None:
        """Starts the ranks; raises BackendError when they cannot, WorldError when they are not one world."""
        for attempt in range(JOIN_TRIES):
            answers = self._join()
            refused = [why for answer in answers if (why := refusal(answer))]
            if not refused:
                break
            self.fresh()
            if attempt == JOIN_TRIES - 1:
                raise BackendError("the ranks could not be started:\n" + "\n".join(dict.fromkeys(refused)))
        joined = [answer["results"] for answer in answers if isinstance(answer, dict)]
        check_world(joined[0], self.world.processes)
        self.facts = joined[0]["facts"] | {"world": str(self.world)}
        for journal, answer in zip(self.journals, joined):
            journal.environment(answer["facts"])

    def _join(self) -> list[Answer]:
        self.fresh()
        if self._parent is None or self._parent.process.poll() is not None:
            self._parent = Parent(self.backend.variables(self.world.devices), self.module)
        self._group = Group(self._parent, self.world.processes)
        address = f"127.0.0.1:{_free_port()}"
        requests = [
            {
                "join": {
                    "coordinator_address": address,
                    "num_processes": self.world.processes,
                    "process_id": rank,
                    "local_device_ids": self._own_devices(rank),
                    "initialization_timeout": int(JOIN_SECONDS),
                },
                "stage": str(self._group.stage_path(rank)),
                "seconds": JOIN_SECONDS,
                "collective_seconds": collective_seconds(self.deadline),
            }
            for rank in range(self.world.processes)
        ]
        self._lines = 0
        return self._group.ask(requests, JOIN_SECONDS + OVER_SECONDS)

    def _own_devices(self, rank: int) -> list[int] | None:
        """Real devices are divided among the ranks; virtual ones each rank makes itself."""
        if self.backend.virtual_devices:
            return None
        return list(range(rank * self.world.devices, (rank + 1) * self.world.devices))

    # Running

    def run(self, line: str) -> list[Result]:
        if self._group is not None and self._lines >= RUNNER_LINES:
            self.fresh()
        if self._group is None:
            self.start()
        assert self._group is not None
        self._lines += 1
        for journal in self.journals:
            journal.started(line)
        requests = [{"line": line, "seconds": self.deadline}] * self.world.processes
        answers = self._group.ask(requests, self.deadline + OVER_SECONDS)
        told = {
            rank: answer["results"]
            if isinstance(answer, dict)
            else died(line, answer, self._group, rank, rank, self.deadline)
            for rank, answer in enumerate(answers)
        }
        if any(isinstance(answer, Death) or answer["results"]["merged"] is None for answer in answers):
            self.fresh()
        for journal, answer in zip(self.journals, told.values()):
            journal.answered(answer)
        return merge(told, self.world.processes)

    def fresh(self) -> None:
        if self._group is not None:
            self._group.kill()
            self._group = None

    def lost(self, line: str) -> str:
        return self.journals[0].lost(line)

    def settled(self, result: Result) -> None:
        for journal in self.journals:
            journal.settled(result)

    def pids(self) -> list[int]:
        """Process ids of the ranks, in order; none before the first line."""
        return self._group.pids() if self._group else []

    def close(self) -> None:
        self.fresh()
        if self._parent is not None:
            self._parent.close()
            self._parent = None
        for journal in self.journals:
            journal.close()


def died(line: str, death: Death, group: Group, place: int, rank: int, deadline: float) -> dict[str, Any]:
    """What a supervisor says in the stead of a rank that can no longer speak."""
    progress, at = group.progress(place)
    stopped = place in group.stopped
    verdict = Verdict.HANG if death.hang else Verdict.CRASH
    message = (
        "its process is stopped"
        if stopped
        else told(death)
        if not death.hang
        else f"no answer within {deadline:.0f} s"
    )
    results = [
        result_of(case, verdict, rule=law_of_death(plan(case), case), message=message, log=death.log)
        for case in parse_line(line)
    ]
    return {
        "rank": rank,
        "host": socket.gethostname(),
        "results": results,
        "state": "hung" if death.hang else "died",
        "progress": progress,
        "at": at,
        "stopped": stopped,
        "digests": {},
        "merged": None,
    }


def refusal(answer: Answer) -> str:
    """Why a rank did not join the others, or ""."""
    if isinstance(answer, Death):
        return f"{told(answer)}\n{answer.log}".strip()
    return str(answer["results"].get("refused", ""))


def told(death: Death) -> str:
    """How a rank ended, in a word or a line."""
    return "no answer" if death.hang else str(death)


def check_world(joined: dict[str, Any], expected: int) -> None:
    """Raises WorldError unless the ranks are one world of as many processes as expected."""
    if joined["count"] != expected:
        raise WorldError(
            f"world check: {expected} processes were started, this one found itself in a group of {joined['count']}"
        )
    if joined.get("missing"):
        raise WorldError(f"world check: ranks {joined['missing']} did not come")
    if joined["differ"]:
        told = [
            f"rank {each['rank']} (host {each['host']}): {each['what']} is {each['is']}, others have {each['others']}"
            for each in joined["differ"]
        ]
        raise WorldError("world check: the ranks are not of one kind\n" + "\n".join(told))


def refuse_compilers(backend: Backend) -> None:
    """Raises UsageError for a backend on which nothing runs: it has no processes either."""
    if backend.worker != Backend.worker:
        raise UsageError(f"--backend {backend.name}: only compiles; several processes need devices")


def collective_seconds(deadline: float) -> int:
    """How long a rank waits in a collective: long enough for a peer that compiles slowly, far below the deadline."""
    return int(min(30, max(4, deadline / 3)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
