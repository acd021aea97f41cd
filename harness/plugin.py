"""The pytest plugin: options, which lines each suite runs, and the end of a run. Imports no JAX.

A suite module has `SUITE`, the word of the cases that belong to it, and one test with the arguments `line` and
`conformance`; everything else is here and in `harness.session`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from harness import backends, expectations, journal, profiles, progress, summary
from harness.case import line_of, parse_line
from harness.errors import UsageError
from harness.isolate import BackendError
from harness.multihost.supervise import Checker, LocalRanks
from harness.multihost.world import World
from harness.parameters import KEYS, parameters, parse_where, select, suite_of
from harness.reduce import reduce_folder
from harness.report.matrix import standard, whole_lines
from harness.report.terminal import screen
from harness.report.write import Written, write_all
from harness.session import Session, results_folder
from harness.verdicts import GOOD, Verdict

EXPECTATIONS = Path(__file__).resolve().parent.parent / "configs" / "expectations"

REDUCIBLE = frozenset({Verdict.FAIL, Verdict.CRASH, Verdict.HANG})

STATE = pytest.StashKey["Run"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance", "JAX axis conformance")
    group.addoption(
        "--profile",
        action="append",
        metavar="NAME|FILE",
        help="quick (default), standard, full or a file of case lines; repeatable",
    )
    group.addoption(
        "--case", action="append", metavar="LINE", help="run this case line, listed or not; repeatable"
    )
    group.addoption(
        "--where",
        action="append",
        metavar="KEY=VALUE[,VALUE]",
        help="only cases with that parameter; repeatable",
    )
    group.addoption(
        "--backend",
        default="default",
        metavar="NAME",
        help="a file of configs/backends (default: what JAX picks)",
    )
    group.addoption("--devices", type=int, metavar="N", help="number of virtual CPU devices (default 8)")
    group.addoption("--processes", type=int, metavar="P", help="run over P processes (see docs/multihost.md)")
    group.addoption(
        "--devices-per-process", type=int, metavar="D", help="devices of each of them (default 2)"
    )
    group.addoption(
        "--deadline", type=float, metavar="SECONDS", help="time one program may take (default: the backend's)"
    )
    group.addoption("--results", metavar="DIR", help="results folder (default results/TIME)")
    group.addoption("--resume", metavar="DIR", help="go on with the run of that results folder")
    group.addoption("--seed", type=int, default=0, metavar="N", help="shuffle the lines; 0 keeps their order")
    group.addoption("--fraction", metavar="I/N", help="only the I-th of N parts (1/4 ... 4/4)")
    group.addoption(
        "--reduce",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="time for making the reproducers of unexpected failures small (20; 0: not at all)",
    )
    group.addoption(
        "--expectations", metavar="DIR", default=str(EXPECTATIONS), help="folder of expectation files"
    )


class Run:
    """What one pytest process (the only one, or a worker of xdist) knows about the run."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self.is_worker = hasattr(config, "workerinput")
        self.started = time.time()
        self.promised: set[str] = set()
        backends.load(config.getoption("--backend"))  # a wrong name ends the run before it starts
        self.world = self._world()
        self.lines = self._select()
        self.folder = self._folder()
        self._session: Session | Checker | None = None
        self.facts: dict[str, Any] = {}
        self.failure = ""
        self.written: Written | None = None

    def _world(self) -> World | None:
        """The processes of the run, where it has several."""
        option = self.config.getoption
        processes, devices = option("--processes"), option("--devices-per-process")
        if processes is None:
            if devices is not None:
                raise UsageError("--devices-per-process needs --processes")
            return None
        if processes < 2 or (devices or 2) < 1 or option("--devices") is not None:
            raise UsageError(
                "--processes takes 2 or more, with --devices-per-process of 1 or more in place of --devices"
            )
        return World(processes, devices or 2)

    def _folder(self) -> Path:
        if self.is_worker:
            return Path(getattr(self.config, "workerinput")["conformance_results"])
        given = self.config.getoption("--resume") or self.config.getoption("--results")
        if self.config.getoption("--resume") and not (Path(given) / journal.RESULTS).exists():
            raise UsageError(f"--resume {given}: holds no {journal.RESULTS}")
        if self.config.getoption("--results") and (Path(given) / journal.RESULTS).exists():
            raise UsageError(f"--results {given}: already holds a run; use --resume {given} to go on with it")
        return results_folder(given).absolute()

    def _select(self) -> dict[str, list[str]]:
        """The lines of each suite, before any test is made of them."""
        option = self.config.getoption
        fraction = profiles.parse_fraction(option("--fraction")) if option("--fraction") else None
        selected: dict[str, list[str]] = {}
        if option("--case"):
            for text in option("--case"):
                for case in parse_line(text):
                    selected.setdefault(suite_of(case), []).append(str(case))
        else:
            for name in option("--profile") or ["quick"]:
                profile = profiles.load(name)
                for suite in profile.suites:
                    selected.setdefault(suite, []).extend(profile.lines(suite, fraction))
        done = self._done()
        every = [line for lines in selected.values() for line in lines]
        where = parse_where(option("--where"), known_values(every)) if option("--where") else {}
        for suite, lines in selected.items():
            lines = list(dict.fromkeys(lines))
            if where or done:
                lines = [kept for line in lines if (kept := _narrowed(line, where, done))]
            if option("--seed"):
                random.Random(option("--seed")).shuffle(lines)
            selected[suite] = lines
        return selected

    def _done(self) -> set[str]:
        folder = self.config.getoption("--resume")
        return {result["case"] for result in journal.read(Path(folder))} if folder else set()

    @property
    def session(self) -> Session | Checker:
        """The session of this process, started when the first line needs it."""
        if self._session is None:
            option = self.config.getoption
            backend = backends.load(option("--backend"))
            if option("--deadline"):
                backend = dataclasses.replace(backend, deadline=option("--deadline"))
            written = journal.Journal(self.folder, self.worker)
            session: Session | Checker
            if self.world:
                own = self.folder / self.worker if self.is_worker else self.folder
                session = Checker(LocalRanks(backend, self.world, own), written)
            else:
                session = Session(backend, option("--devices"), written, self._chip(backend))
            self.facts = session.start()
            known = expectations.load(Path(option("--expectations")), KEYS)
            session.entries = [entry for entry in known if entry.applies(self.facts)]
            self._session = session
            self._record_environment()
        return self._session

    def _chip(self, backend: backends.Backend) -> int | None:
        """Under xdist each worker keeps one chip of the host for its single-device programs."""
        count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        return (
            int(self.worker.removeprefix("gw")) if backend.visible and self.is_worker and count > 1 else None
        )

    def _record_environment(self) -> None:
        path = self.folder / journal.ENVIRONMENT
        if not path.exists():
            option = self.config.getoption
            run = {
                "profile": option("--profile") or ["quick"],
                "case": option("--case"),
                "where": option("--where"),
                "fraction": option("--fraction"),
                "seed": option("--seed"),
                "backend_file": option("--backend"),
                "command": ["pytest", *self.config.invocation_params.args],
                "started": self.started,
            }
            journal.write_environment(self.folder, {**self.facts, "run": run})

    def close(self) -> None:
        if self._session is not None:
            met = {entry.place: entry.met for entry in self._session.entries}
            (self.folder / f"expectations-{self.worker}.json").write_text(json.dumps(met))
            self._session.close()
            if self._session.journal is not None:
                self._session.journal.close()


