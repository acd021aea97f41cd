"""Shrinks a failing case while it fails the same way: fewer layers, fewer steps, smaller axes, plainer settings.

Every candidate is a case line like any other, so legality is `plan`'s to decide and nothing here knows what a layer
means. Each try is made in a fresh process, within a bound on time and number. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import backends, journal
from harness.case import SETTINGS, Case, parse
from harness.errors import CaseError, Illegal
from harness.isolate import Death, HarnessDefect, Parent
from harness.layers.base import Definition
from harness.layers.binders import Binder
from harness.program import plan
from harness.report.causes import Diagnosis
from harness.report.diagnosis import diagnose
from harness.report.results import load
from harness.verdicts import Verdict

Result = Mapping[str, Any]
Attempt = Callable[[str], Result]
"""Runs a case line in a fresh process and says how it ended."""

SECONDS, TRIES = 30.0, 80
"""Bounds for one case; what was reached by then is taken."""
PLAIN = {"shape": ("scalar", "2", "3"), "payload": ("counting",)}
"""Values of settings worth a try besides the default, the plainest first."""
COUNTS = ("1", "2")
SMALL = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class Reduced:
    """The smallest case that was found to fail the same way.

    Attributes:
      result: how it ended; it has the reproducer.
      tries: how many cases were run on the way.
    """

    case: Case
    result: Result
    tries: int


def signature(result: Result) -> tuple[str, str, str]:
    """What must stay the same: verdict, kind and law."""
    return (str(result["verdict"]), str(result.get("kind", "")), str(result["rule"]))


def reduce(
    case: Case, result: Result, attempt: Attempt, seconds: float = SECONDS, tries: int = TRIES
) -> Reduced:
    """Takes the first candidate that fails the same way, again and again, until none does or time is up."""
    wanted, end = signature(result), time.monotonic() + seconds
    done = {str(case)}
    found = Reduced(case, result, 0)
    again = True
    while again:
        again = False
        for candidate in candidates(found.case):
            if time.monotonic() > end or found.tries >= tries:
                return found
            if str(candidate) in done or not _legal(candidate):
                continue
            done.add(str(candidate))
            answer = attempt(str(candidate))
            same = signature(answer) == wanted
            found = dataclasses.replace(found, tries=found.tries + 1)
            if same:
                found = Reduced(candidate, answer, found.tries)
                again = True
                break
    return found


def _legal(case: Case) -> bool:
    try:
        plan(case)
        return parse(str(case)) == case
    except (Illegal, CaseError):
        return False


def candidates(case: Case) -> Iterator[Case]:
    """Simpler cases next to this one, the boldest first."""
    yield from _without_layers(case)
    yield from _fewer_steps(case)
    yield from _plain_settings(case)
    yield from _plain_parameters(case)
    yield from _smaller_axes(case)


def _without_layers(case: Case) -> Iterator[Case]:
    """Half of the layers, then single ones, innermost first."""
    count = len(case.layers)
    runs = [(start, start + count // 2) for start in (0, count - count // 2)] if count > 3 else []
    for start, end in [*runs, *((k, k + 1) for k in reversed(range(count)))]:
        yield dataclasses.replace(case, layers=case.layers[:start] + case.layers[end:])


def _fewer_steps(case: Case) -> Iterator[Case]:
    """One environment, then two."""
    steps = max((len(sizes) for layer in case.layers for _, sizes in _bindings(layer)), default=1)
    for chosen in [(k,) for k in range(steps)] + [(k, k + 1) for k in range(steps - 1) if steps > 2]:
        yield _with_sizes(case, functools.partial(_picked, chosen))


def _smaller_axes(case: Case) -> Iterator[Case]:
    """Each size at every step replaced by a smaller one; all axes at once, then one by one."""
    sizes = sorted(
        {size for layer in case.layers for _, own in _bindings(layer) for size in own}, reverse=True
    )
    for size in sizes:
        for small in SMALL:
            if small < size:
                yield _with_sizes(case, functools.partial(_swapped, size, small))
    for at, layer in enumerate(case.layers):
        for which, (_, own) in enumerate(_bindings(layer)):
            for small in (small for small in SMALL if small < max(own)):
                changed = tuple(min(one, small) for one in own) if len(own) == 1 else own
                yield _with_binding(case, at, which, changed)


def _picked(steps: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sizes[k] for k in steps) if len(sizes) > 1 else sizes


def _swapped(old: int, new: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(new if size == old else size for size in sizes)


def _bindings(layer: Definition) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return layer.bindings if isinstance(layer, Binder) else ()


def _with_sizes(case: Case, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Case:
    layers = tuple(
        dataclasses.replace(
            layer, bindings=tuple((symbol, change(sizes)) for symbol, sizes in layer.bindings)
        )
        if isinstance(layer, Binder)
        else layer
        for layer in case.layers
    )
    return dataclasses.replace(case, layers=layers)


def _with_binding(case: Case, at: int, which: int, sizes: tuple[int, ...]) -> Case:
    layer = case.layers[at]
    assert isinstance(layer, Binder)
    bindings = tuple((symbol, sizes if k == which else own) for k, (symbol, own) in enumerate(layer.bindings))
    changed = dataclasses.replace(layer, bindings=bindings)
    return dataclasses.replace(case, layers=(*case.layers[:at], changed, *case.layers[at + 1 :]))


def _plain_settings(case: Case) -> Iterator[Case]:
    """All settings at their defaults, then each, then values that are plainer than the default."""
    defaults = {setting.key: setting.default for setting in SETTINGS}
    yield dataclasses.replace(case, **defaults)
    for key, default in defaults.items():
        yield dataclasses.replace(case, **{key: default})
    if case.operand != "argument":
        yield dataclasses.replace(case, operand="argument")
    for setting in SETTINGS:
        for value in map(setting.read, PLAIN.get(setting.key, ())):
            if value == getattr(case, setting.key):
                break  # only what is plainer than it is now
            yield dataclasses.replace(case, **{setting.key: value})


def _plain_parameters(case: Case) -> Iterator[Case]:
    """Each parameter of a layer or of the leaf at its default; counts fixed and small."""
    for at, layer in enumerate(case.layers):
        for changed in _plainer(layer):
            yield dataclasses.replace(case, layers=(*case.layers[:at], changed, *case.layers[at + 1 :]))
    for changed in _plainer(case.leaf):
        yield dataclasses.replace(case, leaf=changed)


def _plainer(definition: Any) -> Iterator[Any]:
    for param in definition.params:
        value = getattr(definition, param.name)
        if param.kind in ("flag", "keyword") and value != definition.default(param.name):
            yield dataclasses.replace(definition, **{param.name: definition.default(param.name)})
        if param.name == "count":
            for count in map(param.read, COUNTS):
                if count == value:
                    break
                if count is not None:
                    yield dataclasses.replace(definition, count=count)
        if param.name == "names" and isinstance(value, tuple) and len(value) > 1:
            for name in value:
                yield dataclasses.replace(definition, names=(name,))


def in_fresh_processes(parent: Parent, deadline: float) -> Attempt:
    """Tries cases in processes forked from a parent that has imported JAX."""

    def attempt(line: str) -> Result:
        runner = parent.fork()
        try:
            answer = runner.ask({"line": line}, deadline)
        except HarnessDefect:
            return {
                "case": line,
                "verdict": Verdict.SKIPPED,
                "kind": "",
                "rule": "",
            }  # says nothing about JAX
        finally:
            runner.close()
        if isinstance(answer, Death):
            verdict = Verdict.HANG if answer.hang else Verdict.CRASH
            return {
                "case": line,
                "verdict": verdict,
                "kind": "",
                "rule": parse(line).rule,
                "message": answer.log[-600:],
            }
        return answer["results"][0]

    return attempt


# A whole results folder

CHOSEN = 6
"""Failures of one run that are worth the time."""


def worth_it(found: Diagnosis) -> list[str]:
    """The cases to reduce: the simplest one of each cause, then of each suspicion, then lone failures."""
    cases = [cause.cases[0].case for cause in (*found.causes, *found.suspicions)]
    cases += [lone.result.case for lone in found.lone]
    return list(dict.fromkeys(cases))[:CHOSEN]


def reduce_folder(folder: Path, seconds: float = 60.0, cases: Sequence[str] = ()) -> Iterator[Reduced]:
    """Reduces failures of a run with the backend it was made with, and writes each down as it is found.

    The journal gets a further line for the case, with the reproducer of the reduced one and its case line.

    Args:
      folder: the results folder.
      seconds: bound on all of it.
      cases: which ones; chosen by the diagnosis when there are none.
    """
    records = {record["case"]: record for record in journal.read(folder)}
    facts = journal.read_environment(folder)
    run = facts.get("run", {})
    chosen = list(cases) or worth_it(diagnose(load(folder).results))
    if not chosen:
        return
    backend = backends.load(run.get("backend_file") or "default")
    end = time.monotonic() + seconds
    parent = Parent(backend.variables(facts.get("device_count")))
    book = journal.Journal(folder, "reduce")
    try:
        attempt = in_fresh_processes(parent, backend.deadline)
        for k, line in enumerate(chosen):
            share = (end - time.monotonic()) / (len(chosen) - k)
            found = _reduced(records[line], attempt, share) if share > 1 else None
            if found is not None:
                _write(book, records[line], found)
                yield found
    finally:
        book.close()
        parent.close()


def _reduced(record: Result, attempt: Attempt, seconds: float) -> Reduced | None:
    """The record's case reduced; None where it does not fail by itself any more."""
    again = attempt(record["case"])
    if signature(again) != signature(record):
        return None
    return reduce(parse(record["case"]), again, attempt, seconds)


def _write(book: journal.Journal, record: Result, found: Reduced) -> None:
    kept = {key: value for key, value in record.items() if key not in ("time", "worker")}
    source = found.result.get("reproducer")
    if source and str(found.case) != record["case"]:
        path = book.attach("reproducers", str(found.case), source, ".py")
        book.append({**kept, "reproducer": path, "reduced": str(found.case)})
