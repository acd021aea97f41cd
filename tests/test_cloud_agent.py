"""The program on the worker and the copy of its files here: nothing lost, nothing doubled, nothing left running."""

from __future__ import annotations

import ast
import base64
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from harness.cloud import agent, mirror, stage
from harness.cloud.backoff import LONGEST, Deadline, delays
from harness.cloud.commands import Worker
from harness.cloud.log import redact
from harness.cloud.mirror import Mirror
from harness.cloud.options import Options
from harness.cloud.troubles import TOLD_BY_TEXT, kind_of, what_was_said


class Place:
    """A worker's folder with the agent in it."""

    def __init__(self, folder: Path, *argv: str, **spec):
        self.folder = folder
        (folder / "source").mkdir(parents=True)
        (folder / agent.RESULTS).mkdir()
        shutil.copy(agent.__file__, folder / "agent.py")
        steps = [{"name": "one", "argv": list(argv), "environment": {}}]
        content = {
            "files": {},
            "install": [],
            "worker_python": sys.executable,
            "chips": 0,
            "steps": steps,
            **spec,
        }
        (folder / "spec.json").write_text(json.dumps(content))

    def call(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, str(self.folder / "agent.py"), *words]
        return subprocess.run(command, capture_output=True, timeout=30)

    def frames(self, known: dict[str, int]) -> list[dict]:
        out = self.call("follow", json.dumps(known)).stdout
        return [frame for line in out.splitlines() if (frame := mirror.parse(line))]


def test_the_agent_is_a_program_for_old_pythons():
    source = Path(agent.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert imported <= set(sys.stdlib_module_names), "it would need the harness on the worker"
    assert "StrEnum" not in source and "tomllib" not in source and "removeprefix" not in source


def test_a_suite_is_started_once_however_often_it_is_asked_for(tmp_path):
    place = Place(tmp_path / "w", "{python}", "-c", "import time; print('run' + 'ning'); time.sleep(1)")
    said = [place.call("start").stdout for _ in range(3)]
    assert said == [b"started\n", b"already started\n", b"already started\n"]
    assert place.frames({})[-1] == {"ended": True}
    assert (tmp_path / "w" / "log.txt").read_text().count("running") == 1


def test_steps_end_at_the_first_that_gives_no_verdict(tmp_path):
    def step(name: str, code: int) -> dict:
        return {"name": name, "argv": ["{python}", "-c", f"raise SystemExit({code})"], "environment": {}}

    place = Place(tmp_path / "w", steps=[step("a", 1), step("b", 0), step("c", 4), step("d", 0)])
    place.call("start")
    place.frames({})
    told = [json.loads(line) for line in (tmp_path / "w" / "status.jsonl").read_text().splitlines()]
    assert told == [
        {"step": "a", "exit": 1},
        {"step": "b", "exit": 0},
        {"step": "c", "exit": 4},
        {"done": True},
    ]


def test_following_again_and_again_gives_exactly_the_files(tmp_path):
    """The connection is cut at every place there is; the copy ends up byte for byte the same."""
    place = Place(tmp_path / "w", "true")
    results = tmp_path / "w" / agent.RESULTS / "cluster" / "ranks"
    results.mkdir(parents=True)
    place.call("start")
    place.frames({})
    (results / "0.jsonl").write_bytes("".join(f'{{"case": "é{n}"}}\n' for n in range(5000)).encode() * 6)
    (results / "0.environment.json").write_text('{"jax": "1"}')
    copy = Mirror(tmp_path / "copy")
    rng, rounds = random.Random(1), 0
    while rounds < 40:
        frames = place.frames(copy.sizes())
        cut = rng.randrange(1, len(frames) + 1) if rounds % 3 else len(frames)
        for frame in frames[:cut]:
            copy.take(frame)
        rounds += 1
        if copy.sizes().get("results/cluster/ranks/0.jsonl") == (results / "0.jsonl").stat().st_size:
            break
    for name in (
        "log.txt",
        "status.jsonl",
        "results/cluster/ranks/0.jsonl",
        "results/cluster/ranks/0.environment.json",
    ):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "w" / name).read_bytes(), name


def test_a_piece_that_comes_twice_is_written_once(tmp_path):
    copy = Mirror(tmp_path)
    pieces = [(0, b"one\n"), (4, b"two\n"), (4, b"two\n"), (0, b"one\n"), (8, b"three\n")]
    for at, data in pieces:
        copy.take(
            {"file": "results/cluster/ranks/0.jsonl", "at": at, "data": base64.b64encode(data).decode()}
        )
    assert (tmp_path / "results/cluster/ranks/0.jsonl").read_bytes() == b"one\ntwo\nthree\n"


