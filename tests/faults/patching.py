"""How faults get into JAX: a wrapped function, rule or lowering, or a cache with another key."""

from __future__ import annotations

import dataclasses
import functools
import gc
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any


def rebind(old: Any, new: Any) -> None:
    """Let every name of every JAX module that means `old` mean `new`."""
    for module in [m for n, m in sys.modules.items() if n == "jax" or n.startswith("jax.")]:
        for name in [n for n, value in vars(module).items() if value is old]:
            setattr(module, name, new)


def around(owner: ModuleType | type, name: str) -> Callable[[Callable], Callable]:
    """Decorator: `owner.name` becomes the decorated function, which gets the original as its first argument."""

    def patch(replacement: Callable) -> Callable:
        original = getattr(owner, name)

        @functools.wraps(original)
        def patched(*args, **kwargs):
            return replacement(original, *args, **kwargs)

        # The methods of a cached function stay reachable (cache_clear, evict_weakref, ...).
        for attribute in ("cache_clear", "cache_info", "cache_keys", "evict_weakref"):
            if hasattr(original, attribute):
                setattr(patched, attribute, getattr(original, attribute))
        if isinstance(owner, ModuleType):
            rebind(original, patched)
        setattr(owner, name, patched)
        return patched

    return patch


def around_rule(table: dict, primitive: Any) -> Callable[[Callable], Callable]:
    """Decorator: a rule in a table keyed by primitive; the decorated function gets the original rule first.

    Tables: `batching.fancy_primitive_batchers` (axis_data, args, dims, **params), `ad.primitive_jvps`,
    `ad.primitive_transposes`, `ad.fancy_transposes`, `ad.primitive_linearizations`, `pe.dce_rules` and so on.
    """

    def patch(replacement: Callable) -> Callable:
        table[primitive] = functools.partial(replacement, table[primitive])
        return replacement

    return patch


def around_lowering(primitive: Any) -> Callable[[Callable], Callable]:
    """Decorator: the lowering of a primitive on every platform; gets the original, then (ctx, *operands, **params)."""
    from jax._src.interpreters import mlir

    def patch(replacement: Callable) -> Callable:
        tables = [mlir._lowerings, *mlir._platform_specific_lowerings.values()]
        for table in [t for t in tables if primitive in t]:
            entry = table[primitive]
            table[primitive] = dataclasses.replace(entry, rule=functools.partial(replacement, entry.rule))
        return replacement

    return patch


def around_impl(primitive: Any) -> Callable[[Callable], Callable]:
    """Decorator: the eager evaluation of a primitive; the decorated function gets the original first."""

    def patch(replacement: Callable) -> Callable:
        primitive.impl = functools.partial(replacement, primitive.impl)
        return replacement

    return patch


def around_abstract_eval(primitive: Any) -> Callable[[Callable], Callable]:
    """Decorator: the typing rule of a primitive, (*avals, **params) -> (aval or avals, effects)."""

    def patch(replacement: Callable) -> Callable:
        primitive.abstract_eval = functools.partial(replacement, primitive.abstract_eval)
        return replacement

    return patch


def uncached(function: Callable) -> Callable:
    """The plain function under one of JAX's caches. The C++ ones do not name it, but refer to it."""
    if hasattr(function, "__wrapped__"):
        return function.__wrapped__
    plain = [
        f for f in gc.get_referents(function) if isinstance(f, FunctionType) and f.__name__ != "<lambda>"
    ]
    if len(plain) != 1:
        raise LookupError(f"{function} refers to {len(plain)} functions")
    return plain[0]


def rekey(module: ModuleType, name: str, context: Callable[[], Any], maxsize: int | None = None) -> Any:
    """Give `module.name`, a weakref cache, a new context: what `context()` returns when it is called is its key.

    Returns the new cache. The default context is `jax._src.config.trace_context`.
    """
    from jax._src import util
    from jax._src.lib import weakref_lru_cache as lib

    old = getattr(module, name)
    new = lib.weakref_lru_cache(context, uncached(old), maxsize)
    util.register_cache(new, name)
    rebind(old, new)
    return new


def coarsen(module: ModuleType, name: str, argument: int, key: Callable[..., Any]) -> None:
    """Let the cache `module.name` take one argument for another: for its first one whose `key(value)` was equal.

    Only where the first argument, the cached function, is the program's own: JAX's functions in Python stay sound.
    """
    first: dict[Any, Any] = {}

    @around(module, name)
    def coarse(original, fun, *args, **kwargs):
        if not own(fun):
            return original(fun, *args, **kwargs)
        place = argument - 1
        value = first.setdefault((id(fun), key(args[place])), (args[place], fun))[0]
        return original(fun, *args[:place], value, *args[place + 1 :], **kwargs)


def own(fun: Any) -> bool:
    """Whether a function belongs to the program under test, not to JAX."""
    return not str(getattr(fun, "__module__", "")).startswith("jax")


def context_without(*names: str) -> Callable[[], tuple]:
    """The trace context less the configurations of those names ("axis_env_state", "jax_enable_x64")."""
    from jax._src import config

    drop = {_position(name) for name in names}
    return lambda: tuple(v for i, v in enumerate(config.trace_context()) if i not in drop)


# Where JAX does not tell the names of its trace context, a configuration is found by changing it.
_OTHER_VALUE = {
    "jax_default_matmul_precision": "highest",
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
}


def _position(name: str) -> int:
    import jax
    from jax._src import config, core

    here = config.trace_context()
    if name == "axis_env_state":
        return next(i for i, value in enumerate(here) if isinstance(value, core.AxisEnv))
    try:
        return config.trace_context_names().index(name)
    except (AttributeError, NotImplementedError):
        pass
    if name == "abstract_mesh_context_manager":
        changed = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("z",)))
    else:
        short = name.removeprefix("jax_")
        state = getattr(config, short, None) or getattr(config, f"_{short}")
        changed = state(_OTHER_VALUE.get(name, not state.value))
    with changed:
        return next(
            i
            for i, (a, b) in enumerate(zip(here, config.trace_context(), strict=True))
            if a is not b and a != b
        )


def inside(*kinds: str, trace: Any = None) -> bool:
    """Whether a function is being traced for one of these: "scan", "while_body", "while_cond", "cond", "jit" ...

    `trace` is the innermost trace where JAX has put it aside, as it does while it processes a primitive.
    """
    from jax._src import core

    trace = trace or core.trace_ctx.trace
    while trace is not None:
        frame = getattr(trace, "frame", None)
        if frame is not None and frame.debug_info is not None and frame.debug_info.traced_for in kinds:
            return True
        trace = getattr(trace, "parent_trace", None)
    return False
