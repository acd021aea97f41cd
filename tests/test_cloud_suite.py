"""The suite itself in the fake cloud: this repository's last commit, copied, started and merged as on a real TPU."""

from __future__ import annotations

import json

import pytest
from fake_cloud.world import ROOT, World

from harness.case import parse
from harness.cloud.collect import merge_passes

SOUND = "vmap(i:2,3) > jit > psum(i)"
SPREAD = "shard_map(i:2) > jit > all_gather(i)"


def test_one_host_with_several_chips_runs_both_passes(tmp_path):
    world = World(tmp_path, workers=1)
    done = world.run(
        f"--source={ROOT}", "--backend=cpu", "--chips=2", f"--case={SOUND}", f"--case={SPREAD}", seconds=400
    )
    assert done.code == 0, done.said
    assert done.verdicts() == {str(parse(SOUND)): "pass", str(parse(SPREAD)): "pass"}
    for line in (done.results / "results.jsonl").read_text().splitlines():
        assert json.loads(line)["passes"] == {"one_chip": "pass", "all_chips": "pass"}
    for report in ("summary.md", "junit.xml", "badge.json", "environment.json"):
        assert (done.results / report).stat().st_size, report
    assert "2 of 2 applicable cases pass" in (done.results / "summary.md").read_text()
    log = next(done.results.glob("cloud/attempt-1/*/log.txt")).read_text()
    assert "-n 2" in log and log.count("2 passed") == 2
    assert world.nothing_left()


@pytest.mark.long
def test_your_expectations_are_used_there(tmp_path):
    """An entry that foresees a failure where there is none: only a suite that read it can say so."""
    (tmp_path / "mine").mkdir()
    entry = '[[expect]]\nwhere = { leaf = ["psum"] }\nverdict = "fail"\nreason = "only to be seen"\n'
    (tmp_path / "mine" / "mine.toml").write_text(entry)
    world = World(tmp_path / "world", workers=1)
    options = ("--backend=cpu", "--chips=1", f"--case={SOUND}", f"--expectations={tmp_path / 'mine'}")
    done = world.run(f"--source={ROOT}", *options, seconds=400)
    assert set(done.verdicts().values()) == {"unexpected_pass"} and done.code == 0, done.said


@pytest.mark.parametrize("order", [("pass", "fail"), ("fail", "pass"), ("flaky", "crash")])
def test_of_two_passes_the_worse_verdict_counts_and_says_where(tmp_path, order):
    passes = {}
    for name, verdict in zip(("one_chip", "all_chips"), order):
        passes[name] = folder = tmp_path / name
        (folder / "reproducers").mkdir(parents=True)
        (folder / "reproducers" / "a.py").write_text(f"# of {name}")
        result = {"case": SOUND, "verdict": verdict, "rule": "r", "kind": "", "message": "m", "also": []}
        result |= {"reproducer": "reproducers/a.py" if verdict != "pass" else None}
        (folder / "results.jsonl").write_text(json.dumps(result) + "\n")
        (folder / "environment.json").write_text(
            json.dumps({"device_count": len(name), "promised": 3, "jax": "1"})
        )
    merge_passes(passes, tmp_path / "merged")
    [result] = map(json.loads, (tmp_path / "merged" / "results.jsonl").read_text().splitlines())
    worse = max(order, key=["pass", "flaky", "fail", "crash"].index)
    assert result["verdict"] == worse
    assert f"{order[0]} with one chip, {order[1]} with all chips" in result["message"]
    where = "one_chip" if order[0] == worse else "all_chips"
    assert (tmp_path / "merged" / "reproducers" / "a.py").read_text() == f"# of {where}"
    assert json.loads((tmp_path / "merged" / "environment.json").read_text())["promised"] == 3


def test_several_hosts_are_ranks_of_one_real_run(tmp_path):
    """The real ranks find each other, agree on every program, and are merged; each has eight virtual devices."""
    world = World(tmp_path, workers=2)
    lines = ("shard_map(i:16) > jit > psum(i)", "shard_map(i:2, j:8) > jit > all_gather(j)")
    done = world.run(f"--source={ROOT}", "--backend=cpu", *(f"--case={line}" for line in lines), seconds=400)
    assert done.code == 0, done.said
    assert done.verdicts() == {str(parse(line)): "pass" for line in lines}
    assert json.loads((done.results / "environment.json").read_text())["device_count"] == 16
    assert "2 of 2 applicable cases pass" in (done.results / "summary.md").read_text()
    assert world.nothing_left()


@pytest.mark.long
def test_ranks_of_a_preempted_tpu_go_on_on_the_next(tmp_path):
    world = World(tmp_path, workers=2)
    leaves = ("psum", "pmax", "pmin", "pmean", "all_gather", "ppermute")
    lines = [f"shard_map(i:{n}, j:{16 // n}) > jit > {leaf}(j)" for n in (2, 4) for leaf in leaves]
    world.plan({"when": "--worker=1 .*follow", "drop": 9, "state": "PREEMPTED"})
    done = world.run(f"--source={ROOT}", "--backend=cpu", *(f"--case={line}" for line in lines), seconds=400)
    assert done.code == 0, done.said
    assert done.verdicts() == {str(parse(line)): "pass" for line in lines}
    assert "try 2 of 3" in done.said and world.nothing_left()
    for rank in (0, 1):
        journal = (done.results / f"cloud/gathered/cluster/ranks/{rank}.jsonl").read_text()
        settled = [
            entry["settled"]["case"]
            for line in journal.splitlines()
            if "settled" in (entry := json.loads(line))
        ]
        assert sorted(settled) == sorted(done.verdicts()), "a case is missing, or was run twice"
        assert any(
            entry.get("started") or "start" in entry for entry in map(json.loads, journal.splitlines())
        )
