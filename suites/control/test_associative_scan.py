"""Laws of associative_scan: sums of prefixes

- Element k is the combination of elements 0..k, or of k and all later ones in reverse (documentation of
  jax.lax.associative_scan); collectives are applied to each.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "associative_scan"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=words.AROUND_CONTROL,
    control=words.ASSOCIATIVE_SCAN,
    within=words.WITHIN_CONTROL,
    leaf=words.LEAVES_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("associative_scan(2)", constant=False),
)


def test_associative_scan(line, conformance):
    conformance.check(line)
