"""Lays rendered source out as a formatter would: blank lines around functions, long lines wrapped at their brackets."""

from __future__ import annotations

from collections.abc import Iterator

WIDTH = 110
PAIRS = {"(": ")", "[": "]", "{": "}"}


def tidy(lines: list[str]) -> list[str]:
    """The lines with the blank lines they need and no others, none too long where a bracket lets it be broken."""
    return [short for line in _spaced(lines) for short in wrap(line)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _spaced(lines: list[str]) -> Iterator[str]:
    """Two blank lines around functions and classes of the module, one around inner ones, no more anywhere."""
    before, blanks = "", 0
    open_: list[int] = []  # indents of the functions and classes we are in
    for line in lines:
        if not line.strip():
            blanks += 1
            continue
        ended = [indent for indent in open_ if indent >= _indent(line)]
        open_ = [indent for indent in open_ if indent < _indent(line)]
        starts = line.lstrip().startswith(("def ", "class ", "@"))
        most = 2 if _indent(line) == 0 else 1
        if (
            not before
            or before.lstrip().startswith("@")
            or (before.endswith(":") and _indent(line) > _indent(before))
        ):
            blanks = 0
        elif starts or ended:
            blanks = most
        yield from [""] * min(blanks, most)
        yield line
        if line.lstrip().startswith(("def ", "class ")):
            open_.append(_indent(line))
        before, blanks = line.split("  # ")[0], 0


def wrap(line: str) -> list[str]:
    """A line broken at its last bracket; what is inside stands on one line, or each item on its own."""
    span = _last_bracket(line)
    if len(line) <= WIDTH or span is None or line.lstrip().startswith(('"""', "#", "def ")):
        return [line]
    head, inside, tail = line[: span[0] + 1], line[span[0] + 1 : span[1]].strip(), line[span[1] :]
    margin = " " * (_indent(line) + 4)
    comprehension = _split(inside, " for ")
    items = _split(inside, ", ")
    if len(margin + inside) <= WIDTH or not inside:
        body = [margin + inside]
    elif len(comprehension) > 1:
        body = [margin + ("for " if k else "") + part for k, part in enumerate(comprehension)]
    else:
        body = [short for item in items for short in wrap(f"{margin}{item.rstrip(',')},")]
    return [head, *body, " " * _indent(line) + tail]


def _last_bracket(line: str) -> tuple[int, int] | None:
    """Where the last outermost pair of brackets opens and closes, of those that leave a short enough head."""
    pairs = [span for depth, span in _brackets(line) if depth == 0]
    short = [span for span in pairs if span[0] < WIDTH]
    found = short or pairs
    return found[-1] if found else None


def _brackets(text: str) -> Iterator[tuple[int, tuple[int, int]]]:
    """(depth, (opening, closing)) of every pair, strings left out."""
    stack: list[int] = []
    for at, sign in _outside_strings(text):
        if sign in PAIRS:
            stack.append(at)
        elif sign in PAIRS.values() and stack:
            opening = stack.pop()
            yield len(stack), (opening, at)


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        else:
            yield at, sign


def _split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators outside of brackets and strings."""
    inner = [span for depth, span in _brackets(text) if depth == 0]
    free = {at for at, _ in _outside_strings(text) if not any(start <= at <= end for start, end in inner)}
    parts, start = [], 0
    while (at := text.find(separator, start)) >= 0:
        if at in free:
            parts.append(text[:at])
            text, start = text[at + len(separator) :], 0
            free = {k - at - len(separator) for k in free}
        else:
            start = at + 1
    return [*parts, text]
