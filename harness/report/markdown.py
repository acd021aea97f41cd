"""`summary.md`, made for a GitHub job summary (less than 1 MiB), and `badge.json` for shields.io."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from harness.report.causes import Cause, Diagnosis, Lone, symptom
from harness.report.matrix import Matrix, standard
from harness.report.results import Result, Run
from harness.report.terminal import counts_line
from harness.report.words import first_line, symptoms
from harness.verdicts import GOOD, Verdict

BAR = re.compile(r"(?<!\\)\|")
CASES = 100
"""Cases listed; the results folder has all."""


def summary(run: Run, diagnosis: Diagnosis) -> str:
    """The whole run on one page of Markdown."""
    return "\n".join(
        [*_head(run), *_diagnosis(diagnosis), *_matrix(standard(run.results)[0]), *_cases(run), ""]
    )


def _head(run: Run) -> Iterator[str]:
    yield f"## {'✅' if run.good else '❌'} Axis conformance: {text(counts_line(run))}"
    yield ""
    if run.undecided:
        yield f"**Not complete**: {run.undecided:,} of {run.promised:,} promised cases have no verdict."
        yield ""
    facts = {key: value for key, value in run.environment.items() if isinstance(value, (str, int, float))}
    yield " · ".join(f"{code(key)} {text(str(value))}" for key, value in facts.items())
    yield ""


def _diagnosis(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.failing:
        return
    yield "### Diagnosis"
    yield ""
    for cause in diagnosis.causes:
        yield from _cause(cause)
    for lone in diagnosis.lone[:5]:
        yield from _lone(lone)
    if len(diagnosis.lone) > 5:
        yield f"- and {len(diagnosis.lone) - 5:,} more failures that have nothing in common"
    yield ""


def _cause(cause: Cause) -> Iterator[str]:
    yield f"1. **{text(str(cause))}**  "
    yield f"   {text(symptoms(cause))}  "
    yield from _example(cause.cases[0], "   ")
    if cause.contrast:
        yield f"   passes with {text(str(cause.contrast))}"


def _lone(lone: Lone) -> Iterator[str]:
    yield f"- by itself: {text(symptom(lone.result))} ({text(lone.result.rule)})  "
    yield from _example(lone.result, "  ")
    if lone.contrast:
        yield f"  passes with {text(str(lone.contrast))}"


def _example(result: Result, indent: str) -> Iterator[str]:
    yield f"{indent}{code(result.case)}  "
    if result.message:
        yield f"{indent}{text(first_line(result.message))}  "
    if result.reproducer:
        yield f"{indent}{code('python ' + result.reproducer)}  "


def _matrix(matrix: Matrix) -> Iterator[str]:
    yield f"### {matrix.title.capitalize()}"
    yield ""
    yield "Failing/decided cases; · none fails, – not applicable, (n) as expected."
    yield ""
    yield from table(
        ["", *map(text, matrix.columns)], ([text(row), *_cells(matrix, row)] for row in matrix.rows)
    )
    yield ""


def _cells(matrix: Matrix, row: str) -> list[str]:
    shown = [str(matrix.cells.get((row, column), "")) for column in matrix.columns]
    return [f"**{cell}**" if "/" in cell else cell.replace(".", "·").replace("-", "–") for cell in shown]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table; a bar in a cell is escaped."""
    for number, row in enumerate([head, *rows]):
        yield "| " + " | ".join(BAR.sub(r"\\|", cell) for cell in row) + " |"
        if number == 0:
            yield "|" + "---|" * len(head)


def _cases(run: Run) -> Iterator[str]:
    bad = [result for result in run.results if result.verdict not in GOOD]
    if not bad:
        return
    shown = bad[:CASES]
    yield f"<details><summary>{len(bad):,} cases with an unexpected verdict</summary>"
    yield ""
    rows = ([r.verdict.replace("_", " "), text(r.kind), text(r.rule), code(r.case)] for r in shown)
    yield from table(["verdict", "kind", "law", "case"], rows)
    if len(bad) > CASES:
        yield ""
        yield f"and {len(bad) - CASES:,} more in `results.jsonl`."
    yield ""
    yield "</details>"


SPECIAL = str.maketrans(
    {**{char: "\\" + char for char in "\\`*_[]#|~"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"}
)
LONGEST = 400


def text(plain: str) -> str:
    """Plain text that stays plain in Markdown, on one line."""
    plain = " ".join(plain.split())
    return (plain if len(plain) <= LONGEST else plain[:LONGEST] + " ...").translate(SPECIAL)


def code(plain: str) -> str:
    """Inline code: fenced by more backticks than it holds."""
    plain = " ".join(plain.split())
    fence = "`"
    while fence in plain:
        fence += "`"
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def badge(run: Run) -> str:
    """The endpoint of a shields.io badge: `passing / applicable`.

    The denominator is every case the profile promised, less those that are not applicable on the backend; so expected
    failures, skipped and missing cases lower the figure.
    """
    bad = sum(
        result.verdict not in GOOD and result.verdict != Verdict.UNEXPECTED_PASS for result in run.results
    )
    colour = "red" if bad or not run.results else "yellow" if run.undecided or not run.good else "brightgreen"
    figure = f"{run.passed:,} / {run.applicable:,} pass" if run.results else "no results"
    record = {"schemaVersion": 1, "label": "axis conformance", "message": figure, "color": colour}
    return json.dumps(record) + "\n"
