"""Laws of hvp: the Hessian times a vector

- Forward over reverse and reverse over forward give the same product, 2 J^T (w J t) for a weighted sum of squares of an
  affine function (JAX documentation, The Autodiff Cookbook).
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "hvp"

SPACE = Space(
    SUITE,
    binder=words.differentiated("hvp(forward)", "hvp(reverse)"),
    sizes=words.SIZES_SINGLE,
    middle=words.WITHIN_DERIVATIVE,
    leaf=words.LEAVES_FEW,
    dtype=("float32", "float64"),
    shape=("3", "scalar", "2xi"),
    payload=words.PAYLOADS_DERIVATIVE,
    names=("str", "object"),
    extra=words.environments("hvp(reverse)", words.BAKED_REVERSE, constant=False),
)


def test_hvp(line, conformance):
    conformance.check(line)
