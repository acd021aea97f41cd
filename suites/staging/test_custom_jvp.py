"""Laws of custom_jvp: a function with a rule for its derivative.

- The value is that of the function inside (documentation of jax.custom_jvp), under every binder.
- Batching and staging keep the axis environment for what is inside.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "custom_jvp"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=("custom_jvp", "jit > custom_jvp", "custom_vjp > custom_jvp"),
    leaf=words.LEAVES_CORE,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=words.environments("custom_jvp", constant=False),
)


def test_custom_jvp(line, conformance):
    conformance.check(line)
