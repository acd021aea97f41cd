"""The catalogue of laws, `configs/rules.toml`."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from pathlib import Path

from harness.errors import UsageError

PATH = Path(__file__).resolve().parent.parent / "configs" / "rules.toml"


@dataclasses.dataclass(frozen=True)
class Rule:
    """One law.

    Attributes:
      name: `subject.what`.
      law: one sentence.
      origin: issue, documentation section or paper it comes from.
      since: first JAX release it is held against, "" for all.
    """

    name: str
    law: str
    origin: str
    since: str = ""


@functools.cache
def rules(path: Path = PATH) -> dict[str, Rule]:
    """All laws by name; raises UsageError for a table that is none."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {
            f"{subject}.{what}": Rule(f"{subject}.{what}", **entry)
            for subject, group in tables.items()
            for what, entry in group.items()
        }
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise UsageError(f"{path}: {error}") from error
