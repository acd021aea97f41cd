"""The parameters of a case as reports, selections, expectations and diagnosis speak of them.

All of them derive from the case, so that a new layer or setting shows up everywhere by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from harness.case import SETTINGS, Case, parse
from harness.errors import UsageError
from harness.layers.binders import Binder, Pmap, ShardMap
from harness.layers.control import Control
from harness.layers.probe import ProbeLeaf

Parameters = dict[str, tuple[str, ...]]
"""Values by key; a case has several where a layer of a kind stands more than once, and ("none",) where none does."""

FAMILIES = ("binder", "staging", "control", "derivative")


def parameters(case: Case) -> Parameters:
    """`{"binder": ("vmap",), "leaf": ("psum",), "sizes": ("2", "3"), "option": ("scan.reverse",) ...}`."""
    found: Parameters = {}
    for family in FAMILIES:
        words = tuple(layer.word for layer in case.layers if layer.family == family)
        found[family] = words or ("none",)
    found["outer"] = (case.layers[0].word if case.layers else "none",)
    probe = isinstance(case.leaf, ProbeLeaf)
    found["leaf"] = (case.leaf.word,)
    found["probe"] = case.leaf.names if probe else ("none",)
    bindings = [binding for layer in case.layers if isinstance(layer, Binder) for binding in layer.bindings]
    found["size"] = _unique(str(size) for _, sizes in bindings for size in sizes)
    found["leaf_over"] = _leaf_over(case)
    found["axes"] = (str(len(bindings)),)
    found["devices"] = _devices(case)
    found["names_in_leaf"] = (str(len(case.leaf.names)),)
    found["names_order"] = (_names_order(case),)
    found["outside"] = _outside(case)
    steps = max((len(sizes) for _, sizes in bindings), default=1)
    met = {tuple(sizes[step % len(sizes)] for _, sizes in bindings) for step in range(steps)}
    found["environments"] = (str(len(met)),)
    found["count"] = _unique(layer.count.kind for layer in case.layers if isinstance(layer, Control))
    checks = _unique(layer.check for layer in case.layers if isinstance(layer, ShardMap))
    found["check"] = checks
    found["mode"] = ("staged" if any(layer.caches for layer in case.layers) else "eager",)
    found["operand"] = (case.operand,)
    for setting in SETTINGS:
        found[setting.key] = (setting.write(getattr(case, setting.key)),)
    found["option"] = _unique(_options(case))
    found["program"] = (" > ".join(layer.word for layer in case.layers),)
    return found


def _devices(case: Case) -> tuple[str, ...]:
    """How many devices the steps use, as far as the layers say it."""
    held = [layer for layer in case.layers if isinstance(layer, (Pmap, ShardMap))]
    bound = [sizes for layer in held for _, sizes in layer.bindings]
    spare = math.prod(getattr(layer, "other", 0) or 1 for layer in held)
    steps = max(map(len, bound), default=1)
    return _unique(str(spare * math.prod(sizes[k % len(sizes)] for sizes in bound)) for k in range(steps))


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values)) or ("none",)


def _leaf_over(case: Case) -> tuple[str, ...]:
    """The binders of the leaf's names, and "mixed" where they are several kinds."""
    bound: dict[str, str] = {}
    for layer in case.layers:
        if isinstance(layer, Binder):
            bound.update((symbol, layer.word) for symbol, _ in layer.bindings)
    kinds = _unique(bound.get(name, "nothing") for name in case.leaf.names)
    return (*kinds, "mixed") if len(kinds) > 1 else kinds


def _names_order(case: Case) -> str:
    """Whether the leaf's names stand in the order in which they are bound, "bound", or not, "other"."""
    bound = [symbol for layer in case.layers if isinstance(layer, Binder) for symbol, _ in layer.bindings]
    places = [bound.index(name) for name in case.leaf.names if name in bound]
    if len(places) < 2:
        return "none"
    return "bound" if places == sorted(places) else "other"


def _outside(case: Case) -> tuple[str, ...]:
    """The layers that stand around a binder and are none themselves."""
    last = max((at for at, layer in enumerate(case.layers) if isinstance(layer, Binder)), default=0)
    return _unique(layer.word for layer in case.layers[:last] if not isinstance(layer, Binder))


def _options(case: Case) -> Iterable[str]:
    """Parameters of layers and leaf that are not at their default, such as `all_gather.tiled` or `vmap.in=1`."""
    for definition in (*case.layers, case.leaf):
        for param in definition.params:
            value = getattr(definition, param.name)
            default = definition.default(param.name)
            if param.kind == "flag" and value:
                yield f"{definition.word}.{param.keyword}"
            elif param.kind == "keyword" and value != default:
                yield f"{definition.word}.{param.keyword}={param.write(value)}"


def suite_of(case: Case) -> str:
    """The suite a case belongs to: what it is about, from the most particular on."""
    if isinstance(case.leaf, ProbeLeaf):
        return case.leaf.probe.suite
    if case.schedule != "sizes":
        return case.schedule if case.schedule in ("unbound", "raises") else "caches"
    for family in ("control", "derivative", "staging", "binder"):
        words = [layer.word for layer in case.layers if layer.family == family]
        if words:
            return words[-1]
    return "leaf"


def select(case: Case, where: Mapping[str, Iterable[str]]) -> bool:
    """Whether a case has, for every key, one of the values."""
    own = parameters(case)
    return all(set(values) & set(own[key]) for key, values in where.items())


def parse_where(texts: Iterable[str], known: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    """Reads `KEY=VALUE[,VALUE]` options; an unknown key or value is an error that lists the known ones."""
    where: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or key not in known:
            raise UsageError(
                f"--where {text}: expected KEY=VALUE with a key among {', '.join(sorted(known))}"
            )
        chosen = tuple(values.split(","))
        for value in chosen:
            if value not in known[key]:
                raise UsageError(
                    f"--where {text}: {key} has no value {value!r}; known: {', '.join(sorted(known[key]))}"
                )
        where[key] = where.get(key, ()) + chosen
    return where


KEYS = frozenset(parameters(parse("vmap(i:2) > psum(i)")))
"""Every parameter key."""
