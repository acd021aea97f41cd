"""Reading a results folder, the matrix, the terminal, summary.md, badge.json and junit.xml."""

from __future__ import annotations

import builtins
import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import synthetic_results as made
from synthetic_results import fails

from harness.errors import UsageError
from harness.report import junit, markdown, matrix
from harness.report.diagnosis import diagnose
from harness.report.results import Result, Run, load
from harness.report.terminal import screen
from harness.report.write import write_all
from harness.verdicts import Kind, Verdict

HOSTILE = (
    "<script>alert(1)</script> | `x` ]]> & \x00\x1b[31m \ud83d \uffff \"quoted\" 'single' **bold** \n| a |"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = made.records(
        800, fails(leaf="pmax", dtype="bool"), fails("crash", control="cond", binder="pmap")
    )
    return made.write(tmp_path / "run", records, promised=801)


def hostile() -> Run:
    text = HOSTILE.encode("utf-8", "replace").decode()
    result = Result(
        text,
        Verdict.FAIL,
        text,
        text,
        (text,),
        "wrong value",
        text,
        (text,),
        parameters={"leaf": (text,)},
        reproducer=text,
    )
    return Run(Path("."), (result,), {"jax": text, "backend": text})


# Reading


def test_a_torn_line_is_counted_and_a_later_line_counts(tmp_path):
    first, second = made.records(2)
    again = {**first, "verdict": "fail", "kind": "wrong value"}
    run = load(made.write(tmp_path, [first, second, again], torn='{"case": "vmap(i:3) > ps'))
    assert run.torn == 1
    assert [result.verdict for result in run.results] == [Verdict.FAIL, Verdict(second["verdict"])]


@pytest.mark.parametrize(
    "line", ["[]", "3", '{"case": 1}', '{"verdict": "pass"}', '{"case": "x", "verdict": "nope"}', "\x00"]
)
def test_lines_that_make_no_sense_are_counted(tmp_path, line):
    run = load(made.write(tmp_path, made.records(3), torn=line + "\n"))
    assert (len(run.results), run.torn) == (3, 1)


def test_a_folder_without_a_journal_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"no results\.jsonl"):
        load(tmp_path)


def test_a_missing_or_broken_environment_is_no_obstacle(tmp_path):
    made.write(tmp_path, made.records(3))
    (tmp_path / "environment.json").write_text("{")
    assert load(tmp_path).environment == {}


def test_the_denominator_is_honest(folder):
    run = load(folder)
    assert run.undecided == 1
    assert run.applicable == 801
    assert not run.good
    away = dataclasses.replace(run.results[0], verdict=Verdict.NOT_APPLICABLE)
    assert dataclasses.replace(run, results=(away, *run.results[1:])).applicable == 800


# Matrix and terminal


def test_a_failing_case_counts_only_against_the_laws_it_broke():
    record = made.record("vmap(i:2,3,2) > scan(2) > psum(i)", lambda own: "stale entry")
    result = made.read_result({**record, "also": ["psum.sum: wrong value"]})
    assert matrix.laws(result) == ("cache.fresh", "psum.sum")
    assert "cache.retrace" in result.rules
    passing = made.read_result(made.record("vmap(i:2,3,2) > scan(2) > psum(i)", lambda own: ""))
    assert set(matrix.laws(passing)) == set(passing.rules)


@pytest.mark.parametrize(
    ("line", "transform"),
    [
        ("vmap(i:3) > psum(i)", "vmap"),
        ("vmap(i:3) > jit > psum(i)", "jit"),
        ("vmap(i:3) > vjp > jit > psum(i)", "vjp"),
        ("vmap(i:3) > jit > scan(2) > cond(arg) > psum(i)", "cond"),
    ],
)
def test_the_transform_of_a_case(line, transform):
    assert matrix.transform(made.read_result(made.record(line, lambda own: ""))) == (transform,)


def test_cells_count_every_case_once(folder):
    results = load(folder).results
    table = matrix.tabulate("law by transform", results, matrix.laws, matrix.transform)
    assert sum(cell.failing for cell in table.cells.values()) == sum(result.failing for result in results)
    assert str(matrix.Cell(failing=2, passing=5, expected=1)) == "2/8"
    assert [str(matrix.Cell(**{kind: 3})) for kind in ("passing", "expected", "undecided")] == [
        ".",
        "(3)",
        "-",
    ]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 40), (140, 60)])
def test_the_run_ends_in_a_screenful(folder, width, height):
    lines = list(screen(load(folder), width=width, height=height))
    assert len(lines) <= height
    assert max(len(line) for line in lines[3:] if "python " not in line) <= width
    text = "\n".join(lines)
    assert "NOT COMPLETE: 1 promised case without a verdict" in text
    assert "1. fails exactly where control flow = cond and binder = pmap" in text


def test_a_run_without_failures_is_short(tmp_path):
    lines = list(screen(load(made.write(tmp_path, made.records(200))), width=100, height=40))
    assert lines[0].startswith("200 of 200 applicable cases pass (")
    assert "nothing fails" in lines[-1]
    assert len(lines) <= 4


def test_a_diagnosis_is_not_needed_for_an_empty_run(tmp_path):
    assert list(screen(load(made.write(tmp_path, [])), width=80, height=24))


# Markdown and badge


def test_the_summary_says_what_matters(folder):
    run = load(folder)
    text = markdown.summary(run, diagnose(run.results))
    assert text.startswith("## ❌ Axis conformance: ")
    assert "**Not complete**: 1 of 801 promised cases" in text
    assert "fails exactly where control flow = cond and binder = pmap" in text
    assert "| pmax.max |" in text
    assert len(text.encode()) < 1 << 20


