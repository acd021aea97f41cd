"""Laws of while_loop.

- The body runs as long as the condition holds (documentation of jax.lax.while_loop).
- Where the condition differs between positions of a vmapped axis, a position that is done keeps its state while
  others go on, and collectives see the state it keeps.
- A condition that is reduced over an axis is the same for all its positions.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "while_loop"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=layers.AROUND_CONTROL,
    control=layers.WHILE_LOOP,
    within=layers.WITHIN_CONTROL,
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("while_loop(2)"),
)


def test_while_loop(line, conformance):
    conformance.check(line)
