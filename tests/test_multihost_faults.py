"""Ranks that die, hang, raise and come late, with real signals: the right one is named, and nothing else is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import journal
from harness.multihost import run
from harness.multihost.world import World

TESTS = Path(__file__).resolve().parent
BEFORE = "jit > shard_map(i:4) > psum(i)"
BAD = "jit > shard_map(i:4) > pmax(i) | payload=counting"
AFTER = "shard_map(i:2, j:2, in=i.j) > jit > all_gather(j)"
LINES = (BEFORE, BAD, AFTER)
DEADLINE = 12.0

pytest.importorskip("jax", reason="ranks run JAX")


def under(
    trouble: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, world: World
) -> dict[str, Any]:
    """The verdicts of a run in which a rank goes wrong, by case; the exit code under ""."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("RANK_TROUBLE", json.dumps(trouble))
    options = run.Options((), LINES, "cpu", DEADLINE)
    code = run.local(options, world, str(folder), None, module="misbehaving_rank")
    return {"": code, **{result["case"]: result for result in journal.read(folder)}}


# how, when -> verdict, words of the message
TROUBLES = {
    ("kill", "before"): ("crash", "signal 9"),
    ("kill", "inside"): ("crash", "signal 9"),
    ("kill", "after"): ("crash", "signal 9"),
    ("exit", "inside"): ("crash", "exit code 3"),
    ("raise", "before"): ("fail", "ZeroDivisionError: trouble"),
    ("raise", "inside"): ("fail", "ZeroDivisionError: trouble"),
    ("raise", "after"): ("fail", "ZeroDivisionError: trouble"),
    ("stop", "before"): ("hang", "its process is stopped"),
    ("stop", "inside"): ("hang", "its process is stopped"),
}


SHORT = {("kill", "inside", 0), ("raise", "before", 1), ("stop", "inside", 1)}
"""What the default run has of them; the others are marked long."""
EVERY = [
    pytest.param(how, when, rank, marks=[] if (how, when, rank) in SHORT else pytest.mark.long)
    for how, when in TROUBLES
    for rank in (0, 1)
]


@pytest.mark.parametrize("how, when, rank", EVERY)
def test_the_rank_and_the_case_are_named_and_no_other_case_is_lost(how, when, rank, tmp_path, monkeypatch):
    trouble = {"rank": rank, "how": how, "when": when, "line": "pmax"}
    found = under(trouble, tmp_path / "r", monkeypatch, World(2, 2))
    verdict, words = TROUBLES[how, when]
    assert found[BAD]["verdict"] == verdict, found[BAD]
    assert found[BAD]["culprits"] == [rank] and words in found[BAD]["message"], found[BAD]["message"]
    assert found[BAD]["message"].startswith(f"rank {rank} (")
    assert [found[line]["verdict"] for line in (BEFORE, AFTER)] == ["pass", "pass"]
    assert found[""] == 1 and len(found) == 4


@pytest.mark.long
def test_a_late_rank_is_waited_for(tmp_path, monkeypatch):
    trouble = {"rank": 1, "how": "sleep", "seconds": 3.0, "when": "before", "line": "pmax"}
    found = under(trouble, tmp_path / "r", monkeypatch, World(2, 2))
    assert found[""] == 0 and {found[line]["verdict"] for line in LINES} == {"pass"}


@pytest.mark.long
def test_a_rank_that_is_later_than_the_deadline_is_named(tmp_path, monkeypatch):
    trouble = {"rank": 1, "how": "sleep", "seconds": 600, "when": "before", "line": "pmax"}
    found = under(trouble, tmp_path / "r", monkeypatch, World(2, 2))
    assert (found[BAD]["verdict"], found[BAD]["culprits"]) == ("hang", [1]), found[BAD]
    assert [found[line]["verdict"] for line in (BEFORE, AFTER)] == ["pass", "pass"]


@pytest.mark.long
def test_a_failure_that_does_not_come_again_is_flaky(tmp_path, monkeypatch):
    trouble = {"rank": 1, "how": "kill", "when": "inside", "line": "pmax", "once": str(tmp_path / "once")}
    found = under(trouble, tmp_path / "r", monkeypatch, World(4, 1))
    assert found[BAD]["verdict"] == "flaky" and "1 of 4 runs failed" in found[BAD]["message"]
    assert found[""] == 1


def test_journals_of_ranks_merge_into_what_the_supervisor_said(tmp_path, monkeypatch):
    trouble = {"rank": 1, "how": "raise", "when": "before", "line": "pmax"}
    found = under(trouble, tmp_path / "r", monkeypatch, World(2, 2))
    assert run.merged([tmp_path / "r"], tmp_path / "merged") == 1
    merged = {result["case"]: result for result in journal.read(tmp_path / "merged")}
    for line in LINES:
        for field in ("verdict", "kind", "rule", "message", "suite"):
            assert merged[line][field] == found[line][field]
    texts = [(tmp_path / name / found[BAD]["reproducer"]).read_text() for name in ("r", "merged")]
    assert texts[0] == texts[1] and "import jax" in texts[0]
