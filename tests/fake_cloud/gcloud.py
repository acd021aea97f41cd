"""A gcloud that keeps its cloud in a folder: resources as JSON, workers as folders, remote commands as real processes.

The folder is named by FAKE_GCLOUD. It refuses what the real parser refuses, answers in the real one's words, and has
trouble when `plan.json` says so, a list of entries that are used up one by one:

    {"when": REGULAR EXPRESSION FOR THE COMMAND LINE, "skip": HOW OFTEN IT GOES WELL FIRST, "times": HOW OFTEN, ...}

with one of: "error" (refused with that text), "later" (the same, but a creation is carried out so many seconds later), "late_error" (done, but answered with that text), "sleep" (seconds
before), "partial" (scp copies only so many bytes of the last file), "drop" (ssh breaks when so many verdicts
of the worker have come home), "state" (the first node goes into that state and everything on it is killed; with "drop", then), "gone"
(the same, and the node vanishes).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from parser import VERSION, Parsed, Refused, parse

WORLD = Path(os.environ["FAKE_GCLOUD"])
MARK = "FAKE_WORKER"
"""Variable of every process of a worker; its value is the worker's home."""


class Failed(Exception):
    """gcloud exits with 1 and says this."""


def main(words: list[str]) -> int:
    started = time.time()
    try:
        parsed = parse(words)
        code = act(parsed, " ".join(words))
    except Refused as error:
        print(f"ERROR: (gcloud) {error}", file=sys.stderr)
        code = 2
    except Failed as error:
        print(f"ERROR: (gcloud.{'.'.join(words[:4])}) {error}", file=sys.stderr)
        code = 1
    with (WORLD / "calls.jsonl").open("a") as file:
        file.write(json.dumps({"words": words, "exit": code, "start": started, "end": time.time()}) + "\n")
    return code


def act(parsed: Parsed, line: str) -> int:
    trouble = planned(line)
    if "sleep" in trouble:
        time.sleep(trouble["sleep"])
    if ("state" in trouble or "gone" in trouble) and "drop" not in trouble:
        strike(trouble)
    if "later" in trouble and os.fork() == 0:
        os.setsid()
        for stream in (0, 1, 2):
            os.close(stream)
        time.sleep(trouble["later"])
        vm_create(parsed, trouble)
        os._exit(0)
    if "error" in trouble:
        raise Failed(trouble["error"])
    surface, verb = parsed.command.split()[-2:]
    code = globals()[f"{'queue' if surface == 'queued-resources' else 'vm'}_{verb}"](parsed, trouble)
    if "late_error" in trouble:
        raise Failed(trouble["late_error"])
    return code or 0


# The state


