"""Checks the cases of one line in this process: plan, render, run, judge. The runner's side of the work."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax

from harness import capabilities, compat, exact, judge
from harness.case import Case, parse_line
from harness.errors import Illegal, NotApplicable
from harness.layers.probe import ProbeLeaf
from harness.program import Plan, plan, unit_of
from harness.render import Rendered, render
from harness.reproduce import reproducer
from harness.run import Loaded, Watch, observe
from harness.verdicts import Finding, Kind, Verdict, result_of

PRIORITY = (Kind.STALE, Kind.RAISED, Kind.WRONG_VALUE, Kind.WRONG_SHAPE, Kind.WRONG_DTYPE, Kind.NOT_RAISED)
"""Kinds that explain others come first when one case breaks several laws."""


@dataclasses.dataclass(frozen=True)
class Way:
    """How programs are run and judged.

    Attributes:
      findings: runs a rendered program and says what was wrong, by output; may raise NotApplicable.
      missing: why a program cannot be run here at all, or "".
      rules: the laws a case is held to.
      run: executes a capability's trial.
      reproduce: a program of its own that shows a finding.
      apart: whether a program that fails as a whole is followed by one for each of its cases. Where several processes
        run the line, one of them may not decide that alone.
    """

    findings: Callable[[Rendered], dict[str, list[Finding]]]
    missing: Callable[[Plan], str]
    rules: Callable[[Plan, Case], list[str]]
    run: capabilities.Run
    reproduce: Callable[[Rendered, Finding], str] = reproducer
    apart: bool = True


def here(watch: Watch | None = None) -> Way:
    """Programs run on this process's own devices; `watch` is told of every step."""
    findings = functools.partial(_findings, watch=watch)
    return Way(findings, missing_capability, judge.checked_rules, capabilities.execute)


def handle(request: dict[str, Any], way: Way | None = None) -> Any:
    """Answers one request of the controller.

    `{"line": LINE}` checks the cases of a line; `{"facts": true}` describes the environment; `{"examine": NAME,
    "dtype": DTYPE}` tries a capability; `{"foresee": LINE}` says what the cases of a line need.
    """
    if request.get("facts"):
        from harness.environment import facts

        return facts()
    if "examine" in request:
        return capabilities.examine(request["examine"], request["dtype"], (way or here()).run)
    if "foresee" in request:
        return foresee(request["foresee"], way or here())
    return check_line(request["line"], way)


def foresee(line: str, way: Way) -> list[dict[str, Any]]:
    """For each case of a line, before anything runs: why it is not applicable, or the capabilities it uses."""
    return [_foreseen(case, way) for case in parse_line(line)]


def _foreseen(case: Case, way: Way) -> dict[str, Any]:
    try:
        typed = plan(case)
    except Illegal as error:
        return {"case": str(case), "reason": f"illegal: {error}", "needs": []}
    missing = way.missing(typed)
    used = [] if missing else capabilities.needs(render(typed, spelling()).source, case.dtype)
    return {"case": str(case), "reason": missing, "needs": used}


@functools.cache
def spelling() -> compat.Spelling:
    return compat.spelling(jax.__version__)


def check_line(line: str, way: Way | None = None) -> list[dict[str, Any]]:
    """One result for each case of the line: case, verdict, kind, rule, rules, message, also, seconds."""
    results = []
    for _, group in itertools.groupby(parse_line(line), key=unit_of):
        results += _check_program(list(group), way or here())
    return results


def _check_program(cases: list[Case], way: Way) -> list[dict[str, Any]]:
    start = time.perf_counter()
    try:
        typed = plan(cases[0], tuple(case.leaf for case in cases[1:]))
    except Illegal as reason:
        return [result_of(case, Verdict.NOT_APPLICABLE, message=f"illegal: {reason}") for case in cases]
    missing = way.missing(typed)
    if missing:
        return [result_of(case, Verdict.NOT_APPLICABLE, message=missing) for case in cases]
    rendered = render(typed, spelling())
    unable = ""
    findings: dict[str, list[Finding]] = {}
    try:
        findings = way.findings(rendered)
    except NotApplicable as reason:
        unable = str(reason)
    if way.apart and len(cases) > 1 and (unable or findings.get("")):
        return [result for case in cases for result in _check_program([case], way)]
    declined = unable or _declined(typed, findings) or _lacking(rendered, findings, way)
    declined = declined or _rounds(typed, findings)
    if declined:
        return [result_of(case, Verdict.NOT_APPLICABLE, message=declined) for case in cases]
    seconds = (time.perf_counter() - start) / len(cases)
    keys = dict(zip(typed.leaves, cases))
    return [_judged(case, rendered, key, findings, seconds, way) for key, case in keys.items()]


