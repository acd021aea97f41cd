"""Where devices and data are."""

from harness.probes.base import Probe

PROBES = {
    "device_order": Probe(
        rule="device.order",
        suite="devices",
        source="""
            ids = [device.id for device in jax.devices()]
            local = [device.id for device in jax.local_devices()]
            return {
                "ids ascend": ids == sorted(ids),
                "ids differ": len(set(ids)) == len(ids),
                "a single process sees all": local == ids,
                "the count agrees": jax.device_count() == len(ids),
            }
        """,
    ),
}
