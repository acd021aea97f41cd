"""What is copied to the workers: the exact commit, the agent, wheels, earlier journals, and the order what to do."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path
from typing import Any

from harness.cloud import agent
from harness.cloud.commands import Worker
from harness.cloud.options import Options
from harness.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent.parent
INDEXES = tomllib.loads((ROOT / "configs" / "cloud.toml").read_text(encoding="utf-8"))["pip"]


@dataclasses.dataclass(frozen=True)
class Source:
    """The suite that is run.

    Attributes:
      repository: a git repository.
      commit: full SHA-1.
      changed: whether it has changes that are not committed.
    """

    repository: Path
    commit: str
    changed: bool


def source(options: Options) -> Source:
    """Resolves the commit; raises UsageError where there is none."""
    repository = Path(options.source or ROOT).resolve()
    found = _git(
        repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{options.commit}^{{commit}}"
    )
    if found.returncode:
        raise UsageError(f"--commit={options.commit}: no commit of {repository}")
    status = _git(repository, "status", "--porcelain", "--untracked-files=no")
    return Source(repository, found.stdout.strip(), bool(status.stdout.strip()))


def _git(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", "-C", str(repository), *words], capture_output=True, text=True)
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}") from error


def archive(suite: Source, path: Path) -> None:
    """Writes the files of the commit as a .tar.gz."""
    words = ["archive", "--format=tar.gz", f"--output={path.resolve()}", suite.commit]
    done = _git(suite.repository, *words)
    if done.returncode:
        raise UsageError(f"git archive of {suite.commit} failed: {done.stderr.strip()}")


def install_steps(options: Options) -> list[list[str]]:
    """Arguments of `pip install`, one list a call: JAX with libtpu, further wheels, what the suite needs itself."""
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tools = [*needs["dependencies"], *needs["optional-dependencies"]["report"]]
    wheels = [f"./{Path(wheel).name}" for wheel in options.wheel]
    return [step for step in (_jax(options.jax), wheels, tools) if step]


def _jax(wanted: str) -> list[str]:
    if wanted == "image":
        return []
    if wanted == "nightly":
        return ["--pre", "--upgrade", *INDEXES["nightly"]]
    if wanted.endswith(".whl"):
        return [f"./{Path(wanted).name}[tpu]", *INDEXES["libtpu"]]
    return [f"jax[tpu]=={wanted}" if wanted else "jax[tpu]", *INDEXES["libtpu"]]


def wheels_of(options: Options) -> list[Path]:
    """Local files to copy; raises UsageError for one that is not there."""
    paths = [
        Path(given) for given in (*options.wheel, *([options.jax] if options.jax.endswith(".whl") else []))
    ]
    for path in paths:
        if not path.is_file() or path.suffix != ".whl":
            raise UsageError(
                f"{path}: no such wheel; right would be a .whl file (or --jax with a release or `nightly`)"
            )
    if len({path.name for path in paths}) < len(paths):
        raise UsageError("two wheels have the same file name")
    return paths


def expectations_of(options: Options) -> list[Path]:
    """Expectation files to copy; raises UsageError for a folder without any."""
    found = sorted(Path(options.expectations).glob("*.toml")) if options.expectations else []
    if options.expectations and not found:
        raise UsageError(f"--expectations={options.expectations}: no .toml file there")
    return found


def steps(options: Options, workers: list[Worker], rank: int, resumed: set[str]) -> list[dict[str, Any]]:
    """The commands of one worker: one rank of a run over all workers, or the two passes of a single host.

    `{python}` and `{chips}` are filled in on the worker.

    Args:
      resumed: names of the passes on a single host that earlier tries have begun.
    """
    chosen = [f"--profile={name}" for name in options.profile] + [f"--case={line}" for line in options.case]
    chosen += [f"--expectations=../{agent.EXPECTATIONS}"] if options.expectations else []
    common = [f"--backend={options.backend}", *map(_literal, chosen)]

    def folder(name: str) -> str:
        return f"--{'resume' if name in resumed else 'results'}=../{agent.RESULTS}/{name}"

    if len(workers) > 1:
        found = ["--cluster"]
        if options.coordinator_port:
            address = f"{workers[0].address}:{options.coordinator_port}"
            found += [
                f"--coordinator_address={address}",
                f"--num_processes={len(workers)}",
                f"--process_id={rank}",
            ]
        # a rank goes on by itself where its folder already has journals
        argv = ["{python}", "scripts/run_multihost", *found, f"--results=../{agent.RESULTS}/cluster", *common]
        return [_step("cluster", argv)]
    pytest = ["{python}", "-m", "pytest", "-q", "--no-header", *common]
    passes = [("one_chip", ["-n", "{chips}"]), ("all_chips", [])]
    return [_step(name, [*pytest, *extra, folder(name)]) for name, extra in passes]


def _literal(word: str) -> str:
    """A word with braces of its own kept as they are."""
    return word.replace("{", "{{").replace("}", "}}")


def _step(name: str, argv: list[str]) -> dict[str, Any]:
    return {"name": name, "argv": argv, "environment": {}}


class Stage:
    """The folder whose files every worker gets; each worker's own, its order and its journals, are in one below it.

    Args:
      folder: made anew.
      earlier: results of earlier tries, as `agent.RESULTS` lay on the workers, or None.
    """

    def __init__(self, folder: Path, options: Options, suite: Source, earlier: Path | None):
        self.folder, self.options, self._earlier = folder, options, earlier
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive(suite, folder / "source.tar.gz")
        shutil.copy(agent.__file__, folder / "agent.py")
        for wheel in wheels_of(options):
            shutil.copy(wheel, folder)
        if options.expectations:
            _pack(
                {path.name: path for path in expectations_of(options)},
                folder / f"{agent.EXPECTATIONS}.tar.gz",
            )

    def for_worker(self, workers: list[Worker], rank: int) -> list[Path]:
        """The files for one worker; the order, which has the checksums of the others, comes last."""
        own = self.folder / str(rank)
        own.mkdir(exist_ok=True)
        journals = self._journals(rank, alone=len(workers) == 1)
        files = sorted(path for path in self.folder.iterdir() if path.is_file())
        if journals:
            _pack(journals, own / "resume.tar.gz")
            files.append(own / "resume.tar.gz")
        spec = {
            "files": {path.name: agent.sha256(path) for path in files},
            "install": install_steps(self.options),
            "image_packages": self.options.jax == "image",
            "python": self.options.python,
            "worker_python": self.options.worker_python,
            "chips": self.options.chips,
            "steps": steps(self.options, workers, rank, {name.partition("/")[0] for name in journals}),
        }
        (own / "spec.json").write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        return [*files, own / "spec.json"]

    def _journals(self, rank: int, alone: bool) -> dict[str, Path]:
        """What a worker goes on from, by its place among its results: the passes of a single host, or the journal of
        its rank. Those of other ranks would let it take its folder for one that all share."""
        if self._earlier is None:
            return {}
        found = [path for pattern in ("*.jsonl", "*.json") for path in self._earlier.rglob(pattern)]
        names = {str(path.relative_to(self._earlier)): path for path in found}
        own = f"cluster/ranks/{rank}."
        return {
            name: path
            for name, path in names.items()
            if (alone and not name.startswith("cluster/")) or name.startswith(own)
        }

    def clear(self) -> None:
        """Removes what is large and was only to be copied; each worker's order stays for the record."""
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink()


def _pack(files: dict[str, Path], target: Path) -> None:
    with tarfile.open(target, "w:gz") as archive:
        for name, path in files.items():
            archive.add(path, name)