def _narrowed(line: str, where: dict[str, tuple[str, ...]], done: set[str]) -> str:
    """The line with only the leaves that are selected and not yet decided; empty when none is left."""
    cases = [case for case in parse_line(line) if select(case, where) and str(case) not in done]
    return line_of(cases[0], [case.leaf for case in cases]) if cases else ""


def known_values(lines: Iterable[str]) -> dict[str, set[str]]:
    """Every parameter key with the values it has in these lines."""
    known: dict[str, set[str]] = {key: set() for key in KEYS}
    for line in lines:
        for case in parse_line(line):
            for key, values in parameters(case).items():
                known.setdefault(key, set()).update(values)
    return known


def pytest_configure(config: pytest.Config) -> None:
    try:
        config.stash[STATE] = Run(config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    if progress.wanted(config) and config.stash[STATE].lines:
        config.pluginmanager.register(progress.Progress(config), "conformance-progress")
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(XdistHooks(), "conformance-xdist")


class XdistHooks:
    """Hooks that exist only with pytest-xdist."""

    @pytest.hookimpl
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["conformance_results"] = str(node.config.stash[STATE].folder)

    @pytest.hookimpl
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        run = node.config.stash[STATE]
        run.promised.update(_cases_of_ids(ids, run))


def _cases_of_ids(ids: Iterable[str], run: Run) -> Iterable[str]:
    """The cases of the collected tests; ids that end in none of the selected lines are other tests."""
    selected = {line for lines in run.lines.values() for line in lines}
    for name in ids:
        line = name.partition("[")[2].removesuffix("]")
        if line in selected:
            yield from map(str, parse_line(line))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"line", "conformance"} <= set(metafunc.fixturenames):
        lines = metafunc.config.stash[STATE].lines.get(metafunc.module.SUITE, [])
        metafunc.parametrize("line", lines, ids=lines)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A suite without selected lines has no test, rather than one that pytest makes up to skip it."""
    items[:] = [
        item for item in items if "conformance" not in getattr(item, "fixturenames", ()) or _has_line(item)
    ]


def _has_line(item: pytest.Item) -> bool:
    return isinstance(getattr(item, "callspec").params.get("line"), str)


def pytest_collection_finish(session: pytest.Session) -> None:
    run = session.config.stash[STATE]
    if not run.is_worker:
        run.promised.update(_cases_of_ids((item.nodeid for item in session.items), run))


class Conformance:
    """What a suite's test calls."""

    def __init__(self, run: Run):
        self.run = run

    def check(self, line: str) -> None:
        """Checks a line; fails with the unexpected verdicts, skips where nothing was applicable."""
        try:
            results = self.run.session.check(line)
        except (BackendError, UsageError) as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
        bad = [result for result in results if result["verdict"] not in accepted(self.run.config)]
        if bad:
            pytest.fail("\n\n".join(summary.one(result, self.run.folder) for result in bad), pytrace=False)
        reasons = {result["message"] for result in results if result["verdict"] == Verdict.NOT_APPLICABLE}
        if reasons and all(result["verdict"] == Verdict.NOT_APPLICABLE for result in results):
            pytest.skip("not applicable: " + "; ".join(sorted(reasons)))


