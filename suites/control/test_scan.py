"""Laws of scan.

- The carry goes from trip to trip and the outputs are stacked in the order of the slices (documentation of
  jax.lax.scan), forward or in reverse, however often the body is unrolled, for no trip and for one.
- A collective in the body sees, at each trip, the carries of all positions.
- The body's trace belongs to one axis environment (`cache.fresh`; jax#9187).
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "scan"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=words.AROUND_CONTROL,
    control=words.SCAN,
    within=words.WITHIN_CONTROL,
    leaf=words.LEAVES_CORE,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("scan(2)"),
)


def test_scan(line, conformance):
    conformance.check(line)
