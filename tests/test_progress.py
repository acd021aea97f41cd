"""The line of progress: what it says, and that only a terminal gets it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.progress import line

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [
    sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--backend", "cpu",
    "--case", "vmap(i:2,3) > jit > psum(i)", "--case", "pmap(i:2) > axis_index(i)",
]  # fmt: skip


@pytest.mark.parametrize(
    ("done", "total", "seconds", "findings", "said"),
    [
        (0, 10, 0.0, 0, "0 of 10 lines, 0.0 a second, time left unknown, no findings"),
        (5, 10, 2.0, 1, "5 of 10 lines, 2.5 a second, 0:02 left, 1 finding"),
        (100, 1000, 10.0, 2, "100 of 1000 lines, 10.0 a second, 1:30 left, 2 findings"),
    ],
)
def test_the_line_says_rate_time_left_and_findings(done, total, seconds, findings, said):
    assert line(done, total, seconds, findings) == said


@pytest.mark.parametrize("more", [[], ["-n", "2"]])
def test_a_terminal_sees_the_line(tmp_path, more):
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *more, f"--results={tmp_path / 'run'}"], cwd=ROOT, stdout=slave, stderr=slave, stdin=slave
    )
    os.close(slave)
    said = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other side has closed
            break
        if not part:
            break
        said += part
    os.close(master)
    assert process.wait() == 0, said.decode()
    assert re.search(rb"\r2 of 2 lines, [\d.]+ a second, 0:00 left, no findings", said), said.decode()
    assert b"2 passed" in said


def test_a_pipe_sees_none(tmp_path):
    ran = subprocess.run(
        [*COMMAND, f"--results={tmp_path / 'run'}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "2 passed" in ran.stdout and "a second" not in ran.stdout and "\r" not in ran.stdout
