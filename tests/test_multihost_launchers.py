"""The suite under real launchers on this machine: Open MPI, Hydra, Slurm as one node and as two, and network namespaces.

Missing launchers are installed where apt-get can do it; all traffic stays on loopback or in the namespaces.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import journal

ROOT = Path(__file__).resolve().parent.parent
RUN = str(ROOT / "scripts" / "run_multihost")
LINES = (
    "jit > shard_map(i:4) > psum(i)",
    "shard_map(i:2, j:2, in=i.j) > jit > all_gather(j)",
    "probe(world)",
)
OPTIONS = ("--cluster", "--backend=cpu", *(f"--case={line}" for line in LINES))

pytest.importorskip("jax", reason="ranks run JAX")
pytestmark = pytest.mark.long


def need(program: str, *packages: str) -> str:
    """The program's path, installed where it is missing and this can be done; else the test is skipped and says so."""
    if shutil.which(program) is None and shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update"], capture_output=True)
        install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
        subprocess.run(install, capture_output=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (packages: {' '.join(packages)})")
    return found


def clean(**variables: str) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "JAX_", "XLA_", "RANK_", "SLURM"))
    }
    return {**kept, **variables}


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=clean(**variables), capture_output=True, text=True, timeout=300, cwd=ROOT
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def passed(folder: Path, count: int) -> None:
    assert {result["case"]: result["verdict"] for result in journal.read(folder)} == dict.fromkeys(
        LINES, "pass"
    )
    assert sorted(int(path.stem) for path in (folder / "ranks").glob("*.jsonl")) == list(range(count))


@pytest.mark.parametrize("ranks", [2, 4])
def test_open_mpi_finds_the_cluster_by_itself(tmp_path, ranks):
    program = need("mpirun.openmpi", "openmpi-bin")
    options = ("-n", str(ranks), "--oversubscribe", "--allow-run-as-root")
    done = run(
        program,
        *options,
        sys.executable,
        RUN,
        *OPTIONS,
        f"--devices_per_process={4 // ranks}",
        f"--results={tmp_path}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed(tmp_path, ranks)


def test_hydra_is_told_the_address_and_tells_the_rest(tmp_path):
    program = need("mpiexec.hydra", "hydra")
    address = f"--coordinator_address=127.0.0.1:{free_port()}"
    command = (sys.executable, RUN, *OPTIONS, "--devices_per_process=2", f"--results={tmp_path}")
    without = run(program, "-n", "2", *command)
    assert (
        without.returncode != 0 and "give --coordinator_address=HOST:PORT" in without.stderr + without.stdout
    )
    done = run(program, "-n", "2", *command, address)
    assert done.returncode == 0, done.stdout + done.stderr
    passed(tmp_path, 2)


def test_an_unexpected_verdict_is_the_job_s_exit_code(tmp_path):
    program = need("mpiexec.hydra", "hydra")
    bad = "jit > vmap(j:4, spmd) > shard_map(i:2, check=off, other=2) > psum(j)"  # wrong in JAX, and so expected
    address = f"--coordinator_address=127.0.0.1:{free_port()}"
    options = (
        "--cluster",
        "--backend=cpu",
        f"--case={bad}",
        "--devices_per_process=2",
        f"--results={tmp_path / 'r'}",
    )
    (tmp_path / "none").mkdir()
    done = run(
        program, "-n", "2", sys.executable, RUN, *options, address, f"--expectations={tmp_path / 'none'}"
    )
    assert done.returncode == 1, done.stdout + done.stderr


# Slurm

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={control}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=p Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


@pytest.fixture
def slurm(request, tmp_path_factory) -> Iterator[dict[str, str]]:
    """A Slurm of this test's own, of so many nodes, all on this machine; the variables its commands need."""
    for program, package in (
        ("slurmctld", "slurmctld"),
        ("slurmd", "slurmd"),
        ("srun", "slurm-client"),
        ("munged", "munge"),
    ):
        need(program, "slurm-wlm", package)
    folder, host, cpus = tmp_path_factory.mktemp("slurm"), socket.gethostname(), os.cpu_count()
    names = [host] if request.param == 1 else [f"n{k}" for k in range(1, request.param + 1)]
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs={cpus} State=UNKNOWN"
        for name in names
    )
    (folder / "state").mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=host,
            folder=folder,
            user=getpass.getuser(),
            control=free_port(),
            daemon=free_port(),
            nodes=nodes,
            names=",".join(names),
        )
    )
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    files = [
        f"--{name}={folder}/munge.{end}"
        for name, end in (("socket", "sock"), ("pid-file", "pid"), ("log-file", "log"))
    ]
    variables = {"SLURM_CONF": str(configuration)}
    commands = [
        ["munged", "--force", "--foreground", f"--key-file={key}", f"--seed-file={folder}/seed", *files],
        ["slurmctld", "-i", "-D"],
        *(["slurmd", "-D", "-N", name] for name in names),
    ]
    daemons = []
    with (folder / "daemons.log").open("w") as log:
        for command in commands:
            daemons.append(subprocess.Popen(command, env=clean(**variables), stdout=log, stderr=log))
            time.sleep(0.5)  # munged before those that need it
    try:
        _wait_for_nodes(len(names), variables, folder)
        yield {**variables, "NODES": str(len(names))}
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
            daemon.wait()
        _end_steps(configuration)


