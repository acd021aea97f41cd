"""Laws of grad: the gradient of one number

- The gradient of a weighted sum of all outputs is the pullback of the weights (documentation of jax.grad and
  jax.value_and_grad), inside of binders, around them and between them, with or without checkpoint.
- Where JAX tracks variation, outputs that are one value for all positions are used by each position's sum.
- Whole numbers among the outputs (indices, counters) have no derivative and disturb none.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "grad"

SPACE = Space(
    SUITE,
    binder=binders.differentiated("grad", "grad(value)", "jit > grad"),
    sizes=sizes.CORE,
    middle=layers.WITHIN_DERIVATIVE,
    leaf=leaves.LINEAR,
    dtype=settings.DTYPES_FLOAT,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_DERIVATIVE,
    names=settings.NAMES_CORE,
    extra=lines.environments("grad", lines.BAKED_REVERSE, constant=False),
)


def test_grad(line, conformance):
    conformance.check(line)
