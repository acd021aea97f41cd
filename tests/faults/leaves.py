"""How faults get into the collectives: their public functions, leaf by leaf, and their rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .patching import around


def names_of(axis_name: Any) -> tuple:
    """The axis names that the `axis_name` argument of a collective stands for."""
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def is_traced(x: Any) -> bool:
    """Whether a leaf is traced, so neither a constant nor an array that the function closes over."""
    from jax._src import core

    return isinstance(x, core.Tracer)


def around_leaves(name: str) -> Callable[[Callable], Callable]:
    """Decorator: a collective of jax.lax; gets the original, ONE leaf, the axis name, the rest.

    The public function is wrapped, so eager and staged programs and every binder are concerned alike.
    """
    import jax
    from jax._src.lax import parallel

    def patch(replacement: Callable) -> Callable:
        @around(parallel, name)
        def over_tree(original, x, axis_name, *args, **options):
            return jax.tree.map(lambda leaf: replacement(original, leaf, axis_name, *args, **options), x)

        return over_tree

    return patch


def meshes_of_bodies() -> list:
    """A list whose last item is, while a body of shard_map or pmap is traced or run, the mesh of that."""
    from jax._src import shard_map

    meshes = []

    @around(shard_map, "_shard_map")
    def mapped(original, f, *, mesh, **options):
        def body(*args):
            meshes.append(mesh)
            try:
                return f(*args)
            finally:
                meshes.pop()

        return original(body, mesh=mesh, **options)

    return meshes
