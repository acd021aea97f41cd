"""Measures what the suite catches: a profile is run clean, then under each fault, and what fails more is the catch."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from harness.backends import Backend
from harness.case import parse_line
from harness.errors import Illegal
from harness.isolate import BackendError, Death, HarnessDefect, Parent
from harness.judge import checked_rules
from harness.layers.probe import ProbeLeaf
from harness.parameters import parameters
from harness.program import plan
from harness.report.diagnosis import diagnose
from harness.report.results import Result
from harness.verdicts import Verdict
from tests.faults import library

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


class Asked:
    """A process that runs lines, under a fault or under none; one that dies is replaced.

    Raises:
      BackendError, HarnessDefect: it cannot be started, or a line breaks the harness itself.
    """

    def __init__(self, backend: Backend, fault: str = ""):
        environment = library.environment(fault) if fault else {}
        self.deadline = backend.deadline
        self.parent = Parent({**backend.variables(None), **environment})
        self.runner = self.parent.fork()

    def results(self, line: str) -> list[dict[str, str]]:
        """The results of the line's cases, with `case`, `verdict`, `kind` and `rule`."""
        answer = self.runner.ask({"line": line}, self.deadline)
        if not isinstance(answer, Death):
            return answer["results"]
        self.runner = self.parent.fork()
        verdict = Verdict.HANG if answer.hang else Verdict.CRASH
        return [{"case": str(c), "verdict": verdict, "kind": "", "rule": c.rule} for c in parse_line(line)]

    def close(self) -> None:
        self.parent.close()


class Clean:
    """What fails without any fault, found out line by line as it is asked for."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.lock = threading.Lock()
        self.known: dict[str, frozenset[Failure]] = {}
        self.asked: Asked | None = None

    def failures(self, line: str) -> frozenset[Failure]:
        with self.lock:
            if line not in self.known:
                self.asked = self.asked or Asked(self.backend)
                self.known[line] = frozenset(_failures(self.asked.results(line)))
            return self.known[line]

    def close(self) -> None:
        if self.asked is not None:
            self.asked.close()


def _failures(results: Iterable[dict[str, str]]) -> list[Failure]:
    return [
        (result["case"], result["verdict"], result["kind"], result["rule"])
        for result in results
        if result["verdict"] in (Verdict.FAIL, Verdict.CRASH, Verdict.HANG)
    ]


def run(fault: str, lines: Sequence[str], backend: Backend, clean: Clean, enough: int) -> Catch:
    """Runs lines under a fault until `enough` cases have failed that do not fail clean.

    Args:
      fault: name of the fault.
      lines: in the order to run them.
      clean: what fails without the fault; the time it takes to find out is not counted.
      enough: stop after so many failing cases.
    """
    catch, start = Catch(fault), time.monotonic()
    seen: list[dict[str, str]] = []
    asked = None
    try:
        asked = Asked(backend, fault)
        for line in lines:
            catch.lines += 1
            results = asked.results(line)
            failures, elapsed = _failures(results), time.monotonic() - start
            seen += results
            if failures:
                before = time.monotonic()
                known = clean.failures(line)
                start += time.monotonic() - before
                catch.failures += [failure for failure in failures if failure not in known]
            if catch.failures and catch.seconds is None:
                catch.seconds = elapsed
            if len(catch.failures) >= enough:
                break
    except (BackendError, HarnessDefect) as error:
        catch.trouble = str(error)[-400:]
    finally:
        if asked is not None:
            asked.close()
    if catch.failures:
        _explain(catch, seen)
    return catch


def _explain(catch: Catch, seen: list[dict[str, str]]) -> None:
    """Diagnoses the run, and says whether the fault's component is among the parameters it names."""
    caught = set(catch.failures)
    found = [
        _result(result)
        for result in seen
        if result["verdict"] == Verdict.PASS or caught.intersection(_failures([result]))
    ]
    diagnosis = diagnose(found)
    causes = (*diagnosis.causes, *diagnosis.suspicions)
    catch.diagnosis = "; ".join(str(cause) for cause in causes)
    component = library.faults()[catch.fault].values()
    catch.named = any(
        set(values) & set(cause.parameters.get(key, ()))
        for cause in causes
        for key, values in component.items()
    )


