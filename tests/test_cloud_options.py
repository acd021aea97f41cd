"""Wrong requests cost nothing: one clear line, exit code 4, and gcloud is not called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fake_cloud.world import ROOT

SCRIPT = ROOT / "scripts" / "cloud_tpu_ci"
RIGHT = ("--zone=us-east5-a", "--accelerator_type=v6e-8")


def call(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command with a gcloud that says so when it is called."""
    program = folder / "gcloud"
    program.write_text('#!/bin/sh\necho CALLED "$@"\nexit 1\n')
    program.chmod(0o755)
    command = [sys.executable, str(SCRIPT), f"--gcloud={program}", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "words, said",
    [
        ((), "--zone is needed"),
        (("--zone=us-east5-a",), "one of --accelerator_type (such as v5litepod-8) and --type"),
        (("--zone=us-east5-a", "--type=v4"), "--type and --topology go together"),
        ((*RIGHT, "--type=v4", "--topology=2x2x2"), "one of --accelerator_type"),
        (("--zone=us-east5-a", "--accelerator_type=v6e-8; rm -rf /"), "right would be e.g. v5litepod-8"),
        (
            ("--zone=useast5a", "--accelerator_type=v6e-8"),
            "--zone=useast5a: not usable; right would be e.g. us-east5-a",
        ),
        (("--zone=us-east5-a", "--accelerator_type=tpu9z-8"), "--runtime_version: none is known for tpu9z"),
        ((*RIGHT, "--name=Has_Capitals"), "--name=Has_Capitals: not usable"),
        ((*RIGHT, f"--name={'a' * 60}"), "not usable; right would be e.g. axis-conformance-1"),
        ((*RIGHT, "--project=x"), "--project=x: not usable; right would be e.g. my-project"),
        ((*RIGHT, "--valid_until=tomorrow"), "right would be e.g. 6h"),
        ((*RIGHT, "--spot", "--reserved"), "--spot and --reserved exclude each other"),
        ((*RIGHT, "--internal_ip", "--tunnel_through_iap"), "exclude each other"),
        ((*RIGHT, "--case=psum", "--profile=quick"), "--case and --profile exclude each other"),
        ((*RIGHT, "--node_count=0"), "--node_count=0: right would be 1 or more"),
        ((*RIGHT, "--node_count=-1"), "node_count"),
        ((*RIGHT, "--attempts=none"), "attempts"),
        ((*RIGHT, "--coordinator_port=70000"), "right would be 1024 to 65535"),
        ((*RIGHT, "--jax=missing.whl"), "missing.whl: no such wheel"),
        ((*RIGHT, "--wheel=missing.whl"), "missing.whl: no such wheel"),
        ((*RIGHT, "--expectations=nowhere"), "--expectations=nowhere: no .toml file there"),
        ((*RIGHT, "--worker_python=/usr/bin/python3", "--jax=0.10.2"), "cannot be installed into it"),
        ((*RIGHT, "--commit=no-such-branch"), "--commit=no-such-branch: no commit of"),
        ((*RIGHT, "--commit=--output=/tmp/x"), "--commit=--output=/tmp/x: not usable"),
        ((*RIGHT, "--resume=nowhere"), "--resume=nowhere: not a results folder of this command"),
        ((*RIGHT, "--results=a:b"), "gcloud takes a path with a colon for one on another machine"),
        ((*RIGHT, "--zonne=x"), "Unknown command line flag 'zonne'"),
        (("bake", *RIGHT), "'bake': unknown; right would be nothing, `run` or `sweep`"),
        (("sweep",), "--zone is needed"),
    ],
)
def test_a_wrong_request_is_one_line(tmp_path, words, said):
    done = call(*words, folder=tmp_path)
    assert done.returncode == 4, done
    assert said in done.stderr and "CALLED" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_gcloud_that_is_not_there_is_a_usage_error(tmp_path):
    done = call(*RIGHT, "--gcloud=/nowhere/gcloud", folder=tmp_path)
    assert done.returncode == 4 and "install the Google Cloud CLI" in done.stderr


def test_results_of_another_run_are_not_overwritten(tmp_path):
    (tmp_path / "old" / "cloud").mkdir(parents=True)
    done = call(*RIGHT, "--results=old", folder=tmp_path)
    assert done.returncode == 4 and "already holds a run; use --resume=" in done.stderr


def test_help_has_every_option_and_examples(tmp_path):
    from harness.cloud.options import fields

    done = call("--help", folder=tmp_path)
    assert done.returncode == 0 and done.stdout.count("scripts/cloud_tpu_ci --zone=") >= 3
    assert [
        name for name in fields() if f"--{name}" not in done.stdout and f"--[no]{name}" not in done.stdout
    ] == []
