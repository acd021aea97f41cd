"""Laws of checkpoint (remat): what is kept for the backward pass is nobody's business but its own.

- The value is that of the function inside (documentation of jax.checkpoint).
- The trace it keeps belongs to one axis environment (`cache.fresh`).
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "checkpoint"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=("checkpoint", "jit > checkpoint", "checkpoint > checkpoint"),
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("checkpoint"),
)


def test_checkpoint(line, conformance):
    conformance.check(line)
