"""Laws of eval_shape: types without values.

- The shapes and dtypes are those of the function's outputs (documentation of jax.eval_shape), and follow the sizes of
  the axes at each step (`cache.fresh` holds for shapes as well).
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, settings, sizes

SUITE = "eval_shape"

SPACE = Space(
    SUITE,
    binder=binders.inside_of("eval_shape", binders.OUTERMOST),
    sizes=sizes.CORE,
    leaf=leaves.CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
)


def test_eval_shape(line, conformance):
    conformance.check(line)
