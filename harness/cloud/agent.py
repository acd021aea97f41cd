"""What runs on a worker: unpacks and installs, starts the suite apart from the connection, tells how it goes.

    python3 agent.py prepare     checks and unpacks what was copied, and makes the environment
    python3 agent.py start       starts the suite in the background, once, however often it is asked
    python3 agent.py follow '{"log.txt": 120}'    sends what files have beyond these sizes, until the suite ends
    python3 agent.py pack        makes results.tar.gz and prints its SHA-256
    python3 agent.py stop        kills the suite with everything it started
    python3 agent.py remove      removes everything again

A program for Python 3.8 and later with nothing but the standard library, since it runs on the image's own Python. The
folder it lies in is its own; `spec.json` there says what to do (see `harness.cloud.fleet`).
"""

# ruff: noqa: UP006, UP035
from __future__ import annotations

import base64
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Dict, List, Tuple

HERE = Path(__file__).resolve().parent
OLDEST = (3, 11)
LOG, STATUS, PID, RESULTS, EXPECTATIONS = "log.txt", "status.jsonl", "pid", "results", "expectations"
STREAMED = (LOG, STATUS, RESULTS + "/**/*.jsonl", RESULTS + "/**/*environment.json")
MARK = "@@ "
"""Starts each line that is meant for the other side; other lines are banners and noise."""
BLOCK = 1 << 18
TICK = 0.5
HEARTBEAT = 15.0


def main() -> int:
    os.chdir(str(HERE))
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    verbs = {"prepare": prepare, "start": start, "run": run, "pack": pack, "stop": stop, "remove": remove}
    if verb == "follow":
        return follow(json.loads(sys.argv[2]))
    if verb not in verbs:
        print(__doc__)
        return 2
    return verbs[verb]()


def spec() -> Dict:
    return json.loads(Path("spec.json").read_text(encoding="utf-8"))


# Preparing


def prepare() -> int:
    """Ends with a frame that says how it went: a program that was cut off on the way would end without a word too."""
    try:
        torn = [name for name, wanted in spec()["files"].items() if not is_whole(Path(name), wanted)]
    except ValueError:
        torn = ["spec.json"]
    if torn:
        frame({"prepared": False, "torn": torn})
        return 0
    Path(RESULTS).mkdir(exist_ok=True)
    unpack("source.tar.gz", Path("source"))
    for archive, folder in (("resume.tar.gz", RESULTS), (EXPECTATIONS + ".tar.gz", EXPECTATIONS)):
        if Path(archive).exists():
            unpack(archive, Path(folder))
    trouble = "" if spec()["worker_python"] else install()
    frame({"prepared": not trouble, "trouble": trouble})
    return 0


