"""One run over one backend: each line through a runner, each failure again in a fresh process, each verdict into the
journal the moment it is final. Imports no JAX."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import expectations
from harness.backends import Backend
from harness.case import Case, line_of, parse_line
from harness.errors import Illegal, UsageError
from harness.expectations import Expectation
from harness.isolate import BackendError, Death, HarnessDefect, Parent, Runner
from harness.journal import Journal
from harness.judge import law_of_death
from harness.parameters import parameters, suite_of
from harness.program import plan
from harness.verdicts import Verdict, result_of

RUNNER_LINES = 400
"""Programs a runner checks before it is replaced: JAX keeps what it compiled, and memory is finite."""
CONFIRMED_ALIKE = 3
"""Failures of one signature that are run again in fresh processes; further ones are taken as they are."""
FRESH_RUNS = 3
SEARCH_SECONDS = 60.0
"""Time for finding the predecessor of one failure that depends on order; a run spends ALL_SEARCHES_SECONDS on it."""
ALL_SEARCHES_SECONDS = 180.0

Result = dict[str, Any]


class Session:
    """Checks lines and settles their verdicts.

    Args:
      backend: what to test.
      devices: number of virtual devices where the backend has them.
      journal: where verdicts go.
      entries: the expectations that hold in this environment (see `facts`); filled in by `start`.
      chip: index of the only chip single-device programs may see, or None.
    """

    def __init__(self, backend: Backend, devices: int | None, journal: Journal, chip: int | None = None):
        self.backend, self.devices, self.journal, self.chip = backend, devices, journal, chip
        self.entries: list[Expectation] = []
        self._parents: dict[bool, Parent] = {}
        self._runners: dict[bool, Runner] = {}
        self._search_left = ALL_SEARCHES_SECONDS
        self._confirmed: collections.Counter[tuple] = collections.Counter()

    def start(self) -> dict[str, Any]:
        """Starts the backend in a runner and returns the facts about it; raises BackendError when it cannot."""
        try:
            return started(self._runner(alone=False), self.backend)
        except (BackendError, UsageError):
            self._runners.clear()
            raise

    def close(self) -> None:
        for runner in self._runners.values():
            runner.close()
        for parent in self._parents.values():
            parent.close()
        self._runners.clear()
        self._parents.clear()

    # Processes

    def _parent(self, alone: bool) -> Parent:
        """The parent for single-device programs (one visible chip) or for all the rest."""
        alone = alone and self.chip is not None
        if alone not in self._parents:
            variables = self.backend.variables(self.devices, self.chip if alone else None)
            self._parents[alone] = Parent(variables, self.backend.worker)
        return self._parents[alone]

    def _runner(self, alone: bool) -> Runner:
        alone = alone and self.chip is not None
        runner = self._runners.get(alone)
        if runner is not None and len(runner.history) >= RUNNER_LINES:
            runner.close()
            runner = None
        if runner is None:
            runner = self._runners[alone] = self._parent(alone).fork()
        return runner

    @contextlib.contextmanager
    def _chips(self, alone: bool) -> Iterator[None]:
        """Programs over several chips of one host take turns among the workers."""
        if self.chip is None or alone:
            yield
            return
        with (self.journal.folder / "chips.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                runner = self._runners.pop(False, None)
                if runner:
                    runner.close()

    # Checking

    def check(self, line: str, wanted: frozenset[str] | None = None) -> list[Result]:
        """Final results of a line's cases, written to the journal.

        Args:
          line: a case line, with one or several leaves.
          wanted: only these cases of it, or all.
        """
        cases = [case for case in parse_line(line) if wanted is None or str(case) in wanted]
        if not cases:
            return []
        line = line_of(cases[0], [case.leaf for case in cases])
        alone = _devices_needed(cases[0]) <= 1
        with self._chips(alone):
            results = self._once(line, cases, self._runner(alone), alone)
            return [self._finish(result, case, ran, alone) for (result, ran), case in zip(results, cases)]

    def _once(
        self, line: str, cases: Sequence[Case], runner: Runner, alone: bool
    ) -> list[tuple[Result, str]]:
        """One attempt: each case's result and the line it ran in; a line that kills its runner is taken apart."""
        answer = runner.ask({"line": line}, self.backend.deadline)
        if isinstance(answer, dict):
            by_case = {result["case"]: result for result in answer["results"]}
            return [(by_case[str(case)], line) for case in cases]
        self._runners.pop(alone and self.chip is not None, None)
        if len(cases) == 1:
            return [(_died(cases[0], answer, self.backend.deadline), line)]
        return [
            result for case in cases for result in self._once(str(case), [case], self._runner(alone), alone)
        ]

    def _fresh(self, lines: Sequence[str], line: str, case: Case, alone: bool) -> Result:
        """The result of a case when its line runs in a new process, after other lines."""
        runner = self._parent(alone).fork()
        try:
            for earlier in lines:
                if isinstance(runner.ask({"line": earlier}, self.backend.deadline), Death):
                    runner = self._parent(alone).fork()
            answer = runner.ask({"line": line}, self.backend.deadline)
            if isinstance(answer, Death):
                return _died(case, answer, self.backend.deadline)
            return next(result for result in answer["results"] if result["case"] == str(case))
        finally:
            runner.close()

    def _finish(self, result: Result, case: Case, line: str, alone: bool) -> Result:
        """Confirms a failure, applies the expectations, and writes the verdict down."""
        if result["verdict"] in (Verdict.FAIL, Verdict.CRASH, Verdict.HANG):
            result = self._confirm(result, case, line, alone)
        return write_down(result, case, self.entries, self.journal)

    def _confirm(self, result: Result, case: Case, line: str, alone: bool) -> Result:
        """Runs a failure again in fresh processes: still failing, flaky, or dependent on what ran before."""
        signature = (result["rule"], result["verdict"], result["kind"], case.leaf.word)
        self._confirmed[signature] += 1
        if self._confirmed[signature] > CONFIRMED_ALIKE:
            return result
        again = self._fresh([], line, case, alone)
        if again["verdict"] == result["verdict"]:
            return {**self._alone(again, case, line, alone), "seconds": result["seconds"]}
        fresh = [again, *(self._fresh([], line, case, alone) for _ in range(FRESH_RUNS - 1))]
        failed = sum(run["verdict"] != Verdict.PASS for run in fresh)
        if failed:
            message = f"{failed + 1} of {FRESH_RUNS + 1} runs failed: {result['message']}"
            return {**result, "verdict": Verdict.FLAKY, "message": message}
        return self._order(result, case, line, alone)

    def _alone(self, result: Result, case: Case, line: str, alone: bool) -> Result:
        """The result of the case in a program of its own, where it fails there too."""
        if line == str(case):
            return result
        own = self._fresh([], str(case), case, alone)
        if own["verdict"] == result["verdict"]:
            return own
        return {**result, "message": f"only in one program with its neighbours: {line}\n{result['message']}"}

    def _order(self, result: Result, case: Case, line: str, alone: bool) -> Result:
        """Finds what must run before a case that passes in a fresh process for it to fail."""
        deadline = time.monotonic() + min(SEARCH_SECONDS, self._search_left)
        start = time.monotonic()
        before = self._runner(alone).history[:-1]
        try:
            for width in (1, 4, 16, 64):
                window = before[-width:]
                if time.monotonic() > deadline or not window:
                    break
                if self._fails_after(window, line, case, alone):
                    return _ordered(result, self._narrow(window, line, case, alone, deadline))
                if width >= len(before):
                    break
        finally:
            self._search_left -= time.monotonic() - start
        message = f"failed once, passed {FRESH_RUNS} times in fresh processes, and what ran before does not bring it back: "
        return {**result, "verdict": Verdict.FLAKY, "message": message + result["message"]}

    def _fails_after(self, lines: Sequence[str], line: str, case: Case, alone: bool) -> bool:
        return self._fresh(lines, line, case, alone)["verdict"] != Verdict.PASS

    def _narrow(self, window: list[str], line: str, case: Case, alone: bool, deadline: float) -> list[str]:
        """Halves the window as long as one half alone still brings the failure."""
        while len(window) > 1 and time.monotonic() < deadline:
            half = len(window) // 2
            if self._fails_after(window[half:], line, case, alone):
                window = window[half:]
            elif self._fails_after(window[:half], line, case, alone):
                window = window[:half]
            else:
                break
        return window


