"""What expectation entries make of a verdict, and what a wrong entry is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import expectations
from harness.case import parse
from harness.errors import UsageError
from harness.parameters import KEYS, parameters

LINE = "vmap(i:2) > grad > vmap(j:3) > psum(j+i)"
ENTRY = """
[[expect]]
where = {leaf = ["psum"], outside = ["grad"], names_order = ["other"]}
kind = "wrong value"
reason = "known"
"""


def entries(folder: Path, text: str) -> list[expectations.Expectation]:
    (folder / "known.toml").write_text(text)
    return expectations.load(folder, KEYS)


def settled(
    entry_list: list[expectations.Expectation], verdict: str, kind: str = "", line: str = LINE
) -> str:
    result = {
        "case": line,
        "verdict": verdict,
        "kind": kind,
        "rule": "psum.sum",
        "rules": ["psum.sum", "cache.fresh"],
    }
    return expectations.settle(result, parameters(parse(line)), entry_list)["verdict"]


@pytest.mark.parametrize(
    ("strict", "verdict", "kind", "becomes"),
    [
        ("", "fail", "wrong value", "expected_fail"),
        ("", "fail", "error raised", "fail"),
        ("", "pass", "", "unexpected_pass"),
        ('rule = "cache.fresh"', "pass", "", "unexpected_pass"),
        ('rule = "error.duplicate"', "pass", "", "pass"),  # a law this case is not held to
        ("strict = false", "fail", "wrong value", "expected_fail"),
        ("strict = false", "pass", "", "pass"),
    ],
)
def test_an_entry_changes_the_verdict_it_speaks_of(tmp_path, strict, verdict, kind, becomes):
    assert settled(entries(tmp_path, ENTRY + strict), verdict, kind) == becomes


@pytest.mark.parametrize(
    "line",
    ["grad > vmap(i:2) > psum(i)", "vmap(i:2) > grad > vmap(j:3) > psum(i+j)", "vmap(i:2) > grad > psum(i)"],
)
def test_other_cases_are_left_alone(tmp_path, line):
    known = entries(tmp_path, ENTRY)
    assert settled(known, "pass", line=line) == "pass"
    assert settled(known, "fail", "wrong value", line) == "fail"


def test_a_pass_under_a_strict_and_a_lenient_entry_is_a_pass(tmp_path):
    assert settled(entries(tmp_path, ENTRY + ENTRY + "strict = false"), "pass") == "pass"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('[[expect]]\nwhere = {leef = ["psum"]}', "no parameter leef"),
        ('[[expect]]\nverdict = "fail"', "needs `where` or `case`"),
        ('[[expect]]\nwhere = {leaf = ["psum"]}\nversion = "1"', "unknown key version"),
        ('[[expect]]\nwhere = {leaf = ["psum"]}\njax = "0.6"', "version condition"),
        ("[[expect]", "known.toml"),
    ],
)
def test_a_wrong_entry_is_told_where_and_what(tmp_path, entry, said):
    with pytest.raises(UsageError, match=said):
        entries(tmp_path, entry)


@pytest.mark.parametrize(
    "facts, applies",
    [
        ({"backend": "aot:tpu:v5e:2x4"}, True),
        ({"backend": "aot:tpu:v5e:2x4+execute"}, True),
        ({"backend": "aot:tpu:v5p:2x2x2"}, False),
        ({"backend": "plugin:ours", "shares": "aot:tpu:v5e"}, True),
        ({"backend": "plugin:ours", "shares": ""}, False),
        ({"backend": "cpu"}, False),
    ],
)
def test_a_platform_covers_what_is_more_particular_and_what_shares_its_parts(facts, applies) -> None:
    entry = expectations._entry("here", {"case": ["x"], "platform": ["aot:tpu:v5e"]}, set())
    assert entry.applies({"jax": "0.10.2", **facts}) == applies
