"""What axis names can be in Python: JAX accepts any hashable object, with a few limits of its own.

Each kind says how the name of symbol `i` is written in a program and what must be defined first.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class NameKind:
    """Attributes:
    spelling: Python expression for the name of `{symbol}` (and `{number}`, its place in the alphabet).
    preamble: lines the module needs first.
    mesh: whether a device mesh can have such a name.
    """

    spelling: str
    preamble: tuple[str, ...] = ()
    mesh: bool = False


NAME_KINDS: dict[str, NameKind] = {
    "str": NameKind('"{symbol}"', mesh=True),
    "long": NameKind('"an axis whose name is long: {symbol}"', mesh=True),
    "unicode": NameKind('"ось_{symbol}"', mesh=True),
    "int": NameKind("{number}"),
    "tuple": NameKind('("axis", "{symbol}")'),
    "enum": NameKind(
        "AxisName.{symbol}", ('AxisName = enum.Enum("AxisName", " ".join("abcdefghijklmnopqrstuvwxyz"))',)
    ),
    "object": NameKind(
        'Name("{symbol}")',
        (
            "@dataclasses.dataclass(frozen=True)",
            "class Name:",
            "    text: str",
            "",
            "    def __hash__(self):  # every name collides with every other",
            "        return 7",
        ),
    ),
}


def spell(kind: str, symbol: str) -> str:
    """The Python expression for one axis name."""
    return NAME_KINDS[kind].spelling.format(symbol=symbol, number=ord(symbol) - ord("a"))
