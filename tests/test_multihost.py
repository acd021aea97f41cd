"""Whole runs over several processes: scripts/run_multihost and pytest, undisturbed, killed, resumed and side by side."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import journal

ROOT = Path(__file__).resolve().parent.parent
LINES = tuple(
    f"jit > shard_map(i:4) > {leaf} | shape={n}"
    for n in (1, 2, 4)
    for leaf in ("all_gather(i)", "pmax(i)", "ppermute(i)", "psum(i)")
)

pytest.importorskip("jax", reason="ranks run JAX")


def command(*options: str) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "run_multihost"), "--backend=cpu", *options]


def cases(*lines: str) -> list[str]:
    return [f"--case={line}" for line in lines]


def clean(**variables: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "JAX_", "XLA_", "RANK_"))}
    return {**kept, **variables}


def start(*options: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*options), env=clean(**variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output = process.communicate(timeout=240)[0]
    return process.returncode, output


def multihost(*options: str, **variables: str) -> tuple[int, str]:
    return ended(start(*options, **variables))


def verdicts(folder: Path) -> dict[str, str]:
    return {result["case"]: result["verdict"] for result in journal.read(folder)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cluster(folder: Path, *options: str, count: int = 2) -> list[subprocess.Popen[str]]:
    """The ranks of a cluster on this machine, each started as a launcher would."""
    address = f"--coordinator_address=127.0.0.1:{free_port()}"
    return [
        start(
            *options,
            "--cluster",
            address,
            f"--num_processes={count}",
            f"--process_id={rank}",
            f"--devices_per_process={4 // count}",
            f"--results={folder}",
        )
        for rank in range(count)
    ]


def family(pid: int) -> list[int]:
    """The descendants of a process."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(grandchild for child in children for grandchild in family(child))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


