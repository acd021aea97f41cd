"""What the statements of a probe that turned out untrue speak of.

A probe holds JAX to many statements at once, so that its parameters say little about which part is broken; the
expression behind an untrue statement says it. `scan unrolled` is `lax.scan(..., unroll=4)` in the probe's source: it
speaks of scan, and of its option unroll.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Iterable, Iterator

from harness.case import parse
from harness.errors import CaseError
from harness.judge import NOT_TRUE
from harness.layers import LAYERS, LEAVES
from harness.layers.probe import ProbeLeaf
from harness.report.results import Result

SHOWN = 3

VOCABULARY = LAYERS | LEAVES
SPOKEN = {
    **{word: (layer.family, word) for word, layer in LAYERS.items()},
    **{word: ("leaf", word) for word in LEAVES},
    "jacfwd": ("derivative", "jacobian"),
    "jacrev": ("derivative", "jacobian"),
    "hessian": ("derivative", "hvp"),
}
"""A public function of jax or lax -> the parameter that it is."""
HELPERS = {
    "forward": SPOKEN["custom_jvp"],
    "backward": SPOKEN["custom_vjp"],
    "scaled": SPOKEN["custom_vjp"],
}
"""What the probes call functions that have derivative rules of their own (`harness.probes.operations`)."""

_CALL = re.compile(r"\b(?:jax|lax)\.(\w+)")
_HELPER = re.compile(rf"\b({'|'.join(HELPERS)})\b")
_KEYWORD = re.compile(r"\b(\w+)=")
_ENTRY = re.compile(r"""^\s*(?:facts\[)?"([^"]+)"\]?(?:: | = )(.*)$""", re.MULTILINE)


def untrue(result: Result) -> list[str]:
    """The statements of the case that were not true, without what was found instead."""
    _, _, said = result.message.partition(NOT_TRUE)
    return [_without_brackets(part).strip() for part in _parts(said)] if said else []


def _parts(said: str) -> list[str]:
    """Splits at semicolons outside brackets."""
    parts, depth = [""], 0
    for sign in said:
        depth += (sign in "([") - (sign in ")]")
        if sign == ";" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _without_brackets(text: str) -> str:
    return text.partition(" (")[0]


@functools.cache
def _entries(case: str) -> dict[str, str]:
    """The probe's statements -> the expression behind each, as far as one line of its source has both."""
    try:
        leaf = parse(case).leaf
    except CaseError:
        return {}
    if not isinstance(leaf, ProbeLeaf):
        return {}
    source = leaf.probe.source + "\n" + leaf.probe.values.get(leaf.value, "")
    return dict(_ENTRY.findall(source))


def heads(result: Result) -> dict[str, str]:
    """The untrue statements by their names in the probe's source -> expression; by their own text where it has none."""
    found = {}
    for statement in untrue(result):
        entries = _entries(result.case)
        names = [name for name in entries if re.match(rf"{re.escape(name)}(\W|$)", statement)]
        name = max(names, key=len, default=statement)
        found[name] = entries.get(name, "")
    return found


def spoken(results: Iterable[Result]) -> Iterator[tuple[str, str]]:
    """The parameters that the expressions behind the untrue statements of these cases speak of."""
    for result in results:
        for expression in heads(result).values():
            yield from _parameters(expression)


def _parameters(expression: str) -> Iterator[tuple[str, str]]:
    yield from (HELPERS[word] for word in _HELPER.findall(expression))
    keywords = _KEYWORD.findall(expression)
    for word in _CALL.findall(expression):
        if word in SPOKEN:
            yield SPOKEN[word]
        if word in VOCABULARY:
            options = {param.name for param in VOCABULARY[word].params}
            yield from (("option", f"{word}.{keyword}") for keyword in keywords if keyword in options)


def shown(results: Iterable[Result]) -> str:
    """The untrue statements that most of the cases have, in a few words; "" if they have none."""
    counts = collections.Counter(name for result in results for name in heads(result))
    first = [name for name, _ in counts.most_common(SHOWN)]
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    return "; ".join(first) + more
