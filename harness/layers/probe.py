"""The leaf that stands for a whole program of its own (see `harness.probes`)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from harness.errors import Illegal
from harness.layers.base import Param, Scope
from harness.layers.leaves import Leaf
from harness.probes import PROBES
from harness.probes.base import Probe


def _read_name(text: str) -> tuple[str, ...] | None:
    return (text,) if text in PROBES else None


@dataclasses.dataclass(frozen=True)
class ProbeLeaf(Leaf):
    """`probe(device_order)`, `probe(donation, int32)`."""

    word: ClassVar[str] = "probe"
    rule: ClassVar[str] = ""
    linear: ClassVar[bool] = False
    communicates: ClassVar[bool] = False
    uses_operand: ClassVar[bool] = False
    params: ClassVar[tuple[Param, ...]] = (
        Param("names", _read_name, "|".join(PROBES), "+".join, kind="positional"),
        Param("value", str, "value=WORD", kind="keyword"),
    )
    value: str = ""

    @property
    def probe(self) -> Probe:
        return PROBES[self.names[0]]

    def declined(self, scope: Scope) -> bool:
        """Some public functions exist for some backends only."""
        return self.probe.optional

    def check(self) -> None:
        """Raises Illegal unless the value is one the probe has."""
        if self.value not in (self.probe.values or {"": ""}):
            raise Illegal(f"probe {self.names[0]} takes value={'|'.join(self.probe.values) or 'nothing'}")
