"""Laws of fori_loop.

- The body runs for each number between the bounds (documentation of jax.lax.fori_loop), whether the bounds are known
  when it is traced (it is a scan then) or not (it is a while loop then).
- Bounds that differ between positions of a vmapped axis act position by position.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "fori_loop"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=layers.AROUND_CONTROL,
    control=layers.FORI_LOOP,
    within=layers.WITHIN_CONTROL,
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("fori_loop(arg)"),
)


def test_fori_loop(line, conformance):
    conformance.check(line)
