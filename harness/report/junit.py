"""`junit.xml` as GitHub actions, GitLab and Jenkins read it: a suite for each suite, a test case for each case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

from harness.report.causes import symptom
from harness.report.contrast import DERIVED
from harness.report.results import Result, Run
from harness.verdicts import Verdict

ERRORS = frozenset({Verdict.CRASH, Verdict.HANG, Verdict.MISSING})
"""Verdicts that are errors rather than failures: the case did not come to an end."""
AWAY = frozenset({Verdict.NOT_APPLICABLE, Verdict.SKIPPED, Verdict.EXPECTED_FAIL})

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters XML 1.0 has no way to write."""


def junit(run: Run) -> Iterator[str]:
    """The document, line by line."""
    suites: dict[str, list[Result]] = {}
    for result in run.results:
        suites.setdefault(result.suite or "cases", []).append(result)
    yield '<?xml version="1.0" encoding="utf-8"?>'
    yield f"<testsuites name={_attribute(run.name)} {_counts(list(run.results))}>"
    for name, results in sorted(suites.items()):
        yield from _suite(name, results, run)
    if run.undecided:
        yield from _undecided(run.undecided)
    yield "</testsuites>"


def _suite(name: str, results: list[Result], run: Run) -> Iterator[str]:
    stamp = min((result.time for result in results if result.time), default="")[:19]
    when = f" timestamp={_attribute(stamp)}" if stamp else ""
    yield f"<testsuite name={_attribute(name)} {_counts(results)}{when}>"
    facts = {key: value for key, value in run.environment.items() if isinstance(value, (str, int))}
    yield from _properties(facts)
    for result in results:
        yield from _case(name, result)
    yield "</testsuite>"


def _counts(results: list[Result]) -> str:
    errors = sum(result.verdict in ERRORS for result in results)
    skipped = sum(result.verdict in AWAY for result in results)
    failures = sum(_failure(result) for result in results)
    seconds = sum(result.seconds for result in results)
    return f'tests="{len(results)}" failures="{failures}" errors="{errors}" skipped="{skipped}" time="{seconds:.3f}"'


def _failure(result: Result) -> bool:
    return result.failing and result.verdict not in ERRORS


def _case(suite: str, result: Result) -> Iterator[str]:
    name = f"classname={_attribute(suite)} name={_attribute(result.case)}"
    yield f'<testcase {name} time="{result.seconds:.3f}">'
    own = {key: " ".join(values) for key, values in result.parameters.items() if key not in DERIVED}
    yield from _properties(
        {"rule": result.rule, **{key: value for key, value in own.items() if value != "none"}}
    )
    yield from _outcome(result)
    yield "</testcase>"


def _outcome(result: Result) -> Iterator[str]:
    if result.verdict in AWAY:
        reason = result.expectation or result.message or result.verdict
        yield f"<skipped message={_attribute(result.verdict.replace('_', ' ') + ': ' + reason)}/>"
    elif result.verdict in ERRORS or _failure(result):
        tag = "error" if result.verdict in ERRORS else "failure"
        head = f"{result.rule}: {symptom(result)}"
        yield f"<{tag} type={_attribute(symptom(result))} message={_attribute(head)}>{_text(result.message)}</{tag}>"
        files = [path for path in (result.reproducer, result.log) if path]
        if files:
            yield f"<system-out>{_text(' '.join(files))}</system-out>"


def _undecided(count: int) -> Iterator[str]:
    """Promised cases without a line in the journal make the document fail too."""
    yield '<testsuite name="promised" tests="1" failures="0" errors="1" skipped="0" time="0">'
    message = _attribute(f"{count} promised cases have no verdict")
    yield f'<testcase classname="promised" name="every promised case has a verdict" time="0"><error message={message}/>'
    yield "</testcase></testsuite>"


def _properties(found: Mapping[str, object]) -> Iterator[str]:
    if found:
        items = (
            f"<property name={_attribute(key)} value={_attribute(str(value))}/>"
            for key, value in found.items()
        )
        yield f"<properties>{''.join(items)}</properties>"


def _text(plain: str) -> str:
    return escape(FORBIDDEN.sub("?", plain))


def _attribute(plain: str) -> str:
    return quoteattr(FORBIDDEN.sub("?", plain))
