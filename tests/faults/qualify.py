"""Measures what the suite catches: a profile is run clean, then under each fault, and what fails more is the catch."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from harness.backends import Backend
from harness.case import parse_line
from harness.errors import Illegal
from harness.isolate import BackendError, Death, HarnessDefect, Parent
from harness.judge import checked_rules
from harness.parameters import parameters
from harness.program import plan
from harness.report.diagnosis import diagnose
from harness.report.results import Result
from harness.verdicts import Verdict
from tests.faults import library

CLEAN = ""
"""The name of the run without a fault."""

Failure = tuple[str, str, str, str]
"""(case, verdict, kind, rule)."""


@dataclasses.dataclass
class Catch:
    """What one fault's run showed.

    Attributes:
      fault: its name.
      failures: everything that failed and does not fail clean.
      seconds: from starting the process to the first of them; None when there is none.
      lines: how many lines were run.
      named: whether the diagnosis named the fault's component.
      trouble: why the run could not be made, or "".
    """

    fault: str
    failures: list[Failure] = dataclasses.field(default_factory=list)
    seconds: float | None = None
    lines: int = 0
    named: bool = False
    diagnosis: str = ""
    trouble: str = ""

    @property
    def rules(self) -> list[str]:
        return sorted({rule for _, _, _, rule in self.failures})


def run(
    fault: str,
    lines: Sequence[str],
    backend: Backend,
    clean: frozenset[Failure],
    enough: int,
    devices: int | None = None,
) -> Catch:
    """Runs lines under a fault until `enough` cases have failed that do not fail clean.

    Args:
      fault: name of the fault, or CLEAN.
      lines: in the order to run them.
      clean: what fails without any fault.
      enough: stop after so many failing cases.
    """
    catch, start = Catch(fault), time.monotonic()
    passed: list[str] = []
    environment = library.environment(fault) if fault else {}
    parent = None
    try:
        parent = Parent({**backend.variables(devices), **environment})
        runner = parent.fork()
        for line in lines:
            catch.lines += 1
            answer = runner.ask({"line": line}, backend.deadline)
            if isinstance(answer, Death):
                runner = parent.fork()
                verdict = Verdict.HANG if answer.hang else Verdict.CRASH
                results = [
                    {"case": str(c), "verdict": verdict, "kind": "", "rule": c.rule} for c in parse_line(line)
                ]
            else:
                results = answer["results"]
            for result in results:
                failure = (result["case"], result["verdict"], result["kind"], result["rule"])
                if result["verdict"] in (Verdict.FAIL, Verdict.CRASH, Verdict.HANG) and failure not in clean:
                    catch.failures.append(failure)
                elif result["verdict"] == Verdict.PASS:
                    passed.append(result["case"])
            if catch.failures and catch.seconds is None:
                catch.seconds = time.monotonic() - start
            if len(catch.failures) >= enough:
                break
    except (BackendError, HarnessDefect) as error:
        catch.trouble = str(error)[-400:]
    finally:
        if parent is not None:
            parent.close()
    if fault and catch.failures:
        _explain(catch, passed)
    return catch


def _explain(catch: Catch, passed: list[str]) -> None:
    """Diagnoses the run, and says whether the fault's component is among the parameters it names."""
    found = [_result(case, Verdict(verdict), kind, rule) for case, verdict, kind, rule in catch.failures]
    found += [_result(case, Verdict.PASS, "", "") for case in passed]
    diagnosis = diagnose(found)
    causes = (*diagnosis.causes, *diagnosis.suspicions)
    catch.diagnosis = "; ".join(str(cause) for cause in causes)
    component = library.faults()[catch.fault].component
    catch.named = any(
        str(value) in cause.parameters.get(key, ()) for cause in causes for key, value in component.items()
    )


def _result(case: str, verdict: Verdict, kind: str, rule: str) -> Result:
    own = parameters(parse_line(case)[0])
    return Result(case, verdict, rule, rules=(rule,), kind=kind, parameters=own)


def shuffled(lines: Iterable[str], seed: int = 1) -> list[str]:
    """A fixed order in which kinds of lines are mixed, so that whatever a fault breaks is met early."""
    mixed = sorted(lines)
    random.Random(seed).shuffle(mixed)
    return mixed


