"""Runners that crash, hang and flood, with real processes: each death is told rightly and the next runner works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.isolate import BackendError, Death, HarnessDefect, Lines, Parent, Runner

TESTS = Path(__file__).resolve().parent
LONG = 60.0
CPU = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}

pytest.importorskip("jax", reason="runners run JAX")


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        parent = Parent(CPU, module="misbehaving")
        yield parent
        parent.close()


@pytest.fixture
def runner(parent: Parent) -> Iterator[Runner]:
    runner = parent.fork()
    yield runner
    runner.close()


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def dies(runner: Runner, how: str, seconds: float = LONG) -> Death:
    death = runner.ask({"how": how}, seconds)
    assert isinstance(death, Death), death
    assert gone(runner.pid)
    return death


def works(parent: Parent) -> bool:
    fresh = parent.fork()
    try:
        answer = fresh.ask({"how": "pid"}, LONG)
        return isinstance(answer, dict) and answer["results"] == fresh.pid
    finally:
        fresh.close()


def test_a_runner_checks_a_line(runner: Runner) -> None:
    answer = runner.ask({"line": "vmap(i:2) > jit > psum(i) & all_gather(i)"}, LONG)
    assert isinstance(answer, dict)
    assert [result["verdict"] for result in answer["results"]] == ["pass", "pass"]
    assert runner.history == ["vmap(i:2) > jit > psum(i) & all_gather(i)"]


def test_a_runner_answers_one_request_after_another(runner: Runner) -> None:
    pids = [runner.ask({"how": "pid"}, LONG) for _ in range(3)]
    assert [isinstance(answer, dict) and answer["results"] for answer in pids] == [runner.pid] * 3


def test_each_runner_is_a_process_of_its_own(parent: Parent) -> None:
    one, two = parent.fork(), parent.fork()
    assert one.pid != two.pid and alive(one.pid) and alive(two.pid)
    one.close()
    assert gone(one.pid) and isinstance(two.ask({"how": "pid"}, LONG), dict)
    two.close()
    assert gone(two.pid)


CRASHES = {
    "exit": (3, ""),
    "segfault": (-signal.SIGSEGV, "Segmentation fault"),
    "abort": (-signal.SIGABRT, "Aborted"),
}


@pytest.mark.parametrize("how", CRASHES)
def test_a_crash_is_told_with_its_status_and_log(parent: Parent, runner: Runner, how: str) -> None:
    status, words = CRASHES[how]
    death = dies(runner, how)
    assert (death.hang, death.status) == (False, status)
    assert words in death.log
    if how != "exit":
        assert "misbehaving.py" in death.log  # the stack says where
    assert works(parent)


def test_an_exception_in_the_harness_is_no_verdict_about_jax(parent: Parent, runner: Runner) -> None:
    with pytest.raises(HarnessDefect, match="ZeroDivisionError"):
        runner.ask({"how": "raise"}, LONG)
    assert works(parent)


@pytest.mark.parametrize("how", ["sleep", "endless"])
def test_a_hang_ends_in_time_with_the_stacks(parent: Parent, runner: Runner, how: str) -> None:
    runner.ask({"line": "vmap(i:2) > psum(i)"}, LONG)  # the backend is up: what follows is the hang alone
    start = time.monotonic()
    death = dies(runner, how, seconds=1.5)
    assert time.monotonic() - start < 8
    assert (death.hang, death.status) == (True, -signal.SIGKILL)
    assert "most recent call first" in death.log and "misbehaving.py" in death.log
    assert works(parent)


def test_a_runner_killed_from_outside_is_a_death_and_not_a_hang(parent: Parent, runner: Runner) -> None:
    os.kill(runner.pid, signal.SIGKILL)
    death = dies(runner, "pid")
    assert (death.hang, death.status) == (False, -signal.SIGKILL)
    assert works(parent)


def test_noise_does_not_block_and_is_cut(parent: Parent, runner: Runner) -> None:
    answer = runner.ask({"how": "flood"}, LONG)
    assert isinstance(answer, dict) and answer["results"] == "flooded"
    death = dies(runner, "segfault")
    assert len(death.log) <= 6000 and "Segmentation fault" in death.log


def test_a_slow_answer_is_no_hang(runner: Runner) -> None:
    answer = runner.ask({"how": "nap"}, LONG)
    assert isinstance(answer, dict) and answer["seconds"] >= 0.3


def test_closing_twice_harms_nobody(parent: Parent) -> None:
    runner = parent.fork()
    runner.close()
    runner.close()
    assert gone(runner.pid) and works(parent)


def test_a_late_status_does_not_spoil_the_channel(parent: Parent, runner: Runner) -> None:
    assert parent.status(runner.pid, seconds=0.05) is None  # it lives
    assert works(parent)


def test_a_parent_that_dies_is_a_backend_error_and_leaves_nothing() -> None:
    parent = Parent(CPU)
    runner = parent.fork()
    os.kill(parent.process.pid, signal.SIGKILL)
    assert gone(parent.process.pid)
    with pytest.raises(BackendError, match="process that imports JAX"):
        parent.fork()
    runner.close()
    parent.close()
    assert gone(runner.pid)


def test_a_parent_that_cannot_start_says_why() -> None:
    with pytest.raises(BackendError, match="No module named"):
        Parent(CPU, module="harness.nowhere")


CONTROLLER = """
import os, signal, sys
from harness.isolate import Parent
parent = Parent({}, module="misbehaving")
runner = parent.fork()
runner.channel.sendall(b'{"how": "sleep"}\\n')
print(parent.process.pid, runner.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_controller_that_is_killed_leaves_no_process_behind() -> None:
    environment = {**os.environ, **CPU, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
    done = subprocess.run(
        [sys.executable, "-c", CONTROLLER],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    assert all(gone(pid) for pid in pids)


def test_lines_are_read_on_after_a_timeout() -> None:
    import socket

    ours, theirs = socket.socketpair()
    lines = Lines(ours)
    theirs.sendall(b"one\ntw")
    assert lines.read(1) == "one"
    with pytest.raises(TimeoutError):
        lines.read(0.05)
    theirs.sendall(b"o\n")
    assert lines.read(1) == "two"
    theirs.close()
    assert lines.read(1) == ""
    ours.close()
