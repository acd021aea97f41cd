"""Laws of hvp: the Hessian times a vector

- Forward over reverse and reverse over forward give the same product, 2 J^T (w J t) for a weighted sum of squares of an
  affine function (JAX documentation, The Autodiff Cookbook).
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "hvp"

SPACE = Space(
    SUITE,
    binder=binders.differentiated("hvp(forward)", "hvp(reverse)"),
    sizes=sizes.SINGLE,
    middle=layers.WITHIN_DERIVATIVE,
    leaf=leaves.FEW,
    dtype=("float32", "float64"),
    shape=("3", "scalar", "2xi"),
    payload=settings.PAYLOADS_DERIVATIVE,
    names=("str", "object"),
    extra=lines.environments("hvp(reverse)", lines.BAKED_REVERSE, constant=False),
)


def test_hvp(line, conformance):
    conformance.check(line)
