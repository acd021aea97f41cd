"""Counts of failing and passing cases over two things a case has, such as law and transform."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.report.results import Result
from harness.report.words import table_lines

Labels = Callable[[Result], Iterable[str]]


@dataclasses.dataclass
class Cell:
    """Attributes:
    failing, passing: cases that were decided.
    expected: cases that fail as expected.
    undecided: cases not applicable, skipped or missing.
    """

    failing: int = 0
    passing: int = 0
    expected: int = 0
    undecided: int = 0

    @property
    def decided(self) -> int:
        return self.failing + self.passing + self.expected

    def add(self, result: Result) -> None:
        if result.failing:
            self.failing += 1
        elif result.passing:
            self.passing += 1
        elif result.verdict == "expected_fail":
            self.expected += 1
        else:
            self.undecided += 1

    def __str__(self) -> str:
        if self.failing:
            return f"{self.failing}/{self.decided}"
        if self.expected:
            return f"({self.expected})"
        return "." if self.passing else "-" if self.undecided else ""


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Cells by (row, column); a pair no case has is not there."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]


def tabulate(title: str, results: Iterable[Result], row: Labels, column: Labels) -> Matrix:
    """Counts every result once in each of its rows and columns."""
    cells: dict[tuple[str, str], Cell] = {}
    for result in results:
        columns = tuple(column(result))
        for down in row(result):
            for across in columns:
                cells.setdefault((down, across), Cell()).add(result)
    rows = tuple(sorted({down for down, _ in cells}, key=_order))
    across_all = tuple(sorted({across for _, across in cells}, key=_order))
    return Matrix(title, rows, across_all, cells)


def _order(label: str) -> tuple[bool, int, str]:
    """Numbers by size, then words, "none" last."""
    return (label == "none", int(label) if label.isdigit() else 10**9, label)


def laws(result: Result) -> tuple[str, ...]:
    """The laws a result says something about: those it broke, or all it is held to and kept."""
    if result.failing or result.verdict == "expected_fail":
        return tuple(dict.fromkeys([result.rule, *(entry.partition(":")[0] for entry in result.also)]))
    return result.rules or (result.rule,)


def transform(result: Result) -> tuple[str]:
    """The transform a case is about: its innermost control flow, else derivative, else staging, else binder."""
    for family in ("control", "derivative", "staging", "binder"):
        word = result.parameters.get(family, ("none",))[-1]
        if word != "none":
            return (word,)
    return ("none",)


def values(key: str) -> Labels:
    """The labels of a parameter."""
    return lambda result: dict.fromkeys(result.parameters.get(key, ()))


def standard(results: Sequence[Result]) -> list[Matrix]:
    """The matrices every report has."""
    return [
        tabulate("law by transform", results, laws, transform),
        tabulate("collective by control flow", results, values("leaf"), values("control")),
        tabulate("collective by axis size", results, values("leaf"), values("size")),
        tabulate("dtype by collective", results, values("dtype"), values("leaf")),
    ]


def matrix_lines(matrix: Matrix, width: int = 100, height: int = 16) -> list[str]:
    """The rows and columns in which something fails, failing/decided; the rest in a sentence. Within a screen."""
    bad = {place for place, cell in matrix.cells.items() if cell.failing or cell.expected}
    down, _, across = matrix.title.partition(" by ")
    if not bad:
        return [f"{len(matrix.rows)} x {len(matrix.columns)} ({matrix.title}): nothing fails"]
    rows = [row for row in matrix.rows if any((row, column) in bad for column in matrix.columns)]
    columns = [column for column in matrix.columns if any((row, column) in bad for row in matrix.rows)]
    rows, columns = _worst(matrix, rows, columns, width, height)
    head = [matrix.title, *columns]
    body = [[row, *(str(matrix.cells.get((row, column), "")) for column in columns)] for row in rows]
    note = "failing/decided, (n) expected, . none fails"
    hidden = [(len(matrix.rows) - len(rows), down), (len(matrix.columns) - len(columns), across)]
    if any(count for count, _ in hidden):
        note += "; left out " + ", ".join(f"{count} {name}s" for count, name in hidden if count)
    return [*table_lines(head, body), note]


def _worst(
    matrix: Matrix, rows: list[str], columns: list[str], width: int, height: int
) -> tuple[list[str], list[str]]:
    """The rows and columns that fit, by how much fails in them, in their own order."""

    def failing(row: str | None, column: str | None) -> int:
        return sum(
            cell.failing + cell.expected
            for place, cell in matrix.cells.items()
            if (row is None or place[0] == row) and (column is None or place[1] == column)
        )

    kept_rows = sorted(rows, key=lambda row: -failing(row, None))[: max(1, height - 2)]
    room = width - max(len(label) for label in (*kept_rows, matrix.title))
    kept_columns: list[str] = []
    for column in sorted(columns, key=lambda column: -failing(None, column)):
        room -= 2 + max([len(column)] + [len(str(matrix.cells.get((row, column), ""))) for row in kept_rows])
        if room >= 0 or not kept_columns:
            kept_columns.append(column)
    return [row for row in rows if row in kept_rows], [column for column in columns if column in kept_columns]


def whole_lines(matrix: Matrix) -> list[str]:
    """Every row and column: how many cases were decided, or failing/decided."""
    heads = [column[:8] for column in matrix.columns]
    body = [
        [row, *(_plain(matrix.cells.get((row, column))) for column in matrix.columns)] for row in matrix.rows
    ]
    return list(table_lines([matrix.title, *heads], body))


def _plain(cell: Cell | None) -> str:
    if cell is None or not cell.decided:
        return ""
    return str(cell) if cell.failing or cell.expected else str(cell.decided)