def test_a_suite_that_was_killed_has_ended(tmp_path):
    place = Place(tmp_path / "w", "{python}", "-c", "import time; time.sleep(60)")
    place.call("start")
    time.sleep(0.5)
    assert place.call("stop").returncode == 0
    assert place.frames({})[-1] == {"ended": True}
    assert not (tmp_path / "w" / "status.jsonl").exists()


def test_stop_reaches_what_left_its_session(tmp_path):
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(61)'], start_new_session=True).wait()"
    place = Place(tmp_path / "w", "{python}", "-c", code)
    place.call("start")
    pid = int((tmp_path / "w" / "pid").read_text())
    end = time.monotonic() + 10
    while len(agent.descendants(pid)) < 3 and time.monotonic() < end:
        time.sleep(0.05)
    victims = agent.descendants(pid)
    assert len(victims) == 3
    place.call("stop")
    time.sleep(0.3)
    assert not [victim for victim in victims if agent.alive(victim)]


def said(done: subprocess.CompletedProcess) -> dict:
    frames = [mirror.parse(line) for line in done.stdout.splitlines()]
    return [frame for frame in frames if frame][-1]


def test_files_that_did_not_arrive_whole_are_named(tmp_path):
    place = Place(tmp_path / "w", "true", files={"source.tar.gz": "0" * 64, "missing.whl": "0" * 64})
    (tmp_path / "w" / "source.tar.gz").write_text("half")
    assert said(place.call("prepare")) == {"prepared": False, "torn": ["source.tar.gz", "missing.whl"]}
    (tmp_path / "w" / "spec.json").write_text('{"files": {')
    assert said(place.call("prepare")) == {"prepared": False, "torn": ["spec.json"]}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_an_agent_that_did_not_arrive_whole_never_says_that_it_is_ready(tmp_path, share):
    place = Place(tmp_path / "w", "true")
    whole = (tmp_path / "w" / "agent.py").read_bytes()
    (tmp_path / "w" / "agent.py").write_bytes(whole[: int(len(whole) * share)])
    assert agent.MARK.encode() not in place.call("prepare").stdout


def test_the_environment_is_made_of_what_the_order_names(tmp_path):
    """A real environment by the agent, from a wheel that was copied along."""
    folder = tmp_path / "w"
    Place(folder, "true", worker_python="", python="3.12", image_packages=False)
    wheel = folder / "tiny-1.0-py3-none-any.whl"
    _wheel(wheel, "tiny", "1.0")
    spec = json.loads((folder / "spec.json").read_text())
    files = {wheel.name: agent.sha256(wheel)}
    (tmp_path / "source").mkdir()
    with tarfile.open(folder / "source.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "source", ".")
    spec |= {"files": files, "install": [["--no-index", f"./{wheel.name}"]]}
    (folder / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run(
        [sys.executable, str(folder / "agent.py"), "prepare"], capture_output=True, timeout=120
    )
    assert said(done) == {"prepared": True, "trouble": ""} and b"tiny" in done.stdout, done
    shown = subprocess.run(
        [str(folder / "env/bin/python"), "-c", "import tiny; print(tiny.X)"], capture_output=True
    )
    assert shown.stdout == b"1.0\n"
    spec["install"].append(["--no-index", "no-such-package"])
    (folder / "spec.json").write_text(json.dumps(spec))
    failed = said(subprocess.run([sys.executable, str(folder / "agent.py"), "prepare"], capture_output=True))
    assert (
        not failed["prepared"] and "No matching distribution found for no-such-package" in failed["trouble"]
    )


def _wheel(path: Path, name: str, version: str) -> None:
    import zipfile

    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"X = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "results/../../x",
        "agent.py",
        "results",
        "results/a b",
        7,
        "log.txt/x",
    ],
)
def test_a_worker_cannot_write_elsewhere(tmp_path, name):
    copy = Mirror(tmp_path / "a" / "b" / "copy")
    before = sorted(tmp_path.rglob("*"))
    copy.take({"file": name, "at": 0, "data": base64.b64encode(b"x").decode()})
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("line", [b"Welcome to Ubuntu", b"@@ {half", b"@@ [1]", b"\xff\xfe", b""])
def test_noise_on_the_connection_is_no_frame(line):
    assert mirror.parse(line) is None


@pytest.mark.parametrize(
    "wanted, step",
    [
        ("", ["jax[tpu]"]),
        ("0.12.0.1", ["jax[tpu]==0.12.0.1"]),
        ("dist/jax-1.0-py3-none-any.whl", ["./jax-1.0-py3-none-any.whl[tpu]"]),
        ("nightly", ["--pre", "--upgrade", "jax", "jaxlib", "libtpu", "requests"]),
    ],
)
def test_each_way_to_name_a_jax(wanted, step):
    first = stage.install_steps(Options(jax=wanted))[0]
    assert first[: len(step)] == step and all(word.startswith("--") for word in first[len(step) :])


