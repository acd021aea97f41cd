"""What ranks tell each other through the key-value store of JAX's coordination service. Runs in a rank.

An *exchange* takes one text from each member and gives every member the same decision. The member of lowest rank
collects the texts, so that a member sends two requests and reads one answer however many there are.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Texts = dict[int, str]
"""What each member said, by rank."""
Decide = Callable[[Texts], Mapping[str, Any]]

POLL_SECONDS = 0.0005
SLOWEST_POLL_SECONDS = 0.05
SLICE_SECONDS = 1.0
GRACE_SECONDS = 3.0
"""How much longer a member waits for the decision than the one who decides waits for the members."""


class Channel:
    """The exchanges of one rank within one group of ranks.

    Args:
      client: of the coordination service.
      rank, count: of this process, and how many there are.
    """

    def __init__(self, client: Any, rank: int, count: int):
        self.client, self.rank, self.count = client, rank, count
        self._spent: list[str] = []

    @property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(self.count))

    def exchange(
        self,
        topic: str,
        text: str,
        decide: Decide,
        seconds: float,
        members: tuple[int, ...] | None = None,
        over: str = "",
        last: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> dict[str, Any]:
        """The decision on what all members said; one that is missing after `seconds` is listed in it as `missing`.

        Args:
          topic: a name that no other exchange of this group has.
          text: what this rank says.
          decide: makes the decision; the texts of missing members are not in what it gets.
          seconds: how long to wait for the others.
          members: ranks that take part (all).
          over: topic by which a member shows that it will not come any more.
          last: says of a decision whether the group may end with it: then the member that decides, whose process may
            hold the store, waits until the others have read it.

        Raises:
          TimeoutError: when the decision does not come, or the store is gone.
        """
        members = members or self.everyone
        leader = members[0]
        self.say(topic, text)
        if self.rank == leader:
            texts = self._collect(topic, members, seconds, over)
            missing = [rank for rank in members if rank not in texts]
            decision = {**decide(texts), "missing": missing}
            with _store():
                self.client.key_value_set(f"{topic}!", json.dumps(decision))
            if last is not None and last(decision):
                came = tuple(member for member in texts if member != leader)
                self._collect(f"{topic}/read", came, GRACE_SECONDS, "")
            self._forget(topic)
            return decision
        decision = self._decision(topic, leader, seconds + GRACE_SECONDS, over)
        if last is not None and last(decision):
            self.say(f"{topic}/read", "")
        return decision

    def _decision(self, topic: str, leader: int, seconds: float, over: str) -> dict[str, Any]:
        """The leader's decision, waited for in slices: between them it is seen when the leader has gone on without it."""
        deadline = time.monotonic() + seconds
        while True:
            left = min(SLICE_SECONDS, deadline - time.monotonic())
            try:
                return json.loads(self.client.blocking_key_value_get(f"{topic}!", max(1, int(1000 * left))))
            except Exception as error:  # the client has no exception of its own for this
                if "DEADLINE_EXCEEDED" not in str(error) or time.monotonic() > deadline:
                    raise TimeoutError(f"rank {leader} gave no decision on {topic}: {error}") from None
            if over and leader in self.read(over):
                raise TimeoutError(f"rank {leader} had gone on without {topic}")

    def _collect(self, topic: str, members: tuple[int, ...], seconds: float, over: str) -> Texts:
        """The texts of the members, as many as come in time."""
        deadline, pause = time.monotonic() + seconds, POLL_SECONDS
        while True:
            texts = self.read(topic)
            waiting = [rank for rank in members if rank not in texts]
            if not waiting or time.monotonic() > deadline:
                return texts
            if over and set(waiting) & set(self.read(over)):
                return self.read(topic)  # once more: it may have come just before it left
            time.sleep(pause)
            pause = min(2 * pause, SLOWEST_POLL_SECONDS)

    def say(self, topic: str, text: str) -> None:
        """Leaves a text that others may read."""
        with _store():
            self.client.key_value_set(f"{topic}/{self.rank}", text)

    def read(self, topic: str) -> Texts:
        """What has been said on a topic so far."""
        with _store():
            found = self.client.key_value_dir_get(f"{topic}/")
        named = ((key.removeprefix(f"{topic}/"), value) for key, value in found)
        return {int(name): value for name, value in named if name.isdecimal()}

    def _forget(self, topic: str) -> None:
        """Deletes what nobody can want any more, so that the store does not grow with the run."""
        self._spent.append(topic)
        if len(self._spent) > 50:
            old = self._spent.pop(0)
            with _store():
                self.client.key_value_delete(f"{old}/")
                self.client.key_value_delete(f"{old}!")


@contextlib.contextmanager
def _store() -> Iterator[None]:
    """What the client raises when the store is gone, which may be before this process is ended for it."""
    try:
        yield
    except Exception as error:  # the client has no exception of its own
        raise TimeoutError(f"the coordination service does not answer: {error}") from None
