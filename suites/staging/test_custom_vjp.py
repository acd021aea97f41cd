"""Laws of custom_vjp: a function with a rule for its transposed derivative.

- The value is that of the function inside (documentation of jax.custom_vjp), under every binder.
- Batching and staging keep the axis environment for what is inside.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "custom_vjp"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=("custom_vjp", "jit > custom_vjp", "custom_jvp > custom_vjp"),
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=lines.environments("custom_vjp", constant=False),
)


def test_custom_vjp(line, conformance):
    conformance.check(line)
