"""Runs a rendered module and observes it: values, placement, traces, compilations, errors. Imports JAX.

What is seen is only recorded here; `harness.judge` says what it means.
"""

from __future__ import annotations

import collections
import dataclasses
import linecache
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

COMPILE_EVENTS = frozenset({"/jax/core/compile/backend_compile_duration"})
"""The public monitoring events that mean an executable was compiled."""


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
      error: exception type and message, or "".
      where: the traceback, shortened to the module's own lines.
    """

    outputs: dict[str, Output]
    traces: int = 0
    compiles: int = 0
    error: str = ""
    where: str = ""


_events: collections.Counter[str] = collections.Counter()
_listening: list[bool] = []


def _listen() -> None:
    """Counts compile events from now on; registered once, since JAX has no public way to take a listener back."""
    if not _listening:
        _listening.append(True)
        jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: _events.update((name,)))


def compiles() -> int:
    return sum(_events[name] for name in COMPILE_EVENTS)


class Loaded:
    """A rendered module, executed. `close` drops everything it defined."""

    def __init__(self, source: str, filename: str):
        self.filename = filename
        self.namespace: dict[str, Any] = {"__name__": "case", "__file__": filename}
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec"), self.namespace)

    def operand(self, sizes: dict[str, int]) -> np.ndarray | None:
        """The operand as the module makes it, from the sizes it asks for."""
        make = self.namespace.get("operand")
        if make is None:
            return None
        names = make.__code__.co_varnames[: make.__code__.co_argcount]
        return np.asarray(make(**{name: sizes[name] for name in names}))

    def close(self) -> None:
        self.namespace.clear()
        linecache.cache.pop(self.filename, None)


def observe(loaded: Loaded, count: int) -> Iterator[Observation]:
    """Runs the module's steps one by one; after a step that raises there are no more."""
    _listen()
    traces = loaded.namespace["traces"]
    steps = loaded.namespace["steps"]()
    for _ in range(count):
        before, compiled = len(traces), compiles()
        try:
            outputs = {key: _output(value) for key, value in next(steps).items()}
        except Exception as error:  # noqa: BLE001 - whatever JAX raises is what we are here to see
            yield Observation({}, error=f"{type(error).__name__}: {error}", where=_where(loaded.filename))
            return
        yield Observation(outputs, len(traces) - before, compiles() - compiled)


def _where(filename: str) -> str:
    """The traceback's frames in the rendered module."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    return "".join(traceback.format_list([frame for frame in frames if frame.filename == filename]))


def _output(value: Any) -> Output:
    if isinstance(value, jax.ShapeDtypeStruct):
        return Output(None, tuple(value.shape), str(value.dtype))
    shards: tuple[Shard, ...] = ()
    if isinstance(value, jax.Array):
        value.block_until_ready()
        shards = tuple(Shard(s.device.id, s.index, np.asarray(s.data)) for s in value.addressable_shards)
    array = np.asarray(value)
    if not isinstance(value, jax.Array) and isinstance(value, int) and not isinstance(value, bool):
        array = array.astype(np.int32)  # a Python int that never met JAX
    return Output(array, array.shape, array.dtype.name, shards)
