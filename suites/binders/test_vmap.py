"""Laws of vmap, run eagerly: what every other suite builds on.

- A function under `vmap` gives at every position of the mapped axis what it gives for that position's slice, and
  collectives over the axis name see all positions (documentation of jax.vmap and of each collective in jax.lax).
- `in_axes` and `out_axes` only say where the mapped dimension stands; an output that is equal at all positions may be
  taken out once (`out_axes=None`).
- A name refers to the innermost axis that bears it, and an axis without a name is seen by nothing.
- Names are any hashable objects, told apart by equality and not by hash.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, settings, sizes

SUITE = "vmap"

SPACE = Space(
    SUITE,
    binder=binders.VMAP,
    sizes=sizes.ALL,
    leaf=leaves.ALL,
    operand=settings.OPERANDS,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES,
    payload=settings.PAYLOADS_ALL,
    names=settings.NAMES_ALL,
)


def test_vmap(line, conformance):
    conformance.check(line)
