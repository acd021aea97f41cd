"""Laws of random numbers in axis contexts.

- The bits of a key, its folds and its splits are those of the generator (Threefry, computed with NumPy) under every
  binder and however results are sharded.
- Typed keys are operands like any other.
"""

from harness import probes
from harness.space import Space

SUITE = "random"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_random(line, conformance):
    conformance.check(line)
