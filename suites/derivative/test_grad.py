"""Laws of grad: the gradient of one number

- The gradient of a weighted sum of all outputs is the pullback of the weights (documentation of jax.grad and
  jax.value_and_grad), inside of binders, around them and between them, with or without checkpoint.
- Where JAX tracks variation, outputs that are one value for all positions are used by each position's sum.
- Whole numbers among the outputs (indices, counters) have no derivative and disturb none.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "grad"

SPACE = Space(
    SUITE,
    binder=words.differentiated("grad", "grad(value)", "jit > grad"),
    sizes=words.SIZES_CORE,
    middle=words.WITHIN_DERIVATIVE,
    leaf=words.LEAVES_LINEAR,
    dtype=words.DTYPES_FLOAT,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_DERIVATIVE,
    names=words.NAMES_CORE,
    extra=words.environments("grad", words.BAKED_REVERSE, constant=False),
)


def test_grad(line, conformance):
    conformance.check(line)
