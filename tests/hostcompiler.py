"""A process that checks cases as on a compile-only backend, with XLA's host compiler in the place of the TPU's.

What the compiler makes may be altered before it is looked at: `alter` is a regular expression and its replacement in
the text, `shared` gives every environment the first one's executable.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

import jax

from harness import check, worker
from harness.aot import check as aot
from harness.aot.names import Target
from harness.aot.target import Compiled, Compiler


class Host(Compiler):
    """XLA's host compiler for the host's devices."""

    def __init__(self, execute: bool, alter: tuple[str, str] | None, shared: bool):
        self.target = Target("aot:host", "host", "host", (8,), execute)
        self.devices = jax.devices("cpu")
        self.alter, self.shared = alter, shared
        self.first: Compiled | None = None

    def compile(self, function: Any, arguments: tuple[Any, ...], mesh: bool) -> Compiled:
        made = super().compile(function, arguments, mesh)
        self.first = self.first or made
        if self.shared:
            return self.first
        return made if self.alter is None else Altered(made.stage, made.arguments, self.alter)


class Altered(Compiled):
    """A compiled program with a defect: another text than the compiler's own."""

    def __init__(self, stage: Any, arguments: tuple[Any, ...], alter: tuple[str, str]):
        super().__init__(stage, arguments)
        object.__setattr__(self, "alter", alter)

    @functools.cached_property
    def text(self) -> str:
        text, count = re.subn(*getattr(self, "alter"), self.stage.as_text())
        if not count:
            raise ValueError(f"the defect fits no line of\n{self.stage.as_text()}")
        return text


def handle(request: dict[str, Any]) -> Any:
    """`{"line": LINE, "execute": ..., "alter": ..., "shared": ...}`: the results, and whether JAX is as it was."""
    before = jax.devices, jax.local_devices, jax.device_count, jax.pmap
    alter = tuple(request["alter"]) if request.get("alter") else None
    compiler = Host(request["execute"], alter, request.get("shared", False))
    way = check.Way(
        functools.partial(aot.findings, compiler),
        functools.partial(aot.missing, compiler),
        functools.partial(aot.rules, request["execute"]),
        compiler.run,
        reproduce=lambda rendered, finding: "",
    )
    results = check.check_line(request["line"], way)
    return {
        "results": results,
        "restored": before == (jax.devices, jax.local_devices, jax.device_count, jax.pmap),
    }


if __name__ == "__main__":
    worker.main(int(sys.argv[1]), handle)
