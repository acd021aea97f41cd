"""Laws of custom_vjp: a function with a rule for its transposed derivative.

- The value is that of the function inside (documentation of jax.custom_vjp), under every binder.
- Batching and staging keep the axis environment for what is inside.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "custom_vjp"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=("custom_vjp", "jit > custom_vjp", "custom_jvp > custom_vjp"),
    leaf=words.LEAVES_CORE,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("custom_vjp", constant=False),
)


def test_custom_vjp(line, conformance):
    conformance.check(line)
