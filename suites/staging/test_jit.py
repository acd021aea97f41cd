"""Laws of jit around and inside the binders.

- The value is that of the function inside (documentation of jax.jit).
- A trace belongs to the axis environment it was made in: another size, name or nesting of a bound axis gives another
  trace, and never the answer of the first (`cache.fresh`; jax#9187 was one such answer).
- Returning to an environment traces and compiles nothing (`cache.retrace`, `cache.recompile`).
- Device d of a mesh holds the part of the output that the specs give to its position (`result.placement`).
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "jit"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_JIT,
    sizes=words.SIZES,
    leaf=words.LEAVES,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES,
    shape=words.SHAPES,
    payload=words.PAYLOADS_ALL,
    names=words.NAMES_JIT,
    extra=words.environments("jit") + words.MESHES_3D + words.WITNESSES + words.WITNESSES_JIT,
)


def test_jit(line, conformance):
    conformance.check(line)