@contextlib.contextmanager
def state() -> Iterator[dict[str, Any]]:
    """Everything there is; what the body changes is kept."""
    with (WORLD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = WORLD / "state.json"
        content = json.loads(path.read_text()) if path.exists() else {"nodes": {}, "queues": {}, "used": {}}
        yield content
        whole = path.with_suffix(".new")
        whole.write_text(json.dumps(content, indent=1))
        whole.replace(
            path
        )  # a command may be killed at any moment, and the cloud must not forget what it has


def settings() -> dict[str, Any]:
    path = WORLD / "settings.json"
    return {"workers": 1, "looks": 1, **(json.loads(path.read_text()) if path.exists() else {})}


def planned(line: str) -> dict[str, Any]:
    """The trouble that this command is to have."""
    path = WORLD / "plan.json"
    for number, entry in enumerate(json.loads(path.read_text()) if path.exists() else []):
        if re.search(entry["when"], line):
            with state() as now:
                count = now["used"].get(str(number), 0)
                now["used"][str(number)] = count + 1
            if entry.get("skip", 0) <= count < entry.get("skip", 0) + entry.get("times", 1):
                return entry
    return {}


def key(parsed: Parsed, name: str) -> str:
    return f"{parsed.flags.get('--project', 'default')}/{parsed.flags['--zone']}/{name}"


def strike(trouble: dict[str, Any]) -> None:
    """Takes the first node away, with all that runs on it."""
    with state() as now:
        for name, node in list(now["nodes"].items())[:1]:
            kill_all(name)
            node["state"] = trouble.get("state", "")
            for queue in now["queues"].values():
                queue["state"] = "SUSPENDED"
            if "gone" in trouble:
                del now["nodes"][name]


def home(name: str, worker: int) -> Path:
    return WORLD / "workers" / name.replace("/", "+") / str(worker)


def kill_all(name: str) -> None:
    """Ends every process of a node's workers."""
    mark = f"{MARK}={WORLD / 'workers' / name.replace('/', '+')}/".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


# TPU VMs


def make_node(now: dict[str, Any], name: str, parsed: Parsed, labels: dict[str, str], **more: Any) -> None:
    now["nodes"][name] = {
        "name": "projects/{}/locations/{}/nodes/{}".format(*name.split("/")),
        "state": "CREATING",
        "health": "HEALTHY",
        "looks": settings()["looks"],
        "labels": labels,
        "acceleratorType": parsed.flags.get("--accelerator-type", ""),
        "networkEndpoints": [{"ipAddress": "127.0.0.1", "port": 8470}] * settings()["workers"],
        **more,
    }
    for worker in range(settings()["workers"]):
        home(name, worker).mkdir(parents=True)


def labels_of(parsed: Parsed) -> dict[str, str]:
    labels = dict(pair.split("=", 1) for pair in parsed.flags.get("--labels", "").split(",") if pair)
    for word in (*labels, *labels.values()):
        if not re.fullmatch(r"[a-z0-9_-]{0,63}", word):
            raise Failed(f"INVALID_ARGUMENT: label {word!r}")
    return labels


def vm_create(parsed: Parsed, trouble: dict[str, Any]) -> None:
    name = key(parsed, parsed.words[0])
    with state() as now:
        if name in now["nodes"]:
            raise Failed("ALREADY_EXISTS: Resource already exists")
        make_node(now, name, parsed, labels_of(parsed))
    if "later" not in trouble:
        print(f"Created tpu [{parsed.words[0]}].", file=sys.stderr)


def look(found: dict[str, Any], ready: str) -> None:
    """Each look brings a resource nearer to being ready."""
    if found["state"] in ("CREATING", "ACCEPTED", "PROVISIONING"):
        found["looks"] -= 1
        if found["looks"] < 0:
            found["state"] = ready


def vm_describe(parsed: Parsed, trouble: dict[str, Any]) -> None:
    with state() as now:
        node = now["nodes"].get(key(parsed, parsed.words[0]))
        if node is None:
            raise Failed("NOT_FOUND: Resource not found")
        look(node, "READY")
    shown(parsed, node)


def shown(parsed: Parsed, content: Any) -> None:
    if parsed.flags.get("--format") != "json":
        raise Failed("the fake prints JSON only")
    print(json.dumps(content))


def vm_list(parsed: Parsed, trouble: dict[str, Any]) -> None:
    with state() as now:
        shown(parsed, [node for name, node in now["nodes"].items() if name.startswith(key(parsed, ""))])


def vm_delete(parsed: Parsed, trouble: dict[str, Any]) -> None:
    name = key(parsed, parsed.words[0])
    with state() as now:
        if now["nodes"].pop(name, None) is None:
            raise Failed("NOT_FOUND: Resource not found")
    kill_all(name)
    shutil.rmtree(home(name, 0).parent, ignore_errors=True)
    print(f"Deleted tpu [{parsed.words[0]}].", file=sys.stderr)


# Queued resources


def queue_create(parsed: Parsed, trouble: dict[str, Any]) -> None:
    name = key(parsed, parsed.words[0])
    count = int(parsed.flags.get("--node-count", "1"))
    if "--node-count" in parsed.flags and count < 2:
        raise Failed("Invalid value for [--node-count]: Node count must be greater than 1")
    until = parsed.flags.get("--valid-until-duration")
    if until is not None and not re.fullmatch(r"\d+[smhd]", until):
        raise Failed(f"Failed to parse duration: {until}")
    nodes = [parsed.flags["--node-id"]] if "--node-id" in parsed.flags else []
    prefix = parsed.flags.get("--node-prefix", parsed.words[0])
    nodes = nodes or [f"{prefix}-{number}" for number in range(count)]
    with state() as now:
        if name in now["queues"]:
            raise Failed("ALREADY_EXISTS: Resource already exists")
        now["queues"][name] = {
            "name": "projects/{}/locations/{}/queuedResources/{}".format(*name.split("/")),
            "state": settings().get("queue_state", "ACCEPTED"),
            "reason": settings().get("queue_reason", ""),
            "looks": settings()["looks"],
            "labels": labels_of(parsed),
            "nodes": [key(parsed, node) for node in nodes],
        }
        now["queues"][name]["flags"] = parsed.flags


def queue_describe(parsed: Parsed, trouble: dict[str, Any]) -> None:
    with state() as now:
        queue = now["queues"].get(key(parsed, parsed.words[0]))
        if queue is None:
            raise Failed("NOT_FOUND: Resource not found")
        before = queue["state"]
        look(queue, "ACTIVE")
        if queue["state"] == "ACTIVE" != before:
            for node in queue["nodes"]:
                made = Parsed(parsed.command, queue["flags"], [])
                make_node(now, node, made, queue["labels"], state="READY", queuedResource=queue["name"])
    shown(parsed, queue_content(queue))


def queue_content(queue: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"state": queue["state"]}
    if queue["reason"]:
        told["failedData"] = {"error": {"code": 8, "message": queue["reason"]}}
    specs = [{"nodeId": node.split("/")[2], "node": {"labels": queue["labels"]}} for node in queue["nodes"]]
    return {"name": queue["name"], "state": told, "tpu": {"nodeSpec": specs}}


def queue_list(parsed: Parsed, trouble: dict[str, Any]) -> None:
    with state() as now:
        queues = [queue for name, queue in now["queues"].items() if name.startswith(key(parsed, ""))]
    shown(parsed, [queue_content(queue) for queue in queues])


def queue_delete(parsed: Parsed, trouble: dict[str, Any]) -> None:
    name = key(parsed, parsed.words[0])
    with state() as now:
        queue = now["queues"].get(name)
        if queue is None:
            raise Failed("NOT_FOUND: Resource not found")
        nodes = [node for node in queue["nodes"] if node in now["nodes"]]
        if nodes and "--force" not in parsed.flags:
            raise Failed("FAILED_PRECONDITION: the queued resource has nodes; use --force")
        for node in nodes:
            del now["nodes"][node]
        del now["queues"][name]
    for node in nodes:
        kill_all(node)
        shutil.rmtree(home(node, 0).parent, ignore_errors=True)


# Connections


def reach(parsed: Parsed, node: str) -> Path:
    """The home of the one worker that is meant; fails as gcloud does where the node cannot be connected to."""
    name = key(parsed, node)
    with state() as now:
        found = now["nodes"].get(name)
    if found is None:
        raise Failed("NOT_FOUND: Resource not found")
    if found["state"] in ("PREEMPTED", "TERMINATED"):
        raise Failed(f'This TPU has terminal state "{found["state"]}", so it cannot be used anymore.')
    worker = parsed.flags.get("--worker", "0")
    if not worker.isdigit():
        raise Failed("the fake connects to one worker at a time")
    if int(worker) >= len(found["networkEndpoints"]):
        raise Failed(
            f"Invalid value for [--worker]: worker index {worker} is larger than the valid worker indexes"
        )
    print(
        "Using ssh batch size of 1. Attempting to SSH into 1 nodes with a total of 1 workers.",
        file=sys.stderr,
    )
    return home(name, int(worker))


def vm_ssh(parsed: Parsed, trouble: dict[str, Any]) -> int:
    place = reach(parsed, parsed.words[0])
    print(
        f"SSH: Attempting to connect to worker {parsed.flags.get('--worker', '0')}...",
        file=sys.stderr,
        flush=True,
    )
    kept = {
        name: os.environ[name]
        for name in ("PATH", "LANG", "FAKE_SUITE", "PYTHONDONTWRITEBYTECODE")
        if name in os.environ
    }
    process = subprocess.Popen(
        ["bash", "-c", parsed.flags["--command"]],
        cwd=place,
        env={**kept, "HOME": str(place), MARK: str(place)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None and verdicts(place) < trouble.get("drop", 1e9):
        time.sleep(0.02)
    if process.poll() is not None:
        return process.returncode
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if "state" in trouble or "gone" in trouble:
        strike(trouble)
    raise Failed("[/usr/bin/ssh] exited with return code [255].")


def verdicts(place: Path) -> int:
    """How many lines of a worker's journals have come home."""
    mirror = f"attempt-*/{place.parent.name.rpartition('+')[2]}-{place.name}"
    journals = Path(os.environ["FAKE_HOME"]).glob(f"{mirror}/results/**/*.jsonl")
    return sum(path.read_bytes().count(b"\n") for path in journals)


def vm_scp(parsed: Parsed, trouble: dict[str, Any]) -> None:
    *sources, target = parsed.words
    if ":" in target:
        node, _, path = target.partition(":")
        folder = reach(parsed, node) / path
        if not folder.is_dir():
            raise Failed(
                f"scp: {path}: No such file or directory; [/usr/bin/scp] exited with return code [1]."
            )
        pairs = [(Path(source), folder / Path(source).name) for source in sources]
    else:
        node, _, path = sources[0].partition(":")
        pairs = [(reach(parsed, node) / path, Path(target))]
    for number, (source, place) in enumerate(pairs):
        data = source.read_bytes()
        last = number == len(pairs) - 1
        place.write_bytes(data[: trouble["partial"]] if last and "partial" in trouble else data)


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"Google Cloud SDK {VERSION} (fake)")
        sys.exit(0)
    sys.exit(main(sys.argv[1:]))
