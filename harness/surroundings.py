"""The usual mistakes of a set-up, found before anything runs: which JAX is this, do its parts fit each other, what
hides devices, which flags change results. Imports no JAX; reads only package metadata, variables and device files."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

PACKAGE = re.compile(r"(jax|jaxlib|libtpu|jax[-_](?:cuda|rocm)\d*[-_](?:plugin|pjrt))$", re.IGNORECASE)
REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
HARDWARE = re.compile(r"extra *== *.(tpu|cuda|rocm)")
"""The extras that say which parts for accelerators fit; others are for JAX's own tests."""

FLAGS: dict[str, str] = {
    "JAX_ENABLE_X64": "64-bit types are on: dtypes of results differ",
    "JAX_DISABLE_JIT": "jit is off: nothing that is cached is tested",
    "JAX_NUMPY_DTYPE_PROMOTION": "promotion of dtypes is not the default one",
    "JAX_NUMPY_RANK_PROMOTION": "broadcasting may raise",
    "JAX_DEFAULT_MATMUL_PRECISION": "matrix products round differently",
    "JAX_DEBUG_NANS": "NaN raises, which payloads of NaN meet",
    "JAX_DEBUG_INFS": "infinity raises, which payloads of it meet",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "another program is compiled",
    "JAX_CHECK_TRACER_LEAKS": "caches are bypassed",
    "JAX_COMPILATION_CACHE_DIR": "executables come from a cache on disk, maybe of another build",
    "JAX_PMAP_SHMAP_MERGE": "pmap is not the default one",
    "JAX_USE_SHARDY_PARTITIONER": "the partitioner is not the default one",
}
"""JAX's variables that change what is tested."""

XLA_FLAGS: dict[str, str] = {
    "xla_cpu_enable_fast_math": "results on the CPU round differently",
    "xla_gpu_enable_fast_min_max": "NaN is dropped by max and min",
    "xla_allow_excess_precision": "bfloat16 and float16 may keep more bits than they have",
    "xla_backend_optimization_level": "another program is compiled",
    "xla_disable_hlo_passes": "another program is compiled",
    "xla_gpu_deterministic_ops": "other kernels are chosen",
}
"""Flags in XLA_FLAGS that do."""

HIDING = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "JAX_PLATFORMS",
)


def mistakes(
    environment: Mapping[str, str] | None = None, facts: Mapping[str, object] | None = None
) -> list[str]:
    """One line for each thing that is probably not as it should be.

    Args:
      environment: variables (this process's own).
      facts: what the started backend says of itself (`harness.environment.facts`), where it could be started.
    """
    variables = os.environ if environment is None else environment
    installed = _installed()
    return [
        *_doubles(installed),
        *_shadows(),
        *_mismatches(installed),
        *_flags(variables),
        *_hidden(variables, facts or {}),
    ]


def versions() -> dict[str, str]:
    """The installed packages that matter, by name."""
    return {name: found[0][0] for name, found in sorted(_installed().items())}


def _installed() -> dict[str, list[tuple[str, str]]]:
    """(version, folder) of every installed copy of JAX's own packages, in the order of sys.path."""
    found: dict[str, list[tuple[str, str]]] = {}
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        entry = (distribution.version, str(distribution.locate_file("")))
        if PACKAGE.match(name) and entry not in found.get(name, []):
            found.setdefault(name, []).append(entry)
    return found


def _doubles(installed: Mapping[str, list[tuple[str, str]]]) -> Iterable[str]:
    for name, copies in installed.items():
        if len(copies) > 1:
            listed = ", ".join(f"{version} in {folder}" for version, folder in copies)
            yield f"{name} is installed {len(copies)} times: {listed}; the first one is imported"


