"""Laws of custom_jvp: a function with a rule for its derivative.

- The value is that of the function inside (documentation of jax.custom_jvp), under every binder.
- Batching and staging keep the axis environment for what is inside.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "custom_jvp"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=("custom_jvp", "jit > custom_jvp", "custom_vjp > custom_jvp"),
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("custom_jvp", constant=False),
)


def test_custom_jvp(line, conformance):
    conformance.check(line)
