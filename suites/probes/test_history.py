"""Laws behind the programs that JAX releases have got wrong, each over many programs of its kind.

- Inner names hide outer ones; closed-over operands are everyone's; negative axes count from the end; axis queries mean
  the same in a branch; joining sharded arrays, manual meshes with axes of size one, reductions of what is reduced, nested
  pmaps, explicit meshes and eager shard_maps give what their definitions say.
"""

from harness import probes
from harness.space import Space

SUITE = "history"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_history(line, conformance):
    conformance.check(line)
