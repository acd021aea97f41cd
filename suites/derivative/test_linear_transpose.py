"""Laws of linear_transpose: the transpose of a linear function

- The transpose is the transposed contribution matrix (documentation of jax.linear_transpose), and so equals the
  pullback of vjp.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "linear_transpose"

SPACE = Space(
    SUITE,
    binder=binders.differentiated("linear_transpose"),
    sizes=sizes.CORE,
    middle=("", "jit", "checkpoint"),
    leaf=leaves.TRANSPOSED,
    dtype=("float32", "float64"),
    shape=("3", "scalar", "2xi"),
    payload=settings.PAYLOADS_DERIVATIVE,
    names=("str", "object"),
    extra=lines.environments("linear_transpose", lines.BAKED_REVERSE, constant=False),
)


def test_linear_transpose(line, conformance):
    conformance.check(line)