def _end_steps(configuration: Path) -> None:
    """Slurm's step managers outlive their daemon; they are known by the configuration they were started with."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLURM_CONF={configuration}\0".encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            continue


def _wait_for_nodes(count: int, variables: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = run("sinfo", "-h", "-N", "-o", "%t", **variables).stdout.split()
        if found.count("idle") == count:
            return
        time.sleep(0.5)
    pytest.fail("Slurm did not come up: " + (folder / "daemons.log").read_text()[-2000:])


@pytest.mark.parametrize("slurm", [1], indirect=True)
def test_slurm_on_one_node_finds_the_cluster_by_itself(tmp_path, slurm):
    command = (sys.executable, RUN, *OPTIONS, "--devices_per_process=2", f"--results={tmp_path}")
    done = run("srun", "-n", "2", "--overcommit", *command, **slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    passed(tmp_path, 2)


@pytest.mark.parametrize("slurm", [2], indirect=True)
def test_slurm_on_two_nodes(tmp_path, slurm):
    address = f"--coordinator_address=127.0.0.1:{free_port()}"  # the nodes' names are none that resolve
    command = (sys.executable, RUN, *OPTIONS, address, "--devices_per_process=1", f"--results={tmp_path}")
    done = run("srun", "-N", "2", "-n", "4", "--overcommit", *command, **slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    passed(tmp_path, 4)


@pytest.mark.parametrize("slurm", [1], indirect=True)
def test_the_sbatch_script(tmp_path, slurm):
    script = str(ROOT / "configs" / "launch" / "slurm.sbatch")
    options = ("--wait", "--nodes=1", "--ntasks-per-node=2", "--overcommit", f"--output={tmp_path / 'log'}")
    own = {"PYTHON": sys.executable, "BACKEND": "cpu", "PROFILE": "quick", "RESULTS": str(tmp_path / "r")}
    lines = [f"--case={line}" for line in LINES]
    done = run("sbatch", *options, script, *lines, "--devices_per_process=2", **slurm, **own)
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "log").read_text()
    passed(tmp_path / "r", 2)


# Network namespaces as hosts

HOST = """
hostname {name}; mount --bind {folder}/hosts /etc/hosts; exec {command}
"""


@pytest.fixture
def hosts(tmp_path) -> Iterator[list[tuple[str, str]]]:
    """Two namespaces joined by a wire that touches no other: (name, address) of each."""
    need("ip", "iproute2")
    mark = secrets.token_hex(2)
    names = [(f"ax{mark}{letter}", f"192.0.2.{k}") for k, letter in ((1, "a"), (2, "b"))]
    (tmp_path / "hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in names)
    )
    steps = [f"netns add {name}" for name, _ in names]
    steps.append(f"link add v{mark}a netns {names[0][0]} type veth peer name v{mark}b netns {names[1][0]}")
    for (name, address), wire in zip(names, (f"v{mark}a", f"v{mark}b")):
        steps += [
            f"-n {name} addr add {address}/24 dev {wire}",
            f"-n {name} link set {wire} up",
            f"-n {name} link set lo up",
        ]
    try:
        for step in steps:
            done = subprocess.run(["ip", *step.split()], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no network namespaces here: ip {step}: {done.stderr.strip()}")
        yield names
    finally:
        for name, _ in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def on_hosts(names: list[tuple[str, str]], tmp_path: Path, *options: str) -> list[subprocess.Popen[str]]:
    """The ranks, each on its host with a results folder of its own."""
    started = []
    for rank, (name, _) in enumerate(names):
        words = (
            *(
                "--cluster",
                "--backend=cpu",
                "--devices_per_process=2",
                "--num_processes=2",
                f"--process_id={rank}",
            ),
            *(f"--coordinator_address={names[0][1]}:24000", f"--results={tmp_path / name}", *options),
        )
        command = " ".join([sys.executable, RUN, *(f"'{word}'" for word in words)])
        script = HOST.format(name=name, folder=tmp_path, command=command)
        started.append(
            subprocess.Popen(
                ["ip", "netns", "exec", name, "unshare", "-u", "-m", "sh", "-c", script],
                env=clean(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return started


def test_two_hosts_that_share_nothing_but_a_wire(tmp_path, hosts):
    ranks = on_hosts(hosts, tmp_path, *(f"--case={line}" for line in LINES))
    outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    folders = [f"--merge={tmp_path / name}" for name, _ in hosts]
    done = run(sys.executable, RUN, *folders, f"--results={tmp_path / 'merged'}")
    assert done.returncode == 0, done.stdout + done.stderr
    merged = json.loads((tmp_path / "merged" / journal.ENVIRONMENT).read_text())
    assert merged["hosts"] == {str(rank): name for rank, (name, _) in enumerate(hosts)}
    found = {result["case"]: result["verdict"] for result in journal.read(tmp_path / "merged")}
    assert found == dict.fromkeys(LINES, "pass")


def test_a_wire_that_is_cut_and_mended(tmp_path, hosts):
    lines = [
        f"jit > shard_map(i:4) > {leaf}(i) | shape={n}"
        for n in range(4, 24)
        for leaf in ("psum", "all_gather")
    ]
    ranks = on_hosts(hosts, tmp_path, *(f"--case={line}" for line in lines), "--deadline=20")
    name = hosts[1][0]
    path = tmp_path / name / "ranks" / "1.jsonl"
    while not path.exists() or len(path.read_text().splitlines()) < 12:
        assert ranks[1].poll() is None, ranks[1].communicate()[0]
        time.sleep(0.02)
    wire = subprocess.run(["ip", "-n", name, "-o", "link"], capture_output=True, text=True).stdout
    wire = next(
        line.split(": ")[1].split("@")[0] for line in wire.splitlines() if "veth" in line or ": v" in line
    )
    subprocess.run(["ip", "-n", name, "link", "set", wire, "down"], check=True)
    time.sleep(15)
    subprocess.run(["ip", "-n", name, "link", "set", wire, "up"], check=True)
    outputs = [rank.communicate(timeout=400)[0] for rank in ranks]
    folders = [f"--merge={tmp_path / name}" for name, _ in hosts]
    done = run(sys.executable, RUN, *folders, f"--results={tmp_path / 'merged'}")
    found = {result["case"]: result["verdict"] for result in journal.read(tmp_path / "merged")}
    assert set(found) == set(lines), (outputs, done.stdout)
    bad = {case: verdict for case, verdict in found.items() if verdict != "pass"}
    assert len(bad) <= 1 and set(bad.values()) <= {"flaky", "fail", "hang", "crash"}, bad
