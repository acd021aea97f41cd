"""The parameter space of a suite, declared once: which fragments each part of a case line may have.

A row takes one fragment of every factor; `Space.line` makes the case line of it and `Space.rows` is the way back.
Whether a row is legal is decided by `harness.program.plan` alone.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from typing import Any

from harness.case import SETTINGS, Case, line_of, parse, parse_line
from harness.errors import Illegal
from harness.layers.base import Layer
from harness.layers.leaves import Leaf
from harness.program import Plan, plan

FACTORS = (
    "leaf", "binder", "sizes", "middle", "control", "within", "operand", "dtype", "shape", "payload", "names", "schedule",
)  # fmt: skip
LAYERS = ("binder", "middle", "control", "within")
FIELDS = ("dtype", "shape", "payload", "names", "schedule")

Fragments = tuple[str, ...]
"""What one part of a case line may be, as it stands there."""
Row = tuple[str, ...]
"""One fragment for each of FACTORS; a frame is a row without its first fragment, the leaf."""

SETTING = {setting.key: setting for setting in SETTINGS}
NUMBERS = r"\d+(?:,\d+)*"


@dataclasses.dataclass(frozen=True, eq=False)
class Space:
    """The table of one suite: factor -> fragments as they stand in canonical lines, the plainest of each first.

    Attributes:
      suite: the suite all rows belong to.
      binder: everything from the outermost layer to the last binder, `{i}` and `{j}` standing for sizes.
      sizes: sizes of the axes at each step, such as `i:2,3 j:3,2`; those of a row are the ones its binder has.
      middle: layers between the binders and the control flow, or the leaf.
      control: control flow layers, possibly with the program's argument as in `while_loop(arg) | n=3`.
      within: layers between the control flow and the leaf.
      leaf: collectives and axis queries.
      bundle: how many leaves one line may carry.
      extra: lines of all profiles that are no part of the table, such as witnesses of single defects.
    """

    suite: str
    binder: tuple[str, ...]
    sizes: tuple[str, ...]
    leaf: tuple[str, ...]
    middle: tuple[str, ...] = ("",)
    control: tuple[str, ...] = ("",)
    within: tuple[str, ...] = ("",)
    operand: tuple[str, ...] = ("argument",)
    dtype: tuple[str, ...] = ("float32",)
    shape: tuple[str, ...] = ("3",)
    payload: tuple[str, ...] = ("basis",)
    names: tuple[str, ...] = ("str",)
    schedule: tuple[str, ...] = ("sizes",)
    bundle: int = 5
    extra: tuple[str, ...] = ()

    @functools.cached_property
    def table(self) -> tuple[tuple[str, ...], ...]:
        """The fragments of each of FACTORS."""
        return tuple(tuple(dict.fromkeys(getattr(self, factor))) for factor in FACTORS)

    def case(self, row: Row) -> Case:
        """The case of a row; raises Illegal, or CaseError where a fragment is wrong."""
        at = dict(zip(FACTORS, row))
        binder = _bound(at["binder"], at["sizes"])
        control, _, extra = at["control"].partition(" | ")
        layers = [_layers(text) for text in (binder, at["middle"], control, at["within"])]
        fields = {key: _read(key, at[key]) for key in FIELDS}
        if extra:
            fields["n"] = _read(*extra.split("="))
        return Case(tuple(itertools.chain(*layers)), _leaf(at["leaf"]), operand=at["operand"], **fields)

    def plan(self, rows: list[Row]) -> Plan:
        """The typed program of rows that differ in their leaf only; raises Illegal."""
        cases = [self.case(row) for row in rows]
        return plan.__wrapped__(cases[0], tuple(case.leaf for case in cases[1:]))

    def line(self, rows: list[Row]) -> str:
        """The canonical line of rows that differ in their leaf only."""
        cases = [self.case(row) for row in rows]
        return line_of(cases[0], [case.leaf for case in cases])

    def rows(self, line: str) -> list[Row]:
        """The rows of a line, one for each leaf; leaves and lines that are not of this space have none."""
        cases = parse_line(line)
        frames = self._frames(cases[0])
        leaves = [str(case.leaf) for case in cases]
        return [(leaf, *frame) for leaf in leaves for frame in frames if leaf in self.table[0]]

    def _frames(self, case: Case) -> list[Row]:
        text = _program(" > ".join(map(str, case.layers)), str(case.n))
        tail = (case.operand, *(SETTING[key].write(getattr(case, key)) for key in FIELDS))
        frames = []
        for pattern, (binder, *rest) in self._skeletons.get(re.sub(NUMBERS, "*", text), []):
            match = pattern.fullmatch(text)
            if match:
                sizes = " ".join(f"{axis}:{numbers}" for axis, numbers in sorted(match.groupdict().items()))
                frames.append((binder, sizes, *rest, *tail))
        tables = self.table[1:]
        return [frame for frame in frames if all(value in table for value, table in zip(frame, tables))]

    @functools.cached_property
    def _skeletons(self) -> dict[str, list[tuple[re.Pattern[str], Row]]]:
        """Text of all layers with every number masked -> (pattern that reads the sizes, layer fragments)."""
        found: dict[str, list[tuple[re.Pattern[str], Row]]] = {}
        for layers in itertools.product(*(getattr(self, factor) for factor in LAYERS)):
            control, _, extra = layers[2].partition(" | ")
            parts = [part for part in (*layers[:2], control, layers[3]) if part]
            text = _program(" > ".join(parts), extra.removeprefix("n=") or "2")
            pattern = (
                re.escape(text).replace(r"\{i\}", f"(?P<i>{NUMBERS})").replace(r"\{j\}", f"(?P<j>{NUMBERS})")
            )
            masked = re.sub(NUMBERS, "*", text.replace("{i}", "1").replace("{j}", "1"))
            found.setdefault(masked, []).append((re.compile(pattern), layers))
        return found


def _program(layers: str, n: str) -> str:
    return layers if n == "2" else f"{layers} | n={n}"


@functools.cache
def _bound(binder: str, sizes: str) -> str:
    """The binder with its sizes filled in."""
    given = dict(item.split(":") for item in sizes.split())
    if set(given) != set(re.findall(r"\{(\w)\}", binder)):
        raise Illegal("the sizes are not those of the binder's axes")
    return binder.format(**given)


@functools.cache
def _layers(text: str) -> tuple[Layer, ...]:
    return parse(f"{text} > psum(i)").layers if text else ()


@functools.cache
def _leaf(text: str) -> Leaf:
    return parse(text).leaf


@functools.cache
def _read(key: str, text: str) -> Any:
    return SETTING[key].read(text)