def test_the_jax_of_the_image_is_left_alone():
    assert not [
        word for step in stage.install_steps(Options(jax="image")) for word in step if word.startswith("jax")
    ]


def test_ranks_are_numbered_over_all_nodes():
    workers = [Worker(f"t-{node}", index, "10.0.0.2") for node in range(2) for index in range(2)]
    found = [
        stage.steps(Options(coordinator_port=8476), workers, rank, set())[0]["argv"] for rank in range(4)
    ]
    assert [word for argv in found for word in argv if "process_id" in word] == [
        f"--process_id={n}" for n in range(4)
    ]
    assert all(
        "--coordinator_address=10.0.0.2:8476" in argv and "--num_processes=4" in argv for argv in found
    )
    assert "--process_id=0" not in stage.steps(Options(), workers, 0, set())[0]["argv"], (
        "JAX finds the cluster itself"
    )


def test_one_host_gets_a_pass_on_single_chips_and_one_on_all():
    first, second = stage.steps(Options(case=("psum {i}",)), [Worker("t", 0)], 0, {"all_chips"})
    assert first["argv"][-3:] == ["-n", "{chips}", "--results=../results/one_chip"]
    assert second["argv"][-1] == "--resume=../results/all_chips" and "-n" not in second["argv"]
    assert "--case=psum {i}" in [word.format(python="p", chips=1) for word in first["argv"]]


def test_pauses_double_up_to_a_limit():
    pauses = delays(30.0, random.Random(1))
    got = [next(pauses) for _ in range(8)]
    assert all(30 * 2**n <= pause <= 30 * 2**n * 1.25 for n, pause in enumerate(got[:4]))
    assert all(LONGEST <= pause <= LONGEST * 1.25 for pause in got[5:])


def test_a_deadline_is_over_when_its_time_is():
    now = [0.0]
    deadline = Deadline(10, lambda: now[0])
    now[0] = 9.0
    assert not deadline.over and deadline.left == 1
    now[0] = 11.0
    assert deadline.over and deadline.left == 0


@pytest.mark.parametrize(
    "text, name",
    [
        ('ERROR: RESOURCE_EXHAUSTED: There is no more capacity in the zone "x"', "stock-out"),
        ("ERROR: RESOURCE_EXHAUSTED: Quota limit 'X' has been exceeded. Limit: 403", "quota"),
        ("ERROR: RESOURCE_EXHAUSTED: too many", "rate limit"),
        ("ERROR: NOT_FOUND: Resource not found. This command is unauthenticated because", "not found"),
        ("ERROR: PERMISSION_DENIED: no", "access denied"),
        ("ERROR: You do not currently have an active account selected", "access denied"),
        ("ERROR: INVALID_ARGUMENT: no", "invalid request"),
        ('This TPU has terminal state "PREEMPTED", so it cannot be used anymore.', "preempted"),
        ("ERROR: [/usr/bin/ssh] exited with return code [255].", "connection lost"),
        ("ssh: connect to host 10.0.0.2 port 22: No route to host", "connection lost"),
        ("ERROR: gcloud crashed (ConnectionError): Max retries exceeded with url", "service unavailable"),
        ("something else", "unknown"),
    ],
)
def test_each_kind_of_trouble_is_told_by_its_text(text, name):
    assert kind_of(text).name == name
    assert all(kind.advice for kind in TOLD_BY_TEXT)


def test_what_the_remote_command_said_is_told_when_gcloud_says_nothing():
    chatter = "Using ssh batch size of 1.\nSSH: Attempting to connect to worker 0...\n"
    assert what_was_said(chatter, "not copied whole: x\n") == "not copied whole: x"
    assert what_was_said(chatter + "ERROR: (gcloud) boom\n", "out\n") == "ERROR: (gcloud) boom"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer ya29.A0ARrdaM-k9Vq7GzY2pL4Mf8sQnT",
        "curl https://user:s3cretvalue@example.org/simple",
        'access_token: "s3cretvalue"',
        "PIP_TOKEN=s3cretvalue pip install x",
        "-----BEGIN PRIVATE KEY-----\ns3cretvalue\n-----END PRIVATE KEY-----",
    ],
)
def test_secrets_are_left_out(text):
    assert "s3cretvalue" not in redact(text) and "A0ARr" not in redact(text)


def test_what_is_no_secret_is_left_in(monkeypatch):
    monkeypatch.setenv("SSH_KEY_PASSWORD", "short")
    text = "vmap(i:2) > psum(i): pass; 3 tokens, https://example.org/a?b=c, keys: 4, short"
    assert redact(text) == text and os.environ["SSH_KEY_PASSWORD"] == "short"
