"""The devices of the backend under test, in the orders that case lines name."""

from __future__ import annotations

import jax

from harness.layers.binders import DEVICE_ORDERS


def ordered(order: str, count: int) -> list[int]:
    """Device ids in one of the named orders, by evaluating the very expression that rendered programs carry."""
    devices = eval(DEVICE_ORDERS[order].format(count=count), {"jax": jax})
    return [device.id for device in devices]


def own() -> set[int]:
    """Ids of the devices of this process."""
    return {device.id for device in jax.local_devices()}
