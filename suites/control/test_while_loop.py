"""Laws of while_loop.

- The body runs as long as the condition holds (documentation of jax.lax.while_loop).
- Where the condition differs between positions of a vmapped axis, a position that is done keeps its state while
  others go on, and collectives see the state it keeps.
- A condition that is reduced over an axis is the same for all its positions.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "while_loop"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=words.AROUND_CONTROL,
    control=words.WHILE_LOOP,
    within=words.WITHIN_CONTROL,
    leaf=words.LEAVES_CORE,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("while_loop(2)"),
)


def test_while_loop(line, conformance):
    conformance.check(line)
