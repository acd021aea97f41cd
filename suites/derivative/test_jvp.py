"""Laws of jvp: the derivative along a tangent.

- Collectives that sum or move values are linear: the tangent of the output is the function applied to the tangent
  (documentation of jax.jvp), under every binder and size.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "jvp"

SPACE = Space(
    SUITE,
    binder=binders.FORWARD,
    sizes=sizes.CORE,
    middle=("jvp", "jvp > jit", "jit > jvp", "jvp > checkpoint", "jvp > custom_jvp", "vjp > jvp"),
    leaf=leaves.LINEAR,
    dtype=settings.DTYPES_FLOAT,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_DERIVATIVE,
    names=settings.NAMES_CORE,
    extra=lines.environments("jvp", lines.BAKED_FORWARD, constant=False),
)


def test_jvp(line, conformance):
    conformance.check(line)
