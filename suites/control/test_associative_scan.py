"""Laws of associative_scan: sums of prefixes

- Element k is the combination of elements 0..k, or of k and all later ones in reverse (documentation of
  jax.lax.associative_scan); collectives are applied to each.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "associative_scan"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=layers.AROUND_CONTROL,
    control=layers.ASSOCIATIVE_SCAN,
    within=layers.WITHIN_CONTROL,
    leaf=leaves.CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("associative_scan(2)", constant=False),
)


def test_associative_scan(line, conformance):
    conformance.check(line)
