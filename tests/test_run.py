"""Whole runs by pytest, in processes of their own, with cases that really crash, hang, flicker and depend on order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults import library

ROOT = Path(__file__).resolve().parent.parent
SOUND = "vmap(i:2,3) > jit > psum(i)"
LINES = {
    "crash": "vmap(i:3) > jit > pmax(i)",
    "hang": "vmap(i:3) > jit > all_to_all(i) | shape=i",
    "order_dependent": "vmap(i:4) > all_gather(i)",
    "pass": "vmap(i:4) > pmean(i)",
}


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "--backend", "cpu", "--no-header", "--reduce=0", *options]


def suite(
    *options: str, trouble: Path | None = None, seconds: float = 240
) -> subprocess.CompletedProcess[str]:
    """A run of the suite with these options, its output and exit code."""
    return subprocess.run(
        command(*options), cwd=ROOT, env=environment(trouble), capture_output=True, text=True, timeout=seconds
    )


def environment(trouble: Path | None = None) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "JAX_", "XLA_"))}
    if trouble is None:
        return clean
    return {**clean, "JAX_TROUBLE": str(trouble), "PYTHONPATH": str(ROOT / "tests" / "troubles")}


def cases(*lines: str) -> list[str]:
    return [option for line in lines for option in ("--case", line)]


def verdicts(folder: Path) -> dict[str, dict]:
    """Results by case; a case that stands twice in the journal is an error."""
    found: dict[str, dict] = {}
    for text in (folder / "results.jsonl").read_text().splitlines():
        result = json.loads(text)
        assert result["case"] not in found, f"twice: {result['case']}"
        found[result["case"]] = result
    return found


@pytest.mark.parametrize("xdist", [(), ("-n", "2", "--dist", "worksteal")], ids=["one process", "xdist"])
def test_every_case_gets_its_own_verdict(tmp_path, xdist):
    folder = tmp_path / "results"
    wanted = [LINES["pass"], LINES["order_dependent"], LINES["crash"], LINES["hang"], SOUND]
    run = suite(*cases(*wanted), f"--results={folder}", "--deadline", "8", *xdist, trouble=tmp_path)
    found = verdicts(folder)
    assert run.returncode == 1, run.stdout
    assert set(found) == set(wanted)
    assert found[SOUND]["verdict"] == "pass"
    assert found[LINES["crash"]]["verdict"] == "crash" and "signal 6" in found[LINES["crash"]]["message"]
    assert found[LINES["hang"]]["verdict"] == "hang"
    stacks = (folder / found[LINES["hang"]]["log"]).read_text()
    assert "most recent call first" in stacks and "all_to_all" in stacks
    if not xdist:  # with xdist the two may run in different processes, and then nothing is wrong
        result = found[LINES["order_dependent"]]
        assert result["verdict"] == "order_dependent" and result["after"] == [LINES["pass"]], result[
            "message"
        ]


def test_a_flickering_case_is_flaky_and_never_a_pass(tmp_path):
    folder, line = tmp_path / "results", "vmap(i:3) > jit > pmin(i)"
    run = suite(*cases(line), f"--results={folder}", trouble=tmp_path)
    assert verdicts(folder)[line]["verdict"] == "flaky" and run.returncode == 1
    assert re.search(r"\d of 4 runs failed", verdicts(folder)[line]["message"])


def test_an_interrupted_run_is_valid_and_goes_on(tmp_path):
    folder = tmp_path / "results"
    profile = tmp_path / "lines.txt"
    profile.write_text(
        "# suite: jit\n"
        + "".join(f"vmap(i:{n}) > jit > psum(i) | shape={m}\n" for n in range(2, 9) for m in range(2, 20))
    )
    options = (f"--profile={profile}", f"--results={folder}")
    with subprocess.Popen(
        command(*options),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_attentive,
    ) as run:
        _wait_for_verdicts(folder, 3, run)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    before = verdicts(folder)
    assert 3 <= len(before) < 126
    again = suite(f"--profile={profile}", f"--resume={folder}")
    after = verdicts(folder)
    assert len(after) == 126 and again.returncode == 0, again.stdout
    assert all(after[case] == result for case, result in before.items())


def _attentive() -> None:
    """Ctrl-C is heard, also where this test runs in the background of a shell, which has it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_killed_runner_costs_no_verdict(tmp_path):
    folder = tmp_path / "results"
    lines = [f"vmap(i:{n}) > jit > scan(2) > psum(i)" for n in (2, 3, 4, 5, 6, 7, 8)]
    options = (*cases(*lines), f"--results={folder}")
    with subprocess.Popen(
        command(*options), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    ) as run:
        _wait_for_verdicts(folder, 1, run)
        for runner in _runners_of(run.pid):
            os.kill(runner, signal.SIGKILL)
        run.communicate(timeout=120)
    assert set(verdicts(folder)) == set(lines)


