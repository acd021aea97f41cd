"""The gcloud that is installed, where one is."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

NEEDED = (
    "needs the Google Cloud CLI (apt or https://cloud.google.com/sdk/docs/install): its parser was NOT asked"
)


@functools.cache
def root() -> Path | None:
    """Where the installed gcloud has its library."""
    program = shutil.which("gcloud")
    folder = Path(program).resolve().parent.parent if program else None
    return folder if folder and (folder / "lib" / "googlecloudsdk").is_dir() else None


needs_gcloud = pytest.mark.skipif(root() is None, reason=NEEDED)


def run(verb: str, text: str = "") -> str:
    """Output of `real_parser.py VERB` under gcloud's own Python, with a configuration of its own and no network."""
    found = root()
    assert found is not None
    bundled = found / "platform" / "bundledpythonunix" / "bin" / "python3"
    python = str(bundled) if bundled.exists() else "python3"
    with tempfile.TemporaryDirectory() as configuration:
        done = subprocess.run(
            [python, str(Path(__file__).with_name("real_parser.py")), verb, str(found / "lib")],
            input=text,
            env={"PATH": "/usr/bin:/bin", "HOME": configuration, "CLOUDSDK_CONFIG": configuration},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusals(lines: list[list[str]]) -> list[str]:
    """Why the real parser refuses each command line; "" for one that it accepts."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return [json.loads(line) for line in run("check", text).splitlines()]


def version() -> str:
    found = root()
    assert found is not None
    return (found / "VERSION").read_text().strip()
