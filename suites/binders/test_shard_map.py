"""Laws of shard_map without any jit around or inside it: every primitive of the body is dispatched by itself.

- The body sees one block of the operand as `in_specs` says, collectives see the positions of the mesh axis, and
  `out_specs` puts the blocks together again (documentation of jax.shard_map).
- Eager and compiled answers agree: this suite and the suite `jit` are held to the same reference.
- With `check_vma` on or off the values are the same.

Each primitive is compiled at every call, so that a line takes a second or more: few leaves, one environment.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, settings, sizes

SUITE = "shard_map"

SPACE = Space(
    SUITE,
    binder=binders.SHARD_MAP_EAGER,
    sizes=sizes.SINGLE,
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=("float32", "int8"),
    shape=("3", "ix2", "2xi"),
    payload=("basis", "special"),
    bundle=2,
)


def test_shard_map(line, conformance):
    conformance.check(line)
