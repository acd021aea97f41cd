"""Profiles: frozen lists of case lines, one file each, read without parsing more than is needed.

A profile is a text file: `# suite: scan` opens a section, every other line that is not blank or a comment is a case
line of that suite. A person's own file needs no sections: each of its lines is parsed to find the suite it belongs to.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from harness.case import parse_line
from harness.errors import CaseError, UsageError
from harness.parameters import suite_of

FOLDER = Path(__file__).resolve().parent.parent / "configs" / "profiles"
HEADER = "# suite: "

Fraction = tuple[int, int]
"""(I, N): the I-th of N parts, from 1."""


def parse_fraction(text: str) -> Fraction:
    """Reads `2/4`; raises UsageError."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match.group(1)) <= int(match.group(2)):
        raise UsageError(f"--fraction {text}: expected I/N with 1 <= I <= N, such as 1/4")
    return int(match.group(1)), int(match.group(2))


def belongs(line: str, fraction: Fraction) -> bool:
    """Whether a line is in that part; it depends on the line alone, so that parts stay when a profile grows."""
    part, parts = fraction
    return zlib.crc32(line.encode()) % parts == part - 1


@dataclasses.dataclass(frozen=True)
class Profile:
    """A list of case lines by suite.

    Attributes:
      name: as it was asked for.
      path: where it stands.
      sections: suite -> lines, in the file's order.
    """

    name: str
    path: Path
    sections: dict[str, list[str]]

    @property
    def suites(self) -> list[str]:
        return list(self.sections)

    def lines(self, suite: str, fraction: Fraction | None = None) -> list[str]:
        """The lines of one suite, or those of them in one part of the profile."""
        lines = self.sections.get(suite, [])
        return [line for line in lines if belongs(line, fraction)] if fraction else list(lines)

    def all_lines(self) -> Iterator[str]:
        for lines in self.sections.values():
            yield from lines

    def count(self) -> int:
        """The number of cases: a line has one for each leaf."""
        return sum(line.count(" & ") + 1 for line in self.all_lines())


def names() -> list[str]:
    """The profiles that come with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(name: str) -> Profile:
    """The profile of that name, or in that file; raises UsageError that names file and line number."""
    path = FOLDER / f"{name}.txt"
    own = path.is_file() and not name.endswith(".txt")
    if not own:
        path = Path(name)
    if not path.is_file():
        raise UsageError(f"profile {name}: neither a file nor one of {', '.join(names())}")
    return _read(name, path, path.stat().st_mtime_ns, own)


@functools.lru_cache(maxsize=8)
def _read(name: str, path: Path, changed: int, own: bool) -> Profile:
    """Reads the file; the sections of the project's own profiles are taken at their word (a test checks them)."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file in UTF-8: {error.reason} at byte {error.start}") from None
    sections: dict[str, list[str]] = {}
    section: list[str] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith(HEADER):
            section = sections.setdefault(line.removeprefix(HEADER), [])
        elif line and not line.startswith("#"):
            if not own:
                section = sections.setdefault(_suite(path, number, line), [])
            section.append(line)
    return Profile(name, path, {suite: lines for suite, lines in sections.items() if lines})


def _suite(path: Path, number: int, line: str) -> str:
    """The suite of a line in a person's file."""
    try:
        return suite_of(parse_line(line)[0])
    except CaseError as error:
        raise UsageError(f"{path}:{number}: {error}") from None
