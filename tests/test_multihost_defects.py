"""Defects of JAX that several processes only can show: the suite over two processes catches each, by one of its laws."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from faults import library

from harness import backends, journal, profiles
from harness.multihost.merge import BAD
from harness.multihost.supervise import Checker, LocalRanks, WorldError
from harness.multihost.world import World
from harness.verdicts import Verdict

pytest.importorskip("jax", reason="ranks run JAX")

LINES = (
    *profiles.load("quick").lines("processes"),
    "probe(process_identity)",
    "probe(device_order)",
    "jit > shard_map(i:4) > psum(i) & all_gather(i)",
    "jit > shard_map(i:4) > axis_index(i)",
    "jit > shard_map(i:2, j:2, in=i.j, check=off) > psum(i)",
)
SHORT = ("mp_last_process_max", "mp_local_data_reversed")
"""What the default run has of them; the others are marked long."""
ALREADY_IN_THE_WORLD = {"md_process_count": "2 processes were started, this one found itself in a group of 1"}
"""Defects with which no case can be run, and what the world check says of them."""
DEFECTS = [
    pytest.param(name, marks=[] if name in SHORT else pytest.mark.long)
    for name, fault in library.faults().items()
    if fault.several_processes and fault.covers(metadata.version("jax"))
]


def checker(folder: Path) -> Checker:
    backend = dataclasses.replace(backends.load("cpu"), deadline=20.0)
    return Checker(LocalRanks(backend, World(2, 2), folder), journal.Journal(folder))


@pytest.mark.parametrize("name", DEFECTS)
def test_the_suite_catches_it(name, tmp_path, monkeypatch):
    for variable, value in library.environment(name).items():
        monkeypatch.setenv(variable, value)
    fault, seen = library.faults()[name], []
    checking = checker(tmp_path)
    try:
        if name in ALREADY_IN_THE_WORLD:
            with pytest.raises(WorldError, match=ALREADY_IN_THE_WORLD[name]):
                checking.start()
            return
        for line in LINES:
            seen += [result for result in checking.check(line) if result["verdict"] in (*BAD, Verdict.FLAKY)]
            if any(result["rule"] in fault.rules for result in seen):
                break
    finally:
        checking.close()
    assert any(result["rule"] in fault.rules for result in seen), [(r["case"], r["rule"]) for r in seen]
    if fault.breaks.endswith("in the last process only"):
        assert seen[0]["culprits"] == [0, 1] and "no majority" in seen[0]["message"], seen[0]["message"]


@pytest.mark.long
def test_without_a_defect_nothing_is_caught(tmp_path):
    checking = checker(tmp_path)
    try:
        verdicts = {result["verdict"] for line in LINES for result in checking.check(line)}
    finally:
        checking.close()
    assert verdicts == {Verdict.PASS}


def test_of_three_processes_the_odd_one_is_named(tmp_path, monkeypatch):
    for variable, value in library.environment("mp_last_process_max").items():
        monkeypatch.setenv(variable, value)
    backend = dataclasses.replace(backends.load("cpu"), deadline=20.0)
    checking = Checker(LocalRanks(backend, World(3, 1), tmp_path), journal.Journal(tmp_path))
    try:
        (result,) = checking.check("jit > shard_map(i:3) > psum(i)")
    finally:
        checking.close()
    assert (result["verdict"], result["rule"], result["culprits"], result["victims"]) == (
        "fail",
        "process.agree",
        [2],
        [0, 1],
    )
    assert "rank 2 would run another program" in result["message"] and "maximum" in result["message"]


# what breaks, and a line that shows it
SHOWN_BY = {
    "md_psum_one_process": "jit > shard_map(i:4) > psum(i)",
    "mp_local_data_reversed": "probe(local_data)",
}


@pytest.mark.long
@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_reproducer_starts_its_processes_by_itself(name, tmp_path, monkeypatch):
    for variable, value in library.environment(name).items():
        monkeypatch.setenv(variable, value)
    checking = checker(tmp_path)
    try:
        (result,) = checking.check(SHOWN_BY[name])
    finally:
        checking.close()
    assert result["verdict"] == "fail"
    path = str(tmp_path / result["reproducer"])
    assert "harness" not in Path(path).read_text()
    codes = {}
    for fault in (name, ""):
        monkeypatch.setenv("JAX_AXIS_FAULT", fault)
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120)
        codes[fault] = done.returncode
        assert "Traceback" not in done.stderr, done.stderr
    assert codes == {name: 1, "": 0}
