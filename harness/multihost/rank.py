"""One rank: joins the others, then checks lines together with them. `python -m harness.multihost.rank SOCKET_FD`.

Requests, each answered by one JSON line (see `harness.worker`):

    {"join": {"coordinator_address": "127.0.0.1:4711", "num_processes": 2, "process_id": 1, ...}, "stage": PATH}
    {"tell": ANYTHING, "seconds": S}      what the supervisors have to say to each other: answered with all of it
    {"line": LINE, "seconds": S}          checks a line; all ranks are asked the same
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import worker
from harness.multihost.channel import Channel, Texts
from harness.session import RUNNER_LINES

SAME_FACTS = (
    "jax",
    "jaxlib",
    "numpy",
    "python",
    "backend",
    "platform_version",
    "device_kind",
    "device_count",
    "process_count",
    "devices",
    "flags",
    "suite",
)
"""What must be the same in every rank for it to be one run."""
DIGESTS_UP_TO = 64
"""Ranks up to which digests of results are compared at once; with more of them they are when journals are merged."""


class Rank:
    """The state of one rank's process."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.stages = 0
        self.stage_file: int | None = None
        self.lines = self.tells = 0
        self.digests: dict[str, dict[str, str]] = {}

    def handle(self, request: dict[str, Any]) -> Any:
        if "join" in request:
            return self.join(request)
        if "tell" in request:
            return self.tell(request)
        return self.check(request["line"], request["seconds"])

    # Meeting

    def join(self, request: dict[str, Any]) -> dict[str, Any]:
        """Joins the others and compares what each sees; `differ` names those that see something else.

        `refused` says why JAX did not let this process join.
        """
        self.stage_file = os.open(request["stage"], os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            return self._joined(request)
        except Exception as error:  # of JAX, of its backend, or of a peer that went while this one came
            return {"refused": f"{type(error).__name__}: {error}"}

    def _joined(self, request: dict[str, Any]) -> dict[str, Any]:
        from harness import compat
        from harness.multihost.agreement import Agreement

        self.stage("joining")
        compat.limit_collectives(request["collective_seconds"])
        compat.join_processes(**request["join"])
        import jax

        self.stage("starting the backend")
        seen = _seen()
        client = compat.coordination_client()
        if client is None or jax.process_count() == 1:
            return {"facts": seen, "rank": 0, "count": 1, "differ": []}
        self.channel = Channel(client, jax.process_index(), jax.process_count())
        self.agreement = Agreement(self.channel, self.stage)
        self.stage("comparing what every rank sees")
        decision = self.channel.exchange("world", json.dumps(seen), _compare, request["seconds"])
        return {"facts": seen, "rank": self.channel.rank, "count": self.channel.count, **decision}

    def tell(self, request: dict[str, Any]) -> dict[str, Any]:
        """What every supervisor had to say, by rank."""
        assert self.channel is not None
        self.stage("telling what was decided before")
        self.tells += 1
        text = json.dumps(request["tell"])

        def all_said(said: Texts) -> dict[str, Any]:
            return {"told": {rank: json.loads(each) for rank, each in said.items()}}

        try:
            return self.channel.exchange(
                f"tell/{self.tells}", text, all_said, request["seconds"], last=lambda decision: True
            )
        except TimeoutError:
            return {"told": {}, "missing": [0]}

    def stage(self, text: str) -> None:
        """Notes how far this rank has come where its supervisor finds it after any death."""
        self.stages += 1
        if self.stage_file is not None:
            os.pwrite(self.stage_file, json.dumps([self.stages, text]).ljust(200).encode()[:200], 0)

    # Checking

    def check(self, line: str, seconds: float) -> dict[str, Any]:
        """This rank's answer about a line, and the merged results of all ranks' under `merged`."""
        assert self.channel is not None
        self.lines += 1
        topic = f"line/{self.lines}"
        self.stage("meeting for the line")
        self.digests = {}
        try:
            start = self.channel.exchange(f"{topic}/start", _hash(line), _same, seconds)
        except TimeoutError:
            start = {"missing": [0], "differ": []}
        if start["missing"] or start["differ"]:
            answer = self.answer(_refused(line, start))
            return {**answer, "merged": None}
        self.agreement.begin(topic, seconds)
        defect = ""
        try:
            results = self.results(line)
        except Exception:
            results, defect = [], traceback.format_exc()
        self.agreement.end()
        answer = self.answer(results)
        self.stage("telling the verdict")
        patience = 5.0 if _lost(results) else seconds
        said = json.dumps({"defect": defect, **_summary(answer, self.channel.count)})
        try:
            decision = self.channel.exchange(
                f"{topic}/end", said, self._merge, patience, last=self._may_be_last
            )
        except TimeoutError:
            return {**answer, "merged": None}
        if decision["defect"]:
            raise RuntimeError(decision["defect"])
        return {**answer, "merged": None if decision["missing"] else decision["merged"]}

    def results(self, line: str) -> list[dict[str, Any]]:
        """This rank's own results."""
        from harness import check
        from harness.verdicts import Kind, Verdict

        way = dataclasses.replace(check.here(self.watch), apart=False)
        results = check.check_line(line, way)
        broken = self.agreement.broken
        if broken:
            assert self.channel is not None
            for result in results:
                at_fault = self.channel.rank in broken["differ"]
                result |= {"verdict": Verdict.FAIL, "kind": Kind.DISAGREE, "rule": "process.agree"}
                result |= {"message": broken["message"], "victim": not at_fault}
        return results

    def watch(self, step: int, seen: Any) -> None:
        """Notes the step, and digests of the parts of its outputs that this process holds."""
        if seen is None:
            self.stage(f"running step {step}")
            return
        for key, output in seen.outputs.items():
            parts = {_region(shard.index, output.shape): _digest(shard.data) for shard in output.shards}
            if parts:
                self.digests[f"{step}/{key}"] = parts

    def answer(self, results: list[dict[str, Any]]) -> dict[str, Any]:
        assert self.channel is not None
        return {
            "rank": self.channel.rank,
            "host": socket.gethostname(),
            "results": results,
            "state": "answered",
            "progress": self.stages,
            "at": "",
            "stopped": False,
            "digests": self.digests,
        }

    def _may_be_last(self, decision: Mapping[str, Any]) -> bool:
        """Whether the supervisors may end the group after this line: a failure, or enough lines."""
        from harness.multihost.merge import BAD

        failed = any(result["verdict"] in BAD for result in decision["merged"] or ())
        return failed or decision["merged"] is None or self.lines % RUNNER_LINES == 0

    def _merge(self, texts: Texts) -> dict[str, Any]:
        from harness.multihost.merge import merge

        said = {rank: json.loads(text) for rank, text in texts.items()}
        defects = [f"rank {rank}: {answer['defect']}" for rank, answer in said.items() if answer["defect"]]
        if defects or len(said) < self.channel.count:  # type: ignore[union-attr]
            return {"defect": "\n".join(defects), "merged": None}
        return {"defect": "", "merged": merge(said, len(said))}


def _seen() -> dict[str, Any]:
    """The world as this rank sees it."""
    import jax

    from harness import environment

    listed = [(device.id, device.process_index, device.device_kind) for device in jax.devices()]
    return {
        **environment.facts(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "rank": jax.process_index(),
        "local_devices": [device.id for device in jax.local_devices()],
        "devices": _hash(json.dumps(listed)),
        "suite": _suite(),
    }


def _suite() -> str:
    """A hash of the suite's own sources: ranks of different checkouts are not one run."""
    root = Path(__file__).resolve().parent.parent
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def _compare(texts: Texts) -> dict[str, Any]:
    """Which ranks see another world than most, and in what."""
    worlds = {rank: json.loads(text) for rank, text in texts.items()}
    differ = []
    for key in SAME_FACTS:
        said = {rank: json.dumps(world.get(key), sort_keys=True) for rank, world in worlds.items()}
        common = max(said.values(), key=list(said.values()).count)
        differ += [
            {"rank": rank, "host": worlds[rank]["host"], "what": key, "is": value, "others": common}
            for rank, value in said.items()
            if value != common
        ]
    ranks = sorted(world["rank"] for world in worlds.values())
    if ranks != list(range(len(worlds))):
        differ.append({"rank": 0, "host": "", "what": "rank", "is": str(ranks), "others": "0, 1, 2, ..."})
    return {"differ": differ}


def _same(texts: Texts) -> dict[str, Any]:
    return {"differ": sorted(texts) if len(set(texts.values())) > 1 else []}


def _refused(line: str, start: dict[str, Any]) -> list[dict[str, Any]]:
    """Results where the ranks did not meet for one line."""
    from harness.case import parse_line
    from harness.verdicts import Kind, Verdict

    late = start["missing"]
    message = (
        f"ranks {late} did not come to compare: late or gone"
        if late
        else "the ranks were asked different lines"
    )
    return [
        {
            "case": str(case),
            "rule": "process.agree",
            "rules": [case.rule, "process.agree"],
            "verdict": Verdict.FAIL,
            "kind": Kind.DISAGREE,
            "message": message,
            "also": [],
            "seconds": 0.0,
            "victim": bool(late),
        }
        for case in parse_line(line)
    ]


def _lost(results: list[dict[str, Any]]) -> bool:
    from harness.multihost.merge import lost_peer

    return any(lost_peer(result) for result in results)


def _summary(answer: dict[str, Any], count: int) -> dict[str, Any]:
    """The answer without what others do not need."""
    results = [
        {**result, "reproducer": None, "message": result["message"][:2000]} for result in answer["results"]
    ]
    return {**answer, "results": results, "digests": answer["digests"] if count <= DIGESTS_UP_TO else {}}


def _region(index: tuple[Any, ...], shape: tuple[int, ...]) -> str:
    bounds = (part.indices(length)[:2] for part, length in zip(index, shape))
    return ",".join(f"{start}:{stop}" for start, stop in bounds)


def _digest(data: Any) -> str:
    return hashlib.sha256(data.tobytes()).hexdigest()[:8]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    worker.main(int(sys.argv[1]), Rank().handle)
