"""The passing case nearest to a failing one: what little has to change for it to pass."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.causes import Contrast, simplicity
from harness.report.results import Result

DIFFERENCES = 2
"""A passing case that differs in more parameters is no contrast."""
DERIVED = frozenset(
    [
        "program",
        "outer",
        "outside",
        "leaf_over",
        "mode",
        "axes",
        "environments",
        "names_in_leaf",
        "names_order",
        "count",
        "check",
    ]
)
"""Parameters that follow from others: a difference in them is said by those."""


class Index:
    """Passing cases, to be found by what they are near to."""

    def __init__(self, passing: Sequence[Result]):
        self.by: dict[tuple[str, tuple[str, ...]], list[Result]] = {}
        for result in passing:
            for key in ("program", "leaf"):
                self.by.setdefault((key, result.parameters.get(key, ())), []).append(result)

    def nearest(self, result: Result) -> Contrast | None:
        """The passing case that differs in the fewest parameters; None when all differ in many."""
        own = set(_independent(result))
        pool = [
            other
            for key in ("program", "leaf")
            for other in self.by.get((key, result.parameters.get(key, ())), ())
        ]
        pool = [other for other in pool if result.rule in other.rules or result.rule == other.rule] or pool

        def distance(other: Result) -> int:
            return sum(item not in own for item in _independent(other))

        best = min(pool, key=lambda other: (distance(other), simplicity(other)), default=None)
        if best is None or not 1 <= distance(best) <= DIFFERENCES:
            return None
        theirs = dict(_independent(best))
        different = [(key, values, theirs[key]) for key, values in own if theirs.get(key, values) != values]
        return Contrast(
            best.case, tuple(sorted((key, ", ".join(a), ", ".join(b)) for key, a, b in different))
        )


def _independent(result: Result) -> list[tuple[str, tuple[str, ...]]]:
    return [item for item in result.parameters.items() if item[0] not in DERIVED]
