"""Whole runs over several processes: on this machine, as one rank of a cluster, or out of their journals. No JAX."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import backends, expectations, journal, profiles, summary
from harness.case import line_of, parse_line
from harness.errors import UsageError
from harness.multihost import acceptance
from harness.multihost.cluster import Arguments, ClusterRank, Rejoined
from harness.multihost.collect import collect
from harness.multihost.supervise import Checker, LocalRanks
from harness.multihost.world import World
from harness.parameters import KEYS
from harness.report.matrix import standard, whole_lines
from harness.report.terminal import screen
from harness.report.write import write_all
from harness.session import results_folder
from harness.verdicts import GOOD, Verdict

ACCEPTED = GOOD | {Verdict.UNEXPECTED_PASS}
EXPECTATIONS = Path(__file__).resolve().parents[2] / "configs" / "expectations"
SHOWN = 3
"""Lines of a message that are shown while a run goes on."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How a run was started.

    Attributes:
      profiles, cases: names of profiles or files, and single case lines; no case means the profiles.
      deadline: seconds one line may take; None for the backend's.
    """

    profiles: tuple[str, ...]
    cases: tuple[str, ...]
    backend: str
    deadline: float | None
    expectations: Path = EXPECTATIONS
    command: tuple[str, ...] = ()

    def chosen_backend(self) -> backends.Backend:
        backend = backends.load(self.backend)
        return dataclasses.replace(backend, deadline=self.deadline) if self.deadline else backend

    def lines(self, world: World) -> list[str]:
        """The lines of the run, each once, in an order that is the same in every rank."""
        if self.cases:
            found = [str(case) for text in self.cases for case in parse_line(text)]
        else:
            found = [line for name in self.profiles for line in _profile(name, world)]
        return list(dict.fromkeys(found))

    def record(self) -> dict[str, Any]:
        """What `environment.json` says of how the run was started."""
        return {
            "profile": list(self.profiles),
            "case": list(self.cases) or None,
            "backend_file": self.backend,
            "command": list(self.command),
            "started": time.time(),
        }


def _profile(name: str, world: World) -> list[str]:
    if name == acceptance.NAME:
        return acceptance.lines(world)
    return list(profiles.load(name).all_lines())


def local(options: Options, world: World, results: str | None, resume: str | None, module: str = "") -> int:
    """A run with all ranks on this machine; returns the exit code."""
    folder, done = _folder(results, resume)
    lines = [kept for line in options.lines(world) if (kept := _left(line, done))]
    promised = {str(case) for line in options.lines(world) for case in parse_line(line)}
    ranks = LocalRanks(options.chosen_backend(), world, folder, *([module] if module else []))
    written = journal.Journal(folder)
    checker = Checker(ranks, written)
    try:
        facts = checker.start()
        checker.entries = known(options.expectations, facts)
        if not (folder / journal.ENVIRONMENT).exists():
            journal.write_environment(folder, {**facts, "run": options.record()})
        for line in lines:
            for result in checker.check(line):
                _show(result)
    finally:
        checker.close()
        written.close()
    return report(folder, promised)


def known(folder: Path, facts: dict[str, Any]) -> list[expectations.Expectation]:
    """The expectations that hold here."""
    return [entry for entry in expectations.load(folder, KEYS) if entry.applies(facts)]


def _folder(results: str | None, resume: str | None) -> tuple[Path, set[str]]:
    """The results folder, and the cases that are decided in it already."""
    if resume:
        if not (Path(resume) / journal.RESULTS).exists():
            raise UsageError(f"--resume {resume}: holds no {journal.RESULTS}")
        return Path(resume), {result["case"] for result in journal.read(Path(resume))}
    if results and (Path(results) / journal.RESULTS).exists():
        raise UsageError(f"--results {results}: already holds a run; use --resume {results} to go on with it")
    return results_folder(results), set()


def _left(line: str, done: set[str]) -> str:
    """The line with its undecided cases; empty when there is none."""
    cases = [case for case in parse_line(line) if str(case) not in done]
    return line_of(cases[0], [case.leaf for case in cases]) if cases else ""


def _show(result: dict[str, Any]) -> None:
    """A bad verdict the moment it falls."""
    if result["verdict"] not in ACCEPTED:
        lines = result["message"].splitlines()[:SHOWN]
        print(f"{result['verdict'].upper()} {result['case']}", *lines, sep="\n  ", flush=True)


def report(folder: Path, promised: set[str], trouble: str = "") -> int:
    """Writes all reports, prints their gist, and returns the exit code: 0 when the run is a success."""
    written = write_all(folder, promised)
    print("\n".join(whole_lines(standard(written.run.results)[0])), end="\n\n")
    print("\n".join([*screen(written.run, written.diagnosis), *written.notes, f"results: {folder}"]))
    problems = "; ".join(filter(None, [trouble, summary.problems(folder, promised, ACCEPTED, strict=False)]))
    if problems:
        print(f"not a success: {problems}")
    return 1 if problems else 0


def cluster(options: Options, given: Arguments, devices: int | None, results: str, module: str = "") -> int:
    """This rank's part of a run; rank 0 merges the journals where it can read those of all. Returns the exit code."""
    folder = Path(results)
    rank = ClusterRank(options.chosen_backend(), devices, given, folder, *([module] if module else []))
    checker = Checker(rank, None)
    bad: dict[str, dict[str, Any]] = {}
    try:
        facts = checker.start()
        checker.entries = known(options.expectations, facts)
        lines = options.lines(rank.world)
        _begin(rank, lines, options)
        _work(rank, checker, bad)
    finally:
        checker.close()
    print(
        f"rank {rank.rank} of {rank.world.processes}: {len(lines)} lines, {len(bad)} unexpected verdicts",
        flush=True,
    )
    shared = all((folder / "ranks" / f"{k}.jsonl").exists() for k in range(rank.world.processes))
    if rank.rank == 0 and shared and not (folder / journal.RESULTS).exists():
        return merged([folder], folder, options.expectations)
    return 1 if bad else 0


def _begin(rank: ClusterRank, lines: Sequence[str], options: Options) -> None:
    """Takes up the lines; a supervisor that comes while the others are in the midst of one meets them there."""
    while True:
        try:
            return rank.begin(lines, options.record())
        except Rejoined:
            rank.fresh()
            rank.start()


def _work(rank: ClusterRank, checker: Checker, bad: dict[str, dict[str, Any]]) -> None:
    """All lines that are left, and the end; from the first that is left once more whenever the ranks met anew."""
    while True:
        try:
            for line in rank.todo():
                rank.on(line)
                for result in checker.check(line):
                    if result["verdict"] in ACCEPTED:
                        bad.pop(result["case"], None)
                        continue
                    bad[result["case"]] = result
                    if rank.rank == 0:
                        _show(result)
            return rank.finish()
        except Rejoined:
            continue


def merged(folders: Sequence[Path], out: Path, known_failures: Path = EXPECTATIONS) -> int:
    """One results folder with all reports out of the journals of all ranks; returns the exit code."""
    collected = collect(folders, out, known_failures)
    trouble = ""
    if collected.absent:
        trouble = f"no journal of ranks {', '.join(map(str, collected.absent))}"
    return report(out, collected.promised, trouble)


def fail(error: Exception) -> int:
    """Says what is wrong with a request, in one line for a usage error."""
    print(error, file=sys.stderr)
    return 4
