"""Laws of jvp: the derivative along a tangent.

- Collectives that sum or move values are linear: the tangent of the output is the function applied to the tangent
  (documentation of jax.jvp), under every binder and size.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "jvp"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_FORWARD,
    sizes=words.SIZES_CORE,
    middle=("jvp", "jvp > jit", "jit > jvp", "jvp > checkpoint", "jvp > custom_jvp", "vjp > jvp"),
    leaf=words.LEAVES_LINEAR,
    dtype=words.DTYPES_FLOAT,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_DERIVATIVE,
    names=words.NAMES_CORE,
    extra=words.environments("jvp", words.BAKED_FORWARD, constant=False),
)


def test_jvp(line, conformance):
    conformance.check(line)