def missing_capability(typed: Plan) -> str:
    """Why this backend cannot run the program, or ""."""
    if isinstance(typed.case.leaf, ProbeLeaf):
        probe = typed.case.leaf.probe
        if probe.requires and importlib.util.find_spec(probe.requires) is None:
            return f"needs the Python module {probe.requires}"
        if probe.alone and jax.process_count() > 1:
            return "a law of a single process"
        if probe.processes > jax.process_count():
            return f"needs {probe.processes} processes"
        if compat.version(jax.__version__) < compat.version(probe.since or "0"):
            return f"the law {probe.rule} is held against JAX {probe.since} and later here"
        return f"needs {probe.devices} devices" if probe.devices > jax.device_count() else ""
    layers = typed.case.layers
    since = max(
        (layer.since(layers[:depth]) for depth, layer in enumerate(layers)), key=compat.version, default=""
    )
    if since and compat.version(jax.__version__) < compat.version(since):
        return f"held against JAX {since} and later here"
    needed = max((typed.devices(sizes) for sizes in typed.steps), default=1)
    present = jax.device_count()
    return f"needs {needed} devices, the backend has {present}" if needed > present else ""


def _declined(typed: Plan, findings: dict[str, list[Finding]]) -> str:
    """JAX's own words where it says that it does not implement what a leaf asks for, or ""."""
    if not any(leaf.declined(typed.inside) for leaf in typed.leaves.values()):
        return ""
    said = [
        f.message
        for found in findings.values()
        for f in found
        if any(word in f.message for word in compat.DECLINES)
    ]
    return f"{compat.DECLINED}: {said[0].splitlines()[0]}" if said else ""


def _lacking(rendered: Rendered, findings: dict[str, list[Finding]], way: Way) -> str:
    """The capability this backend declines, where what was raised sounds like it, or "".

    The words alone would hide defects: the capability's own little program must be refused too.
    """
    raised = [f.message for found in findings.values() for f in found if f.kind == Kind.RAISED]
    if not any(map(capabilities.refusal, raised)):
        return ""
    return capabilities.lacking(rendered.source, rendered.plan.case.dtype, way.run)


def _rounds(typed: Plan, findings: dict[str, list[Finding]]) -> str:
    """Where a value is wrong and the program is one that rounds, nothing can be said bit for bit: why, or ""."""
    if not any(finding.kind == Kind.WRONG_VALUE for found in findings.values() for finding in found):
        return ""
    rounded = exact.inexact(typed)
    return f"illegal: not exact in {typed.case.dtype} ({rounded})" if rounded else ""


numbers = itertools.count()


def _findings(rendered: Rendered, watch: Watch | None) -> dict[str, list[Finding]]:
    """Runs the module and judges it; whatever it raises outside its steps is a finding too."""
    loaded = Loaded(rendered.source, f"<case {next(numbers)}>")
    try:
        error = loaded.execute()
        if error:
            return {"": [Finding(rendered.plan.case.rule, Kind.RAISED, f"while being defined: {error}")]}
        expected = judge.expectations(rendered.plan, loaded.operand)
        return judge.judge(rendered.plan, expected, list(observe(loaded, len(expected), watch)))
    finally:
        loaded.close()


def _judged(
    case: Case,
    rendered: Rendered,
    key: str,
    findings: dict[str, list[Finding]],
    seconds: float,
    way: Way,
) -> dict[str, Any]:
    """The result of one case: its own output's findings, those of the layers, and those of the whole program."""
    shared = [name for name in findings if name not in rendered.plan.leaves]
    own = [name for name in findings if name == key or name.endswith("." + key)]
    found = [
        finding
        for name in dict.fromkeys([*own, *shared])
        for finding in findings[name]
        if _concerns(name, key, rendered)
    ]
    rules = way.rules(rendered.plan, case)
    if not found:
        return result_of(case, Verdict.PASS, rule=rules[0], rules=rules, seconds=seconds)
    found.sort(
        key=lambda finding: PRIORITY.index(finding.kind) if finding.kind in PRIORITY else len(PRIORITY)
    )
    worst = found[0]
    alone = render(plan(case), spelling())
    return result_of(
        case,
        Verdict.FAIL,
        kind=worst.kind,
        rule=worst.rule,
        rules=rules,
        message=worst.message,
        also=[f"{finding.rule}: {finding.kind}" for finding in found[1:]],
        seconds=seconds,
        reproducer=way.reproduce(alone, worst),
    )


def _concerns(name: str, key: str, rendered: Rendered) -> bool:
    """Whether an output's finding is about the case of this leaf (a derivative's outputs are named after leaves)."""
    _, dot, leaf = name.partition(".")
    return not dot or leaf == key or leaf not in rendered.plan.leaves