def wait_for_verdicts(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until a journal has so many lines."""
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


@pytest.mark.parametrize("world", ["2x2", "4x1"])
def test_a_run_is_right_and_says_so(tmp_path, world):
    processes, devices = world.split("x")
    folder = tmp_path / "r"
    code, output = multihost(
        *cases(*LINES), f"--processes={processes}", f"--devices_per_process={devices}", f"--results={folder}"
    )
    assert code == 0 and f"{len(LINES)} of {len(LINES)} applicable cases pass" in output, output
    assert verdicts(folder) == dict.fromkeys(LINES, "pass")
    assert len((folder / journal.RESULTS).read_text().splitlines()) == len(LINES)
    facts = json.loads((folder / journal.ENVIRONMENT).read_text())
    assert (facts["world"], facts["process_count"], facts["device_count"]) == (world, int(processes), 4)
    assert len(list((folder / "ranks").glob("*.jsonl"))) == int(processes)
    assert (folder / "summary.md").exists() and (folder / "junit.xml").exists()


def test_what_does_not_span_processes_is_not_applicable_with_its_reason(tmp_path):
    reasons = {
        "vmap(i:3) > jit > psum(i)": "binds no axis over devices",
        "jit > shard_map(i:2) > psum(i)": "leaves processes of the world 2x2 out",
        "jit > shard_map(i:8) > psum(i)": "needs 8 devices, the world 2x2 has 4",
        "pmap(i:4) > psum(i)": "pmap takes each process's own part",
        "probe(one_process_gather)": "a law of a single process",
    }
    code, output = multihost(*cases(*reasons), f"--results={tmp_path / 'r'}")
    assert code == 0, output
    for result in journal.read(tmp_path / "r"):
        assert result["verdict"] == "not_applicable" and reasons[result["case"]] in result["message"]


@pytest.mark.parametrize(
    "xdist", [(), pytest.param(("-n2",), marks=pytest.mark.long)], ids=["one", "two workers"]
)
def test_pytest_runs_the_suite_over_processes(tmp_path, xdist):
    folder = tmp_path / "r"
    options = ["--backend=cpu", "--processes=2", "--devices-per-process=2", f"--results={folder}", *xdist]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, *cases(*LINES)],
        cwd=ROOT,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout
    assert verdicts(folder) == dict.fromkeys(LINES, "pass")


WRONG_FOR_PYTEST = {
    "one process": (("--processes=1",), "--processes takes 2 or more"),
    "devices of what": (("--devices-per-process=2",), "--devices-per-process needs --processes"),
    "devices of both": (("--processes=2", "--devices=4"), "in place of --devices"),
}


@pytest.mark.parametrize("options, says", WRONG_FOR_PYTEST.values(), ids=WRONG_FOR_PYTEST)
def test_pytest_refuses_what_makes_no_sense(options, says):
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=ROOT,
        env=clean(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 4 and says in run.stderr and "Traceback" not in run.stderr


def test_a_killed_supervisor_leaves_no_process_and_the_resumed_run_is_as_if_undisturbed(tmp_path):
    folder = tmp_path / "r"
    process = start(*cases(*LINES), f"--results={folder}")
    wait_for_verdicts(folder / journal.RESULTS, 3, process)
    pids = family(process.pid)
    process.kill()
    process.communicate()
    assert pids and gone(pids)
    before = verdicts(folder)
    assert 3 <= len(before) < len(LINES)
    code, output = multihost(*cases(*LINES), f"--resume={folder}")
    assert code == 0, output
    assert verdicts(folder) == dict.fromkeys(LINES, "pass")
    written = [json.loads(line)["case"] for line in (folder / journal.RESULTS).read_text().splitlines()]
    assert sorted(written) == sorted(LINES)  # none lost, none twice


@pytest.mark.long
def test_two_runs_at_once_do_not_meet(tmp_path):
    both = [start(*cases(*LINES), f"--results={tmp_path / name}") for name in "ab"]
    assert [ended(process)[0] for process in both] == [0, 0]
    assert verdicts(tmp_path / "a") == verdicts(tmp_path / "b") == dict.fromkeys(LINES, "pass")


def test_a_disk_that_fills_up_is_said_in_one_line_and_the_run_goes_on_later(tmp_path):
    folder = tmp_path / "r"

    def little_space() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    run = subprocess.run(
        command(*cases(*LINES), f"--results={folder}"),
        env=clean(PYTHONDONTWRITEBYTECODE="1"),
        preexec_fn=little_space,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 4 and "cannot be written" in run.stderr and "Traceback" not in run.stderr, (
        run.stderr
    )
    code, output = multihost(*cases(*LINES), f"--resume={folder}")
    assert code == 0 and verdicts(folder) == dict.fromkeys(LINES, "pass"), output


SMALL_DISK = """
mount -t tmpfs -o size=24k disk "$DISK" || exit 77
"$@" --results="$DISK/r"; echo "first: $?"
mount -o remount,size=8m "$DISK"
"$@" --resume="$DISK/r"; echo "second: $?"
cp "$DISK/r/results.jsonl" "$DISK.jsonl"
"""


@pytest.mark.long
def test_a_full_disk_that_is_enlarged(tmp_path):
    """A real file system of 24 KiB, mounted in a namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    run = subprocess.run(
        ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", *command(*cases(*LINES))],
        env=clean(DISK=str(disk)),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "first: 4" in run.stdout and "no space left" in run.stderr.lower(), run.stdout + run.stderr
    assert "second: 0" in run.stdout and "Traceback" not in run.stderr, run.stderr
    written = [
        json.loads(line)["case"]
        for line in Path(f"{disk}.jsonl").read_text().splitlines()
        if line[-1:] == "}"
    ]
    assert sorted(written) == sorted(LINES)


def test_ranks_of_a_cluster_stay_in_step_and_rank_0_merges_a_shared_folder(tmp_path):
    folder = tmp_path / "r"
    ranks = cluster(folder, *cases(*LINES))
    outputs = [ended(rank) for rank in ranks]
    assert [code for code, _ in outputs] == [0, 0], outputs
    assert verdicts(folder) == dict.fromkeys(LINES, "pass")
    for rank in (0, 1):
        assert json.loads((folder / "ranks" / f"{rank}.environment.json").read_text())["rank"] == rank


def test_journals_of_hosts_that_share_no_disk_are_merged(tmp_path):
    address = f"--coordinator_address=127.0.0.1:{free_port()}"
    common = (*cases(*LINES), "--cluster", address, "--num_processes=2", "--devices_per_process=2")
    ranks = [start(*common, f"--process_id={k}", f"--results={tmp_path / str(k)}") for k in (0, 1)]
    assert [ended(rank)[0] for rank in ranks] == [0, 0]
    code, output = multihost(
        f"--merge={tmp_path / '0'}", f"--merge={tmp_path / '1'}", f"--results={tmp_path / 'all'}"
    )
    assert code == 0 and verdicts(tmp_path / "all") == dict.fromkeys(LINES, "pass"), output
    code, output = multihost(f"--merge={tmp_path / '0'}", f"--results={tmp_path / 'half'}")
    assert code == 1 and "no journal of ranks 1" in output
    assert set(verdicts(tmp_path / "half").values()) == {"missing"}


def kill_a_rank(process: subprocess.Popen[str]) -> None:
    """SIGKILL for the rank itself: the grandchild of its supervisor."""
    rank = [pid for child in family(process.pid) for pid in family(child)]
    os.kill(rank[0], signal.SIGKILL)


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_cluster_goes_on_when_a_rank_is_killed(tmp_path, victim):
    folder = tmp_path / "r"
    ranks = cluster(folder, *cases(*LINES), "--deadline=12")
    wait_for_verdicts(folder / "ranks" / "0.jsonl", 8, ranks[0])
    kill_a_rank(ranks[victim])
    outputs = [ended(rank) for rank in ranks]
    found = verdicts(folder)
    assert set(found) == set(LINES), outputs
    assert set(found.values()) <= {
        "pass",
        "flaky",
    }  # killed between lines it costs nothing, inside one it is told
    assert {code for code, _ in outputs} == {int("flaky" in found.values())}


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_a_cluster_goes_on_when_a_supervisor_is_killed_and_started_again(tmp_path, victim):
    folder = tmp_path / "r"
    address = f"--coordinator_address=127.0.0.1:{free_port()}"
    common = (
        *cases(*LINES),
        "--cluster",
        address,
        "--num_processes=2",
        "--devices_per_process=2",
        "--deadline=12",
    )
    options = [(*common, f"--process_id={k}", f"--results={folder}") for k in (0, 1)]
    ranks = [start(*each) for each in options]
    wait_for_verdicts(folder / "ranks" / "0.jsonl", 8, ranks[0])
    ranks[victim].kill()
    ranks[victim].communicate()
    ranks[victim] = start(*options[victim])
    outputs = [ended(rank) for rank in ranks]
    assert [code for code, _ in outputs] == [0, 0], outputs
    assert verdicts(folder) == dict.fromkeys(LINES, "pass")


BAD_INPUT = {
    "one process": (("--processes=1",), "processes"),
    "unknown flag": (("--procesess=2",), "procesess"),
    "stray word": (("quick",), "every option starts with --"),
    "cluster without folder": (("--cluster",), "--cluster needs --results"),
    "merge without folder": (("--merge=x",), "--merge needs --results"),
    "merge of nothing": (("--merge=/nonexistent", "--results=/tmp/never"), "holds no ranks/K.jsonl"),
    "address alone": (("--cluster", "--results=/tmp/never", "--coordinator_address=a:1"), "--num_processes"),
    "no port": (
        ("--cluster", "--results=/tmp/never", "--coordinator_address=a", "--process_id=0"),
        "HOST:PORT",
    ),
    "rank too high": (
        (
            "--cluster",
            "--results=/tmp/never",
            "--coordinator_address=a:1",
            "--num_processes=2",
            "--process_id=2",
        ),
        "expected 0 to 1",
    ),
    "cluster option alone": (("--process_id=0",), "--process_id is about --cluster"),
    "malformed line": (("--case=vmap(i:2) > psm(i)",), "column 13"),
    "unknown backend": (("--backend=abacus",), "known: cpu"),
    "a compiler": (("--backend=aot:tpu:v5e:2x4",), "several processes need devices"),
    "nothing to resume": (("--resume=/nonexistent",), "/nonexistent"),
    "unwritable folder": (("--results=/proc/none",), "/proc/none"),
}


@pytest.mark.parametrize("options, says", BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_clear_line_and_a_usage_error(options, says):
    code, output = multihost(*options)
    assert code == 4 and says in output and "Traceback" not in output, output
