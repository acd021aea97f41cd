"""Laws that no nest of layers around a collective expresses: each probe is a short program of its own.

A probe is written `probe(NAME)` or `probe(NAME, VALUE)` in a case line. Its source is the body of a function that
ends in a dictionary of statements, each of which must be true; `jax`, `jnp`, `lax`, `np`, `Mesh` and `P` are imported
and, where it has values, `VALUE` is defined. What is right is computed with NumPy or written out, never by JAX.

    PROBES["device_order"] = Probe(
        suite="devices", rule="device.order", devices=1, source='''
            ids = [device.id for device in jax.devices()]
            return {"ids ascend": ids == sorted(ids)}
        ''')

Adding a probe is adding it to the table of one of this package's modules.
"""

from __future__ import annotations

import importlib
import pkgutil

from harness.probes.base import Probe

PROBES: dict[str, Probe] = {
    name: probe
    for module in pkgutil.iter_modules(__path__, f"{__name__}.")
    for name, probe in getattr(importlib.import_module(module.name), "PROBES", {}).items()
}


def leaves(suite: str) -> tuple[str, ...]:
    """The leaves of a suite's space: every probe of it with each of its values."""
    return tuple(
        f"probe({name}, value={value})" if value else f"probe({name})"
        for name, probe in PROBES.items()
        if probe.suite == suite
        for value in (probe.values or {"": ""})
    )
