"""Laws of ordinary operations in axis contexts.

- Whatever binds an axis around them (vmap over any dimension, pmap, shard_map with its checks on or off, eager or
  jitted, one inside the other, `spmd_axis_name`, part of a mesh), and however their operand is sharded, operations have
  NumPy's values, shapes and dtypes.
- Functions that round have a bound, written in their line of the table (`harness.probes.operations`).
"""

from harness import probes
from harness.space import Space

SUITE = "operations"

SPACE = Space(
    SUITE,
    binder=("",),
    sizes=("",),
    leaf=probes.leaves(SUITE),
    bundle=1,
    extra=(
        "probe(operations_spmd_checked, value=movement)",
        "probe(operations_spmd_checked, value=scatters)",
    ),
)


def test_operations(line, conformance):
    conformance.check(line)
