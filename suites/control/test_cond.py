"""Laws of cond.

- Exactly one branch's result is given (documentation of jax.lax.cond), for a constant predicate and a traced one.
- Where the predicate differs between positions of a vmapped axis, each position gets its own branch's result, and
  collectives in a branch see the operands of all positions.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "cond"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CORE,
    sizes=words.SIZES_CORE,
    middle=words.AROUND_CONTROL,
    control=words.COND,
    within=words.WITHIN_CONTROL,
    leaf=words.LEAVES_CORE,
    operand=words.OPERANDS_CORE,
    dtype=words.DTYPES_CORE,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_CORE,
    names=words.NAMES_CORE,
    extra=(
        *words.environments("cond(arg)"),
        "jit > vmap(_:2, spmd) > shard_map(i:2, other=2) > cond(arg) > psum(i)",
    ),
)


def test_cond(line, conformance):
    conformance.check(line)
