"""The registry of faults: what each one breaks, how it shows, and how to run a program under it."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
FAMILIES = ("cache", "control", "collective", "device")
# The parameters by which a case is described, as far as faults have to do with them.
COMPONENTS = frozenset(
    [
        "binder",
        "staging",
        "control",
        "leaf",
        "probe",
        "operand",
        "dtype",
        "shape",
        "names",
        "size",
        "sizes",
        "axes",
        "schedule",
        "derivative",
        "payload",
        "option",
        "count",
        "mode",
        "check",
    ]
)
# A module of this folder is read for its definitions if it has any.
_DEFINITION = re.compile(r"^@fault\($", re.MULTILINE)


class FaultError(Exception):
    """The fault does not exist, or cannot be injected into this JAX."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One injected defect."""

    name: str
    breaks: str  # one sentence
    family: str
    rules: tuple[str, ...]  # a suite must fail under at least one of these
    component: Mapping[
        str, Any
    ]  # the case parameters that a good diagnosis names; a tuple where any of them will do
    witness: str  # Python that sets `good`; `jax`, `jnp`, `lax` and `np` are imported, 8 devices
    since: str  # first JAX version it works on
    until: str | None  # last one, None for all
    inject: Callable[[ModuleType], None] = dataclasses.field(repr=False)

    @property
    def several_processes(self) -> bool:
        """Whether it shows in several processes only."""
        return "in_two_processes" in self.witness

    def values(self) -> dict[str, tuple[str, ...]]:
        """The component with every value as a tuple of words, any of which is right."""
        return {
            key: tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)
            for key, value in self.component.items()
        }

    def covers(self, version: str) -> bool:
        """Whether this fault can be injected into that JAX version."""
        here = _numbers(version)
        return _numbers(self.since) <= here and (self.until is None or here <= _numbers(self.until))


_registry: dict[str, Fault] = {}


def fault(
    *,
    breaks: str,
    family: str,
    rules: tuple[str, ...],
    component: Mapping[str, Any],
    witness: str,
    since: str = "0.10.2",
    until: str | None = None,
) -> Callable[[Callable[[ModuleType], None]], Callable[[ModuleType], None]]:
    """Register the decorated function, which patches JAX, as the fault of that name."""

    def register(inject: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        name = inject.__name__
        if name in _registry:
            raise FaultError(f"two faults are named {name}")
        if family not in FAMILIES or not rules or not COMPONENTS.issuperset(component):
            raise FaultError(f"{name}: unknown family or component, or no rule: {family} {rules} {component}")
        text = textwrap.dedent(witness).strip() + "\n"
        _registry[name] = Fault(name, breaks, family, rules, component, text, since, until, inject)
        return inject

    return register


def faults() -> dict[str, Fault]:
    """Every fault of the library by name."""
    for path in sorted(HERE.glob("*.py")):
        if _DEFINITION.search(path.read_text(encoding="utf-8")):
            importlib.import_module(f".{path.stem}", __package__)
    return dict(_registry)


def apply(name: str) -> None:
    """Inject a fault into the imported JAX. FaultError if there is no such fault or this JAX is out of its range."""
    import jax

    known = faults()
    if name not in known:
        raise FaultError(f"no such fault (there are {len(known)})")
    wanted = known[name]
    if not wanted.covers(jax.__version__):
        through = f" up to {wanted.until}" if wanted.until else ""
        raise FaultError(f"needs JAX {wanted.since}{through}, this is {jax.__version__}")
    wanted.inject(jax)


def environment(name: str, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables to set for a child interpreter that shall run under the fault."""
    paths = [str(HERE / "hook"), *filter(None, [base.get("PYTHONPATH")])]
    return {"JAX_AXIS_FAULT": name, "PYTHONPATH": os.pathsep.join(paths)}


def _numbers(version: str) -> tuple[int, ...]:
    # "0.12.0.1" -> (0, 12, 0, 1); a suffix like ".dev2026" or "rc1" does not count.
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", version).group().split("."))
