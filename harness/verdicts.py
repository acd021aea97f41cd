"""Verdicts and their kinds: the words of reports, journals and expectations."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.case import Case


class Verdict(enum.StrEnum):
    """What is said of a case, from best to worst; where several are merged the worst wins."""

    PASS = "pass"
    NOT_APPLICABLE = "not_applicable"
    SKIPPED = "skipped"
    EXPECTED_FAIL = "expected_fail"
    UNEXPECTED_PASS = "unexpected_pass"
    FLAKY = "flaky"
    ORDER_DEPENDENT = "order_dependent"
    FAIL = "fail"
    HANG = "hang"
    CRASH = "crash"
    MISSING = "missing"


class Kind(enum.StrEnum):
    """What kind of wrong a failure is."""

    NONE = ""
    WRONG_VALUE = "wrong value"
    STALE = "stale entry"
    RETRACE = "needless retrace"
    RECOMPILE = "needless recompile"
    GROWTH = "entry growth"
    WRONG_SHAPE = "wrong shape"
    WRONG_DTYPE = "wrong dtype"
    WRONG_PLACEMENT = "wrong placement"
    WRONG_GROUPS = "wrong groups"
    RAISED = "error raised"
    NOT_RAISED = "no error raised"
    NOT_RELEASED = "not released"
    DISAGREE = "processes disagree"
    NOT_DETERMINISTIC = "not deterministic"


GOOD = frozenset({Verdict.PASS, Verdict.NOT_APPLICABLE, Verdict.SKIPPED, Verdict.EXPECTED_FAIL})
"""Verdicts that leave a run successful."""


def worst(verdicts: list[Verdict]) -> Verdict:
    order = list(Verdict)
    return max(verdicts, key=order.index)


def result_of(case: Case, verdict: Verdict, **fields: Any) -> dict[str, Any]:
    """What the journal says of a case, where `fields` do not say otherwise: its leaf's own law, and nothing found."""
    rule = fields.get("rule", case.rule)
    base = {
        "case": str(case),
        "rule": rule,
        "rules": [rule],
        "verdict": verdict,
        "kind": "",
        "message": "",
        "also": [],
        "seconds": 0.0,
    }
    return {**base, **fields}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One law broken by one case.

    Attributes:
      rule: identifier of the law.
      kind: what kind of wrong it is.
      message: what was seen and what should have been, in a few lines.
      step: number of the step, from 0.
    """

    rule: str
    kind: Kind
    message: str
    step: int = 0
