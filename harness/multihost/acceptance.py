"""The profile `cluster`: what an operator wants to know of a cluster within minutes. Imports no JAX.

Its lines depend on how many devices there are, so they are made when the run starts, by rule: every rank makes the same.
"""

from __future__ import annotations

from harness.multihost.world import World

NAME = "cluster"


def lines(world: World) -> list[str]:
    """The lines for a world, the world check first."""
    return [
        "probe(device_order)",
        f"jit > shard_map(i:{world.total}) > psum(i) | dtype=int32 shape=scalar payload=origin",
    ]
