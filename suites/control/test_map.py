"""Laws of map: one element after another

- The results of the elements are stacked in their order, whether they are computed one by one or in batches of which
  the last may be smaller (documentation of jax.lax.map).
- Collectives in the body see the same element at all positions.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "map"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=layers.AROUND_CONTROL,
    control=layers.MAP,
    within=layers.WITHIN_CONTROL,
    leaf=leaves.CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("map(2)", constant=False),
)


def test_map(line, conformance):
    conformance.check(line)
