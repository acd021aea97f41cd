"""Runs a rendered module and observes it: values, placement, traces, compilations, errors. Imports JAX.

What is seen is only recorded here; `harness.judge` says what it means.
"""

from __future__ import annotations

import collections
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from harness import compat
from harness.observed import Observation, Output, Shard

COMPILE_EVENTS = frozenset({"/jax/core/compile/backend_compile_duration"})
"""The public monitoring events that mean an executable was compiled."""


_events: collections.Counter[str] = collections.Counter()
_listening: list[bool] = []

Watch = Callable[[int, Observation | None], None]
"""Told of each step before it is run, with None, and after, with what was seen."""


def _listen() -> None:
    """Counts compile events from now on; registered once, since JAX has no public way to take a listener back."""
    if not _listening:
        _listening.append(True)

        def count(event: str, duration_secs: float, **_: str | int) -> None:
            _events[event] += 1

        jax.monitoring.register_event_duration_secs_listener(count)


def compiles() -> int:
    return sum(_events[name] for name in COMPILE_EVENTS)


class Loaded:
    """A rendered module. `close` drops everything it defined and takes back the settings it changed."""

    def __init__(self, source: str, filename: str):
        self.filename = filename
        self._module = types.ModuleType(f"case_{id(self)}")
        self._module.__file__ = filename
        self.namespace: dict[str, Any] = self._module.__dict__
        sys.modules[self._module.__name__] = self._module  # dataclasses look their module up
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        self._code = compile(source, filename, "exec")
        self._x64 = jax.config.read("jax_enable_x64")

    def execute(self) -> str:
        """Runs the module's top level; returns what it raised, or ""."""
        try:
            exec(self._code, self.namespace)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def operand(self, sizes: dict[str, int]) -> np.ndarray | None:
        """The operand as the module makes it, from the sizes it asks for."""
        make = self.namespace.get("operand")
        if make is None:
            return None
        names = make.__code__.co_varnames[: make.__code__.co_argcount]
        return np.asarray(make(**{name: sizes[name] for name in names}))

    def close(self) -> None:
        del sys.modules[self._module.__name__]
        self.namespace.clear()
        if jax.config.read("jax_enable_x64") != self._x64:
            jax.config.update("jax_enable_x64", self._x64)
        linecache.cache.pop(self.filename, None)


def observe(loaded: Loaded, count: int, watch: Watch | None = None) -> Iterator[Observation]:
    """Runs the module's steps one by one; after a step that raises there are no more."""
    _listen()
    for number, seen in enumerate(_observations(loaded, count, watch or _nobody)):
        (watch or _nobody)(number, seen)
        yield seen


def _nobody(step: int, seen: Observation | None) -> None:
    """Nobody watches."""


def _observations(loaded: Loaded, count: int, watch: Watch) -> Iterator[Observation]:
    traces = loaded.namespace["traces"]
    steps = loaded.namespace["steps"]()
    for number in range(count):
        watch(number, None)
        before, compiled = len(traces), compiles()
        try:
            result = next(steps)
            if isinstance(result, Exception):  # a step that caught what a call raised
                yield Observation({}, error=f"{type(result).__name__}: {result}")
                continue
            outputs = {key: _output(value) for key, value in result.items()}
        except Exception as error:
            yield Observation({}, error=f"{type(error).__name__}: {error}", where=_where(loaded.filename))
            return
        entries = compat.entries(loaded.namespace.values())
        yield Observation(outputs, len(traces) - before, compiles() - compiled, entries)


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
        if not (value.is_fully_addressable or value.is_fully_replicated):
            return Output(None, tuple(value.shape), str(value.dtype), shards)
    array = np.asarray(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):  # a Python number that never met JAX
        array = array.astype(np.float32 if isinstance(value, float) else np.int32)
    return Output(array, array.shape, array.dtype.name, shards)
