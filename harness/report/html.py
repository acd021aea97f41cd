"""`report.html`: one file that works offline. The data travels as JSON in the page; a small script filters and opens it.

Needs jinja2, which a run does without: only this module and the pages of scripts import it. Everything that comes from
outside is escaped, by the templates or as JSON that cannot end its script element, and is put into the page as text.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from harness.report.causes import Diagnosis, symptom
from harness.report.contrast import DERIVED
from harness.report.features import WORDS
from harness.report.matrix import Cell, Matrix, laws, standard, transform
from harness.report.positions import positions
from harness.report.results import Result, Run
from harness.report.terminal import counts_line
from harness.report.words import first_line, symptoms
from harness.verdicts import GOOD, Verdict

TEMPLATES = Path(__file__).parent / "templates"
MESSAGE = 6000
"""Characters of a message, log or reproducer that are shown; the folder has all."""
SOURCE = 40_000
SOURCES = 6_000_000
"""Characters of reproducers in one page; of further ones only the path is given."""
FIELDS = {"law by transform": ("law", "transform")}
"""What the rows and columns of a matrix filter by, where its title does not say it in keys of parameters."""
KEYS = {word: key for key, word in WORDS.items()}


def environment() -> jinja2.Environment:
    """The templates, escaping everything."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["embed"] = embed
    made.filters["thousands"] = lambda number: f"{number:,}"
    made.globals["include_raw"] = lambda name: markupsafe.Markup(
        (TEMPLATES / name).read_text(encoding="utf-8")
    )
    return made


