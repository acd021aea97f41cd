"""What can go wrong on the way to a verdict, told from what gcloud prints, and whether trying again makes sense."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of trouble.

    Attributes:
      name: its word in logs and messages.
      pattern: regular expression for gcloud's error text, or "" for kinds that are told otherwise.
      again: whether another try may end better.
      advice: what a person can do.
    """

    name: str
    pattern: str
    again: bool
    advice: str


STOCK_OUT = Kind(
    "stock-out",
    r"(?i:no more capacity|insufficient capacity|not enough (resources|capacity)|not have enough resources|stockout)",
    True,
    "try another zone (--zone is repeatable), another type, --queued with --valid_until, or later",
)
QUOTA = Kind(
    "quota",
    r"(?i:quota)",
    True,
    "the project's quota for this type and zone is used up: wait for other runs, `sweep`, or ask for more",
)
RATE = Kind(
    "rate limit", r"(?i:rate.?limit)|RESOURCE_EXHAUSTED|HTTPError 429", True, "too many requests: try later"
)
MISSING = Kind("not found", r"NOT_FOUND|was not found|HTTPError 404", True, "it is not there (any more)")
EXISTS = Kind("exists", r"ALREADY_EXISTS|already exists", False, "choose another --name")
DENIED = Kind(
    "access denied",
    r"PERMISSION_DENIED|UNAUTHENTICATED|HTTPError 40[13]|not currently have an active account|does not have permission"
    r"|Reauthentication|gcloud auth login",
    False,
    "check `gcloud auth list` and the rights of the account (roles/tpu.admin, roles/iam.serviceAccountUser)",
)
INVALID = Kind(
    "invalid request",
    r"INVALID_ARGUMENT|FAILED_PRECONDITION|unrecognized arguments|Invalid (choice|value)|argument --[-a-z]+: "
    r"|HTTPError 400",
    False,
    "the request itself is wrong for this zone or project",
)
PREEMPTED = Kind(
    "preempted", r"PREEMPTED|TERMINATED|SUSPENDED|has terminal state", True, "spot capacity was taken back"
)
UNAVAILABLE = Kind(
    "service unavailable",
    r"UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL: |HTTPError 50[0-4]|gcloud crashed"
    r"|(?i:connection (reset|aborted|refused)|timed out|could not reach|network is unreachable|name resolution"
    r"|max retries exceeded)",
    True,
    "the service or the connection to it failed",
)
SSH = Kind(
    "connection lost",
    r"exited with return code \[255\]|Connection (closed|timed out)|Broken pipe|Permission denied \(publickey"
    r"|No route to host",
    True,
    "a worker cannot be reached; firewall rules, --internal_ip or --tunnel_through_iap may matter",
)
DEADLINE = Kind("too slow", "", False, "raise the deadline named")
SLOW = Kind("no answer", "", True, "a command did not answer in time")
WORKER = Kind("worker failed", "", True, "see the worker's log")
SETUP = Kind("setup failed", "", False, "see the worker's log")
WORLD = Kind("wrong world", "", False, "the processes did not find each other; see docs/cloud_tpu.md")
UNKNOWN = Kind("unknown", "", True, "see cloud/cloud.log")
SUITE_USAGE = Kind("usage error of the suite", "", False, "see the worker's log above")
INTERRUPTED = Kind("interrupted", "", False, "go on with --resume")

TOLD_BY_TEXT = (EXISTS, DENIED, STOCK_OUT, QUOTA, INVALID, PREEMPTED, SSH, MISSING, UNAVAILABLE, RATE)
"""In this order: a text that fits several kinds is of the first. "No capacity" comes as RESOURCE_EXHAUSTED, and so does
a quota; a preempted TPU answers ssh with its state."""


ASKED_WRONG = frozenset({INVALID, EXISTS, SUITE_USAGE})
"""Kinds that a person's request is to blame for."""


class Trouble(Exception):
    """The infrastructure, not the suite, failed.

    Attributes:
      kind: what kind of trouble.
      message: what happened, in one line.
    """

    def __init__(self, kind: Kind, message: str):
        self.kind, self.message = kind, message
        super().__init__(f"{kind.name}: {message} ({kind.advice})")


def kind_of(text: str) -> Kind:
    """The kind of trouble that an error text of gcloud speaks of."""
    for kind in TOLD_BY_TEXT:
        if re.search(kind.pattern, text):
            return kind
    return UNKNOWN


def what_was_said(errors: str, output: str) -> str:
    """The lines that say what went wrong: gcloud's own error, or the last words of the remote command, which gcloud
    passes on between its own chatter without a mark."""
    said = [line.strip() for line in errors.splitlines() if "ERROR" in line or '"message"' in line]
    for text in (output, errors):
        said = said or [line.strip() for line in text.splitlines() if line.strip()][-3:]
    return (" ".join(said[:3]) or "no message")[:500]
