"""Results folders made up for the tests of reports: real case lines, verdicts by an injected truth."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from harness.case import parse
from harness.parameters import parameters, suite_of
from harness.report.results import Result, read_result

BINDERS = (
    "vmap(i:{a})",
    "vmap(i:{a}) > vmap(j:{b})",
    "shard_map(i:{a})",
    "shard_map(i:{a}, j:{b}, in=i.j)",
    "pmap(i:{a})",
)
BINDERS += ("vmap(j:{b}) > shard_map(i:{a})", "shard_map(i:{a}) > vmap(j:{b})", "vmap(i:{a}, in=1)")
STAGING = ("", "jit", "checkpoint", "custom_jvp", "custom_vjp", "jit > checkpoint")
DERIVATIVES = ("", "", "jvp", "vjp", "linearize")
CONTROL = (
    "",
    "scan(2)",
    "scan(3, reverse)",
    "while_loop(2)",
    "fori_loop(arg)",
    "cond(index i)",
    "switch(arg)",
    "scan(2) > cond(arg)",
)
LEAVES = ("psum(i)", "pmean(i)", "pmax(i)", "pmin(i)", "ppermute(i)", "all_gather(i)", "all_gather(i, tiled)")
LEAVES += ("all_to_all(i)", "psum_scatter(i)", "axis_index(i)", "axis_size(i)")
SIZES = ("1", "2", "3", "4", "5", "6", "7", "8", "2,3,2", "3,2,3", "4,8")
DTYPES = ("float32", "float32", "bfloat16", "int32", "int8", "uint8", "bool", "complex64", "float64")
SHAPES = ("3", "3x5", "scalar", "0x2")
PAYLOADS = ("basis", "counting", "origin")

Record = dict[str, Any]
Parameters = dict[str, tuple[str, ...]]
Truth = Callable[[Parameters], str]
"""Kind of wrong of a case, "" for a case that passes; "crash" and "hang" are verdicts."""


def line(rng: random.Random) -> str:
    """A random canonical case line; it parses, whether or not it would be legal."""
    steps = rng.choice(SIZES)
    count = steps.count(",") + 1
    binder = rng.choice(BINDERS).format(a=steps, b=",".join([rng.choice("234")] * count))
    middle = [rng.choice(part) for part in (STAGING, DERIVATIVES, CONTROL)]
    program = " > ".join([binder, *filter(None, middle), rng.choice(LEAVES)])
    settings = f"dtype={rng.choice(DTYPES)} shape={rng.choice(SHAPES)} payload={rng.choice(PAYLOADS)}"
    return str(parse(f"{program} | {settings}"))


@functools.cache
def lines(count: int, seed: int = 1) -> tuple[str, ...]:
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[line(rng)] = None
    return tuple(found)


@functools.cache
def _known(case: str) -> tuple[Parameters, str, str]:
    parsed = parse(case)
    return parameters(parsed), suite_of(parsed), parsed.leaf.rule


def record(case: str, truth: Truth) -> Record:
    """A journal line of a case as the truth has it."""
    own, suite, rule = _known(case)
    kind = truth(own)
    verdict = "pass" if not kind else kind if kind in ("crash", "hang") else "fail"
    rules = [rule, "result.type", "repeat.bitwise"] + ["cache.fresh", "cache.retrace"] * (
        own["environments"] != ("1",)
    )
    return {
        "case": case,
        "suite": suite,
        "rule": "cache.fresh" if kind == "stale entry" else rule,
        "rules": rules,
        "verdict": verdict,
        "kind": "" if verdict != "fail" else kind,
        "message": f"i=3: psum: (i=0) [0] received {{(i=1)[0]}}, should be {{(i=0)[0], (i=1)[0]}} {kind}"
        if kind
        else "",
        "also": [],
        "seconds": 0.05,
        "time": "2026-01-01T00:00:00.000+00:00",
        "worker": "main",
        "parameters": {key: list(values) for key, values in own.items()},
        "reproducer": None,
        "log": None,
        "expectation": None,
    }


def records(count: int, *truths: Truth, seed: int = 1) -> list[Record]:
    """Journal lines of random cases; the first truth that calls a case wrong decides."""
    return [
        record(case, lambda own: next(filter(None, (truth(own) for truth in truths)), ""))
        for case in lines(count, seed)
    ]


def results(count: int, *truths: Truth, seed: int = 1) -> list[Result]:
    return [read_result(found) for found in records(count, *truths, seed=seed)]


def fails(kind: str = "wrong value", **where: str) -> Truth:
    """A defect that shows in every case that has all these values."""
    return lambda own: kind if all(value in own[key] for key, value in where.items()) else ""


def sometimes(share: float, truth: Truth, seed: int = 7) -> Truth:
    """A defect that shows only in that share of its cases, as when a parameter nobody looks at decides."""
    rng = random.Random(seed)
    return lambda own: truth(own) if rng.random() < share else ""


def write(folder: Path, found: Iterable[Record], torn: str = "", **environment: Any) -> Path:
    """A results folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reproducers").mkdir(exist_ok=True)
    text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in found)
    (folder / "results.jsonl").write_text(text + torn, encoding="utf-8")
    facts = {"jax": "0.10.2", "jaxlib": "0.10.2", "numpy": "2.4.6", "python": "3.11.7", "machine": "x86_64"}
    facts |= {"backend": "cpu", "device_kind": "cpu", "device_count": 8, "process_count": 1, "flags": {}}
    (folder / "environment.json").write_text(json.dumps({**facts, **environment}), encoding="utf-8")
    return folder
