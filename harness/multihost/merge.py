"""One verdict out of those of all ranks: the worst wins, and the rank at fault is told from its victims. No JAX.

An *answer* is what one rank, or its supervisor in its stead, says of one line:

    {"rank": 1, "host": "b", "results": [...], "state": "answered", "progress": 7, "at": "running program 2",
     "stopped": false, "digests": {"0/psum": {"0:1": "9f86d081"}}}

`state` is "answered", "died" or "hung"; `progress` counts the stages the rank had reached, which are the same in all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from harness.verdicts import Kind, Verdict, worst

Answer = Mapping[str, Any]
Result = dict[str, Any]

BAD = frozenset({Verdict.FAIL, Verdict.CRASH, Verdict.HANG})

LOST_PEER = re.compile(
    r"Gloo |Timed out waiting \d+ms|Connection (reset|closed|refused)|caused pair closure|coordination service"
    r"|DEADLINE_EXCEEDED|UNAVAILABLE|NCCL.*remote|distributed service detected fatal errors|heartbeat",
    re.IGNORECASE,
)
"""How a rank words that another one is not there, whatever the transport."""


def merge(answers: Mapping[int, Answer], count: int) -> list[Result]:
    """One result for each case of a line, with `culprits` and `victims`.

    Args:
      answers: by rank; those of a rank that said nothing are missing.
      count: how many ranks there are.
    """
    if not answers:
        return []
    first = answers[min(answers)]
    absent = [rank for rank in range(count) if rank not in answers]
    results = [_merged(place, answers, absent) for place in range(len(first["results"]))]
    return _with_differences(results, answers)


def _merged(place: int, answers: Mapping[int, Answer], absent: list[int]) -> Result:
    """The result of the case in that place of the line."""
    own = {rank: answer["results"][place] for rank, answer in answers.items()}
    base = own[min(own)]
    if absent:
        hosts = f"{_ranks(absent, answers)} left no verdict"
        return {**base, "verdict": Verdict.MISSING, "message": hosts, "culprits": absent, "victims": []}
    bad = [rank for rank, result in own.items() if result["verdict"] in BAD]
    if not bad:
        return _agreeing(own)
    culprits = _culprits(place, bad, answers)
    verdict = worst([Verdict(own[rank]["verdict"]) for rank in culprits])
    chosen = next(rank for rank in culprits if own[rank]["verdict"] == verdict)
    result = own[chosen]
    victims = [rank for rank in bad if rank not in culprits]
    message = f"{_ranks(culprits, answers)}: {result['message']}"
    if answers[chosen]["state"] != "answered":
        message += f"\nit was {answers[chosen]['at']}"
    if victims:
        message += f"\nvictims: {_ranks(victims, answers)}"
    seconds = max(each["seconds"] for each in own.values())
    return {**result, "message": message, "culprits": culprits, "victims": victims, "seconds": seconds}


def _agreeing(own: Mapping[int, Result]) -> Result:
    """The result where no rank failed: all must say the same."""
    said = {result["verdict"] for result in own.values()}
    result = max(own.values(), key=lambda each: list(Verdict).index(Verdict(each["verdict"])))
    if len(said) == 1:
        return {**result, "culprits": [], "victims": []}
    listed = "; ".join(f"rank {rank} {each['verdict']}" for rank, each in sorted(own.items()))
    return _disagree(result, listed, [])


def _disagree(result: Result, message: str, culprits: list[int]) -> Result:
    return {
        **result,
        "verdict": Verdict.FAIL,
        "kind": Kind.DISAGREE,
        "rule": "process.agree",
        "message": message,
        "culprits": culprits,
        "victims": [],
    }


def _culprits(place: int, bad: list[int], answers: Mapping[int, Answer]) -> list[int]:
    """Those of the failing ranks that failed by themselves.

    A stopped process explains every other failure; then a rank that failed without naming a lost peer; then the one
    that had come least far, for which the others were waiting.
    """
    stopped = [rank for rank in bad if answers[rank]["stopped"]]
    if stopped:
        return stopped
    alone = [
        rank
        for rank in bad
        if answers[rank]["state"] != "hung" and not lost_peer(answers[rank]["results"][place])
    ]
    if alone:
        return alone
    least = min(answers[rank]["progress"] for rank in bad)
    return [rank for rank in bad if answers[rank]["progress"] == least]


def lost_peer(result: Mapping[str, Any]) -> bool:
    """Whether a failure says that another rank is gone, does not answer, or would have run something else."""
    if result.get("victim"):
        return True
    return bool(LOST_PEER.search(result["message"])) or bool(LOST_PEER.search(result.get("log") or ""))


def _with_differences(results: list[Result], answers: Mapping[int, Answer]) -> list[Result]:
    """The results, failing where ranks hold different bits of what is replicated."""
    told = _difference(answers)
    if not told:
        return results
    message, culprits = told
    return [
        _disagree(result, message, culprits) if result["verdict"] == Verdict.PASS else result
        for result in results
    ]


def _difference(answers: Mapping[int, Answer]) -> tuple[str, list[int]] | None:
    """The first part of an output of which two ranks hold different bits, and who is outside of the majority."""
    held: dict[tuple[str, str], dict[int, str]] = {}
    for rank, answer in answers.items():
        for output, parts in (answer.get("digests") or {}).items():
            for part, digest in parts.items():
                held.setdefault((output, part), {})[rank] = digest
    for (output, part), digests in held.items():
        if len(set(digests.values())) > 1:
            said = list(digests.values())
            common = max(said, key=said.count)
            odd = [rank for rank, digest in digests.items() if digest != common]
            listed = ", ".join(f"rank {rank} {digest}" for rank, digest in sorted(digests.items()))
            return f"the bits of output {output} at [{part}] are not the same: {listed}", odd
    return None


def _ranks(numbers: Iterable[int], answers: Mapping[int, Answer]) -> str:
    """`rank 1 (host b)`."""
    return ", ".join(
        f"rank {rank} ({answers[rank]['host']})" if rank in answers else f"rank {rank}" for rank in numbers
    )