def embed(value: Any) -> markupsafe.Markup:
    """JSON for a script element: nothing in it can end the element or start a comment."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return markupsafe.Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def page(run: Run, diagnosis: Diagnosis) -> str:
    """The report of a run."""
    data = Data(run, diagnosis)
    return (
        environment()
        .get_template("report.html.jinja")
        .render(
            run=run,
            headline=counts_line(run),
            counts=[(verdict, count, verdict in GOOD) for verdict, count in run.counts.items()],
            facts=facts(run),
            diagnosis=diagnosis,
            causes=[_cause(number, cause) for number, cause in enumerate(diagnosis.causes)],
            lone=[
                {"result": lone.result, "symptom": symptom(lone.result), "contrast": lone.contrast}
                for lone in diagnosis.lone[:5]
            ],
            matrices=[_heat(matrix) for matrix in standard(run.results)],
            data=data.record,
            first_line=first_line,
        )
    )


def facts(run: Run) -> list[tuple[str, str]]:
    """The environment as rows of a table; nested objects are flattened to `key.inner`."""
    rows: list[tuple[str, str]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        elif isinstance(value, list):
            rows.append((prefix, " ".join(map(str, value))))
        elif value is not None:
            rows.append((prefix, str(value)))

    walk("", dict(run.environment))
    return rows


def _cause(number: int, cause: Any) -> dict[str, Any]:
    first = cause.cases[0]
    return {
        "number": number,
        "text": str(cause),
        "symptoms": symptoms(cause),
        "first": first,
        "contrast": cause.contrast,
    }


def _heat(matrix: Matrix) -> dict[str, Any]:
    """A matrix as the template draws it: for each row its cells, with class, text, title and filters."""
    down, _, across = matrix.title.partition(" by ")
    fields = FIELDS.get(matrix.title) or (KEYS.get(down, down), KEYS.get(across, across))
    rows = []
    for row in matrix.rows:
        cells = [
            _cell(matrix.cells.get((row, column)), down, row, across, column) for column in matrix.columns
        ]
        rows.append((row, cells))
    failing = sum(any(cell["class"].startswith("bad") for cell in cells) for _, cells in rows)
    return {
        "title": matrix.title,
        "fields": fields,
        "columns": matrix.columns,
        "rows": rows,
        "failing": failing,
    }


def _cell(cell: Cell | None, down: str, row: str, across: str, column: str) -> dict[str, str]:
    if cell is None:
        return {"class": "none", "text": "", "title": ""}
    share = cell.failing / cell.decided if cell.decided else 0.0
    if cell.failing:
        kind, text = (
            ("bad3" if share > 0.5 else "bad2" if share > 0.1 else "bad1"),
            f"{cell.failing}/{cell.decided}",
        )
    elif cell.expected:
        kind, text = "known", f"({cell.expected})"
    else:
        kind, text = ("good", f"{cell.passing}") if cell.passing else ("away", "–")
    about = f"{cell.failing} failing, {cell.passing} passing, {cell.expected} failing as expected, {cell.undecided} undecided"
    return {"class": kind, "text": text, "title": f"{down} {row}, {across} {column}: {about}"}


@dataclasses.dataclass
class Data:
    """What the page's script works on: words once in tables, cases as rows of numbers."""

    run: Run
    diagnosis: Diagnosis

    def __post_init__(self) -> None:
        self.tables: dict[str, dict[Any, int]] = {
            name: {} for name in ("rules", "kinds", "suites", "transforms", "items", "laws", "texts")
        }
        self.room = SOURCES
        self.details: list[dict[str, Any]] = []
        numbers = {result.case: number for number, result in enumerate(self._ordered())}
        cases = [self._case(result) for result in self._ordered()]
        self.record = {
            "verdicts": [str(verdict) for verdict in Verdict],
            "good": [verdict in GOOD for verdict in Verdict],
            **{name: list(table) for name, table in self.tables.items()},
            "cases": cases,
            "details": self.details,
            "causes": [[numbers[result.case] for result in cause.cases] for cause in self.diagnosis.causes],
            "words": WORDS,
        }

    def _ordered(self) -> list[Result]:
        """Worst verdicts first, else in the order they fell."""
        order = list(Verdict)
        return sorted(
            self.run.results, key=lambda result: (result.verdict in GOOD, -order.index(result.verdict))
        )

    def _number(self, table: str, word: Any) -> int:
        return self.tables[table].setdefault(word, len(self.tables[table]))

    def _case(self, result: Result) -> list[Any]:
        """[line, verdict, rule, kind, suite, transform, laws, items, milliseconds, detail or -1]."""
        return [
            result.case,
            list(Verdict).index(result.verdict),
            self._number("rules", result.rule),
            self._number("kinds", result.kind),
            self._number("suites", result.suite),
            self._number("transforms", transform(result)[0]),
            self._number("laws", tuple(self._number("rules", law) for law in laws(result))),
            [
                self._number("items", item)
                for item in result.parameters.items()
                if item[0] not in DERIVED - {"environments"}
            ],
            round(1000 * result.seconds, 1),
            self._detail(result),
        ]

    def _detail(self, result: Result) -> int:
        if result.verdict == Verdict.PASS:
            return -1
        detail = {
            "message": self._number("texts", result.message[:MESSAGE]),
            "also": result.also,
            "expectation": result.expectation,
            "reduced": result.reduced,
            "time": result.time,
            "worker": result.worker,
            "reproducer": result.reproducer,
            "source": self._read(result.reproducer, SOURCE),
            "log": result.log,
            "tail": self._read(result.log, MESSAGE, tail=True),
            "positions": positions(result.case, result.message) if result.failing else None,
        }
        self.details.append({key: value for key, value in detail.items() if value not in ("", None, ())})
        return len(self.details) - 1

    def _read(self, path: str, most: int, tail: bool = False) -> str:
        """A file of the run's folder, as far as there is room; never one outside it."""
        place = (self.run.folder / path).resolve()
        if not path or self.room <= 0 or not place.is_relative_to(self.run.folder.resolve()):
            return ""
        try:
            text = place.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        text = (
            text[-most:]
            if tail
            else text
            if len(text) <= most
            else text[:most] + "\n# ... the rest is in the folder"
        )
        self.room -= len(text)
        return text