def _shadows() -> Iterable[str]:
    """A folder or file called jax that is found before the installed one."""
    for name in ("jax", "jaxlib"):
        spec = importlib.util.find_spec(name)
        if spec is None:
            yield f"{name} is not installed for {sys.executable}"
            continue
        where = Path(next(iter(spec.submodule_search_locations or [spec.origin or ""])))
        try:
            installed = Path(str(metadata.distribution(name).locate_file(name)))
        except metadata.PackageNotFoundError:
            yield f"{name} is imported from {where}, which no package manager installed"
            continue
        if where.resolve() != installed.resolve() and not _editable(name):
            yield f"{name} is imported from {where}, not from the installed {installed}"


def _editable(name: str) -> bool:
    """Whether a package is installed as a link to a checkout, as developers do."""
    return '"editable": true' in (metadata.distribution(name).read_text("direct_url.json") or "")


def _mismatches(installed: Mapping[str, list[tuple[str, str]]]) -> Iterable[str]:
    """What JAX's own metadata requires of the packages that are installed beside it."""
    said: list[str] = []
    for name in [key for key in installed if key == "jax" or key.startswith("jax-")]:
        for text in metadata.requires(name) or ():
            match = REQUIREMENT.match(text)
            if match is None or ("extra" in (match.group(3) or "") and not HARDWARE.search(match.group(3))):
                continue
            wanted, conditions = match.group(1).lower().replace("_", "-"), match.group(2).strip()
            version = installed[wanted][0][0] if wanted in installed and conditions else ""
            if version and not all(_fits(version, condition) for condition in conditions.split(",")):
                said.append(
                    f"{name} {installed[name][0][0]} wants {wanted}{conditions}, installed is {version}"
                )
    return list(dict.fromkeys(said))


def _fits(version: str, condition: str) -> bool:
    """Whether a version satisfies `==0.0.42.*`, `<=0.10.2` and the like, as far as those release numbers go."""
    match = re.fullmatch(r"\s*(==|>=|<=|~=|!=|>|<)\s*([\d.]+?)(\.\*)?\s*", condition)
    if match is None:
        return True
    operator, bound_text, any_further = match.groups()
    bound, own = _numbers(bound_text), _numbers(version)
    if any_further:
        return (own[: len(bound)] == bound) == (operator == "==")
    width = max(len(own), len(bound))
    a, b = (numbers + (0,) * (width - len(numbers)) for numbers in (own, bound))
    return {
        "==": a == b,
        "!=": a != b,
        ">=": a >= b,
        "~=": a >= b and own[: len(bound) - 1] == bound[:-1],
        "<=": a <= b,
        ">": a > b,
        "<": a < b,
    }[operator]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z+-]", text)[0]))


def _flags(variables: Mapping[str, str]) -> Iterable[str]:
    for name, effect in FLAGS.items():
        if variables.get(name, "") not in ("", "0", "false", "False"):
            yield f"{name}={variables[name]}: {effect}"
    for name, effect in XLA_FLAGS.items():
        match = re.search(rf"--{name}(=\S*)?", variables.get("XLA_FLAGS", ""))
        if match:
            yield f"{match.group(0)} in XLA_FLAGS: {effect}"


def _hidden(variables: Mapping[str, str], facts: Mapping[str, object]) -> Iterable[str]:
    """Accelerators that the machine has and JAX does not show."""
    present = {
        "NVIDIA GPUs": len(list(Path("/dev").glob("nvidia[0-9]*"))),
        "TPU chips": len(list(Path("/dev").glob("accel[0-9]*"))),
    }
    hiding = ", ".join(f"{name}={variables[name]}" for name in HIDING if name in variables)
    count, backend = facts.get("device_count"), facts.get("backend")
    for kind, number in present.items():
        shown = backend in (("gpu", "cuda", "rocm") if "GPU" in kind else ("tpu",))
        if number and backend and not shown:
            yield f"the machine has {number} {kind}, and JAX shows {backend} devices" + (
                f" ({hiding})" if hiding else ": is the plugin installed?"
            )
        elif number and shown and isinstance(count, int) and count < number:
            yield f"the machine has {number} {kind}, and JAX shows {count}" + (
                f" ({hiding})" if hiding else ""
            )
