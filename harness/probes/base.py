"""What a probe is."""

from __future__ import annotations

import dataclasses
import textwrap


@dataclasses.dataclass(frozen=True)
class Probe:
    """One law with a program of its own.

    Attributes:
      rule: the law.
      source: body of a function that returns `{statement: bool}`; every statement must be true.
      suite: the suite it belongs to.
      values: what `VALUE` may be, as Python source by the word that case lines use; empty when the probe has none.
      devices: how many devices it needs.
      since: first JAX release it is held against, "" for all.
      imports: further import lines.
      requires: a Python module it needs beside JAX's own dependencies, or "".
      alone: whether it is about a single process: in a run of several it says nothing.
      processes: how many processes it needs.
      optional: whether a backend may say that it does not implement this.
    """

    rule: str
    source: str
    suite: str
    values: dict[str, str] = dataclasses.field(default_factory=dict)
    devices: int = 1
    since: str = ""
    imports: tuple[str, ...] = ()
    requires: str = ""
    alone: bool = True
    processes: int = 1
    optional: bool = False

    def lines(self) -> list[str]:
        """The source, dedented."""
        return textwrap.dedent(self.source).strip("\n").split("\n")
