"""Laws of linear_transpose: the transpose of a linear function

- The transpose is the transposed contribution matrix (documentation of jax.linear_transpose), and so equals the
  pullback of vjp.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "linear_transpose"

SPACE = Space(
    SUITE,
    binder=words.differentiated("linear_transpose"),
    sizes=words.SIZES_CORE,
    middle=("", "jit", "checkpoint"),
    leaf=words.LEAVES_TRANSPOSED,
    dtype=("float32", "float64"),
    shape=("3", "scalar", "2xi"),
    payload=words.PAYLOADS_DERIVATIVE,
    names=("str", "object"),
    extra=words.environments("linear_transpose", words.BAKED_REVERSE, constant=False),
)


def test_linear_transpose(line, conformance):
    conformance.check(line)
