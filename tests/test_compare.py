"""Comparisons of runs, and the exit codes a bisection relies on."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic_results as made
from synthetic_results import fails

from harness.report.compare import Change, Outcome, change_of, compare, lines, markdown_lines, page, worst
from harness.report.results import Run, load
from harness.verdicts import Verdict

ROOT = Path(__file__).resolve().parent.parent


def run(*truths, count: int = 1500, **environment) -> Run:
    return Run(Path("run"), tuple(made.results(count, *truths)), environment)


def test_new_failures_are_found_and_diagnosed():
    known = fails(leaf="pmax", dtype="bool")
    comparison = compare(run(known), run(known, fails(control="scan", leaf="psum")))
    assert comparison.outcome == Outcome.WORSE
    new = comparison.of(Change.NEW)
    assert new and all("scan" in d.after.parameters["control"] for d in new)
    (cause,) = comparison.diagnosis.causes
    assert {c.key for c in cause.conditions} == {"control", "leaf"}
    assert cause.failing == len(new)


def test_fixed_is_better_and_the_same_is_the_same():
    broken, sound = run(fails(leaf="pmax", dtype="bool")), run()
    assert compare(broken, sound).outcome == Outcome.SAME_OR_BETTER
    assert compare(broken, sound).verdict.startswith("BETTER: ")
    assert compare(sound, sound).verdict == "SAME"
    assert compare(sound, sound).differences == ()


def test_another_kind_of_failure_is_not_worse_but_said():
    comparison = compare(run(fails(leaf="pmax")), run(fails("crash", leaf="pmax")))
    assert comparison.outcome == Outcome.SAME_OR_BETTER
    assert {difference.change for difference in comparison.differences} == {Change.CHANGED}


def test_missing_cases_leave_it_open():
    whole = run()
    cut = dataclasses.replace(whole, results=whole.results[:-3])
    assert compare(whole, cut).outcome == Outcome.CANNOT_TELL
    assert len(compare(whole, cut).of(Change.MISSING)) == 3
    assert compare(cut, whole).outcome == Outcome.SAME_OR_BETTER
    incomplete = dataclasses.replace(whole, environment={"promised": len(whole.results) + 1})
    assert compare(whole, incomplete).outcome == Outcome.CANNOT_TELL


def test_new_failures_weigh_more_than_missing_cases():
    whole, worse = run(), run(fails(leaf="pmax"))
    assert compare(whole, dataclasses.replace(worse, results=worse.results[:-3])).outcome == Outcome.WORSE


def test_runs_with_nothing_in_common_cannot_be_compared():
    comparison = compare(run(), Run(Path("x"), tuple(made.results(50, seed=99)), {}))
    assert comparison.outcome == Outcome.CANNOT_TELL


VERDICTS = [
    ("pass", "fail", Change.NEW),
    ("expected_fail", "fail", Change.SAME),
    ("pass", "expected_fail", Change.KNOWN),
    ("expected_fail", "pass", Change.FIXED),
    ("pass", "flaky", Change.NEW),
    ("fail", "pass", Change.FIXED),
    ("crash", "expected_fail", Change.SAME),
    ("fail", "crash", Change.CHANGED),
    ("pass", None, Change.MISSING),
    ("pass", "missing", Change.MISSING),
    ("pass", "skipped", Change.MISSING),
    ("pass", "not_applicable", Change.AWAY),
    ("fail", "not_applicable", Change.AWAY),
    (None, "fail", Change.UNKNOWN),
    ("not_applicable", "fail", Change.UNKNOWN),
    (None, "pass", Change.DECIDED),
    ("missing", "not_applicable", Change.SAME),
    ("pass", "unexpected_pass", Change.SAME),
    ("fail", "fail", Change.SAME),
]


@pytest.mark.parametrize(("before", "after", "change"), VERDICTS)
def test_what_became_of_a_case(before, after, change):
    result = made.results(1)[0]
    both = [verdict and dataclasses.replace(result, verdict=Verdict(verdict)) for verdict in (before, after)]
    assert change_of(*both) == change


def test_slower_cases_are_named():
    before = run(count=20)
    results = [dataclasses.replace(r, seconds=3.0) if k == 4 else r for k, r in enumerate(before.results)]
    comparison = compare(before, dataclasses.replace(before, results=tuple(results)))
    assert [difference.case for difference in comparison.slower] == [before.results[4].case]
    assert comparison.outcome == Outcome.SAME_OR_BETTER


def test_the_worst_of_several_counts():
    sound, broken = run(), run(fails(leaf="pmax"))
    comparisons = [compare(sound, sound), compare(sound, broken)]
    assert worst(comparisons) == Outcome.WORSE
    assert worst(comparisons[:1]) == Outcome.SAME_OR_BETTER
    assert worst([]) == Outcome.CANNOT_TELL


def test_texts_say_it():
    comparison = compare(
        run(jax="0.10.2", backend="cpu", device_count=8), run(fails(leaf="pmax"), jax="0.11.0", backend="cpu")
    )
    text = "\n".join(lines(comparison))
    assert text.startswith("jax 0.10.2, cpu x8 -> jax 0.11.0, cpu x?: WORSE: ")
    assert "fails exactly where collective = pmax" in text
    assert "pass -> wrong value (pmax.max): " in text
    document = "\n".join(markdown_lines([comparison]))
    assert "## jax 0.10.2, cpu x8 → jax 0.11.0, cpu x?: WORSE" in document
    assert "| new failure |" in document


def test_the_page_escapes_and_lists():
    pytest.importorskip("jinja2")
    hostile = run(fails(leaf="pmax"), jax="<script>alert(1)</script>", backend="cpu")
    text = page([compare(run(), hostile)])
    assert "<script>" not in text
    assert "New failure: " in text


def compare_script(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "compare", *arguments], capture_output=True, text=True
    )


def test_exit_codes_fit_a_bisection(tmp_path):
    sound = made.write(tmp_path / "sound", made.records(300))
    broken = made.write(tmp_path / "broken", made.records(300, fails(leaf="pmax")))
    cut = made.write(tmp_path / "cut", made.records(300)[:200])
    assert compare_script(sound, sound).returncode == 0
    assert compare_script(broken, sound).returncode == 0
    assert compare_script(sound, broken).returncode == 1
    assert compare_script(sound, cut).returncode == 125
    assert compare_script(sound, sound, broken).returncode == 1
    assert compare_script(sound).returncode == 125
    nowhere = compare_script(sound, tmp_path / "nowhere")
    assert nowhere.returncode == 125
    assert "no results.jsonl there" in nowhere.stderr and "Traceback" not in nowhere.stderr


def test_files_are_written(tmp_path):
    pytest.importorskip("jinja2")
    sound = made.write(tmp_path / "sound", made.records(100))
    done = compare_script(sound, sound, "--markdown", tmp_path / "out.md", "--html", tmp_path / "out.html")
    assert done.returncode == 0, done.stderr
    assert load(sound).name in (tmp_path / "out.md").read_text()
    assert "<!doctype html>" in (tmp_path / "out.html").read_text()
