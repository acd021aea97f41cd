"""Known failures: which cases fail where, how, and why. Data in `configs/expectations/*.toml`.

    [[expect]]
    where = {leaf = ["all_gather"], binder = ["vmap"], names_in_leaf = ["2"]}   # parameters of the case
    jax = ">=0.6.2,<0.13"                                                      # versions; left out: all
    platform = ["cpu"]                                                         # left out: all
    verdict = "fail"
    kind = "error raised"
    reason = "all_gather over several vmapped names hits a bare assertion"
    issue = "https://github.com/jax-ml/jax/issues/..."                         # where there is one

`strict = false` says that not every case it covers fails, as in pytest's xfail: one that passes is a plain pass.
With `rule` it speaks only of the cases that are held to that law.
`case = ["LINE", ...]` names cases outright instead of `where`. Several values for one key mean any of them; a key
may also be written `not_KEY` (none of them) or `all_KEY` (each of them).
"""

from __future__ import annotations

import dataclasses
import operator
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.compat import version
from harness.errors import UsageError
from harness.verdicts import Kind, Verdict

COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
KEYS = frozenset(
    {"where", "case", "jax", "platform", "verdict", "kind", "rule", "reason", "issue", "devices", "strict"}
)


@dataclasses.dataclass
class Expectation:
    """One entry.

    Attributes:
      place: file and number of the entry, for messages.
      strict: whether every case it covers should fail.
      met: how many cases of this run it covered.
    """

    place: str
    where: dict[str, list[str]]
    cases: frozenset[str]
    jax: str
    platform: list[str]
    verdict: str
    kind: str
    rule: str
    reason: str
    issue: str
    strict: bool = True
    met: int = 0

    def applies(self, facts: Mapping[str, Any]) -> bool:
        """Whether its conditions on the environment hold."""
        own = (facts["backend"], facts.get("shares") or "")
        return in_range(facts["jax"], self.jax) and (
            not self.platform or any(_is_platform(one, name) for one in own for name in self.platform)
        )

    def covers(self, case: str, parameters: Mapping[str, Iterable[str]]) -> bool:
        if self.cases:
            return case in self.cases
        return all(_holds(key, values, parameters) for key, values in self.where.items())

    def foresees(self, result: Mapping[str, Any]) -> bool:
        """Whether this is the failure it speaks of."""
        return (
            result["verdict"] == self.verdict
            and self.kind in ("", result["kind"])
            and self.rule in ("", result["rule"])
        )


def _is_platform(backend: str, name: str) -> bool:
    """`cpu` is itself; `aot:tpu` is every topology of it, executed or not."""
    return backend == name or backend.startswith((f"{name}:", f"{name}+"))


def _holds(key: str, values: list[str], parameters: Mapping[str, Iterable[str]]) -> bool:
    if key.startswith("all_"):
        return set(values) <= set(parameters[key[4:]])
    if key.startswith("not_"):
        return not set(values) & set(parameters[key[4:]])
    return bool(set(values) & set(parameters[key]))


def in_range(jax_version: str, conditions: str) -> bool:
    """Whether `0.10.2` satisfies `>=0.10,<0.13` (release numbers compared as far as the condition writes them out)."""
    for condition in filter(None, (part.strip() for part in conditions.split(","))):
        match = re.fullmatch(r"(>=|<=|==|!=|>|<)\s*([\d.]+)", condition)
        if match is None:
            raise UsageError(f"version condition {condition!r}: expected something like >=0.10 or <0.13")
        bound = version(match.group(2))
        own = version(jax_version)
        if match.group(1) in ("==", "!=", "<=", ">"):
            own = own[: len(bound)]
        width = max(len(own), len(bound))
        padded = [v + (0,) * (width - len(v)) for v in (own, bound)]
        if not COMPARISONS[match.group(1)](*padded):
            return False
    return True


def load(folder: Path, known_keys: Iterable[str]) -> list[Expectation]:
    """All entries of the TOML files in a folder; anything unknown is an error that names file and entry."""
    known = frozenset(known_keys)
    return [entry for path in sorted(folder.glob("*.toml")) for entry in load_file(path, known)]


def load_file(path: Path, known: Collection[str]) -> list[Expectation]:
    """The entries of one file."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("expect", [])
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from error
    return [
        _entry(f"{path.name} entry {number}", table, set(known)) for number, table in enumerate(tables, 1)
    ]


def _entry(place: str, table: Mapping[str, Any], known: set[str]) -> Expectation:
    unknown = set(table) - KEYS
    if unknown:
        raise UsageError(f"{place}: unknown key {sorted(unknown)[0]}; known: {', '.join(sorted(KEYS))}")
    where = {key: list(values) for key, values in table.get("where", {}).items()}
    for key in where:
        if key.removeprefix("not_").removeprefix("all_") not in known:
            raise UsageError(f"{place}: no parameter {key}; known: {', '.join(sorted(known))}")
    if not where and not table.get("case"):
        raise UsageError(f"{place}: needs `where` or `case`")
    verdict, kind = table.get("verdict", "fail"), table.get("kind", "")
    if verdict not in list(Verdict) or kind not in list(Kind):
        raise UsageError(f"{place}: verdict {verdict!r} or kind {kind!r} is not one of the catalogue")
    in_range("0", table.get("jax", ""))
    return Expectation(
        place,
        where,
        frozenset(table.get("case", ())),
        table.get("jax", ""),
        list(table.get("platform", ())),
        verdict,
        kind,
        table.get("rule", ""),
        table.get("reason", ""),
        table.get("issue", ""),
        table.get("strict", True),
    )


def settle(
    result: dict[str, Any], parameters: Mapping[str, Iterable[str]], entries: list[Expectation]
) -> dict[str, Any]:
    """The result with its verdict as the expectations have it, and the reason where one applied."""
    covering = [entry for entry in entries if entry.covers(result["case"], parameters)]
    for entry in covering:
        if entry.foresees(result):
            entry.met += 1
            return {**result, "verdict": Verdict.EXPECTED_FAIL, "expectation": entry.reason}
    if result["verdict"] == Verdict.PASS:
        covering = [entry for entry in covering if entry.rule in ("", *result["rules"])]
        for entry in covering:
            entry.met += 1
        strict = [entry for entry in covering if entry.strict]
        if strict and len(strict) == len(covering):
            return {**result, "verdict": Verdict.UNEXPECTED_PASS, "expectation": strict[0].reason}
    return result
