"""The case line: a program, its operand and its settings, as one line of text.

    vmap(i:2,3,2) > jit > scan(2) > psum(i) of constant
    shard_map(i:2, j:4, in=i.j) > jit > all_gather(i, axis=1, tiled) | dtype=bfloat16 shape=3x5

`LAYER > LAYER > ... > LEAF [of OPERAND] [| KEY=VALUE ...]`. Parameters and settings at their default are not written,
so that every case has exactly one canonical line, which is its id. Leaves joined by ` & ` make one line for several
cases that share everything else; they run as one program and are judged apart.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any

from harness.dims import Dim, parse_dim
from harness.dtypes import NAMES
from harness.errors import CaseError
from harness.layers import LAYERS, LEAVES
from harness.layers.base import Definition, Layer, Param
from harness.layers.leaves import Leaf
from harness.layers.probe import ProbeLeaf
from harness.names import NAME_KINDS
from harness.payloads import PAYLOADS
from harness.schedules import SCHEDULES

Shape = tuple[Dim, ...]

OPERANDS = ("argument", "tree", "closure", "constant")


def read_shape(text: str) -> Shape | None:
    """`scalar`, or dimensions joined by `x` such as `3x2i`."""
    if text == "scalar":
        return ()
    dims = [parse_dim(part) for part in text.split("x")]
    return None if None in dims else tuple(dim for dim in dims if dim is not None)


def write_shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


@dataclasses.dataclass(frozen=True)
class Setting:
    """One `KEY=VALUE` after the bar."""

    key: str
    default: Any
    read: Any
    expects: str
    write: Any = str


def _one_of(table: Iterable[str]) -> Any:
    allowed = tuple(table)
    return lambda text: text if text in allowed else None


SETTINGS: tuple[Setting, ...] = (
    Setting("dtype", "float32", _one_of(NAMES), "|".join(NAMES)),
    Setting("shape", (Dim(3),), read_shape, "'scalar' or dimensions such as 3x2i", write_shape),
    Setting("payload", "basis", _one_of(PAYLOADS), "|".join(PAYLOADS)),
    Setting("n", 2, lambda text: int(text) if text.isdecimal() else None, "a number"),
    Setting("names", "str", _one_of(NAME_KINDS), "|".join(NAME_KINDS)),
    Setting("schedule", "sizes", _one_of(SCHEDULES), "|".join(SCHEDULES)),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One program with its operand and settings.

    Attributes:
      layers: outermost first.
      leaf: the collective or axis query.
      operand: "argument"; "tree" (the leaf gets a pytree made of the argument and its double); "closure" (an array
        the leaf closes over); "constant" (the Python number 1) or another Python number.
      dtype: of the operand.
      shape: local shape of the operand, as one position of every axis sees it, without the payload's basis dimension.
      payload: which values the operand has.
      n: the program's scalar argument, where a layer's count is `arg`.
      names: what kind of Python objects the axis names are.
      schedule: what happens between the steps.
    """

    layers: tuple[Layer, ...]
    leaf: Leaf
    operand: str = "argument"
    dtype: str = "float32"
    shape: Shape = (Dim(3),)
    payload: str = "basis"
    n: int = 2
    names: str = "str"
    schedule: str = "sizes"

    def __str__(self) -> str:
        return line_of(self, [self.leaf])

    def alone(self, leaf: Leaf) -> Case:
        """The case that shares all with this one but its leaf."""
        return dataclasses.replace(self, leaf=leaf)

    @property
    def takes_argument(self) -> bool:
        """Whether the leaf's operand is the program's argument x."""
        return self.operand in ("argument", "tree")

    @property
    def rule(self) -> str:
        """The law about the leaf's value."""
        if isinstance(self.leaf, ProbeLeaf):
            return self.leaf.probe.rule
        constant = not self.takes_argument and self.operand != "closure"
        return "psum.constant" if constant and self.leaf.word == "psum" else self.leaf.rule


def line_of(case: Case, leaves: Iterable[Leaf]) -> str:
    """The canonical line of cases that differ in their leaf only."""
    program = " > ".join([*map(str, case.layers), " & ".join(map(str, leaves))])
    operand = f" of {case.operand}" if case.operand != "argument" else ""
    settings = [
        f"{setting.key}={setting.write(getattr(case, setting.key))}"
        for setting in SETTINGS
        if getattr(case, setting.key) != setting.default
    ]
    return program + operand + (" | " + " ".join(settings) if settings else "")


TERM = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")


def parse(line: str) -> Case:
    """The case of a line with one leaf; raises CaseError."""
    cases = parse_line(line)
    if len(cases) != 1:
        raise CaseError(line, line.index("&") + 1, "&", "a single leaf")
    return cases[0]


def parse_line(line: str) -> list[Case]:
    """The cases of a line, one for each leaf; raises CaseError with the column of what is wrong."""
    program, bar, tail = line.partition("|")
    body, of, operand = program.partition(" of ")
    *layer_texts, leaf_text = _pieces(body, ">", 0)
    layers = tuple(_definition(line, text, column, LAYERS, "a layer") for text, column in layer_texts)
    leaves = [
        _definition(line, text, column, LEAVES, "a collective or axis query")
        for text, column in _pieces(leaf_text[0], "&", leaf_text[1])
    ]
    fields = _settings(line, tail, len(program) + len(bar)) if bar else {}
    if of:
        fields["operand"] = _operand(line, operand, len(body) + len(of))
    return [Case(layers, leaf, **fields) for leaf in leaves]  # type: ignore[arg-type]