def strict(config: pytest.Config) -> bool:
    """Whether `--strict` was given: pytest has the option itself, and we give it a further meaning."""
    return bool(getattr(config.option, "strict", False))


def accepted(config: pytest.Config) -> frozenset[Verdict]:
    """Verdicts that leave a run successful."""
    return GOOD if strict(config) else GOOD | {Verdict.UNEXPECTED_PASS}


@pytest.fixture(scope="session")
def conformance(pytestconfig: pytest.Config) -> Conformance:
    return Conformance(pytestconfig.stash[STATE])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    run = session.config.stash[STATE]
    run.close()
    if run.is_worker or not (run.folder / journal.RESULTS).exists():
        return
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        _reduce(run, session.config)
    run.written = write_all(run.folder, run.promised)
    problems = summary.problems(run.folder, run.promised, accepted(session.config), strict(session.config))
    run.failure = problems
    if problems and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("--resume"):
        session.exitstatus = pytest.ExitCode.OK


def _reduce(run: Run, config: pytest.Config) -> None:
    """Makes the reproducers of unexpected failures small, as far as the time for it goes."""
    if run.world:  # one process brings none of its failures back
        return
    seconds = config.getoption("--reduce")
    bad = [r for r in journal.read(run.folder) if r["verdict"] in REDUCIBLE]
    if seconds <= 0 or not bad:
        return
    try:
        for _ in reduce_folder(run.folder, seconds):
            pass
    except (BackendError, UsageError, OSError) as error:
        config.issue_config_time_warning(pytest.PytestWarning(f"reproducers were not reduced: {error}"), 2)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash[STATE]
    if run.written is not None:
        terminalreporter.section("axis conformance")
        for text in (*whole_lines(standard(run.written.run.results)[0]), ""):
            terminalreporter.write_line(text)
        for text in screen(run.written.run, run.written.diagnosis):
            terminalreporter.write_line(text)
        for text in (*run.written.notes, f"results: {run.folder}"):
            terminalreporter.write_line(text)
        if run.failure:
            terminalreporter.write_line(f"not a success: {run.failure}", red=True)
