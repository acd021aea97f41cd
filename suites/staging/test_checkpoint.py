"""Laws of checkpoint (remat): what is kept for the backward pass is nobody's business but its own.

- The value is that of the function inside (documentation of jax.checkpoint).
- The trace it keeps belongs to one axis environment (`cache.fresh`).
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "checkpoint"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=("checkpoint", "jit > checkpoint", "checkpoint > checkpoint"),
    leaf=words.LEAVES_CORE,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("checkpoint"),
)


def test_checkpoint(line, conformance):
    conformance.check(line)
