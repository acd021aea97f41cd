"""Laws of switch.

- Exactly one branch's result is given, and an index outside the branches is clamped (documentation of
  jax.lax.switch).
- Where the index differs between positions of a vmapped axis, each position gets its own branch's result.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "switch"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=layers.AROUND_CONTROL,
    control=layers.SWITCH,
    within=layers.WITHIN_CONTROL,
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("switch(arg)"),
)


def test_switch(line, conformance):
    conformance.check(line)
