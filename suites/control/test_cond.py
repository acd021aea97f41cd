"""Laws of cond.

- Exactly one branch's result is given (documentation of jax.lax.cond), for a constant predicate and a traced one.
- Where the predicate differs between positions of a vmapped axis, each position gets its own branch's result, and
  collectives in a branch see the operands of all positions.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "cond"

SPACE = Space(
    SUITE,
    binder=binders.CORE,
    sizes=sizes.CORE,
    middle=layers.AROUND_CONTROL,
    control=layers.COND,
    within=layers.WITHIN_CONTROL,
    leaf=leaves.CORE,
    operand=settings.OPERANDS_CORE,
    dtype=settings.DTYPES_CORE,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_CORE,
    names=settings.NAMES_CORE,
    extra=(
        *lines.environments("cond(arg)"),
        "jit > vmap(_:2, spmd) > shard_map(i:2, other=2) > cond(arg) > psum(i)",
    ),
)


def test_cond(line, conformance):
    conformance.check(line)
