"""Names of compile-only backends: `aot:tpu:v5e:2x4`, `aot:cuda:h100:1x1x8`, each with `+execute` or without.

They are checked here, since the compilers themselves read some wrong names as others without a word: libtpu takes
`v4-8` for a topology of eight devices. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

from harness.errors import UsageError

TARGETS = Path(__file__).resolve().parent.parent.parent / "configs" / "targets"
PREFIX = "aot:"
EXECUTE = "+execute"
MOST_CHIPS = 9216
"""The largest pod there is a name for; beyond it a topology is a typing error."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """One TPU generation.

    Attributes:
      dims: how many dimensions its topologies have.
      cores: devices of a chip, as JAX counts them.
      example: a topology of eight devices (or the nearest).
    """

    dims: int
    cores: int
    example: str


GENERATIONS: dict[str, Generation] = {
    "v2": Generation(2, 2, "2x2"),
    "v3": Generation(2, 2, "2x2"),
    "v4": Generation(3, 2, "2x2x1"),
    "v5e": Generation(2, 1, "2x4"),
    "v5p": Generation(3, 1, "2x2x2"),
    "v6e": Generation(2, 1, "2x4"),
    "tpu7x": Generation(3, 2, "2x2x1"),
}
"""What libtpu has names for (Cloud TPU documentation of system architectures; libtpu 0.0.42 and 0.0.50)."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What is compiled for.

    Attributes:
      name: as it was asked for.
      platform: `tpu` or `cuda`.
      kind: the TPU generation, or the GPU whose description stands in `configs/targets`.
      dims: chips along each dimension; slices, hosts and GPUs of a host for CUDA.
      execute: whether the compiler's output is executed too.
    """

    name: str
    platform: str
    kind: str
    dims: tuple[int, ...]
    execute: bool

    @property
    def devices(self) -> int:
        """The number of devices of the topology."""
        cores = GENERATIONS[self.kind].cores if self.platform == "tpu" else 1
        return math.prod(self.dims) * cores

    @property
    def topology(self) -> str:
        """The compiler's own name for the topology."""
        shape = "x".join(map(str, self.dims))
        return f"{self.kind}:{shape}" if self.platform == "tpu" else shape

    @property
    def description(self) -> Path:
        """The file that describes a GPU to the compiler."""
        return TARGETS / f"{self.kind}.txtpb"


def parse(name: str) -> Target:
    """Reads a backend name; raises UsageError with one line that says what would be right."""
    bare = name.removesuffix(EXECUTE)
    match = re.fullmatch(r"aot:([a-z]+):([A-Za-z0-9]+):(\d+(?:x\d+)*)", bare)
    if match is None:
        raise UsageError(
            f"--backend {name}: expected aot:tpu:GENERATION:CHIPS such as aot:tpu:v5e:2x4, or aot:cuda:GPU:"
            f"SLICESxHOSTSxGPUS such as aot:cuda:h100:1x1x8, with or without {EXECUTE}"
        )
    platform, kind, shape = match.groups()
    dims = tuple(map(int, shape.split("x")))
    target = Target(name, platform, kind, dims, name.endswith(EXECUTE))
    wrong = {"tpu": _wrong_tpu, "cuda": _wrong_cuda}.get(platform, _wrong_platform)(target)
    if wrong:
        raise UsageError(f"--backend {name}: {wrong}")
    if 0 in dims or math.prod(dims) > MOST_CHIPS:
        raise UsageError(f"--backend {name}: {math.prod(dims)} chips; expected 1 to {MOST_CHIPS}")
    return target


def _wrong_platform(target: Target) -> str:
    return f"no compile-only platform {target.platform}; known: cuda, tpu"


def _wrong_tpu(target: Target) -> str:
    generation = GENERATIONS.get(target.kind)
    if generation is None:
        return f"no TPU generation {target.kind}; known: {', '.join(GENERATIONS)}"
    if len(target.dims) != generation.dims:
        example = f"aot:tpu:{target.kind}:{generation.example}"
        return f"a {target.kind} topology has {generation.dims} dimensions of chips, such as {example}"
    return ""


def _wrong_cuda(target: Target) -> str:
    if not target.description.exists():
        known = ", ".join(sorted(path.stem for path in TARGETS.glob("*.txtpb"))) or "none"
        return f"no description {target.description.name} in configs/targets; known: {known}"
    if len(target.dims) != 3:
        return f"slices, hosts and GPUs of a host are three numbers, such as aot:cuda:{target.kind}:1x1x8"
    return ""
