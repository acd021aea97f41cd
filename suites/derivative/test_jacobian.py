"""Laws of jacobian: the whole matrix

- jacfwd and jacrev give the matrix of the function, column by column and row by row (their documentation): the
  derivative under an unnamed vmap. Every position asks for the same element.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "jacobian"

SPACE = Space(
    SUITE,
    binder=words.differentiated("jacobian(fwd)", "jacobian(rev)"),
    sizes=words.SIZES_SINGLE,
    middle=("", "jit", "checkpoint"),
    leaf=words.LEAVES_FEW,
    dtype=("float32", "float64"),
    shape=("3", "scalar", "2xi"),
    payload=words.PAYLOADS_DERIVATIVE,
    names=("str", "object"),
    extra=words.environments("jacobian(fwd)", words.BAKED_REVERSE, constant=False),
)


def test_jacobian(line, conformance):
    conformance.check(line)
