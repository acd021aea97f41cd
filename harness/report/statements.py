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
from harness.layers import LEAVES
from harness.layers.probe import ProbeLeaf
from harness.report.results import Result

UNTRUE = "not true that "
SHOWN = 3

SPOKEN = {
    **{
        f"lax.{word}": ("control", word)
        for word in ("scan", "fori_loop", "while_loop", "cond", "switch", "map", "associative_scan")
    },
    **{f"lax.{word}": ("leaf", word) for word in LEAVES},
    **{
        f"jax.{word}": ("derivative", word)
        for word in ("grad", "vjp", "jvp", "linearize", "linear_transpose")
    },
    **{f"jax.{word}": ("derivative", "jacobian") for word in ("jacfwd", "jacrev")},
    "jax.hessian": ("derivative", "hvp"),
    **{f"jax.{word}": ("staging", word) for word in ("jit", "checkpoint", "custom_jvp", "custom_vjp")},
    **{f"jax.{word}": ("binder", word) for word in ("vmap", "pmap", "shard_map")},
    "forward(": ("staging", "custom_jvp"),
    "backward(": ("staging", "custom_vjp"),
    "scaled(": ("staging", "custom_vjp"),
    "unroll=": ("option", "unroll"),
    "reverse=": ("option", "reverse"),
    "batch_size=": ("option", "batch"),
    "axis_index_groups=": ("option", "groups"),
    "tiled=": ("option", "tiled"),
}
"""What stands in an expression -> (parameter, value) that it speaks of."""

_SPOKEN = re.compile(
    "|".join(
        rf"\b{re.escape(word)}(?!\w)" if word[-1].isalnum() else rf"\b{re.escape(word)}" for word in SPOKEN
    )
)
_ENTRY = re.compile(r"""^\s*(?:facts\[)?"([^"]+)"\]?(?:: | = )(.*)$""", re.MULTILINE)


def untrue(result: Result) -> list[str]:
    """The statements of the case that were not true, without what was found instead."""
    _, _, said = result.message.partition(UNTRUE)
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
    entries = _entries(result.case)
    for statement in untrue(result):
        names = [name for name in entries if re.match(rf"{re.escape(name)}(\W|$)", statement)]
        name = max(names, key=len, default=statement)
        found[name] = entries.get(name, "")
    return found


def spoken(results: Iterable[Result]) -> Iterator[tuple[str, str]]:
    """The parameters that the expressions behind the untrue statements of these cases speak of."""
    for result in results:
        for expression in heads(result).values():
            for word in _SPOKEN.findall(expression):
                yield SPOKEN[word]


def shown(results: Iterable[Result]) -> str:
    """The untrue statements that most of the cases have, in a few words; "" if they have none."""
    counts = collections.Counter(name for result in results for name in heads(result))
    first = [name for name, _ in counts.most_common(SHOWN)]
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    return "; ".join(first) + more
