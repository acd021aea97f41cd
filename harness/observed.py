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
      value: the whole array; None for an abstract value (eval_shape), and where other processes hold parts of it.
      shape, dtype: as JAX reports them.
      shards: the addressable parts, empty for an abstract value or a Python scalar.
    """

    value: np.ndarray | None
    shape: tuple[int, ...]
    dtype: str
    shards: tuple[Shard, ...] = ()

    def against(self, wanted: np.ndarray) -> np.ndarray | None:
        """The whole array, to be compared with `wanted`; None for an abstract value.

        What only other processes hold is taken from `wanted`: each process judges what it has itself.
        """
        if self.value is not None or not self.shards:
            return self.value
        dtype = self.shards[0].data.dtype
        whole = wanted.astype(dtype) if wanted.shape == self.shape else np.zeros(self.shape, dtype)
        for shard in self.shards:
            whole[shard.index] = shard.data
        return whole


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
