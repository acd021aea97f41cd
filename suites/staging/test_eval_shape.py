"""Laws of eval_shape: types without values.

- The shapes and dtypes are those of the function's outputs (documentation of jax.eval_shape), and follow the sizes of
  the axes at each step (`cache.fresh` holds for shapes as well).
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "eval_shape"

SPACE = Space(
    SUITE,
    binder=words.inside_of("eval_shape", words.BINDERS_OUTERMOST),
    sizes=words.SIZES_CORE,
    leaf=words.LEAVES_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
)


def test_eval_shape(line, conformance):
    conformance.check(line)
