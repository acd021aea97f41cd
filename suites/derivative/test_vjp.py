"""Laws of vjp: the transposed derivative.

- With J the contribution matrix of the function over all positions, the pullback is J transposed applied to the
  cotangents (documentation of jax.vjp): `psum` transposes to `psum` or to a broadcast, `ppermute` to the inverse
  permutation, `all_gather` to `psum_scatter`, and each the other way round.
- Where JAX tracks variation along a mesh axis (`check_vma`), a value that is equal along it is one value.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "vjp"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_REVERSE,
    sizes=words.SIZES_CORE,
    middle=("vjp", "vjp > jit", "jit > vjp", "vjp > checkpoint", "vjp > custom_vjp", "jvp > vjp"),
    leaf=words.LEAVES_LINEAR,
    dtype=words.DTYPES_FLOAT,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_DERIVATIVE,
    names=words.NAMES_CORE,
    extra=words.environments("vjp", words.BAKED_REVERSE, constant=False),
)


def test_vjp(line, conformance):
    conformance.check(line)
