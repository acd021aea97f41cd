"""Laws of ahead-of-time compilation, `jax.jit(f).lower(x).compile()(x)`.

- The compiled function gives the value of the function inside (documentation of jax.stages), on the devices of its
  mesh, for every size of the axes.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, settings, sizes

SUITE = "compiled"

SPACE = Space(
    SUITE,
    binder=binders.inside_of("compiled", binders.OUTERMOST),
    sizes=sizes.CORE,
    leaf=leaves.CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
)


def test_compiled(line, conformance):
    conformance.check(line)