def _wait_for_verdicts(folder: Path, count: int, run: subprocess.Popen) -> None:
    """Until the journal has so many verdicts; an error when the run ends before."""
    journal = folder / "results.jsonl"
    while not journal.exists() or len(journal.read_text().splitlines()) < count:
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.02)


def _runners_of(pid: int) -> list[int]:
    """The grandchildren: the forked runners of the process that imported JAX."""
    return [grandchild for child in _children(pid) for grandchild in _children(child)]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_nothing_is_left_running(tmp_path):
    suite(*cases(LINES["hang"], SOUND), f"--results={tmp_path / 'r'}", "--deadline", "5", trouble=tmp_path)
    here = str(tmp_path)
    left = [p for p in Path("/proc").glob("[0-9]*/environ") if here in _read(p)]
    assert not left


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


BAD_INPUT = {
    "malformed line": (("--case", "vmap(i:2) > psm(i)"), "column 13"),
    "unknown backend": (("--backend", "abacus", *cases(SOUND)), "known: cpu"),
    "unknown key": (("--where", "colour=red"), "a key among"),
    "unknown value": (("--where", "leaf=psun"), "known:"),
    "unknown profile": (("--profile=tiny",), "quick"),
    "fraction": (("--fraction", "5/4"), "I/N"),
    "nothing to resume": (("--resume=/nonexistent",), "/nonexistent"),
    "unwritable folder": (("--results=/proc/none", *cases(SOUND)), "/proc/none"),
}


@pytest.mark.parametrize("options, says", BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_clear_line_and_a_usage_error(options, says):
    run = suite(*options)
    errors = [line for line in (run.stdout + run.stderr).splitlines() if says in line]
    assert run.returncode == 4 and errors, run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr


def test_broken_expectations_name_file_and_place(tmp_path):
    (tmp_path / "mine.toml").write_text('[[expect]]\nwhere = {leef = ["psum"]}\n')
    run = suite(*cases(SOUND), f"--results={tmp_path / 'r'}", f"--expectations={tmp_path}")
    assert run.returncode == 4 and "mine.toml entry 1: no parameter leef" in run.stdout + run.stderr


def test_too_few_devices_is_not_applicable_and_says_so(tmp_path):
    folder, line = tmp_path / "r", "pmap(i:4) > psum(i)"
    suite(*cases(line), "--devices", "2", f"--results={folder}")
    result = verdicts(folder)[line]
    assert result["verdict"] == "not_applicable" and result["message"] == "needs 4 devices, the backend has 2"


def test_strict_refuses_unmet_expectations_and_missing_reasons(tmp_path):
    (tmp_path / "mine.toml").write_text('[[expect]]\nwhere = {leaf = ["pmax"]}\n')
    options = (*cases(SOUND), f"--expectations={tmp_path}")
    assert suite(*options, f"--results={tmp_path / 'a'}").returncode == 0
    strict = suite(*options, f"--results={tmp_path / 'b'}", "--strict")
    assert strict.returncode == 1 and "mine.toml entry 1" in strict.stdout


def test_reproducers_fail_by_plain_python(tmp_path):
    folder = tmp_path / "r"
    suite(*cases("vmap(i:3) > jit > pmin(i)"), f"--results={folder}", trouble=tmp_path)
    (path,) = (folder / "reproducers").glob("*.py")
    assert "import jax" in path.read_text() and "harness" not in path.read_text()
    run = subprocess.run(
        [sys.executable, str(path)], env=environment(tmp_path), capture_output=True, text=True
    )
    again = subprocess.run(
        [sys.executable, str(path)], env=environment(tmp_path), capture_output=True, text=True
    )
    assert {run.returncode, again.returncode} == {0, 1}, run.stdout + run.stderr  # it fails every second time


def test_a_failure_leaves_a_small_reproducer(tmp_path):
    """The same failure with fewer layers is found when the run ends, and it fails by plain python."""
    folder = tmp_path / "r"
    line = "vmap(_:2) > jit > vmap(i:4,3) > scan(2) > jit > ppermute(i) | dtype=int32 shape=2i names=tuple"
    broken = library.environment("co_ppermute_reversed", environment())
    options = (*cases(line), f"--results={folder}")
    run = subprocess.run(
        command(*options, "--reduce=60"),
        cwd=ROOT,
        env={**environment(), **broken},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 1
    records = [json.loads(text) for text in (folder / "results.jsonl").read_text().splitlines()]
    small = records[-1]
    assert small["case"] == line and len(small["reduced"].split(" > ")) < len(line.split(" > ")) - 1
    path = folder / small["reproducer"]
    failed = subprocess.run([sys.executable, str(path)], env={**environment(), **broken}, capture_output=True)
    passed = subprocess.run([sys.executable, str(path)], env=environment(), capture_output=True)
    assert (failed.returncode, passed.returncode) == (1, 0)
    assert f"reduced to {small['reduced']}" in run.stdout
