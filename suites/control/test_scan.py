"""Laws of scan.

- The carry goes from trip to trip and the outputs are stacked in the order of the slices (documentation of
  jax.lax.scan), forward or in reverse, however often the body is unrolled, for no trip and for one.
- A collective in the body sees, at each trip, the carries of all positions.
- The body's trace belongs to one axis environment (`cache.fresh`; jax#9187).
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "scan"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=layers.AROUND_CONTROL,
    control=layers.SCAN,
    within=layers.WITHIN_CONTROL,
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("scan(2)"),
)


def test_scan(line, conformance):
    conformance.check(line)