def _pieces(text: str, separator: str, start: int) -> Iterator[tuple[str, int]]:
    """(piece, offset) of a separated text."""
    for piece in text.split(separator):
        yield piece, start
        start += len(piece) + 1


def _operand(line: str, text: str, column: int) -> str:
    operand = text.strip()
    if operand in OPERANDS or re.fullmatch(r"-?\d+(\.\d+)?|True", operand):
        return operand
    raise CaseError(line, column + 1, operand, "|".join(OPERANDS) + " or a number")


def _settings(line: str, tail: str, start: int) -> dict[str, Any]:
    known = {setting.key: setting for setting in SETTINGS}
    fields: dict[str, Any] = {}
    for match in re.finditer(r"\S+", tail):
        key, equals, value = match.group().partition("=")
        column = start + match.start() + 1
        if key in fields:
            raise CaseError(line, column, match.group(), "each key once")
        if key not in known or not equals:
            raise CaseError(line, column, match.group(), "KEY=VALUE with a key among " + ", ".join(known))
        read = known[key].read(value)
        if read is None:
            raise CaseError(line, column + len(key) + 1, value, known[key].expects)
        fields[key] = read
    return fields


def _definition(line: str, text: str, column: int, table: dict[str, Any], what: str) -> Any:
    match = TERM.match(text)
    if match and match.end() < len(text) and match.group(1) in {**LAYERS, **LEAVES}:
        rest = text[match.end() :].rstrip()
        expected = "one pair of parentheses" if rest[0] in "()" else "'>', '&', ' of OPERAND', '|' or the end"
        raise CaseError(line, column + match.end() + 1, rest, expected)
    match = TERM.fullmatch(text)
    word = match.group(1) if match else text.strip()
    column += len(text) - len(text.lstrip()) + 1
    if match is None or word not in table:
        raise CaseError(line, column, word or "nothing", f"{what} ({', '.join(table)})")
    inside = match.group(2)
    items = list(_pieces(inside, ",", column + text.strip().index("("))) if inside is not None else []
    return _fill(line, table[word], items, column)


def _fill(line: str, kind: type[Definition], items: list[tuple[str, int]], column: int) -> Definition:
    """Builds a layer or leaf from its items, by its table of parameters."""
    fields: dict[str, Any] = {}
    waiting = [param for param in kind.params if param.kind in ("positional", "bindings")]
    while items:
        text, at = items[0]
        item, at = text.strip(), at + len(text) - len(text.lstrip()) + 1
        param, value = _match(kind, item, waiting)
        if param is None or param.name in fields:
            expected = [_spelling(p) for p in kind.params if p.name not in fields]
            raise CaseError(line, at, item, " or ".join(expected) or "nothing more")
        if param.kind == "bindings":
            fields[param.name], items = _bindings(line, items, param)
            waiting.remove(param)
            continue
        read = True if param.kind == "flag" else param.read(value)
        if read is None:
            raise CaseError(line, at, item, param.expects)
        fields[param.name] = read
        if param in waiting:
            waiting.remove(param)
        items = items[1:]
    if waiting:
        raise CaseError(line, column, kind.word, f"{kind.word}({waiting[0].expects})")
    return kind(**fields)


def _spelling(param: Param) -> str:
    return param.expects or param.keyword


def _match(kind: type[Definition], item: str, waiting: list[Param]) -> tuple[Param | None, str]:
    key, equals, value = item.partition("=")
    for param in kind.params:
        if param.kind == "flag" and item == param.keyword:
            return param, ""
        if param.kind == "keyword" and equals and key == param.keyword:
            return param, value
    if waiting and not equals:
        return waiting[0], item
    return None, ""


def _bindings(line: str, items: list[tuple[str, int]], param: Param) -> tuple[Any, list[tuple[str, int]]]:
    """Reads `i:2,3,2, j:4,4,4` from the front of the items."""
    found: list[tuple[str, list[int]]] = []
    start = items
    while items:
        text, at = items[0]
        item, at = text.strip(), at + len(text) - len(text.lstrip()) + 1
        symbol, colon, first = item.partition(":")
        size = first if colon else item
        starts = bool(colon) and len(symbol) == 1 and (symbol.islower() or symbol == "_")
        if not (starts or (found and not colon and item.isdecimal())):
            if found and not colon and not item.isdecimal():
                break
            raise CaseError(line, at, item, param.expects)
        if not size.isdecimal() or int(size) < 1:
            raise CaseError(line, at, item, "a size of 1 or more")
        if starts:
            found.append((symbol, []))
        found[-1][1].append(int(size))
        items = items[1:]
    lengths = {len(sizes) for _, sizes in found}
    if len(lengths) > 1 or len({symbol for symbol, _ in found}) != len(found):
        text, at = start[0]
        written = ", ".join(item.strip() for item, _ in start[: len(start) - len(items)])
        at += len(text) - len(text.lstrip()) + 1
        raise CaseError(line, at, written, "distinct axes with the same number of sizes each")
    return tuple((symbol, tuple(sizes)) for symbol, sizes in found), items
