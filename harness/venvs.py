"""Separate environments for JAX releases: the right Python chosen among those installed. Imports no JAX.

Used by the project's own scripts; a user's environment is never touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.compat import Version, python_range, version
from harness.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".envs"


def pythons() -> dict[Version, str]:
    """Interpreters by (major, minor): on the PATH, in pyenv, and the one that runs this."""
    found: dict[Version, str] = {}
    candidates = [shutil.which(f"python3.{minor}") for minor in range(9, 20)]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += [str(path) for path in sorted(root.glob("versions/3.*/bin/python"))]
    for path in [*candidates, sys.executable]:
        number = _python_version(path) if path else None
        if path and number:
            found[number] = path
    return found


def _python_version(path: str) -> Version | None:
    """(major, minor) of an interpreter; None where it does not run (a pyenv shim without that version)."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    run = subprocess.run([path, "-c", code], capture_output=True, text=True)
    return version(run.stdout) if run.returncode == 0 and re.match(r"\d", run.stdout) else None


def python_for(jax_version: str, wanted: str = "") -> str:
    """The interpreter for a JAX release: the wanted one, or the newest that the release supports."""
    low, high = python_range(jax_version)
    fitting = {
        number: path for number, path in pythons().items() if low <= number <= high and number >= (3, 11)
    }
    if wanted:
        fitting = {number: path for number, path in fitting.items() if number == version(wanted)}
    if not fitting:
        needs = wanted or ".".join(map(str, low)) + " to " + ".".join(map(str, high))
        raise UsageError(
            f"JAX {jax_version} needs Python {needs} (3.11 or later for this suite): none is installed"
        )
    return fitting[max(fitting)]


def environment(jax_version: str, wanted_python: str = "", extra: Sequence[str] = ()) -> Path:
    """The interpreter of `.envs/jax-VERSION-pyX.Y`, made on first use.

    Args:
      jax_version: a release, or "" for the newest this Python can have.
      wanted_python: "3.11", or "" for the newest that fits.
      extra: further requirements to have in it.
    """
    base = python_for(jax_version, wanted_python) if jax_version else sys.executable
    number = _python_version(base) or (3,)
    folder = FOLDER / f"jax-{jax_version or 'newest'}-py{'.'.join(map(str, number))}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
    packages = [
        f"jax=={jax_version}" if jax_version else "jax",
        "pytest>=8",
        "pytest-xdist>=3.6",
        "absl-py>=2.1",
    ]
    if jax_version and version(jax_version) < (0, 4, 33):
        packages.append("numpy<2")
    wanted = [*packages, *extra]
    done = folder / "installed.txt"
    if not done.exists() or done.read_text().split("\n") != wanted:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
        subprocess.run(pip, check=True)
        done.write_text("\n".join(wanted))
    return python
