"""Laws of vjp: the transposed derivative.

- With J the contribution matrix of the function over all positions, the pullback is J transposed applied to the
  cotangents (documentation of jax.vjp): `psum` transposes to `psum` or to a broadcast, `ppermute` to the inverse
  permutation, `all_gather` to `psum_scatter`, and each the other way round.
- Where JAX tracks variation along a mesh axis (`check_vma`), a value that is equal along it is one value.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "vjp"

SPACE = Space(
    SUITE,
    binder=binders.REVERSE,
    sizes=sizes.CORE,
    middle=("vjp", "vjp > jit", "jit > vjp", "vjp > checkpoint", "vjp > custom_vjp", "jvp > vjp"),
    leaf=leaves.LINEAR,
    dtype=settings.DTYPES_FLOAT,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_DERIVATIVE,
    names=settings.NAMES_CORE,
    extra=lines.environments("vjp", lines.BAKED_REVERSE, constant=False),
)


def test_vjp(line, conformance):
    conformance.check(line)
