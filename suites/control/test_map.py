"""Laws of map: one element after another

- The results of the elements are stacked in their order, whether they are computed one by one or in batches of which
  the last may be smaller (documentation of jax.lax.map).
- Collectives in the body see the same element at all positions.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "map"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=words.AROUND_CONTROL,
    control=words.MAP,
    within=words.WITHIN_CONTROL,
    leaf=words.LEAVES_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("map(2)", constant=False),
)


def test_map(line, conformance):
    conformance.check(line)
