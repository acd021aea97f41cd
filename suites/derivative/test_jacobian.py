"""Laws of jacobian: the whole matrix

- jacfwd and jacrev give the matrix of the function, column by column and row by row (their documentation): the
  derivative under an unnamed vmap. Every position asks for the same element.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "jacobian"

SPACE = Space(
    SUITE,
    binder=binders.differentiated("jacobian(fwd)", "jacobian(rev)"),
    sizes=sizes.SINGLE,
    middle=("", "jit", "checkpoint"),
    leaf=leaves.FEW,
    dtype=("float32", "float64"),
    shape=("3", "scalar", "2xi"),
    payload=settings.PAYLOADS_DERIVATIVE,
    names=("str", "object"),
    extra=lines.environments("jacobian(fwd)", lines.BAKED_REVERSE, constant=False),
)


def test_jacobian(line, conformance):
    conformance.check(line)