@functools.cache
def _described(line: str) -> tuple[frozenset[str], frozenset[str]]:
    """The parameter values of a line's cases, and the laws they are held to."""
    cases = parse_line(line)
    try:
        typed = plan(cases[0], tuple(case.leaf for case in cases[1:]))
    except Illegal:
        return frozenset(), frozenset()
    words = {value for case in cases for values in parameters(case).values() for value in values}
    return frozenset(words), frozenset(rule for case in cases for rule in checked_rules(typed, case))


def aimed(lines: Sequence[str], fault: str) -> list[str]:
    """The same lines, those first that have most to do with what the fault breaks: sooner caught, if it is caught at all."""
    known = library.faults()[fault]
    component = {str(value) for value in known.component.values()}

    def nearness(line: str) -> int:
        words, rules = _described(line)
        return len(words & component) + 2 * len(rules & set(known.rules))

    return sorted(lines, key=nearness, reverse=True)


def qualify(
    faults: Sequence[str],
    lines: Sequence[str],
    backend: Backend,
    enough: int,
    workers: int,
    report: Callable[[Catch], None],
    aim: bool = False,
    clean_file: Path | None = None,
) -> list[Catch]:
    """The clean run, then every fault, `workers` at a time; `report` is called as each ends.

    With `aim` each fault meets the lines nearest to it first; the times to a catch then say nothing.
    """
    clean = _clean(lines, backend, clean_file)
    waiting: queue.Queue[str] = queue.Queue()
    for fault in faults:
        waiting.put(fault)
    catches: list[Catch] = []
    lock = threading.Lock()

    def work() -> None:
        while True:
            try:
                fault = waiting.get_nowait()
            except queue.Empty:
                return
            catch = run(fault, aimed(lines, fault) if aim else lines, backend, clean, enough)
            with lock:
                catches.append(catch)
                report(catch)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(catches, key=lambda catch: catch.fault)


def _clean(lines: Sequence[str], backend: Backend, file: Path | None) -> frozenset[Failure]:
    """What fails without any fault, from the file where there is one."""
    if file is not None and file.exists():
        return frozenset(tuple(failure) for failure in json.loads(file.read_text()))
    failures = run(CLEAN, lines, backend, frozenset(), enough=10**9).failures
    if file is not None:
        file.write_text(json.dumps(failures))
    return frozenset(failures)


def save(path: Path, catches: Iterable[Catch]) -> None:
    path.write_text("".join(json.dumps(dataclasses.asdict(catch)) + "\n" for catch in catches))


def summary(catches: Sequence[Catch]) -> dict[str, object]:
    """Share caught, median time to the first catch, faults caught by one case only, share named by the diagnosis."""
    caught = [catch for catch in catches if catch.failures]
    times = sorted(catch.seconds for catch in caught if catch.seconds is not None)
    rules: collections.Counter[str] = collections.Counter(rule for catch in caught for rule in catch.rules)
    return {
        "faults": len(catches),
        "caught": len(caught),
        "missed": [catch.fault for catch in catches if not catch.failures],
        "median_seconds": times[len(times) // 2] if times else None,
        "thin": [catch.fault for catch in caught if len(catch.failures) == 1],
        "named": sum(catch.named for catch in caught),
        "rules": dict(rules),
    }


def matrix(catches: Sequence[Catch], version: str, profile: str) -> str:
    """The kill matrix, fault x rule, in Markdown."""
    figures = summary(catches)
    rules = sorted({rule for catch in catches for rule in catch.rules})
    lines = [
        f"# Kill matrix: {profile}, JAX {version}",
        "",
        f"{figures['caught']} of {figures['faults']} faults caught, median {figures['median_seconds'] or 0:.1f} s to the first catch.",
        "",
        "| fault | breaks | first catch | cases | rules |",
        "|---|---|---|---|---|",
    ]
    known = library.faults()
    for catch in catches:
        when = f"{catch.seconds:.1f} s" if catch.seconds is not None else "**missed**"
        rules_ = ", ".join(catch.rules)
        lines.append(
            f"| {catch.fault} | {known[catch.fault].breaks} | {when} | {len(catch.failures)} | {rules_} |"
        )
    lines += ["", "| rule | faults it caught | faults only it caught |", "|---|---|---|"]
    for rule in rules:
        caught = [catch for catch in catches if rule in catch.rules]
        only = [catch for catch in caught if catch.rules == [rule]]
        lines.append(f"| {rule} | {len(caught)} | {len(only)} |")
    return "\n".join(lines) + "\n"
