"""Expectation files follow results of several versions and platforms, and keep what people wrote in them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import synthetic_results as made
from synthetic_results import fails

pytest.importorskip("tomlkit")

from harness import expectations
from harness.errors import UsageError
from harness.parameters import KEYS
from harness.report import expect
from harness.report.results import Run
from harness.verdicts import Verdict

ROOT = Path(__file__).resolve().parent.parent

FILE = """\
# What JAX gets wrong, by hand.

# a comment that belongs to the first entry
[[expect]]
where = {leaf = ["pmax"], dtype = ["bool"]}   # why these
jax = ">=0.6"
verdict = "fail"
kind = "wrong value"
reason = "first"

# a comment that belongs to the second
# over two lines
[[expect]]
where = {leaf = ["psum"], control = ["scan"]}
verdict = "crash"
reason = "second"
# a remark at the end
"""


def run(*truths, jax: str = "0.10.2", backend: str = "cpu", count: int = 1200) -> Run:
    return Run(Path("run"), tuple(made.results(count, *truths)), {"jax": jax, "backend": backend})


FIRST, SECOND = fails(leaf="pmax", dtype="bool"), fails("crash", leaf="psum", control="scan")


@pytest.fixture
def path(tmp_path) -> Path:
    (tmp_path / "jax.toml").write_text(FILE)
    return tmp_path / "jax.toml"


def loaded(text: str, tmp_path: Path) -> list[expectations.Expectation]:
    file = tmp_path / "new.toml"
    file.write_text(text)
    return expectations.load_file(file, KEYS)


def settled(entries, results: Run) -> set[str]:
    """The verdicts a run would have under the entries, other than pass."""
    valid = [entry for entry in entries if entry.applies({"jax": "0", **results.environment})]
    found = set()
    for result in results.results:
        record = {"case": result.case, "verdict": result.verdict, "kind": result.kind, "rule": result.rule}
        found.add(expectations.settle(record, result.parameters, valid)["verdict"])
    return found - {Verdict.PASS}


def test_a_file_that_fits_is_left_alone_to_the_letter(path):
    changed = expect.update(path, [run(FIRST, SECOND)])
    assert changed.text == FILE
    assert changed.notes == []


def test_an_entry_that_passes_goes_with_its_comment_and_no_other(path):
    changed = expect.update(path, [run(FIRST)])
    assert changed.removed == 1
    assert changed.notes == ["removed second: passes on jax 0.10.2 cpu"]
    assert "# What JAX gets wrong" in changed.text and "# a comment that belongs to the first" in changed.text
    assert "second" not in changed.text
    assert changed.text.startswith(FILE.partition("# a comment that belongs to the second")[0].rstrip())


def test_mended_in_a_newer_release_gives_an_upper_bound(path, tmp_path):
    changed = expect.update(path, [run(FIRST, SECOND, jax="0.10.2"), run(SECOND, jax="0.12.0")])
    assert changed.narrowed == 1
    assert '{leaf = ["pmax"], dtype = ["bool"]}   # why these' in changed.text
    assert loaded(changed.text, tmp_path)[0].jax == ">=0.6,<0.12.0"
    assert loaded(changed.text, tmp_path)[1].jax == ""


def test_broken_since_a_release_gives_a_lower_bound_and_holes_are_named(path, tmp_path):
    runs = [
        run(FIRST, jax="0.9.0"),
        run(FIRST, SECOND, jax="0.10.0"),
        run(FIRST, jax="0.10.1"),
        run(FIRST, SECOND, jax="0.11.0"),
    ]
    changed = expect.update(path, runs)
    assert loaded(changed.text, tmp_path)[1].jax == ">=0.10.0,!=0.10.1"
    for one in runs:
        assert settled(loaded(changed.text, tmp_path), one) == {Verdict.EXPECTED_FAIL}


def test_a_platform_where_it_passes_is_left_out(path, tmp_path):
    changed = expect.update(path, [run(FIRST, SECOND), run(SECOND, backend="tpu")])
    assert [entry.platform for entry in loaded(changed.text, tmp_path)] == [["cpu"], []]


def test_entries_no_case_matches_go_only_when_told(path):
    nothing = [run(count=1)]
    assert expect.update(path, nothing).text == FILE
    assert expect.update(path, nothing, prune=True).removed == 2


def test_an_entry_that_is_too_wide_is_pointed_out(path):
    partly = fails(leaf="pmax", dtype="bool", binder="vmap")
    (note,) = expect.update(path, [run(partly, SECOND)], add=False).notes
    assert note.startswith("too wide: first: ") and "such as " in note


def test_new_failures_get_conditions_on_parameters(path, tmp_path):
    runs = [run(FIRST, SECOND, fails(leaf="all_to_all", binder="pmap"))]
    changed = expect.update(path, runs)
    assert changed.added == 1
    entries = loaded(changed.text, tmp_path)
    assert entries[-1].where in (
        {"leaf": ["all_to_all"], "binder": ["pmap"]},
        {"leaf": ["all_to_all"], "outer": ["pmap"]},
    )
    assert (entries[-1].kind, entries[-1].rule, entries[-1].reason) == (
        "wrong value",
        "all_to_all.blocks",
        "",
    )
    assert settled(entries, runs[0]) == {Verdict.EXPECTED_FAIL}
    assert changed.text.startswith(FILE.rstrip())


def test_conditions_are_never_wider_than_what_fails(tmp_path):
    """A cause that holds in part of its cases becomes a list of cases."""
    runs = [run(made.sometimes(0.4, fails(leaf="psum", control="scan")))]
    changed = expect.update(tmp_path / "found.toml", runs)
    (entry,) = loaded(changed.text, tmp_path)
    assert entry.where == {} and len(entry.cases) == sum(result.failing for result in runs[0].results)
    assert settled([entry], runs[0]) == {Verdict.EXPECTED_FAIL}


def test_new_entries_know_versions_and_platforms(tmp_path):
    truth = fails(leaf="all_to_all", dtype="int8")
    runs = [run(jax="0.9.0"), run(truth, jax="0.10.0"), run(jax="0.12.0"), run(jax="0.10.0", backend="tpu")]
    (entry,) = loaded(expect.update(tmp_path / "found.toml", runs, reason="jax#1").text, tmp_path)
    assert (entry.jax, entry.platform, entry.reason) == (">=0.10.0,<0.12.0", ["cpu"], "jax#1")
    for one in runs:
        assert Verdict.UNEXPECTED_PASS not in settled([entry], one) and Verdict.FAIL not in settled(
            [entry], one
        )


@pytest.mark.parametrize(
    "truth",
    [
        lambda own: "wrong value" if own["leaf"] == ("psum",) and max(map(int, own["size"])) >= 5 else "",
        lambda own: "wrong value" if own["control"] != ("none",) and own["leaf"] == ("pmin",) else "",
        lambda own: "error raised" if "vmap > shard_map" in own["program"][0] else "",
    ],
    ids=["class of values", "presence", "nesting"],
)
def test_what_entries_cannot_say_is_said_in_plain_parameters(truth, tmp_path):
    one = run(truth)
    entries = loaded(expect.update(tmp_path / "found.toml", [one]).text, tmp_path)
    assert settled(entries, one) == {Verdict.EXPECTED_FAIL}
    assert entries[0].where


def test_a_second_update_changes_nothing(path, tmp_path):
    runs = [
        run(FIRST, fails(leaf="all_to_all", binder="pmap"), made.sometimes(0.01, fails())),
        run(FIRST, jax="0.12.0"),
    ]
    text = expect.update(path, runs).text
    path.write_text(text)
    again = expect.update(path, runs)
    assert again.text == text
    assert (again.added, again.removed, again.narrowed) == (0, 0, 0)


def test_flaky_cases_are_left_to_people(tmp_path):
    results = [made.record(case, fails()) | {"verdict": "flaky"} for case in made.lines(3)]
    one = Run(Path("x"), tuple(map(made.read_result, results)), {"jax": "0.10.2", "backend": "cpu"})
    assert expect.update(tmp_path / "found.toml", [one]).text == ""


def test_hostile_reasons_and_cases_survive_the_file(tmp_path):
    record = made.record(made.lines(1)[0], fails()) | {"case": 'vmap "x" \\ \n [[expect]] # é'}
    one = Run(Path("x"), (made.read_result(record),), {"jax": "0.10.2", "backend": "cpu"})
    text = expect.update(tmp_path / "found.toml", [one], reason='"""quoted""" \\ \n[[expect]]').text
    (table,) = tomllib.loads(text)["expect"]
    assert table["case"] == [record["case"]]


def test_a_file_that_cannot_be_taken_apart_is_refused(tmp_path):
    file = tmp_path / "odd.toml"
    file.write_text('expect = [{where = {leaf = ["psum"]}, reason = "inline"}]\n')
    with pytest.raises(UsageError, match=r"\[\[expect\]\]"):
        expect.update(file, [run(count=5)])


def script(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "expect", *arguments], capture_output=True, text=True
    )


def test_the_command(tmp_path, path):
    folder = made.write(tmp_path / "run", made.records(800, FIRST, fails(leaf="all_to_all", dtype="int8")))
    where = ("--expectations", path.parent)
    dry = script(*where, "update", folder, "--dry-run")
    assert dry.returncode == 0 and path.read_text() == FILE and not (path.parent / "found.toml").exists()
    done = script(*where, "update", folder, "--strict")
    assert done.returncode == 1, done.stderr
    assert "found.toml: 0 removed, 0 narrowed, 1 added" in done.stdout
    assert "no reason given: found.toml entry 1" in done.stdout
    assert script(*where, "check").returncode == 0
    assert script(*where, "check", "--strict").returncode == 1
    nowhere = script(*where, "update", tmp_path / "nowhere")
    assert nowhere.returncode == 4 and "Traceback" not in nowhere.stderr
