"""Laws of jit around and inside the binders.

- The value is that of the function inside (documentation of jax.jit).
- A trace belongs to the axis environment it was made in: another size, name or nesting of a bound axis gives another
  trace, and never the answer of the first (`cache.fresh`; jax#9187 was one such answer).
- Returning to an environment traces and compiles nothing (`cache.retrace`, `cache.recompile`).
- Device d of a mesh holds the part of the output that the specs give to its position (`result.placement`).
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "jit"

SPACE = Space(
    SUITE,
    binder=binders.JIT,
    sizes=sizes.ALL,
    leaf=leaves.ALL,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES,
    shape=settings.SHAPES,
    payload=settings.PAYLOADS_ALL,
    names=settings.NAMES_JIT,
    extra=lines.environments("jit") + lines.MESHES_3D + lines.WITNESSES + lines.WITNESSES_JIT,
)


def test_jit(line, conformance):
    conformance.check(line)
