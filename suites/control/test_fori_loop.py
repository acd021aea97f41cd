"""Laws of fori_loop.

- The body runs for each number between the bounds (documentation of jax.lax.fori_loop), whether the bounds are known
  when it is traced (it is a scan then) or not (it is a while loop then).
- Bounds that differ between positions of a vmapped axis act position by position.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "fori_loop"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=words.AROUND_CONTROL,
    control=words.FORI_LOOP,
    within=words.WITHIN_CONTROL,
    leaf=words.LEAVES_CORE,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("fori_loop(arg)"),
)


def test_fori_loop(line, conformance):
    conformance.check(line)
