"""Stands in for ssh and scp under the real gcloud: each address is a folder, commands run there as real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

WORKERS = Path(os.environ["FAKE_WORKERS"])
VALUES = ("-i", "-o", "-p", "-P", "-F")
"""Options that are followed by their value."""


def home(address: str) -> Path:
    """The folder of a host, given as USER@ADDRESS."""
    folder = WORKERS / address.rpartition("@")[2]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def plain(words: list[str]) -> list[str]:
    """The words that are neither an option nor its value."""
    found = []
    skip = False
    for word in words:
        if not skip and not word.startswith("-"):
            found.append(word)
        skip = not skip and word in VALUES
    return found


def ssh(words: list[str]) -> int:
    before, command = words[: words.index("--")], words[words.index("--") + 1 :]
    place = home(plain(before)[0])
    environment = {**os.environ, "HOME": str(place), "FAKE_WORKER": str(place)}
    # as sshd does: the words are put together and given to the user's shell
    return subprocess.call(["bash", "-c", " ".join(command)], cwd=place, env=environment)


def scp(words: list[str]) -> int:
    *sources, target = plain(words)
    if "@" in target:
        address, _, path = target.partition(":")
        for source in sources:
            shutil.copy(source, home(address) / path)
    else:
        address, _, path = sources[0].partition(":")
        shutil.copy(home(address) / path, target)
    return 0


if __name__ == "__main__":
    sys.exit({"ssh": ssh, "scp": scp}[sys.argv[1]](sys.argv[2:]))
