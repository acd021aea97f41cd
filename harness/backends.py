"""Which backend is tested, and the environment its processes get. Data in `configs/backends/*.toml`."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from pathlib import Path

from harness.errors import UsageError

FOLDER = Path(__file__).resolve().parent.parent / "configs" / "backends"
DEVICE_FLAG = "--xla_force_host_platform_device_count"
DEFAULT_DEVICES = 8


@dataclasses.dataclass(frozen=True)
class Backend:
    """One backend as its file describes it.

    Attributes:
      name: its file's name.
      environment: variables set for the processes that start it, unless the user has set them.
      virtual_devices: whether the number of devices is ours to choose (CPU).
      visible: the variable that limits a process to some of the host's chips, or "".
      deadline: seconds one program may take.
    """

    name: str
    environment: dict[str, str]
    virtual_devices: bool
    visible: str
    deadline: float

    def variables(self, devices: int | None, chip: int | None = None) -> dict[str, str]:
        """The environment of a process: what the user set wins, except for what was asked for by an option."""
        variables = {key: value for key, value in self.environment.items() if key not in os.environ}
        flags = os.environ.get("XLA_FLAGS", "")
        if self.virtual_devices and (devices is not None or DEVICE_FLAG not in flags):
            flags = re.sub(rf"{DEVICE_FLAG}=\S*", "", flags)
            variables["XLA_FLAGS"] = f"{flags} {DEVICE_FLAG}={devices or DEFAULT_DEVICES}".strip()
        if chip is not None and self.visible:
            variables[self.visible] = str(chip)
        return variables


def load(name: str) -> Backend:
    """Reads `configs/backends/NAME.toml`; raises UsageError that lists the known names."""
    path = FOLDER / f"{name}.toml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.toml")))
        raise UsageError(
            f"--backend {name}: unknown; known: {known} (add one as configs/backends/{name}.toml)"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from error
    return Backend(
        name,
        {key: str(value) for key, value in table.get("environment", {}).items()},
        bool(table.get("virtual_devices", False)),
        str(table.get("visible", "")),
        float(table.get("deadline", 60.0)),
    )
