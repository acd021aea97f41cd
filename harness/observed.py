"""What a run leaves to be judged: plain NumPy, so that the judge needs no JAX."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Shard:
    """One device's part of an array: where it lives, which part it is, and the data."""

    device: int
    index: tuple
    data: np.ndarray


@dataclasses.dataclass
class Output:
    """One output of one step.

    Attributes:
      value: the whole array; None for an abstract value (eval_shape).
      shape, dtype: as JAX reports them.
      shards: the addressable parts, empty for an abstract value or a Python scalar.
    """

    value: np.ndarray | None
    shape: tuple[int, ...]
    dtype: str
    shards: tuple[Shard, ...] = ()


@dataclasses.dataclass
class Observation:
    """One step as it was seen.

    Attributes:
      outputs: by output key, empty when the step raised.
      traces: how often the leaf's Python ran.
      compiles: how many executables were compiled.
      entries: how many entries the module's jitted functions have, where JAX tells.
      error: exception type and message, or "".
      where: the traceback, shortened to the module's own lines.
    """

    outputs: dict[str, Output]
    traces: int = 0
    compiles: int = 0
    entries: int = 0
    error: str = ""
    where: str = ""
