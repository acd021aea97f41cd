"""Laws of pmap: one position of the axis on each device.

- The values are those of `vmap` (documentation of jax.pmap), whichever devices are given and in whichever order.
- Output position k lies on the k-th of the devices given (`result.placement`).
- Composed with `vmap`, inside or outside, each name sees the positions of its own axis.
- A second call of one callable traces and compiles nothing.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, settings, sizes

SUITE = "pmap"

SPACE = Space(
    SUITE,
    binder=binders.PMAP,
    sizes=sizes.ALL,
    leaf=leaves.CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_ALL,
    names=settings.NAMES_MESH,
)


def test_pmap(line, conformance):
    conformance.check(line)
