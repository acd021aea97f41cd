"""Laws of ahead-of-time compilation, `jax.jit(f).lower(x).compile()(x)`.

- The compiled function gives the value of the function inside (documentation of jax.stages), on the devices of its
  mesh, for every size of the axes.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "compiled"

SPACE = Space(
    SUITE,
    binder=words.inside_of("compiled", words.BINDERS_OUTERMOST),
    sizes=words.SIZES_CORE,
    leaf=words.LEAVES_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
)


def test_compiled(line, conformance):
    conformance.check(line)
