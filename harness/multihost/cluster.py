"""One rank of a cluster, started by whatever launcher the cluster has, and its supervisor. Imports no JAX.

All supervisors do the same with the same outcomes. What only some of them know (that their rank died, what they settled
before they were started again) they tell each other when the ranks meet anew; where they then are not at the same
place, all begin the line again.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.backends import Backend
from harness.case import parse_line
from harness.errors import UsageError
from harness.isolate import BackendError, Death, Parent
from harness.multihost.group import Answer, Group
from harness.multihost.merge import merge
from harness.multihost.ranks import RankJournal
from harness.multihost.supervise import (
    MODULE,
    OVER_SECONDS,
    Result,
    WorldError,
    check_world,
    collective_seconds,
    died,
    refusal,
    refuse_compilers,
)
from harness.multihost.world import World
from harness.session import RUNNER_LINES

MEET_SECONDS = 120.0
"""Time the ranks have to meet; after a death some come later than others by as much as a deadline."""
MEETINGS = 5
"""Attempts to meet before a supervisor gives up on the others."""
TOLD_TEXT = 400
"""Characters of a message that ranks tell each other; their journals have all of it."""

SIZES = ("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE")
RANKS = ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")
"""Variables in which launchers say how many processes they started and which of them this is."""


class Rejoined(Exception):
    """The supervisors were not at the same place when they met: the line is begun again by all."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """What `jax.distributed.initialize` is told; None where it finds out by itself.

    Attributes:
      coordinator_address: HOST:PORT of rank 0.
      num_processes, process_id: as for `jax.distributed.initialize`.
      expected: how many processes the launcher says it started, or None.
    """

    coordinator_address: str | None
    num_processes: int | None
    process_id: int | None
    expected: int | None


def arguments(
    address: str | None, count: int | None, rank: int | None, environ: Mapping[str, str] = os.environ
) -> Arguments:
    """Completes what was given by what the launcher says; raises UsageError where it does not fit together.

    With an address, count and rank may come from the variables of Open MPI, Slurm or PMI (MPICH, Hydra).
    """
    expected = _number(environ, SIZES)
    if address is None and (count is not None or rank is not None):
        raise UsageError("--num_processes and --process_id need --coordinator_address=HOST:PORT of rank 0")
    if address is not None:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdecimal()):
            raise UsageError(f"--coordinator_address {address}: expected HOST:PORT, such as 10.0.0.1:4711")
        count = expected if count is None else count
        rank = _number(environ, RANKS) if rank is None else rank
        if count is None or rank is None:
            raise UsageError(
                "--coordinator_address without --num_processes and --process_id: no variable of a launcher "
                f"gives them ({', '.join(SIZES + RANKS)})"
            )
        if not 0 <= rank < count:
            raise UsageError(f"--process_id {rank}: expected 0 to {count - 1} for --num_processes {count}")
    return Arguments(address, count, rank, count or expected)


def _number(environ: Mapping[str, str], names: Sequence[str]) -> int | None:
    found = [environ[name] for name in names if environ.get(name, "").isdecimal()]
    return int(found[0]) if found else None


class ClusterRank:
    """This host's rank, as `harness.multihost.supervise.Ranks`.

    Args:
      backend: what it runs on.
      devices: number of virtual devices, where the backend has them.
      given: how to find the others.
      folder: results folder, shared by all ranks or of this host alone.
    """

    def __init__(
        self, backend: Backend, devices: int | None, given: Arguments, folder: Path, module: str = MODULE
    ):
        refuse_compilers(backend)
        self.backend, self.devices, self.given, self.folder, self.module = (
            backend,
            devices,
            given,
            folder,
            module,
        )
        self.deadline = backend.deadline
        self.world = World(1, 1)
        self.facts: dict[str, Any] = {}
        self.rank = -1
        self.lines: list[str] = []
        self.journal: RankJournal | None = None
        self.settled_by_all: set[int] = set()
        self._parent: Parent | None = None
        self._group: Group | None = None
        self._asked = 0
        self._line, self._runs = "", 0

    # Meeting

    def start(self) -> None:
        """Meets the others for the first time; raises BackendError or WorldError."""
        joined = self._meet()
        if joined["count"] < 2:
            raise UsageError(
                "--cluster: JAX found a cluster of one process; test it with pytest, or give --coordinator_address, "
                "--num_processes and --process_id"
            )
        self.facts = joined["facts"]
        self.rank = joined["rank"]
        self.world = World(joined["count"], self.facts["device_count"] // joined["count"])
        self.facts |= {"world": str(self.world)}
        self.journal = RankJournal(self.folder, self.rank)

    def begin(self, lines: Sequence[str], run: Mapping[str, Any]) -> None:
        """Takes up a list of lines, the same in all ranks, where all of them are.

        Args:
          lines: of the run.
          run: how it was started, for the environment file.
        """
        assert self.journal is not None
        self.lines = list(lines)
        self.journal.environment({**self.facts, "run": {**run, "lines": self.lines}})
        self._tell(None)

    def _meet(self) -> dict[str, Any]:
        """A new group of ranks: what this one says on joining it."""
        for meeting in range(MEETINGS):
            self.fresh()
            answer = self._join()
            refused = refusal(answer) or _absent(answer)
            if isinstance(answer, dict) and not refused:
                check_world(answer["results"], self.given.expected or answer["results"]["count"])
                return answer["results"]
            if "should be defined" in refused:  # JAX's words where it finds no cluster
                raise UsageError(
                    f"JAX finds no cluster: give --coordinator_address=HOST:PORT of rank 0 ({refused})"
                )
            self._note(f"not met: {refused.splitlines()[0] if refused else 'no answer'}")
            time.sleep(1 + meeting)
        raise BackendError(f"the ranks could not meet in {MEETINGS} attempts: {refused}")

    def _note(self, text: str) -> None:
        """Tells the operator, on standard error."""
        print(f"rank {self.rank if self.rank >= 0 else '?'}: {text}", file=sys.stderr, flush=True)

    def _join(self) -> Answer:
        if self._parent is None or self._parent.process.poll() is not None:
            self._parent = Parent(self.backend.variables(self.devices), self.module)
        self._group = Group(self._parent, 1)
        self._asked = 0
        join = {
            "coordinator_address": self.given.coordinator_address,
            "num_processes": self.given.num_processes,
            "process_id": self.given.process_id,
            "initialization_timeout": int(MEET_SECONDS),
        }
        request = {
            "join": join,
            "stage": str(self._group.stage_path(0)),
            "seconds": MEET_SECONDS,
            "collective_seconds": collective_seconds(self.deadline),
        }
        return self._group.ask([request], 2 * MEET_SECONDS + OVER_SECONDS)[0]

    def _tell(self, last: dict[str, Any] | None) -> dict[int, dict[str, Any]]:
        """What every supervisor has to say; this one says `last`, the answer about the line in hand."""
        assert self._group is not None and self.journal is not None
        text = {
            "place": [self._line, self._runs],
            "settled": _ranges(self._settled_here()),
            "begun": {line: count for line, count in self.journal.begun.items() if count > 0},
            "last": _short(last) if last else None,
        }
        answer = self._group.ask([{"tell": text, "seconds": MEET_SECONDS}], MEET_SECONDS + OVER_SECONDS)[0]
        if not isinstance(answer, dict) or answer["results"]["missing"]:
            self.fresh()  # these will not speak to each other again
            raise Rejoined
        told = {int(rank): said for rank, said in answer["results"]["told"].items()}
        self.settled_by_all = set.intersection(*(_numbers(said["settled"]) for said in told.values()))
        for said in told.values():
            for line, count in said["begun"].items():
                self.journal.begun[line] = max(self.journal.begun[line], count)
        return told

    def _settled_here(self) -> list[int]:
        assert self.journal is not None
        known = self.journal.known
        return [
            number
            for number, line in enumerate(self.lines)
            if all(str(case) in known for case in parse_line(line))
        ]

    # Running

    def todo(self) -> list[str]:
        """The lines that not every rank has settled, in order."""
        return [line for number, line in enumerate(self.lines) if number not in self.settled_by_all]

    def on(self, line: str) -> None:
        """The line in hand from now on."""
        self._line, self._runs = line, 0

    def run(self, line: str) -> list[Result]:
        """The merged results of a line's cases; raises Rejoined when all must begin the line again."""
        assert self.journal is not None
        if self._group is not None and self._asked >= RUNNER_LINES:
            self.fresh()
        if self._group is None:
            self._met_again(None)
        assert self._group is not None
        self._asked += 1
        self._runs += 1
        self.journal.started(line)
        request = {"line": line, "seconds": self.deadline}
        answer = self._group.ask([request], self.deadline + OVER_SECONDS)[0]
        if isinstance(answer, Death):
            told = died(line, answer, self._group, 0, self.rank, self.deadline)
        else:
            told = answer["results"]
        merged = told.pop("merged")
        self.journal.answered(told)
        if merged is not None:
            return merged
        self.fresh()
        said = self._met_again(told)
        return merge({rank: each["last"] for rank, each in said.items()}, self.world.processes)

    def _met_again(self, last: dict[str, Any] | None) -> dict[int, dict[str, Any]]:
        """Meets the others in a new group; raises Rejoined unless all are at this rank's place."""
        self._note("meets the others again" + (f" after the loss of a rank in {self._line}" if last else ""))
        joined = self._meet()
        if joined["rank"] != self.rank or joined["count"] != self.world.processes:
            raise WorldError(
                f"world check: rank {self.rank} of {self.world.processes} came back as "
                f"rank {joined['rank']} of {joined['count']}"
            )
        said = self._tell(last)
        places = {tuple(each["place"]) for each in said.values()}
        if len(places) > 1 or len({each["last"] is None for each in said.values()}) > 1:
            raise Rejoined
        return said

    def finish(self) -> None:
        """Waits for the others to have settled all, so that whoever shares the folder may read their journals."""
        self.on("")
        if self._group is None:
            self._met_again(None)
        else:
            self._tell(None)

    def fresh(self) -> None:
        if self._group is not None:
            self._group.kill()
            self._group = None

    def lost(self, line: str) -> str:
        assert self.journal is not None
        return self.journal.lost(line)

    def settled(self, result: Result) -> None:
        assert self.journal is not None
        self.journal.settled(result)

    def close(self) -> None:
        self.fresh()
        if self._parent is not None:
            self._parent.close()
            self._parent = None
        if self.journal is not None:
            self.journal.close()


def _absent(answer: Answer) -> str:
    """Which ranks did not come to a meeting, or ""."""
    missing = answer["results"].get("missing") if isinstance(answer, dict) else None
    return f"ranks {missing} did not come" if missing else ""


def _short(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as the other supervisors need it."""
    results = [
        {
            **each,
            "reproducer": None,
            "message": each["message"][:TOLD_TEXT],
            "log": (each.get("log") or "")[:TOLD_TEXT],
        }
        for each in answer["results"]
    ]
    return {**answer, "results": results, "digests": {}}


def _ranges(numbers: Sequence[int]) -> str:
    """`0-57,60`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" for first, last in parts)


def _numbers(ranges: str) -> set[int]:
    pairs = (part.split("-") for part in ranges.split(",") if part)
    return {number for first, last in pairs for number in range(int(first), int(last) + 1)}
