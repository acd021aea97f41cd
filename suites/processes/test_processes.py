"""Laws of several processes; with one process they say nothing (run them with `--processes 2`).

- Every process sees the same world: one group of all of them, the same devices with the same owners.
- Arrays made of what each process has give every device its part; gathers and broadcasts keep the order of processes.
- An axis of a mesh may lie across processes in any way, and processes may use meshes of their own at the same time:
  collectives give what their definitions say, whatever the size of the operand.
- Gradients across processes are those of the whole sum; results are the same bits wherever they are replicated.
- A callable that all processes take through the same environments in the same order is traced once for each.
"""

from harness import probes
from harness.space import Space

SUITE = "processes"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_processes(line, conformance):
    conformance.check(line)
