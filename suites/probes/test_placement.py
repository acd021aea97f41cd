"""Laws of placement.

- However an array comes to be placed (`device_put`, from another placement, by callback, from single-device arrays, from
  the data of a process, by `jit`'s shardings, by a constraint), each device holds the part that its position in the mesh
  and the specification give it, and says so in `addressable_shards`.
- What is not bound to a device follows what is; the second call of a program equals the first in bits and placement.
- Fetching, indexing and ordinary operations give what NumPy gives.
"""

from harness import probes
from harness.space import Space

SUITE = "placement"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_placement(line, conformance):
    conformance.check(line)
