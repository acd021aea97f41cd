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

from harness.probes import placement
from harness.probes.base import Probe

PROBES: dict[str, Probe] = {**placement.PROBES}
