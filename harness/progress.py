"""The line that says how far a run is, on a terminal: done, rate, time left and findings so far.

Where the output is a file or a pipe, as in CI, pytest's own dots are all there is.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

REFRESH = 0.2
"""Seconds between two drawings."""


def wanted(config: pytest.Config) -> bool:
    """Whether somebody is watching, and asked for neither more nor less than the usual."""
    return sys.stdout.isatty() and config.option.verbose in (0, -1) and not hasattr(config, "workerinput")


def line(done: int, total: int, seconds: float, findings: int) -> str:
    """`340 of 551 lines, 8.1 a second, 0:26 left, 2 findings`.

    Args:
      done: lines decided.
      total: lines of the run.
      seconds: since the first of them was begun.
      findings: lines with an unexpected verdict.
    """
    rate = done / seconds if seconds else 0.0
    left = (total - done) / rate if rate else 0.0
    clock = f"{int(left // 60)}:{int(left % 60):02d} left" if rate else "time left unknown"
    found = {0: "no findings", 1: "1 finding"}.get(findings, f"{findings} findings")
    return f"{done} of {total} lines, {rate:.1f} a second, {clock}, {found}"


class Progress:
    """A pytest plugin that draws the line in place of the dots."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.started = time.monotonic()
        self.drawn = 0.0
        self.done = self.findings = 0

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    def pytest_collection_finish(self) -> None:
        self.started = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Counted as always, but without a letter of its own."""
        return (report.outcome, "", "") if _decides(report) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if _decides(report):
            self.done += 1
            self.findings += report.failed
            self._draw(time.monotonic())

    def _draw(self, now: float) -> None:
        terminal: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        total = max(self.session.testscollected, self.done)
        if now - self.drawn >= REFRESH or self.done == total:
            self.drawn = now
            terminal.rewrite(line(self.done, total, now - self.started, self.findings), erase=True)


def _decides(report: Any) -> bool:
    """Whether a report says how a line of a suite ended; errors outside of the call stay pytest's to show."""
    return report.when == "call" or (report.when == "setup" and report.skipped)
