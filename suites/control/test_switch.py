"""Laws of switch.

- Exactly one branch's result is given, and an index outside the branches is clamped (documentation of
  jax.lax.switch).
- Where the index differs between positions of a vmapped axis, each position gets its own branch's result.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "switch"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=words.AROUND_CONTROL,
    control=words.SWITCH,
    within=words.WITHIN_CONTROL,
    leaf=words.LEAVES_CORE,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("switch(arg)"),
)


def test_switch(line, conformance):
    conformance.check(line)
