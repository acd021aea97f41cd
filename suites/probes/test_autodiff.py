"""Laws of derivatives around shard_map and of operations with scalars and ties.

- Gradients of a shard_map, batched in any way, saved or recomputed under any checkpoint policy, with outputs that nothing
  uses, are those of the function it stands for, worked out by hand.
- Derivatives by Python scalars, and by sharded arrays beside them, are those by hand; ties are shared.
"""

from harness import probes
from harness.space import Space

SUITE = "autodiff"

SPACE = Space(
    SUITE,
    binder=("",),
    sizes=("",),
    leaf=probes.leaves(SUITE),
    bundle=1,
    extra=("probe(scalar_gradient, value=lax_max)", "probe(scalar_gradient_explicit, value=lax_max)"),
)


def test_autodiff(line, conformance):
    conformance.check(line)
