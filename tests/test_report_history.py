"""The table over JAX releases: which findings, from where to where."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import synthetic_results as made
from synthetic_results import fails

from harness.report.history import history, lines, markdown_lines, page
from harness.report.results import Run
from harness.verdicts import Verdict

OLD, NEW, EVER = (
    fails(leaf="pmax", dtype="bool"),
    fails("crash", leaf="psum", control="scan"),
    fails(leaf="all_to_all", dtype="int8"),
)


def run(jax: str, *truths) -> Run:
    return Run(
        Path(jax), tuple(made.results(1200, *truths)), {"jax": jax, "backend": "cpu", "device_count": 8}
    )


@pytest.fixture(scope="module")
def found():
    return history(
        [run("0.10.0", EVER, NEW), run("0.4.30", OLD, EVER), run("0.9.0", EVER), run("0.6.2", OLD, EVER)]
    )


def test_releases_are_in_their_own_order(found):
    assert found.releases == ["0.4.30", "0.6.2", "0.9.0", "0.10.0"]


def test_each_finding_knows_where_it_came_and_went(found):
    said = {finding.text: (finding.history, found.when(finding), finding.kind) for finding in found.findings}
    assert said == {
        "collective = psum and control flow = scan": ("...F", "from 0.10.0 on", "crash"),
        "collective = all_to_all and dtype = int8": ("FFFF", "every release tried", "wrong value"),
        "collective = pmax and dtype = bool": ("FF..", "up to 0.6.2, good from 0.9.0", "wrong value"),
    }


def test_what_is_still_there_comes_first(found):
    assert [finding.current for finding in found.findings] == [True, True, False]


def test_expected_failures_are_findings():
    results = [
        dataclasses.replace(r, verdict=Verdict.EXPECTED_FAIL) if r.failing else r
        for r in made.results(1200, EVER)
    ]
    found = history([Run(Path("x"), tuple(results), {"jax": "0.10.0"})])
    assert [finding.text for finding in found.findings] == ["collective = all_to_all and dtype = int8"]


def test_a_release_where_a_case_does_not_apply_splits_nothing():
    away = [
        dataclasses.replace(r, verdict=Verdict.NOT_APPLICABLE) if k % 2 else r
        for k, r in enumerate(run("0.9", EVER).results)
    ]
    runs = [run("0.8", EVER), Run(Path("0.9"), tuple(away), {"jax": "0.9"}), run("0.10", EVER)]
    assert [finding.history for finding in history(runs).findings] == ["FFF"]


def test_texts(found):
    text = "\n".join(lines(found))
    assert text.splitlines()[0].split() == found.releases
    assert "crash where collective = psum and control flow = scan: from 0.10.0 on" in text
    assert "| 0.4.30 | " in "\n".join(markdown_lines(found))


def test_the_page_escapes(found):
    pytest.importorskip("jinja2")
    hostile = dataclasses.replace(found.findings[0], text="<script>alert(1)</script>")
    text = page(dataclasses.replace(found, findings=(hostile,)))
    assert "<script>" not in text and "&lt;script&gt;" in text
    assert text.count('<td class="bad2">') == 1