def started(runner: Runner, backend: Backend) -> dict[str, Any]:
    """Starts the backend in a runner and returns the facts about it.

    Raises:
      BackendError: it cannot be started.
      UsageError: what its name asks for cannot be had.
    """
    try:
        answer = runner.ask({"facts": True}, 2 * backend.deadline)
    except HarnessDefect as defect:  # JAX could not load it, and says why in the last line
        last = str(defect).strip().splitlines()[-1]
        raise BackendError(f"backend {backend.name} could not be started: {last}") from None
    if isinstance(answer, Death):
        raise BackendError(f"backend {backend.name} could not be started:\n{answer.log}")
    if "unusable" in answer["results"]:
        raise UsageError(answer["results"]["unusable"])
    return {**answer["results"], "shares": backend.shares}


def write_down(result: Result, case: Case, entries: list[Expectation], journal: Journal) -> Result:
    """Applies the expectations to a final result and appends it to the journal, its texts as files beside it."""
    own = parameters(case)
    result = expectations.settle(result, own, entries)
    result |= {"suite": suite_of(case), "parameters": {key: list(values) for key, values in own.items()}}
    for field, folder, suffix in (("reproducer", "reproducers", ".py"), ("log", "logs", ".txt")):
        text = result.get(field)
        result[field] = journal.attach(folder, result["case"], text, suffix) if text else None
    journal.append(result)
    return result


def _ordered(result: Result, lines: list[str]) -> Result:
    named = "; ".join(lines)
    return {
        **result,
        "verdict": Verdict.ORDER_DEPENDENT,
        "message": f"passes alone, fails after: {named}\n{result['message']}",
        "after": lines,
    }


def _died(case: Case, death: Death, deadline: float) -> Result:
    """The result of a case whose process did not survive it."""
    if death.hang:
        message = f"no answer within {deadline:.0f} s; the log has the stacks of all threads"
    else:
        message = str(death)
    return result_of(
        case,
        Verdict.HANG if death.hang else Verdict.CRASH,
        rule=law_of_death(plan(case), case),
        message=message,
        seconds=deadline if death.hang else 0.0,
        log=death.log,
    )


def _devices_needed(case: Case) -> int:
    """How many devices a case uses at most; an illegal one needs none."""
    try:
        typed = plan(case)
    except Illegal:
        return 1
    most = 1
    for sizes in typed.steps:
        count = 1
        for axis in typed.axes:
            count *= sizes[axis.key] if axis.on_devices else 1
        most = max(most, count)
    return most


def results_folder(given: str | None) -> Path:
    """The folder of a run: the one asked for, or `results/TIME` below the working directory."""
    import datetime

    return Path(given) if given else Path("results") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