def _result(result: dict[str, str]) -> Result:
    case, rule = result["case"], result["rule"]
    return Result(
        case,
        Verdict(result["verdict"]),
        rule,
        rules=(rule,),
        kind=result["kind"],
        message=result.get("message", ""),
        parameters=parameters(parse_line(case)[0]),
    )


def shuffled(lines: Iterable[str], seed: int = 1) -> list[str]:
    """A fixed order in which kinds of lines are mixed, so that whatever a fault breaks is met early."""
    mixed = sorted(lines)
    random.Random(seed).shuffle(mixed)
    return mixed


@functools.cache
def _described(line: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words of a line, of its parameters and of its probe's program, and the laws its cases are held to."""
    cases = parse_line(line)
    try:
        typed = plan(cases[0], tuple(case.leaf for case in cases[1:]))
    except Illegal:
        return frozenset(), frozenset()
    texts = [value for case in cases for values in parameters(case).values() for value in values]
    leaf = cases[0].leaf
    if isinstance(leaf, ProbeLeaf):
        texts += [line, leaf.probe.source, leaf.probe.values.get(leaf.value, "")]
    rules = frozenset(rule for case in cases for rule in checked_rules(typed, case))
    return _words(texts), rules


def _words(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def aimed(lines: Sequence[str], fault: str) -> list[str]:
    """The same lines, those first that have most to do with what the fault breaks: sooner caught, if it is caught at all."""
    known = library.faults()[fault]
    component = _words(value for values in known.values().values() for value in values)

    def nearness(line: str) -> tuple[int, bool]:
        words, rules = _described(line)
        near = len(words & component) + 2 * len(rules & set(known.rules))
        return near, line.startswith("probe(")  # a probe says more than one thing

    return sorted(lines, key=nearness, reverse=True)


def qualify(
    faults: Sequence[str],
    lines_of: Callable[[str], Sequence[str]],
    backend: Backend,
    enough: int,
    workers: int,
    report: Callable[[Catch], None],
) -> list[Catch]:
    """Every fault with its lines, `workers` at a time; `report` is called as each ends, one call at a time."""
    waiting: queue.Queue[str] = queue.Queue()
    for fault in faults:
        waiting.put(fault)
    catches: list[Catch] = []
    lock, clean = threading.Lock(), Clean(backend)

    def work() -> None:
        while True:
            try:
                fault = waiting.get_nowait()
            except queue.Empty:
                return
            catch = run(fault, lines_of(fault), backend, clean, enough)
            with lock:
                catches.append(catch)
                report(catch)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clean.close()
    return catches


def save(path: Path, catch: Catch) -> None:
    """Appends a fault's run to the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(catch)) + "\n")


def load(path: Path) -> list[Catch]:
    """The faults' runs in the file, none where it is not there."""
    texts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Catch(**json.loads(text)) for text in texts]


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


def matrix(catches: Sequence[Catch], version: str, about: str) -> str:
    """The kill matrix, fault x rule, in Markdown.

    Args:
      catches: the faults' runs.
      version: of JAX.
      about: the profile, the order of its lines and where runs end, and the suite's commit.
    """
    figures = summary(catches)
    rules = sorted({rule for catch in catches for rule in catch.rules})
    lines = [
        f"# Kill matrix: JAX {version}",
        "",
        f"{about}.",
        "",
        f"{figures['caught']} of {figures['faults']} faults caught, median {figures['median_seconds'] or 0:.1f} s to the"
        f" first catch; the diagnosis named the component of {figures['named']}.",
        "",
        "| fault | breaks | first catch | cases | lines run | named | rules |",
        "|---|---|---|---|---|---|---|",
    ]
    known = library.faults()
    for catch in catches:
        when = f"{catch.seconds:.1f} s" if catch.seconds is not None else "**missed**"
        named, rules_ = "yes" if catch.named else "", ", ".join(catch.rules)
        lines.append(
            f"| {catch.fault} | {known[catch.fault].breaks} | {when} | {len(catch.failures)} | {catch.lines} | {named} | {rules_} |"
        )
    lines += ["", "| rule | faults it caught | faults only it caught |", "|---|---|---|"]
    for rule in rules:
        caught = [catch for catch in catches if rule in catch.rules]
        only = [catch for catch in caught if catch.rules == [rule]]
        lines.append(f"| {rule} | {len(caught)} | {len(only)} |")
    return "\n".join(lines) + "\n"
