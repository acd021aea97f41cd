"""Which backend is tested, and the environment its processes get. Data in `configs/backends/*.toml`.

A name is a file's (`cpu`, `tpu`), a PJRT plugin's (`plugin:NAME`, `plugin:NAME=LIBRARY`), or a compiler's for devices
that are not there (`aot:tpu:v5e:2x4`, see `harness.aot.names`).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from harness.aot import names
from harness.errors import UsageError

FOLDER = Path(__file__).resolve().parent.parent / "configs" / "backends"
DEVICE_FLAG = "--xla_force_host_platform_device_count"
DEFAULT_DEVICES = 8
PLUGIN = "plugin:"
NAMED = "CONFORMANCE_BACKEND"
"""The variable that tells a process which backend it tests, where the platform's own name does not say it."""

KEYS: dict[str, type] = {
    "virtual_devices": bool,
    "visible": str,
    "deadline": float,
    "devices": int,
    "environment": dict,
    "alone": dict,
    "plugin": str,
    "library": str,
    "shares": str,
}
"""What a backend's file may hold."""


@dataclasses.dataclass(frozen=True)
class Backend:
    """One backend as its file describes it.

    Attributes:
      name: its file's name, or as it was asked for.
      environment: variables set for the processes that start it, unless the user has set them.
      virtual_devices: whether the number of devices is ours to choose (CPU).
      visible: the variable that limits a process to some of the host's chips, or "".
      deadline: seconds one program may take.
      default_devices: how many virtual devices there are unless somebody says otherwise.
      forced: variables set whatever the user has set: they are what the name asks for.
      alone: variables set besides for a process that sees one chip only.
      shares: the platform whose known failures it has too, being made of the same parts, or "".
      worker: the module that runs cases.
    """

    name: str
    environment: dict[str, str]
    virtual_devices: bool
    visible: str
    deadline: float
    default_devices: int = DEFAULT_DEVICES
    forced: dict[str, str] = dataclasses.field(default_factory=dict)
    alone: dict[str, str] = dataclasses.field(default_factory=dict)
    shares: str = ""
    worker: str = "harness.worker"

    def variables(self, devices: int | None, chip: int | None = None) -> dict[str, str]:
        """The environment of a process: what the user set wins, except for what was asked for by an option."""
        variables = {key: value for key, value in self.environment.items() if key not in os.environ}
        variables |= self.forced
        flags = os.environ.get("XLA_FLAGS", "")
        if self.virtual_devices and (devices is not None or DEVICE_FLAG not in flags):
            flags = re.sub(rf"{DEVICE_FLAG}=\S*", "", flags)
            variables["XLA_FLAGS"] = f"{flags} {DEVICE_FLAG}={devices or self.default_devices}".strip()
        if chip is not None and self.visible:
            variables |= {key: value for key, value in self.alone.items() if key not in os.environ}
            variables[self.visible] = str(chip)
        return variables


def load(name: str) -> Backend:
    """The backend of that name; raises UsageError with one line that says what would be right."""
    if name.startswith(PLUGIN):
        return _plugin(name)
    if name.startswith(names.PREFIX):
        target = names.parse(name)
        backend = _read(f"aot-{target.platform}", name)
        return dataclasses.replace(
            backend, name=name, worker="harness.aot.worker", forced={**backend.forced, NAMED: name}
        )
    return _read(name, name)


def known() -> list[str]:
    """The names that files give."""
    return sorted(file.stem for file in FOLDER.glob("*.toml") if not file.stem.startswith("aot-"))


def _read(stem: str, asked: str) -> Backend:
    path = FOLDER / f"{stem}.toml"
    if not path.exists():
        raise UsageError(
            f"--backend {asked}: unknown; known: {', '.join(known())}, plugin:NAME[=LIBRARY], aot:tpu:..., "
            f"aot:cuda:... (add one as configs/backends/{asked}.toml)"
        )
    table = _table(path)
    backend = Backend(
        stem,
        {key: str(value) for key, value in table.get("environment", {}).items()},
        bool(table.get("virtual_devices", False)),
        str(table.get("visible", "")),
        float(table.get("deadline", 60.0)),
        int(table.get("devices", DEFAULT_DEVICES)),
        alone={key: str(value) for key, value in table.get("alone", {}).items()},
        shares=str(table.get("shares", "")),
    )
    if "plugin" not in table:
        return backend
    return _with_plugin(backend, table["plugin"], table.get("library", ""), asked)


def _table(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    for key, value in table.items():
        if key not in KEYS:
            raise UsageError(f"{path}: unknown key {key}; known: {', '.join(sorted(KEYS))}")
        kind = KEYS[key]
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise UsageError(f"{path}: {key} is {value!r}, should be of type {kind.__name__}")
    return table


def _plugin(name: str) -> Backend:
    """`plugin:NAME=LIBRARY`, or `plugin:NAME` for one that a file describes or whose package registers itself."""
    own, equals, library = name.removeprefix(PLUGIN).partition("=")
    if not re.fullmatch(r"[A-Za-z][\w-]*", own) or (equals and not library):
        raise UsageError(
            f"--backend {name}: expected plugin:NAME or plugin:NAME=LIBRARY, with the path of a shared library"
        )
    if (FOLDER / f"{own}.toml").exists():
        table = _table(FOLDER / f"{own}.toml")
        if "plugin" not in table:
            raise UsageError(f"--backend {name}: configs/backends/{own}.toml describes no plugin")
        backend = _read(own, name)
        return _with_plugin(backend, table["plugin"], library, name) if library else backend
    plain = Backend(own, {}, False, "", 120.0)
    return _with_plugin(plain, own, library, name)


def _with_plugin(backend: Backend, plugin: str, library: str, asked: str) -> Backend:
    """The backend on a PJRT plugin: JAX's own variables say where its library is and that it comes first."""
    forced = {"JAX_PLATFORMS": f"{plugin},cpu", NAMED: f"{PLUGIN}{backend.name}"}
    if library:
        forced["PJRT_NAMES_AND_LIBRARY_PATHS"] = f"{plugin}:{_library(library, asked)}"
    return dataclasses.replace(backend, name=f"{PLUGIN}{backend.name}", forced=forced)


def _library(library: str, asked: str) -> Path:
    """A path, or PACKAGE/FILE below an installed Python package."""
    path = Path(library).expanduser()
    package, _, file = library.partition("/")
    if not path.is_absolute() and not path.exists() and re.fullmatch(r"\w+", package):
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise UsageError(f"--backend {asked}: needs the Python package {package}, which is not installed")
        path = Path(spec.submodule_search_locations[0]) / file
    if not path.is_file():
        raise UsageError(f"--backend {asked}: no library {path}")
    return path.resolve()
