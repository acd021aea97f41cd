"""Which devices communicate in a compiled program, read from its text. Imports no JAX.

Replica groups are written in three ways: as lists (`{{0,1},{2,3}}`, where `{}` is everybody), as a reshaped and
transposed count (`[2,2]<=[2,2]T(1,0)`), and as axes of a mesh (`mesh['i'=2,'j'=2] {'i'}`); permutations as lists of
pairs (XLA's HLO syntax). All are expanded to numbers of partitions. An asynchronous collective counts once, where it
starts.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from harness.errors import NotApplicable

KINDS = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "ragged-all-to-all",
    "reduce-scatter",
    "collective-broadcast",
    "collective-permute",
)

Groups = frozenset[frozenset[int]]
Pairs = frozenset[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective operation.

    Attributes:
      kind: its HLO name, without `-start`.
      groups: who communicates with whom; empty for a permutation.
      pairs: (source, destination) of a permutation.
      source: the JAX operations it comes from, as the compiler remembers them.
    """

    kind: str
    groups: Groups = frozenset()
    pairs: Pairs = frozenset()
    source: str = ""

    def __str__(self) -> str:
        if self.kind == "collective-permute":
            return f"{self.kind} of pairs {sorted(self.pairs)}"
        return f"{self.kind} in groups {sorted(map(sorted, self.groups))}"


def collectives(text: str, devices: int) -> list[Collective]:
    """Every collective of a program's text.

    Args:
      text: optimized HLO.
      devices: how many partitions the program has.

    Raises:
      NotApplicable: groups are written in a way that is not known here.
    """
    pattern = re.compile(rf"= .*?[ )]({'|'.join(sorted(KINDS, key=len, reverse=True))})(-start)?\(")
    found = []
    for line in text.splitlines():
        match = pattern.search(line)
        if match:
            found.append(_collective(match.group(1), line, devices))
    return found


def _collective(kind: str, line: str, devices: int) -> Collective:
    name = re.search(r'op_name="([^"]*)"', line)
    source = name.group(1) if name else ""
    if kind == "collective-permute":
        listed = re.search(r"source_target_pairs=(\{(?:\{\d+,\d+\},?)*\})", line)
        if listed is None:
            raise NotApplicable(f"pairs in a form that is not known here: {line.strip()[:160]}")
        pairs = re.findall(r"\{(\d+),(\d+)\}", listed.group(1))
        return Collective(kind, pairs=frozenset((int(a), int(b)) for a, b in pairs), source=source)
    written = re.search(r"replica_groups=(.*?)(?:, \w+=|$)", line)
    groups = expand(written.group(1) if written else "{}", devices)
    return Collective(kind, groups=frozenset(frozenset(group) for group in groups), source=source)


def expand(text: str, devices: int) -> list[list[int]]:
    """Replica groups as lists of numbers; raises NotApplicable for a form that is not known here."""
    text = text.strip()
    if text == "{}":
        return [list(range(devices))]
    if re.fullmatch(r"\{(\{[\d,]*\},?)*\}", text):
        return [[int(n) for n in group.split(",") if n] for group in re.findall(r"\{([\d,]*)\}", text)]
    iota = re.fullmatch(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if iota:
        shape, source, order = ([int(n) for n in (part or "").split(",") if n] for part in iota.groups())
        numbers = np.arange(int(np.prod(source))).reshape(source)
        return numbers.transpose(order or None).reshape(shape).tolist()
    mesh = re.fullmatch(r"mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? \{([^}]*)\}", text)
    if mesh:
        return _of_mesh(mesh.group(1), mesh.group(2), mesh.group(3), text)
    raise NotApplicable(f"replica groups in a form that is not known here: {text[:120]}")


def _of_mesh(axes: str, device_ids: str | None, within: str, text: str) -> list[list[int]]:
    """Groups along some axes of a mesh whose devices are numbered row by row (or as `device_ids` says)."""
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=(\d+)", axes)}
    chosen = re.findall(r"'([^']*)'", within)
    if not set(chosen) <= set(sizes) or re.search(r"':", within):  # a part of an axis
        raise NotApplicable(f"replica groups in a form that is not known here: {text[:120]}")
    count = int(np.prod(list(sizes.values())))
    numbers = np.arange(count)
    if device_ids:
        numbers = np.asarray(expand(device_ids, count)).reshape(-1)
    numbers = numbers.reshape(list(sizes.values()))
    order = list(sizes)
    inside = [order.index(name) for name in chosen]
    outside = [d for d in range(len(order)) if d not in inside]
    size = int(np.prod([sizes[name] for name in chosen]))
    return numbers.transpose([*outside, *inside]).reshape(-1, size).tolist()


def joined(found: list[Collective], devices: int) -> Groups:
    """The sets of devices that information can pass between, through all collectives together."""
    leader = list(range(devices))

    def root(device: int) -> int:
        while leader[device] != device:
            device = leader[device]
        return device

    for collective in found:
        for a, b in collective.pairs:
            leader[root(a)] = root(b)
        for group in collective.groups:
            first, *others = sorted(group)
            for other in others:
                leader[root(other)] = root(first)
    sets: dict[int, set[int]] = {}
    for device in range(devices):
        sets.setdefault(root(device), set()).add(device)
    return frozenset(frozenset(members) for members in sets.values())
