"""One table over runs of many JAX releases: where each finding appeared and where it disappeared.

Cases are grouped by the releases they fail on; what the cases of a group have in common is the finding. Expectations
play no part here: a known failure is a failure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from harness.compat import version
from harness.report import markdown
from harness.report.causes import Contrast, simplicity, symptom
from harness.report.diagnosis import diagnose
from harness.report.results import UNDECIDED, Result, Run
from harness.report.words import counted, first_line, table_lines
from harness.verdicts import Verdict

FAILS, PASSES, UNKNOWN = "F", ".", "?"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What some cases have in common that fail on the same releases.

    Attributes:
      text: the combination of parameters, or what they are when nothing tells them apart.
      kind: what kind of wrong, the most frequent first.
      history: FAILS, PASSES or UNKNOWN for each release, oldest first.
      cases: the failing cases, simplest first, as the newest failing release has them.
      contrast: the passing case nearest to the first, and what differs.
    """

    text: str
    kind: str
    history: str
    cases: tuple[Result, ...]
    contrast: Contrast | None = None

    @property
    def current(self) -> bool:
        return self.history.endswith(FAILS)


@dataclasses.dataclass(frozen=True)
class History:
    """Runs by release, oldest first, and what was found in them."""

    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]

    @property
    def releases(self) -> list[str]:
        return [str(run.environment.get("jax", run.folder.name)) for run in self.runs]

    def when(self, finding: Finding) -> str:
        """`0.4.30 to 0.6.0, good from 0.6.2`, `from 0.11.2 on`, `every release tried`."""
        names = self.releases
        failing = [k for k, mark in enumerate(finding.history) if mark == FAILS]
        passing = [k for k, mark in enumerate(finding.history) if mark == PASSES]
        first, last = failing[0], failing[-1]
        before, after = any(k < first for k in passing), [k for k in passing if k > last]
        holes = [names[k] for k in passing if first < k < last]
        if not before and not after and not holes:
            return "every release tried" if len(failing) > 1 else f"{names[first]} only tried"
        words = f"from {names[first]} on" if before and not after else f"{names[first]} to {names[last]}"
        words = f"up to {names[last]}" if not before and after else words
        words += f", good from {names[after[0]]}" if after else ""
        return words + (f", good in {', '.join(holes)}" if holes else "")


def history(runs: Sequence[Run]) -> History:
    """Reads the findings out of runs of several releases."""
    ordered = tuple(sorted(runs, key=lambda run: version(str(run.environment.get("jax", "0")))))
    tables = [{result.case: result for result in run.results} for run in ordered]
    groups: dict[str, list[Result]] = {}
    sound: list[Result] = []
    for case in dict.fromkeys(case for table in tables for case in table):
        marks = "".join(_mark(table.get(case)) for table in tables)
        if FAILS in marks:
            newest = next(table[case] for table in reversed(tables) if _mark(table.get(case)) == FAILS)
            groups.setdefault(_filled(marks), []).append(
                dataclasses.replace(newest, verdict=_failing(newest))
            )
        elif PASSES in marks:
            sound.append(next(table[case] for table in reversed(tables) if _mark(table.get(case)) == PASSES))
    findings = [finding for marks, cases in groups.items() for finding in _findings(marks, cases, sound)]
    findings.sort(key=lambda finding: (not finding.current, -len(finding.cases)))
    return History(ordered, tuple(findings))


def _mark(result: Result | None) -> str:
    if result is None or result.verdict in UNDECIDED:
        return UNKNOWN
    return PASSES if result.passing else FAILS


def _failing(result: Result) -> Verdict:
    return Verdict.FAIL if result.verdict == Verdict.EXPECTED_FAIL else result.verdict


def _filled(marks: str) -> str:
    """Unknown releases between two that fail are taken to fail: a finding is not split by a case that did not apply."""
    first, last = marks.index(FAILS), marks.rindex(FAILS)
    return marks[:first] + marks[first : last + 1].replace(UNKNOWN, FAILS) + marks[last + 1 :]


def _findings(marks: str, cases: list[Result], sound: list[Result]) -> Iterator[Finding]:
    diagnosis = diagnose([*cases, *sound])
    for cause in diagnosis.causes:
        kinds = ", ".join(kind for kind, _ in cause.kinds[:2])
        yield Finding(cause.where, kinds, marks, cause.cases, cause.contrast)
    rest: dict[tuple[str, str], list[Result]] = {}
    contrasts = {lone.result.case: lone.contrast for lone in diagnosis.lone}
    for lone in diagnosis.lone:
        rest.setdefault((lone.result.rule, symptom(lone.result)), []).append(lone.result)
    for (rule, kind), members in rest.items():
        members.sort(key=simplicity)
        text = members[0].case if len(members) == 1 else f"{rule}, nothing else in common"
        yield Finding(text, kind, marks, tuple(members), contrasts[members[0].case])


def lines(found: History) -> Iterator[str]:
    """The table for a terminal."""
    head = ["", *found.releases]
    rows = [["cases that pass", *(f"{run.passed:,}" for run in found.runs)]]
    rows.append(["of applicable", *(f"{run.applicable:,}" for run in found.runs)])
    for number, finding in enumerate(found.findings, 1):
        rows.append([f"{number}. {counted(len(finding.cases), 'case')}", *finding.history])
    yield from table_lines(head, rows)
    yield f"{FAILS} fails, {PASSES} passes, {UNKNOWN} not applicable or not run"
    for number, finding in enumerate(found.findings, 1):
        yield ""
        yield f"{number}. {finding.kind} where {finding.text}: {found.when(finding)}"
        yield f"   e.g. {finding.cases[0].case}"
        yield f"        {first_line(finding.cases[0].message)[:300]}"


def markdown_lines(found: History) -> Iterator[str]:
    """The table as Markdown."""
    yield "# Findings by JAX release"
    yield ""
    rows = [
        [str(run.environment.get("jax")), f"{run.passed:,}", f"{run.applicable:,}", f"{run.seconds:.0f}"]
        for run in found.runs
    ]
    yield from markdown.table(["JAX", "pass", "applicable", "seconds"], rows)
    yield ""
    body = []
    for number, finding in enumerate(found.findings, 1):
        when = markdown.text(found.when(finding))
        what = f"{markdown.text(finding.kind)} where {markdown.text(finding.text)}"
        body.append(
            [str(number), what, when, f"{len(finding.cases):,}", markdown.code(finding.cases[0].case)]
        )
    yield from markdown.table(["", "finding", "releases", "cases", "for example"], body)


def page(found: History) -> str:
    """The table as an HTML page (needs jinja2)."""
    from harness.report.html import environment

    return environment().get_template("versions.html.jinja").render(found=found, first_line=first_line)
