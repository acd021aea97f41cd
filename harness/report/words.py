"""The diagnosis as lines of text: for the terminal, within a screen, and as the sentences other reports use."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Sequence

from harness.report.causes import Cause, Diagnosis, Lone, symptom
from harness.report.results import Result


def diagnosis_lines(diagnosis: Diagnosis, width: int = 100, height: int = 24, folder: str = "") -> list[str]:
    """The causes, the most telling first, then the failures that have none, in at most `height` lines.

    Args:
      folder: the results folder as the reader would write it, for the paths of reproducers.
    """
    blocks = [_cause(number, cause, width, folder) for number, cause in enumerate(diagnosis.causes, 1)]
    shared = [cause for cause in diagnosis.suspicions if len(cause.cases) > 1]
    blocks += [_cause(number, cause, width, folder) for number, cause in enumerate(shared, len(blocks) + 1)]
    told = {result.case for cause in shared for result in cause.cases}
    blocks += [_lone(lone, width, folder) for lone in diagnosis.lone if lone.result.case not in told]
    lines: list[str] = []
    for shown, block in enumerate(blocks):
        rest = len(blocks) - shown
        if lines and len(lines) + len(block) + (rest > 1) > height:
            return [*lines, _rest(rest)]
        lines += block
    return lines


def _rest(blocks: int) -> str:
    return f"   and {counted(blocks, 'more finding')}; the results folder has all"


def _cause(number: int, cause: Cause, width: int, folder: str) -> list[str]:
    lines = _wrap(f"{number}. ", f"{cause}", width)
    lines += _wrap("   ", symptoms(cause), width)
    lines += _example(cause.cases[0], str(cause.contrast or ""), width, folder)
    return lines


def _lone(lone: Lone, width: int, folder: str) -> list[str]:
    lines = _wrap("-  ", f"alone: {symptom(lone.result)} ({lone.result.rule})", width)
    return lines + _example(lone.result, str(lone.contrast or ""), width, folder)


def _example(result: Result, contrast: str, width: int, folder: str) -> list[str]:
    lines = _wrap("   e.g. ", result.case, width, most=2)
    if result.message:
        lines += _wrap("        ", first_line(result.message), width, most=2)
    if contrast:
        lines += _wrap("        ", f"passes with {contrast}", width, most=1)
    if result.reduced:
        lines += _wrap("        ", f"reduced to {result.reduced}", width, most=2)
    if result.reproducer:
        lines.append(f"        python {os.path.join(folder, result.reproducer)}")
    return lines


def symptoms(cause: Cause) -> str:
    """`wrong value, stale entry; breaks psum.sum (30), pmax.max (8)`."""
    kinds = ", ".join(kind for kind, _ in cause.kinds[:3])
    rules = [f"{rule} ({count:,})" if len(cause.rules) > 1 else rule for rule, count in cause.rules[:4]]
    more = f" and {len(cause.rules) - 4} more laws" if len(cause.rules) > 4 else ""
    also = [str(twin) for twins in cause.alternatives for twin in twins[:1]]
    same = f"; the same cases have {', '.join(also)}" if also else ""
    return f"{kinds}; breaks {', '.join(rules)}{more}{same}"


def first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def counted(number: int, noun: str) -> str:
    """`1 case`, `1,204 cases`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _wrap(head: str, text: str, width: int, most: int = 3) -> list[str]:
    wrapped = textwrap.wrap(
        text,
        max(width, 30),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    return wrapped or [head.rstrip()]


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns set under each other, the first to the left, the others to the right."""
    widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    for row in (head, *rows):
        cells = [row[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
        ]
        yield "  ".join(cells).rstrip()
