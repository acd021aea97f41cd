"""The end of a run on the terminal: what was decided, the matrix and the diagnosis, in a screenful."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.report.causes import Diagnosis
from harness.report.diagnosis import diagnose
from harness.report.matrix import matrix_lines, standard
from harness.report.results import Run
from harness.report.words import counted, diagnosis_lines

MATRIX_SHARE = 0.4
"""The part of the screen the matrix may take."""


def screen(run: Run, diagnosis: Diagnosis | None = None, width: int = 0, height: int = 0) -> Iterator[str]:
    """The lines that end a run; as wide and high as the terminal unless told otherwise."""
    size = shutil.get_terminal_size((100, 40))
    width, height = width or min(size.columns, 140), height or max(size.lines - 4, 20)
    diagnosis = diagnosis or diagnose(run.results)
    head = [counts_line(run), *_warnings(run), ""]
    matrix = matrix_lines(standard(run.results)[0], width, int(height * MATRIX_SHARE))
    folder = _written(run.folder)
    found = diagnosis_lines(diagnosis, width, max(4, height - len(head) - len(matrix) - 1), folder)
    yield from head
    yield from matrix
    if found:
        yield ""
        yield from found


def _written(folder: Path) -> str:
    """A folder as a person here would write it."""
    near = os.path.relpath(folder)
    return str(folder.absolute()) if near.startswith("..") else near


def counts_line(run: Run) -> str:
    """`9,120 of 9,204 applicable cases pass: 60 fail, 24 expected fail; 700 not applicable (jax 0.10.2, cpu x8)`."""
    others = [
        f"{count:,} {verdict.replace('_', ' ')}" for verdict, count in run.counts.items() if verdict != "pass"
    ]
    rest = f": {', '.join(others)}" if others else ""
    return f"{run.passed:,} of {counted(run.applicable, 'applicable case')} pass{rest} ({run.name})"


def _warnings(run: Run) -> Iterator[str]:
    if run.undecided:
        yield f"NOT COMPLETE: {counted(run.undecided, 'promised case')} without a verdict"
    if run.torn:
        yield f"{counted(run.torn, 'line')} of the journal could not be read (a process died while writing)"