def test_the_summary_of_the_largest_run_fits(tmp_path):
    records = made.records(10000, fails("error raised"))
    records = [{**record, "message": "x" * 20000} for record in records]
    run = load(made.write(tmp_path, records))
    assert len(markdown.summary(run, diagnose(run.results)).encode()) < 1 << 20


def test_markdown_is_not_broken_out_of():
    text = markdown.summary(hostile(), diagnose(hostile().results))
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<script>" not in outside and "<b" not in outside
    assert "**bold**" not in markdown.text(HOSTILE)
    assert markdown.code("a ` b `` c") == "``` a ` b `` c ```".replace(" a", "a", 1).replace("c ", "c")
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.count("|") - line.count("\\|") in (3, 5)


@pytest.mark.parametrize(
    ("verdicts", "message", "colour"),
    [
        (["pass", "pass", "not_applicable"], "2 / 2 pass", "brightgreen"),
        (["pass", "expected_fail"], "1 / 2 pass", "brightgreen"),
        (["pass", "fail"], "1 / 2 pass", "red"),
        (["pass", "unexpected_pass"], "2 / 2 pass", "yellow"),
        ([], "no results", "red"),
    ],
)
def test_the_badge(tmp_path, verdicts, message, colour):
    records = [{**record, "verdict": v} for record, v in zip(made.records(9), verdicts, strict=False)]
    badge = json.loads(markdown.badge(load(made.write(tmp_path, records))))
    assert badge == {"schemaVersion": 1, "label": "axis conformance", "message": message, "color": colour}


def test_missing_cases_turn_the_badge(tmp_path):
    badge = json.loads(markdown.badge(load(made.write(tmp_path, made.records(2), promised=3))))
    assert (badge["message"], badge["color"]) == ("2 / 3 pass", "yellow")


# junit


def test_junit_counts_agree_with_its_cases(folder):
    run = load(folder)
    root = ElementTree.fromstring("\n".join(junit.junit(run)))
    cases = [case for suite in root if suite.get("name") != "promised" for case in suite.iter("testcase")]
    assert len(cases) == len(run.results) == int(root.get("tests"))
    for tag in ("failure", "error"):
        assert len([case for case in cases if case.find(tag) is not None]) == int(root.get(tag + "s"))
    for suite in root:
        assert int(suite.get("tests")) == len(list(suite.iter("testcase")))
    assert {case.get("name") for case in cases} == {result.case for result in run.results}


def test_junit_carries_rule_and_parameters(folder):
    root = ElementTree.fromstring("\n".join(junit.junit(load(folder))))
    case = next(case for case in root.iter("testcase") if case.find("failure") is not None)
    properties = {item.get("name"): item.get("value") for item in case.iter("property")}
    assert properties["rule"] == "pmax.max"
    assert (properties["leaf"], properties["dtype"]) == ("pmax", "bool")


def test_junit_tells_errors_from_failures_and_skips(tmp_path):
    verdicts = [
        "fail",
        "flaky",
        "crash",
        "hang",
        "skipped",
        "not_applicable",
        "expected_fail",
        "missing",
        "pass",
    ]
    records = [{**record, "verdict": v} for record, v in zip(made.records(9), verdicts, strict=True)]
    root = ElementTree.fromstring("\n".join(junit.junit(load(made.write(tmp_path, records)))))
    assert [root.get(key) for key in ("failures", "errors", "skipped")] == ["2", "3", "3"]


def test_junit_stays_well_formed_whatever_is_in_it():
    root = ElementTree.fromstring("\n".join(junit.junit(hostile())))
    case = next(root.iter("testcase"))
    assert "<script>alert(1)</script>" in case.get("name")
    assert "\x1b" not in case.find("failure").text


def test_promised_cases_without_a_verdict_fail_the_document(folder):
    root = ElementTree.fromstring("\n".join(junit.junit(load(folder))))
    (case,) = root.find("testsuite[@name='promised']")
    assert "1 promised cases" in case.find("error").get("message")


# All together


def test_everything_is_written_and_missing_cases_are_named(tmp_path):
    records = made.records(20)
    folder = made.write(tmp_path, records[:18])
    written = write_all(folder, [record["case"] for record in records])
    assert [result.verdict for result in written.run.results[-2:]] == [Verdict.MISSING] * 2
    assert written.run.results[-1].rule == records[-1]["rule"]
    assert json.loads((folder / "environment.json").read_text())["promised"] == 20
    assert load(folder).undecided == 2
    assert {"summary.md", "badge.json", "junit.xml"} <= {path.name for path in folder.iterdir()}
    assert not list(folder.glob("*.partial"))


def test_without_jinja2_the_rest_is_written_and_one_line_says_how_to_get_the_page(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.partition(".")[0] == "jinja2":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    for name in list(__import__("sys").modules):
        if name.startswith(("jinja2", "harness.report.html")):
            monkeypatch.delitem(__import__("sys").modules, name)
    folder = made.write(tmp_path, made.records(5))
    (note,) = write_all(folder).notes
    assert "pip install jinja2" in note
    assert (folder / "junit.xml").exists()
    assert not (folder / "report.html").exists()


def test_the_documents_name_every_verdict_and_kind():
    """What a reader meets in a report is explained."""
    text = (Path(__file__).resolve().parent.parent / "docs" / "verdicts.md").read_text(encoding="utf-8")
    assert [verdict for verdict in Verdict if f"| `{verdict}` |" not in text] == []
    assert [kind for kind in Kind if kind and kind not in text.partition("## Kinds")[2]] == []