def is_whole(path: Path, wanted: str) -> bool:
    return path.exists() and sha256(path) == wanted


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def unpack(archive: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with tarfile.open(archive) as file:
        if hasattr(tarfile, "data_filter"):
            file.extractall(str(folder), filter="data")
        else:
            file.extractall(str(folder))


def install() -> str:
    """Makes the environment and installs into it what the spec names, in its order; what went wrong, or ""."""
    try:
        if not Path("env/bin/python").exists():
            make_environment(spec()["python"])
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no Python environment could be made: {error}"
    pip = ["env/bin/python", "-m", "pip", "--disable-pip-version-check"]
    for requirements in spec()["install"]:
        command = [*pip, "install", "--progress-bar=off", *requirements]
        print("$ " + " ".join(command), flush=True)
        done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
        sys.stdout.buffer.write(done.stderr)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            return " ".join(["pip install " + " ".join(requirements) + ":", *said[-2:]])
    subprocess.call([*pip, "freeze"])
    return ""


def make_environment(wanted: str) -> None:
    """An environment with the newest Python of the image that the suite can use; where there is none, one that uv brings."""
    system = ["--system-site-packages"] if spec()["image_packages"] else []
    for python in image_pythons():
        print("Python of the image: " + python, flush=True)
        if subprocess.call([python, "-m", "venv", *system, "env"]) == 0:
            return
        shutil.rmtree("env", ignore_errors=True)  # Debian's Python without its venv package
    print("Python " + wanted + " by uv: the image has none of 3.11 or later", flush=True)
    subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", "--target=uv", "uv"])
    subprocess.check_call(["uv/bin/uv", "venv", "--quiet", "--seed", "--python", wanted, *system, "env"])


def image_pythons() -> List[str]:
    """Interpreters on the PATH that are new enough, the newest first."""
    found: Dict[Tuple[int, ...], str] = {}
    names = ["python3." + str(minor) for minor in range(OLDEST[1], 20)] + ["python3", sys.executable]
    for path in filter(None, map(shutil.which, names)):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run(
            [path, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
        )
        match = re.match(rb"(\d+)\.(\d+)", done.stdout)
        if done.returncode == 0 and match and (int(match[1]), int(match[2])) >= OLDEST:
            found[(int(match[1]), int(match[2]))] = path
    return [found[version] for version in sorted(found, reverse=True)]


# Running


def start() -> int:
    """Starts `run` in a session of its own, which outlives the connection; a second call finds it started."""
    with open("start.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if Path(PID).exists():
            print("already started")
            return 0
        with open(LOG, "ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "agent.py"), "run"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                close_fds=True,
            )
        Path(PID).write_text(str(process.pid))
    print("started")
    return 0


def run() -> int:
    """Runs the steps one after the other; one that ends with neither 0 nor 1 is the last."""
    python = str(Path(spec()["worker_python"] or HERE / "env" / "bin" / "python"))
    for step in spec()["steps"]:
        command = [word.format(python=python, chips=chips()) for word in step["argv"]]
        print("$ " + " ".join(command), flush=True)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **step["environment"]}
        try:
            code = subprocess.call(command, cwd="source", env=environment, stdin=subprocess.DEVNULL)
        except OSError as error:
            print(error, flush=True)
            code = 127
        told({"step": step["name"], "exit": code})
        if code not in (0, 1):
            break
    told({"done": True})
    return 0


def told(status: Dict) -> None:
    with open(STATUS, "a") as file:
        file.write(json.dumps(status) + "\n")


def chips() -> int:
    """TPU chips of this host: as many as were asked for, or the device files there are; at least one."""
    return spec()["chips"] or len(glob.glob("/dev/accel*")) or len(glob.glob("/dev/vfio/[0-9]*")) or 1


def ended() -> bool:
    """Whether the suite ended: it said so, or its process is gone."""
    if Path(STATUS).exists() and '"done"' in Path(STATUS).read_text():
        return True
    return Path(PID).exists() and not alive(int(Path(PID).read_text()))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return state[0] != "Z"


# Telling


def follow(known: Dict[str, int]) -> int:
    """Sends what the streamed files have beyond the known sizes, until the suite has ended.

    A growing file is sent in pieces with their place, so that nothing is lost or doubled when the connection is made
    anew. A small file that is rewritten (JSON) is sent whole each time it has changed.
    """
    seen: Dict[str, Tuple[int, int]] = {}
    last = time.monotonic()
    while True:
        over = ended()  # asked first: what is written before the end is then sent below
        sent = sum(send(path, known, seen) for path in streamed())
        if sent or time.monotonic() - last > HEARTBEAT:
            frame({"beat": int(time.time())})
            last = time.monotonic()
        if over and not sent:
            frame({"ended": True})
            return 0
        if not sent:
            time.sleep(TICK)


def streamed() -> List[str]:
    return sorted({path for pattern in STREAMED for path in glob.glob(pattern, recursive=True)})


def send(path: str, known: Dict[str, int], seen: Dict[str, Tuple[int, int]]) -> int:
    """Sends what is new in a file; how many bytes that was."""
    stat = os.stat(path)
    whole = path.endswith(".json")
    at = 0 if whole else known.get(path, 0)
    if (whole and seen.get(path) == (stat.st_mtime_ns, stat.st_size)) or (not whole and stat.st_size <= at):
        return 0
    seen[path] = (stat.st_mtime_ns, stat.st_size)
    with open(path, "rb") as file:
        file.seek(at)
        data = file.read() if whole else file.read(BLOCK)
    frame({"file": path, "at": at, "whole": whole, "data": base64.b64encode(data).decode()})
    known[path] = at + len(data)
    return len(data)


def frame(content: Dict) -> None:
    print(MARK + json.dumps(content), flush=True)


def pack() -> int:
    """Makes one archive of the results and the log."""
    with tarfile.open("results.tar.gz", "w:gz") as archive:
        for name in (RESULTS, LOG, STATUS):
            if Path(name).exists():
                archive.add(name)
    frame({"sha256": sha256(Path("results.tar.gz"))})
    return 0


def stop() -> int:
    """Kills the suite: TERM does not end processes of jax.distributed."""
    if Path(PID).exists():
        pid = int(Path(PID).read_text())
        for victim in descendants(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
    return 0


def descendants(root: int) -> List[int]:
    """A process, all that descend from it whatever sessions they made for themselves, and the orphans of its session."""
    parents: Dict[int, List[int]] = {}
    waiting = [root]
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = Path(path).read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.split("/")[2])
        parents.setdefault(int(fields[1]), []).append(pid)
        if int(fields[3]) == root:
            waiting.append(pid)
    found = set()
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += parents.get(pid, [])
    return sorted(found)


def remove() -> int:
    stop()
    shutil.rmtree(str(HERE), ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
