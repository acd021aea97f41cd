"""A world for one test: a cloud in a folder, a gcloud on the PATH, and the command run in it as a process."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ZONE = "us-east5-a"
QUICK = ("--backoff=0.05", "--poll=0.05", "--delete_deadline=20", "--silence=20", "--grace=1", "--settle=0.5")


@dataclasses.dataclass
class Done:
    """What a call of the command left.

    Attributes:
      code: its exit code.
      said: standard output and standard error.
      results: the results folder.
    """

    code: int
    said: str
    results: Path

    def verdicts(self) -> dict[str, str]:
        lines = (self.results / "results.jsonl").read_text().splitlines()
        return {result["case"]: result["verdict"] for result in map(json.loads, lines)}


class World:
    """The fake cloud below a folder.

    Args:
      workers: hosts of each node.
      suite: what the stand-in for the suite does.
      settings: further settings of the fake.
    """

    def __init__(self, folder: Path, workers: int = 2, suite: dict[str, Any] | None = None, **settings: Any):
        self.folder = folder
        (folder / "cloud").mkdir(parents=True)
        (folder / "bin").mkdir()
        self.write("settings.json", {"workers": workers, **settings})
        (folder / "suite.json").write_text(json.dumps(suite or {}))
        program = folder / "bin" / "gcloud"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{HERE / "gcloud.py"}" "$@"\n')
        program.chmod(0o755)
        (folder / "bin" / "python3").symlink_to(
            sys.executable
        )  # of the workers; not a shim that takes its time
        self.port = 20000 + os.getpid() % 20000

    def write(self, name: str, content: Any) -> None:
        (self.folder / "cloud" / name).write_text(json.dumps(content))

    def plan(self, *troubles: dict[str, Any]) -> None:
        self.write("plan.json", list(troubles))

    # Running

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "JAX_", "XLA_", "GITHUB_"))
        }
        return {
            **kept,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FAKE_GCLOUD": str(self.folder / "cloud"),
            "FAKE_HOME": str(self.folder / "results" / "cloud"),
            "FAKE_SUITE": str(self.folder / "suite.json"),
        }

    def command(self, *flags: str, results: str = "results") -> list[str]:
        common = [
            f"--zone={ZONE}",
            "--accelerator_type=v6e-16",
            f"--results={self.folder / results}",
            "--owner=tests",
        ]
        common += [f"--worker_python={sys.executable}", f"--coordinator_port={self.port}", *QUICK]
        if not any(flag.startswith("--source") for flag in flags):
            common.append(f"--source={self.suite()}")
        given = {flag.partition("=")[0] for flag in flags}
        common = [flag for flag in common if flag.partition("=")[0] not in given or flag.startswith("--zone")]
        if "--resume" in given:
            common = [flag for flag in common if not flag.startswith("--results")]
        return [sys.executable, str(ROOT / "scripts" / "cloud_tpu_ci"), *common, *flags]

    def run(self, *flags: str, results: str = "results", seconds: float = 120) -> Done:
        done = subprocess.run(
            self.command(*flags, results=results),
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
        )
        return Done(done.returncode, done.stdout, self.folder / results)

    def run_and_signal(
        self, number: signal.Signals, when: Callable[[], bool], *flags: str, times: int = 1
    ) -> Done:
        """Runs the command and sends it a signal, or several, when something has happened."""
        with subprocess.Popen(
            self.command(*flags),
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            wait_for(when, process)
            for _ in range(times):
                process.send_signal(number)
                time.sleep(0.2)
            said, _ = process.communicate(timeout=60)
        return Done(process.returncode, said, self.folder / "results")

    def sweep(self, *flags: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            str(ROOT / "scripts" / "cloud_tpu_ci"),
            "sweep",
            f"--zone={ZONE}",
            "--owner=tests",
        ]
        return subprocess.run(
            [*command, *QUICK, *flags],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def suite(self) -> Path:
        """A git repository with the stand-in for the suite."""
        folder = self.folder / "suite"
        if not folder.exists():
            shutil.copytree(HERE / "suite", folder)
            git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
            for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "suite"]):
                subprocess.run([*git, *words], check=True)
        return folder

    # Looking

    def state(self) -> dict[str, Any]:
        path = self.folder / "cloud" / "state.json"
        return json.loads(path.read_text()) if path.exists() else {"nodes": {}, "queues": {}}

    def gcloud(self, *words: str) -> None:
        """A call of somebody else's."""
        command = ["gcloud", "compute", "tpus", *words, f"--zone={ZONE}"]
        subprocess.run(command, env=self.environment, check=True, capture_output=True)

    def age(self, name: str) -> None:
        """Lets the time of a resource's run be over."""
        state = self.state()
        state["nodes"][name]["labels"]["axis-conformance-until"] = str(int(time.time()) - 1)
        self.write("state.json", state)

    def log(self) -> str:
        path = self.folder / "results" / "cloud" / "cloud.log"
        return path.read_text() if path.exists() else ""

    def resources(self) -> list[str]:
        return [*self.state()["nodes"], *self.state()["queues"]]

    def calls(self, pattern: str = "") -> list[dict[str, Any]]:
        """The gcloud calls whose command line matches, as {"words", "exit", "start", "end"}."""
        path = self.folder / "cloud" / "calls.jsonl"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call for call in calls if re.search(pattern, " ".join(call["words"]))]

    def processes(self) -> list[int]:
        """Processes of workers that are still there."""
        mark = f"FAKE_WORKER={self.folder / 'cloud'}/".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                alive = (path.parent / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                if mark in path.read_bytes() and alive:
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def nothing_left(self) -> bool:
        """Whether neither a resource nor a process is left."""
        end = time.monotonic() + 10
        while self.processes() and time.monotonic() < end:
            time.sleep(0.1)
        return not self.resources() and not self.processes()

    def told(self, count: int) -> Callable[[], bool]:
        """Whether so many verdicts have come home."""

        def seen() -> bool:
            return (
                sum(
                    path.read_text().count("\n")
                    for path in self.folder.glob("results/cloud/attempt-*/*/results/cluster/ranks/*.jsonl")
                )
                >= count
            )

        return seen


def wait_for(when: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not when():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
