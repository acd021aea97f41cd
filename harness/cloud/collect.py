"""One results folder out of what all workers and all tries left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import journal
from harness.cloud import agent
from harness.cloud.log import Log
from harness.cloud.stage import Source, archive
from harness.verdicts import Verdict, worst

PASSES = ("one_chip", "all_chips")


def gather(folders: list[Path], target: Path) -> None:
    """The union of folders. Of a file that is in several the longest copy is taken, the last among equals: journals
    only grow, and each try goes on from those before it."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            place = target / path.relative_to(folder)
            if not place.exists() or path.stat().st_size >= place.stat().st_size:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, place)


def worker_folders(cloud: Path) -> list[Path]:
    """The results of each worker of each try, in the order of the tries."""
    tries = sorted(cloud.glob("attempt-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return [folder for number in tries for folder in sorted(number.glob(f"*/{agent.RESULTS}"))]


def ranks(gathered: Path) -> set[int]:
    """Numbers of the processes that left anything."""
    found = {path.name.split(".")[0] for path in (gathered / "cluster" / "ranks").glob("*.*")}
    return {int(name) for name in found if name.isdigit()}


def merge(gathered: Path, target: Path, suite: Source, expectations: str, log: Log) -> int | None:
    """Writes the results folder; the verdict of the merge, or None when there is nothing to merge or it failed."""
    (target / journal.RESULTS).unlink(missing_ok=True)
    if (gathered / "cluster").exists():
        more = [f"--expectations={Path(expectations).absolute()}"] if expectations else []
        code = _merge_ranks(gathered / "cluster", target, suite, more, log)
        return code if (target / journal.RESULTS).exists() else None
    passes = {name: gathered / name for name in PASSES if (gathered / name / journal.RESULTS).exists()}
    if not passes:
        return None
    merge_passes(passes, target)
    return 0


def _merge_ranks(folder: Path, target: Path, suite: Source, more: list[str], log: Log) -> int:
    """Merges the journals of ranks by the very commit that wrote them."""
    with tempfile.TemporaryDirectory() as place:
        archive(suite, Path(place) / "source.tar.gz")
        agent.unpack(f"{place}/source.tar.gz", Path(place) / "source")
        script = Path(place) / "source" / "scripts" / "run_multihost"
        command = [sys.executable, str(script), f"--merge={folder}", f"--results={target}", *more]
        done = subprocess.run(command, capture_output=True, text=True)
    for line in (done.stdout + done.stderr).splitlines():
        log.say(line)
    return done.returncode


def merge_passes(passes: dict[str, Path], target: Path) -> None:
    """Merges the passes of one host: of each case the worst verdict, with the name of the pass it fell in."""
    from harness.report.write import write_all  # late, since a wrong request should be answered at once

    target.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, folder in passes.items():
        for result in journal.read(folder):
            found.setdefault(result["case"], {})[name] = result
    with (target / journal.RESULTS).open("w", encoding="utf-8") as file:
        for by_pass in found.values():
            file.write(json.dumps(_worst(by_pass, passes, target), ensure_ascii=False) + "\n")
    journal.write_environment(target, _environment(passes))
    for name, folder in passes.items():
        for path in folder.glob("expectations-*.json"):
            shutil.copy2(path, target / f"{path.stem}-{name}.json")
    write_all(target)


def _worst(by_pass: dict[str, dict[str, Any]], passes: dict[str, Path], target: Path) -> dict[str, Any]:
    verdict = worst([Verdict(result["verdict"]) for result in by_pass.values()])
    name, result = next(item for item in by_pass.items() if item[1]["verdict"] == verdict)
    for field in ("reproducer", "log"):
        if result.get(field) and (passes[name] / result[field]).exists():
            (target / result[field]).parent.mkdir(exist_ok=True)
            shutil.copy2(passes[name] / result[field], target / result[field])
    verdicts = {name: other["verdict"] for name, other in by_pass.items()}
    if len(set(verdicts.values())) > 1:
        said = ", ".join(f"{verdict} with {name.replace('_', ' ')}" for name, verdict in verdicts.items())
        result = {**result, "message": f"{said}\n{result['message']}"}
    return {**result, "passes": verdicts}


def _environment(passes: dict[str, Path]) -> dict[str, Any]:
    """What the pass that saw most devices found, with the greater promise."""
    found = [journal.read_environment(folder) for folder in passes.values()]
    best = max(found, key=lambda facts: facts.get("device_count") or 0)
    promised = [facts["promised"] for facts in found if "promised" in facts]
    return {**best, "passes": list(passes), **({"promised": max(promised)} if promised else {})}


def counts(target: Path) -> str:
    """The verdicts of a results folder in one line; "" where there is none."""
    if not (target / journal.RESULTS).exists():
        return ""
    from harness.report.results import load

    tally: dict[str, int] = {}
    for result in load(target).results:
        tally[result.verdict] = tally.get(result.verdict, 0) + 1
    return ", ".join(
        f"{count} {verdict}" for verdict, count in sorted(tally.items(), key=lambda item: -item[1])
    )
