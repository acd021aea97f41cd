"""The compiler of a compile-only backend: a topology's devices, and programs compiled for them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from harness import compat
from harness.aot import evaluate, program
from harness.aot.names import Target
from harness.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Compiled:
    """One compiled program, and the arguments it was compiled for.

    Attributes:
      stage: JAX's compiled program.
      arguments: as it was called.
    """

    stage: Any
    arguments: tuple[Any, ...]

    @functools.cached_property
    def text(self) -> str:
        """The optimized HLO."""
        return self.stage.as_text()

    @property
    def stable_text(self) -> str:
        """The text without what says where in a Python file an operation comes from."""
        body = re.sub(r", metadata=\{[^}]*\}", "", self.text)
        kept = [line for line in body.splitlines() if " = " in line or line.endswith("{")]
        return "\n".join([str([device.id for device in self.devices]), *kept])

    @property
    def devices(self) -> tuple[Any, ...]:
        """The devices in the order of partitions."""
        return compat.device_assignment(jax.tree.leaves(self.stage.output_shardings)[0])

    def results(self) -> list[tuple[tuple[int, ...], np.dtype, Any]]:
        """Shape, dtype and sharding of every result, in order."""
        infos = jax.tree.leaves(self.stage.out_info)
        shardings = jax.tree.leaves(self.stage.output_shardings)
        return [(tuple(i.shape), np.dtype(i.dtype), s) for i, s in zip(infos, shardings)]

    def unflatten(self, leaves: list[Any]) -> Any:
        return jax.tree.unflatten(jax.tree.structure(self.stage.out_info), leaves)


class Compiler:
    """Compiles for the devices of a topology.

    Raises UsageError where the topology cannot be made: a compiler that is not installed, dimensions it refuses.
    """

    def __init__(self, target: Target):
        from jax.experimental import topologies

        self.target = target
        try:
            if target.platform == "tpu":
                made = topologies.get_topology_desc(platform="tpu", topology_name=target.topology)
            else:
                made = topologies.get_topology_desc(
                    platform="cuda",
                    target_config=target.description.read_text(encoding="utf-8"),
                    topology=target.topology,
                )
        except Exception as error:
            raise UsageError(
                f"--backend {target.name}: {str(error).strip().splitlines()[0][:300]} ({_hint(target)})"
            ) from error
        self.devices: list[Any] = sorted(made.devices, key=_number)
        if len(self.devices) != target.devices:
            raise UsageError(
                f"--backend {target.name}: the compiler made {len(self.devices)} devices of it, not {target.devices}"
            )

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Programs see the topology's devices as their own while they are built: `jax.devices()` is what they ask."""
        kept = jax.devices, jax.local_devices, jax.device_count, jax.pmap
        jax.devices = jax.local_devices = lambda *_, **__: list(self.devices)
        jax.device_count = lambda backend=None: len(self.devices)
        jax.pmap = self._pmap  # type: ignore[assignment]
        try:
            yield
        finally:
            jax.devices, jax.local_devices, jax.device_count, jax.pmap = kept

    def _pmap(self, function: Callable[..., Any], *args: Any, **settings: Any) -> Callable[..., Any]:
        """`jax.pmap`, which takes the host's devices where it is given none, on the topology's."""
        if settings.get("devices") is not None:
            return _PMAP(function, *args, **settings)
        entries = settings.get("in_axes", 0)

        @functools.cache
        def for_size(size: int) -> Callable[..., Any]:
            return _PMAP(function, *args, **{**settings, "devices": self.devices[:size]})

        @functools.wraps(function)
        def mapped(*arguments: Any) -> Any:
            axes = entries if isinstance(entries, tuple) else (entries,) * len(arguments)
            size = next(np.shape(x)[axis] for x, axis in zip(arguments, axes) if axis is not None)
            return for_size(size)(*arguments)

        return mapped

    def compile(self, function: Callable[..., Any], arguments: tuple[Any, ...], mesh: bool) -> Compiled:
        """One program compiled.

        Args:
          function: of `arguments`, traced under a jit of its own.
          arguments: NumPy arrays and numbers.
          mesh: whether the program itself says which devices it runs on; otherwise it is compiled for the first.
        """
        one = SingleDeviceSharding(self.devices[0])
        placed = {} if mesh else {"in_shardings": one, "out_shardings": one}
        staged = _jitted(function, tuple(placed.items()))
        return Compiled(staged.lower(*arguments).compile(), arguments)

    def run(self, make: Callable[[], Any]) -> tuple[Any, np.ndarray | None]:
        """Compiles a capability's trial, and executes it where the target says so (see `harness.capabilities`)."""
        with self.shown():
            trial = make()
            compiled = self.compile(trial.function, trial.arguments, mesh=_has_mesh(trial))
        if not self.target.execute:
            return trial, None
        parts = [values[0] for values in execute(compiled)]
        return trial, whole(parts, *compiled.results()[0], compiled.devices)


_PMAP = jax.pmap


def _number(device: Any) -> int:
    return device.id


@functools.lru_cache(maxsize=64)
def _jitted(function: Callable[..., Any], placed: tuple[tuple[str, Any], ...]) -> Any:
    """One jit for each function, so that returning to it meets JAX's caches."""
    return jax.jit(function, keep_unused=True, **dict(placed))


def _has_mesh(trial: Any) -> bool:
    """Whether a trial names devices itself, as everything with a shard_map or pmap does."""
    text = str(jax.make_jaxpr(trial.function)(*trial.arguments))
    return "shard_map" in text or "pmap" in text


def _hint(target: Target) -> str:
    if target.platform == "tpu":
        return "needs jax[tpu]; chips along each dimension must be those of a slice there is, such as " + (
            "2x4 or 4x4" if len(target.dims) == 2 else "2x2x1 or 2x2x2"
        )
    return "needs the packages jax-cuda13-plugin and jax-cuda13-pjrt of this JAX"


def execute(compiled: Compiled) -> list[list[np.ndarray]]:
    """The results of each partition, by evaluation of the compiler's output; raises NotApplicable, Stuck."""
    return evaluate.execute(program.read(compiled.text), inputs(compiled))


def inputs(compiled: Compiled) -> list[list[np.ndarray]]:
    """Each partition's part of the arguments, as the compiled program wants them."""
    shardings = jax.tree.leaves(compiled.stage.input_shardings[0])
    arrays = [_array(x, compiled, k) for k, x in enumerate(jax.tree.leaves(compiled.arguments))]
    maps = [s.devices_indices_map(x.shape) for x, s in zip(arrays, shardings)]
    return [[x[places[device]] for x, places in zip(arrays, maps)] for device in compiled.devices]


def _array(x: Any, compiled: Compiled, number: int) -> np.ndarray:
    """An argument in the dtype it was traced with."""
    info = jax.tree.leaves(compiled.stage.in_avals if hasattr(compiled.stage, "in_avals") else ())
    return np.asarray(x, info[number].dtype) if number < len(info) else np.asarray(x)


def whole(
    parts: list[np.ndarray], shape: tuple[int, ...], dtype: np.dtype, sharding: Any, devices: tuple[Any, ...]
) -> np.ndarray:
    """The array that the partitions' parts make."""
    out = np.zeros(shape, dtype)
    places = sharding.devices_indices_map(shape)
    for part, device in zip(parts, devices):
        out[places[device]] = part
    return out
