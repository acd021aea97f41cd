"""Writes everything a run leaves to be read into its folder: `summary.md`, `badge.json`, `junit.xml`, `report.html`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Collection
from pathlib import Path

from harness.case import parse
from harness.errors import UsageError
from harness.parameters import parameters, suite_of
from harness.report import junit, markdown
from harness.report.causes import Diagnosis
from harness.report.diagnosis import diagnose
from harness.report.results import ENVIRONMENT, Result, Run, load
from harness.verdicts import Verdict

NO_TEMPLATES = (
    "report.html was not written: it needs jinja2 (pip install jinja2), then scripts/report {folder}"
)


@dataclasses.dataclass(frozen=True)
class Written:
    """What was read and written.

    Attributes:
      notes: what a person should be told, one line each.
    """

    run: Run
    diagnosis: Diagnosis
    notes: tuple[str, ...]


def write_all(folder: Path, promised: Collection[str] | None = None) -> Written:
    """Writes every report of a results folder; a report that cannot be written is a note, never an exception.

    Args:
      folder: the results folder.
      promised: the case lines the run was to decide; those without a verdict are reported as missing, and their
        number is kept in `environment.json` for whoever writes the reports again.
    """
    run = load(folder)
    if promised is not None:
        run = _with_promise(run, promised)
    diagnosis = diagnose(run.results)
    notes = []
    for name, make in _writers(run, diagnosis).items():
        try:
            replace(run.folder / name, make())
        except ImportError:
            notes.append(NO_TEMPLATES.format(folder=folder))
        except OSError as error:
            notes.append(f"{name} was not written: {error}")
    return Written(run, diagnosis, tuple(notes))


def _writers(run: Run, diagnosis: Diagnosis) -> dict[str, Callable[[], str]]:
    def page() -> str:
        from harness.report.html import page

        return page(run, diagnosis)

    return {
        "summary.md": lambda: markdown.summary(run, diagnosis),
        "badge.json": lambda: markdown.badge(run),
        "junit.xml": lambda: "\n".join(junit.junit(run)) + "\n",
        "report.html": page,
    }


def _with_promise(run: Run, promised: Collection[str]) -> Run:
    """The run with its missing cases as results, and their number in its environment."""
    known = {result.case for result in run.results}
    missing = [_missing(case) for case in promised if case not in known]
    environment = {**run.environment, "promised": len(known) + len(missing)}
    with contextlib.suppress(OSError):  # the reports still have the number
        replace(run.folder / ENVIRONMENT, json.dumps(environment, indent=2, sort_keys=True) + "\n")
    return dataclasses.replace(run, results=(*run.results, *missing), environment=environment)


def _missing(line: str) -> Result:
    """A promised case without a verdict, with what its line tells about it."""
    try:
        case = parse(line)
    except UsageError:
        return Result(line, Verdict.MISSING)
    return Result(
        line, Verdict.MISSING, rule=case.leaf.rule, suite=suite_of(case), parameters=parameters(case)
    )


def replace(path: Path, text: str) -> None:
    """Writes a file as a whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8", errors="replace")
    os.replace(partial, path)
