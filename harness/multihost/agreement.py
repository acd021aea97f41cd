"""No executable that spans processes runs before all of them are known to run the same one. Runs in a rank.

Measured on CPU with three ranks: a psum on two of them and a pmax on the third give all three the same wrong number
and no error; other differences hang. So everything that is about to be compiled for devices of several processes is
compared first: lowered program and device assignment, in the order in which they are compiled.
"""

from __future__ import annotations

import collections
import difflib
import hashlib
import json
from collections.abc import Callable
from typing import Any

from harness import compat
from harness.multihost.channel import Channel, Texts

SHOWN = 3
"""Differing lines of the lowered programs that a message quotes."""


class Disagreement(Exception):
    """The ranks would not have run the same executable; nobody runs it."""


class Agreement:
    """Compares what the ranks are about to run.

    Args:
      channel: to the other ranks.
      progress: is told of what this rank is about to do.
    """

    def __init__(self, channel: Channel, progress: Callable[[str], None]):
        self.channel, self.progress = channel, progress
        self.hooked = compat.before_compiling(self._compiling)
        self.seconds = 60.0
        self.topic = ""
        self.broken: dict[str, Any] = {}
        self._numbers: collections.Counter[tuple[int, ...]] = collections.Counter()

    def begin(self, topic: str, seconds: float) -> None:
        """Starts a line: its exchanges carry its topic, and nothing is compared before."""
        self.topic, self.seconds, self.broken = topic, seconds, {}
        self._numbers.clear()

    def end(self) -> None:
        self.topic = ""

    def _compiling(self, text: Callable[[], str], devices: list[Any]) -> None:
        members = tuple(sorted({device.process_index for device in devices}))
        if not self.topic or len(members) < 2 or self.channel.rank not in members:
            return
        if self.broken:
            raise Disagreement(self.broken["message"])
        self.compare(text(), [device.id for device in devices], members)

    def compare(self, text: str, devices: list[int], members: tuple[int, ...]) -> None:
        """Raises Disagreement unless all members are about to run the same."""
        self._numbers[members] += 1
        number = self._numbers[members]
        topic = f"{self.topic}/{'-'.join(map(str, _short(members)))}/{number}"
        self.progress(f"comparing program {number}")
        said = json.dumps([_hash(text), _hash(str(devices))])
        try:
            decision = self.channel.exchange(
                topic, said, _decide, self.seconds, members, over=f"{self.topic}/end"
            )
        except TimeoutError as error:
            decision = {"differ": [], "even": False, "missing": [members[0]]}
            self.broken = {**decision, "message": str(error)}
            raise Disagreement(str(error)) from None
        if decision["differ"] or decision["missing"]:
            self.broken = self._explained(topic, decision, text, devices, members)
            raise Disagreement(self.broken["message"])
        self.progress(f"running program {number}")

    def _explained(
        self, topic: str, decision: dict[str, Any], text: str, devices: list[int], members: tuple[int, ...]
    ) -> dict[str, Any]:
        """Who differs and in what, worked out by the first of the members that came."""
        came = tuple(rank for rank in members if rank not in decision["missing"])
        if decision["missing"]:
            return {**decision, "message": f"{ranks(decision['missing'])} did not come to compare a program"}
        own = json.dumps({"text": text, "devices": devices})
        told = self.channel.exchange(f"{topic}/text", own, _differences, self.seconds, came)
        return {**decision, "message": f"{_who(decision)}: {told['message']}"}


def ranks(numbers: list[int]) -> str:
    """`rank 1`, `ranks 1, 2`."""
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _who(decision: dict[str, Any]) -> str:
    if decision["even"]:
        return (
            f"{ranks(decision['differ'])} would run different programs, and no majority says whose is right"
        )
    return f"{ranks(decision['differ'])} would run another program than the others"


def _decide(texts: Texts) -> dict[str, Any]:
    """The ranks outside of the majority; all of them where there is none."""
    counts = collections.Counter(texts.values())
    if len(counts) < 2:
        return {"differ": [], "even": False}
    (first, most), (_, second) = counts.most_common(2)
    even = most == second
    return {"differ": sorted(rank for rank, said in texts.items() if even or said != first), "even": even}


def _differences(texts: Texts) -> dict[str, Any]:
    """The first lines in which the programs differ, or the devices."""
    programs = {rank: json.loads(text) for rank, text in texts.items()}
    first = min(programs)
    for rank in sorted(programs):
        if programs[rank]["devices"] != programs[first]["devices"]:
            orders = (
                f"{programs[first]['devices']} (rank {first}) and {programs[rank]['devices']} (rank {rank})"
            )
            return {"message": f"devices {orders}"}
        if programs[rank]["text"] != programs[first]["text"]:
            one, other = (programs[k]["text"].splitlines() for k in (first, rank))
            diff = difflib.unified_diff(one, other, lineterm="", n=0)
            changed = [line for line in diff if line[:1] in "+-" and line[:3] not in ("+++", "---")]
            quoted = "\n".join(line[:300] for line in changed[: 2 * SHOWN])
            return {"message": f"lowered programs of ranks {first} (-) and {rank} (+):\n{quoted}"}
    return {"message": "their difference could not be told"}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _short(members: tuple[int, ...]) -> tuple[Any, ...]:
    """A name for a set of ranks that does not grow with it."""
    return members if len(members) <= 8 else (len(members), _hash(str(members)))
