"""Every difference between JAX versions that the suite knows of, and the only place outside the fault library that may
touch private API.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

Version = tuple[int, ...]


def version(text: str) -> Version:
    """`0.12.0.1` or `0.12.0.dev2026` as a tuple of the leading numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", text.split("dev")[0])[:4])


@dataclasses.dataclass(frozen=True)
class Spelling:
    """How the same thing is written in different JAX releases; rendered programs carry the one that fits.

    Attributes:
      shard_map: template over inner, mesh, in_specs, out_specs, check.
      unchecked: the argument that switches the checks off.
      axis_size: template over names, for the size of bound axes.
      varying: template over value, names that marks a value as varying, or "" where JAX tracks no variation.
      imports: what shard_map needs imported, or "".
      manual: template over the names of manual and of other mesh axes, for a shard_map over some of a mesh's axes.
      reshard: template over value and sharding, where a shard_map over explicit axes needs its argument placed; or "".
    """

    shard_map: str
    unchecked: str
    axis_size: str
    varying: str
    imports: str = ""
    manual: str = ", axis_names={{{manual}}}"
    reshard: str = ""


def spelling(jax_version: str) -> Spelling:
    """The spelling for one release (the table is in the project's notes on versions)."""
    v = version(jax_version)
    args = "{inner}, mesh={mesh}, in_specs={in_specs}, out_specs={out_specs}{check}"
    if v >= (0, 6, 2):
        shard_map, unchecked, imports = f"jax.shard_map({args})", ", check_vma=False", ""
    else:
        shard_map, unchecked = f"shard_map({args})", ", check_rep=False"
        imports = "from jax.experimental.shard_map import shard_map"
    manual = ", axis_names={{{manual}}}" if v >= (0, 6, 2) else ", auto=frozenset({{{auto}}})"
    axis_size = "lax.axis_size({names})" if v >= (0, 6, 2) else "lax.psum(1, {names})"
    if v >= (0, 8, 3):
        varying = 'lax.pcast({value}, {names}, to="varying")'
    elif v >= (0, 6, 0):
        varying = "lax.pvary({value}, {names})"
    else:
        varying = ""
    reshard = "jax.sharding.reshard({value}, {sharding})" if v >= (0, 7, 0) else ""
    return Spelling(shard_map, unchecked, axis_size, varying, imports, manual, reshard)


PYTHONS: tuple[tuple[Version, Version, Version], ...] = (
    ((0, 11, 1), (3, 12), (3, 14)),
    ((0, 7, 2), (3, 11), (3, 14)),
    ((0, 4, 34), (3, 10), (3, 13)),
    ((0, 0), (3, 9), (3, 12)),
)
"""From which release on which Pythons (first, last) have wheels; newest release first."""


def python_range(jax_version: str) -> tuple[Version, Version]:
    """The first and the last Python that a JAX release supports."""
    return next((low, high) for since, low, high in PYTHONS if version(jax_version) >= since)


def entries(candidates: Iterable[Any]) -> int:
    """How many entries jitted functions among the candidates have in their caches; `_cache_size` is not public and
    counts only as a hint, so that a release without it counts none."""
    sizes = [thing._cache_size for thing in candidates if hasattr(thing, "_cache_size")]
    return sum(
        max(0, size() if callable(size) else size) for size in sizes
    )  # a number for old releases' pmap


DECLINES = (
    "NotImplementedError",
    "UNIMPLEMENTED: ",
    "Make sure that the axis_name passed to jax.lax.ppermute is in the same order",
)
"""How JAX words that it does not implement something, where a leaf may be declined."""
DECLINED = "JAX does not implement this"
"""How that is said in a result."""

REFUSALS = (
    "NotImplementedError",
    "UNIMPLEMENTED",
    "Unimplemented",
    "not implemented",
    "not supported",
    "unsupported",
    "Unsupported",
    "No FFI handler registered",
)
"""How JAX, XLA and PJRT plugins word that they do not have something, rather than that it went wrong."""


def shard_map(
    function: Callable[..., Any],
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    manual: frozenset[str] | None = None,
) -> Callable[..., Any]:
    """An unchecked shard_map in the installed JAX's spelling, over the `manual` axes only where some are given."""
    import jax

    if hasattr(jax, "shard_map"):
        some = {"axis_names": set(manual)} if manual else {}
        return jax.shard_map(
            function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False, **some
        )
    from jax.experimental.shard_map import shard_map as older

    auto = frozenset(mesh.axis_names) - manual if manual else frozenset()
    return older(function, mesh, in_specs, out_specs, check_rep=False, **({"auto": auto} if auto else {}))


# Compile-only backends. JAX has no public way to read a compiled program but its text, nor to parse that.


def stablehlo_of_hlo(text: str) -> Any:
    """An MLIR module of an HLO text, by XLA's own parser and converter.

    The module holds its context. Raises what XLA raises where the text cannot be parsed or converted.
    """
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib._hlo import hlo_module_from_text
    from jaxlib.mlir import ir

    converted = _jax.mlir.hlo_to_stablehlo(hlo_module_from_text(text).as_serialized_hlo_module_proto())
    with mlir.make_ir_context():
        return ir.Module.parse(converted)


def device_assignment(sharding: Any) -> tuple[Any, ...]:
    """The devices of a sharding in the order of the program's partitions."""
    return tuple(sharding._device_assignment)


# Several processes


def join_processes(**options: Any) -> None:
    """`jax.distributed.initialize` with those of the options that are given and that this release has."""
    import jax

    known = inspect.signature(jax.distributed.initialize).parameters
    jax.distributed.initialize(**{k: v for k, v in options.items() if k in known and v is not None})


def limit_collectives(seconds: int) -> None:
    """Has collectives between CPU processes give up on a lost peer after so long; to be called before the backend starts.

    JAX 0.6.2 ends the process over the flag, 0.10.2 has it. Without it a lost peer is noticed at the deadline. Releases
    up to 0.5 have no collectives between CPU processes unless they are asked for.
    """
    import jax

    if version(jax.__version__) < (0, 5):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    flag, flags = "--xla_cpu_collective_timeout_seconds", os.environ.get("XLA_FLAGS", "")
    if version(jax.__version__) >= (0, 10) and flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}={seconds}".strip()


def coordination_client() -> Any:
    """JAX's own client of the coordination service, whose key-value store has no public name; None in one process."""
    from jax._src import distributed

    return distributed.global_state.client


def before_compiling(call: Callable[[Callable[[], str], list[Any]], None]) -> bool:
    """Has `call(text, devices)` called before anything is compiled, from now on: `text()` is the lowered program and
    `devices` those it will run on, in their order. False where this release does not let itself be asked."""
    from jax._src import compiler

    original = getattr(compiler, "compile_or_get_cached", None)
    if original is None:
        return False

    def compile_or_get_cached(
        backend: Any, computation: Any, devices: Any, *rest: Any, **options: Any
    ) -> Any:
        import numpy as np

        call(lambda: computation.operation.get_asm(enable_debug_info=False), list(np.asarray(devices).flat))
        return original(backend, computation, devices, *rest, **options)

    compiler.compile_or_get_cached = compile_or_get_cached
    return True
