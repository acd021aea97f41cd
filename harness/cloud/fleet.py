"""All workers of a TPU at once: copy and install, start the suite, follow it, fetch what it left."""

from __future__ import annotations

import concurrent.futures
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.cloud import agent, commands, mirror
from harness.cloud.backoff import Deadline, delays
from harness.cloud.commands import Place, Worker
from harness.cloud.gcloud import Runner
from harness.cloud.log import Log
from harness.cloud.mirror import Mirror
from harness.cloud.options import Options
from harness.cloud.stage import Stage
from harness.cloud.troubles import DEADLINE, SETUP, SSH, SUITE_USAGE, UNKNOWN, WORKER, Trouble, kind_of

FETCH_SECONDS = 600.0
SHORT_SECONDS = 120.0
"""A command on a worker that is done at once, connection included."""
USAGE_CODES = (2, 4)
"""Exit codes of the suite that say that it was called wrongly."""


class Fleet:
    """The workers of one TPU.

    Args:
      folder: name of our folder in the home of each worker.
      home: where each worker's files are mirrored.
      check: raises Trouble when the TPU itself is gone.
    """

    def __init__(
        self,
        options: Options,
        workers: list[Worker],
        place: Place,
        folder: str,
        home: Path,
        gcloud: Runner,
        log: Log,
        check: Callable[[], None],
    ):
        self.options, self.workers, self.place, self.folder = options, workers, place, folder
        self._gcloud, self._log, self._check = gcloud, log, check
        self._home = home
        self.mirrors = {
            worker: Mirror(home / f"{worker.node}-{worker.index}", self._teller(worker)) for worker in workers
        }
        self._ending: Deadline | None = None
        self._enough = threading.Event()

    def _teller(self, worker: Worker) -> Callable[[str], None]:
        """The first worker's log goes to the screen, the others' to the file; each line with the worker's number."""
        number = self.workers.index(worker)
        tell = self._log.note if number else self._log.say
        return lambda line: tell(f"[{number}] {line}")

    # Before the run

    def prepare(self, stage: Stage) -> None:
        """Copies and installs.

        The very first connection is made alone, since gcloud may make a key then; and the first to each further node
        too, since gcloud then writes the key into the node's metadata, which two would do over each other.
        """
        deadline = Deadline(self.options.setup_deadline)
        self._log.say(f"{len(self.workers)} workers: copying and installing")
        firsts = list({worker.node: worker for worker in reversed(self.workers)}.values())[::-1]

        def first(worker: Worker) -> None:
            self._patiently(worker, lambda: self._make_folder(worker), deadline)

        first(firsts[0])
        self._each(first, self.options.parallel, firsts[1:])
        ranks = {worker: rank for rank, worker in enumerate(self.workers)}
        files = {worker: stage.for_worker(self.workers, rank) for worker, rank in ranks.items()}

        def one(worker: Worker) -> None:
            self._patiently(worker, lambda: self._copy(worker, files[worker], deadline), deadline)

        self._each(one, self.options.parallel)

    def _make_folder(self, worker: Worker) -> None:
        self._remote(worker, ["mkdir", "-p", self.folder], SHORT_SECONDS)

    def _copy(self, worker: Worker, files: list[Path], deadline: Deadline) -> None:
        self._make_folder(worker)
        command = commands.scp_to(
            self.options, worker, self.place, [str(path) for path in files], self.folder
        )
        self._gcloud.call(command, max(1.0, deadline.left))
        told = self._told(self._agent(worker, "prepare", seconds=max(1.0, deadline.left)))
        if told.get("torn") or "prepared" not in told:
            torn = ", ".join(told.get("torn", ["agent.py"]))
            raise Trouble(SSH, f"{worker}: not copied whole: {torn}")
        if not told["prepared"]:
            kind = kind_of(told["trouble"])
            raise Trouble(
                kind if kind.again and kind is not UNKNOWN else SETUP, f"{worker}: {told['trouble']}"
            )

    def _told(self, output: str) -> dict[str, Any]:
        """What the agent said in an answer, all its frames in one."""
        found: dict[str, Any] = {}
        for line in output.encode().splitlines():
            found |= mirror.parse(line) or {}
        return found

    # The run

    def start(self) -> None:
        deadline = Deadline(self.options.setup_deadline)
        self._each(
            lambda worker: self._patiently(worker, lambda: self._agent(worker, "start"), deadline),
            len(self.workers),
        )

    def follow(self) -> None:
        """Mirrors the workers' files until the suite has ended on all of them.

        Raises Trouble when it did not end by itself with a verdict everywhere.
        """
        deadline = Deadline(self.options.run_deadline)
        self._enough.clear()
        self._each(lambda worker: self._follow(worker, deadline), len(self.workers))
        if deadline.over and not all(map(self._finished, self.workers)):
            raise Trouble(DEADLINE, f"the suite did not end within {deadline.seconds:.0f} s (--run_deadline)")
        for worker in self.workers:
            self._judge(worker)

    def _follow(self, worker: Worker, deadline: Deadline) -> None:
        pauses, failures = delays(self.options.backoff, random.Random()), 0
        while not self._over(deadline):
            ended, heard = self._listen(worker, deadline)
            if ended:
                self._look_at(worker)
                return
            if self._over(deadline):
                return
            failures = 1 if heard else failures + 1
            self._check()
            if failures > self.options.reconnects:
                raise Trouble(SSH, f"{worker}: {failures} connections in a row failed")
            pause = min(next(pauses), 60.0, deadline.left)
            self._log.say(
                f"{worker}: connection lost, the suite goes on there; connecting again in {pause:.0f} s"
            )
            self._gcloud.pause(pause)

    def _listen(self, worker: Worker, deadline: Deadline) -> tuple[bool, bool]:
        """One connection: whether the suite has ended, and whether anything was heard at all."""
        known = json.dumps(self.mirrors[worker].sizes())
        command = commands.ssh(self.options, worker, self.place, self._python("follow", known))
        ended = heard = False
        for line in self._gcloud.stream(command, self.options.silence):
            if self._over(deadline) and not ended:
                break
            frame = mirror.parse(line) if line is not None else None
            if frame is None:
                continue
            heard = True
            self.mirrors[worker].take(frame)
            ended = ended or bool(frame.get("ended"))
        return ended, heard

    def _over(self, deadline: Deadline) -> bool:
        return deadline.over or self._enough.is_set() or (self._ending is not None and self._ending.over)

    def _look_at(self, worker: Worker) -> None:
        """When the suite died on one worker the others wait for it, possibly for ever: they get a little more time."""
        if self._failure(worker) and self._ending is None:
            self._log.say(
                f"{worker}: {self._failure(worker)}; the others get {self.options.grace:.0f} s to end"
            )
            self._ending = Deadline(self.options.grace)

    def _finished(self, worker: Worker) -> bool:
        return any(status.get("done") for status in self.mirrors[worker].statuses())

    def _failure(self, worker: Worker) -> str:
        """Why the suite's end on a worker is not a verdict; "" when it is."""
        codes = [status["exit"] for status in self.mirrors[worker].statuses() if "exit" in status]
        bad = [code for code in codes if code not in (0, 1)]
        if bad:
            return f"the suite ended with {_spoken(bad[0])}"
        return "" if self._finished(worker) and codes else "the suite was killed"

    def _judge(self, worker: Worker) -> None:
        failure = self._failure(worker)
        if not failure:
            return
        for line in self.mirrors[worker].last_lines(20):
            self._log.say(f"[{self.workers.index(worker)}] {line}")
        codes = [status.get("exit") for status in self.mirrors[worker].statuses()]
        raise Trouble(SUITE_USAGE if set(codes) & set(USAGE_CODES) else WORKER, f"{worker}: {failure}")

    def codes(self) -> list[int]:
        """Exit codes of the suite, of each step on each worker."""
        return [status["exit"] for m in self.mirrors.values() for status in m.statuses() if "exit" in status]

    # After the run

    def stop(self) -> None:
        """Kills the suite wherever a worker still answers, so that its files no longer change."""

        def one(worker: Worker) -> None:
            try:
                self._agent(worker, "stop", seconds=SHORT_SECONDS)
            except Trouble as trouble:
                self._log.note(f"{worker} could not be stopped: {trouble}")

        self._each(one, self.options.parallel)

    def fetch(self) -> list[str]:
        """Fetches each worker's results and logs; for those where that fails, a sentence about what there is."""
        deadline = Deadline(FETCH_SECONDS)
        missing: dict[Worker, str] = {}

        def one(worker: Worker) -> None:
            try:
                self._patiently(worker, lambda: self._fetch(worker, deadline), deadline)
            except Trouble as trouble:
                missing[worker] = trouble.message

        self._each(one, self.options.parallel)
        return [
            f"{worker}: its files could not be fetched ({message}); "
            f"the {self.mirrors[worker].verdicts()} verdicts it had told are kept"
            for worker, message in missing.items()
        ]

    def _fetch(self, worker: Worker, deadline: Deadline) -> None:
        wanted = self._told(self._agent(worker, "pack", seconds=max(1.0, deadline.left))).get("sha256", "")
        archive = self._home / f"{worker.node}-{worker.index}.tar.gz"
        path = f"{self.folder}/results.tar.gz"
        command = commands.scp_from(self.options, worker, self.place, path, str(archive))
        self._gcloud.call(command, max(1.0, deadline.left))
        if not archive.exists() or agent.sha256(archive) != wanted:
            raise Trouble(SSH, f"{worker}: its archive did not arrive whole")
        self.mirrors[worker].unpack(archive)
        archive.unlink()

    # Connections

    def _python(self, *words: str) -> list[str]:
        return ["python3", f"{self.folder}/agent.py", *words]

    def _agent(self, worker: Worker, *words: str, seconds: float = SHORT_SECONDS) -> str:
        return self._remote(worker, self._python(*words), seconds)

    def _remote(self, worker: Worker, words: list[str], seconds: float) -> str:
        return self._gcloud.call(commands.ssh(self.options, worker, self.place, words), seconds)

    def _patiently(self, worker: Worker, act: Callable[[], Any], deadline: Deadline) -> None:
        """Does something on a worker, again after trouble that may pass, unless the TPU is gone."""
        pauses = delays(self.options.backoff, random.Random())
        for number in range(1, self.options.reconnects + 2):
            try:
                act()
                return
            except Trouble as trouble:
                if not trouble.kind.again or number > self.options.reconnects or deadline.over:
                    raise
                self._check()
                pause = min(next(pauses), 60.0, deadline.left)
                self._log.say(f"{worker}: {trouble.message}; again in {pause:.0f} s")
                self._gcloud.pause(pause)

    def _each(self, act: Callable[[Worker], Any], at_once: int, workers: list[Worker] | None = None) -> None:
        """Does something on all workers at once, or on those named; the first trouble ends it everywhere and is raised."""
        self._gcloud.go_on()
        pool = concurrent.futures.ThreadPoolExecutor(max_workers=at_once)
        try:
            futures = [pool.submit(act, worker) for worker in (self.workers if workers is None else workers)]
            waiting = set(futures)
            while waiting:
                self._gcloud.check()
                done, waiting = concurrent.futures.wait(waiting, 0.2, concurrent.futures.FIRST_EXCEPTION)
                for future in done:
                    future.result()
        except BaseException:
            self._enough.set()
            self._gcloud.halt()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self._gcloud.go_on()


def _spoken(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"signal {code - 128}" if code > 128 else f"exit code {code}"
