"""Laws of caches: one callable, and what happens between its calls.

- An answer traced under one axis environment, setting, closure, mesh or dtype is never given under another
  (`cache.*` rules of the schedules; jax#9187 and its kin).
- Emptying the caches changes no answer; returning to a known state traces and compiles nothing.
- What cannot be seen from inside (an unnamed vmap around) causes no trace.
- When a callable is dropped, JAX keeps neither it nor its arguments.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "caches"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_CACHES,
    sizes=words.SIZES_CACHES,
    middle=words.MIDDLE_CACHES,
    control=words.CONTROL_CACHES,
    leaf=words.LEAVES_CACHES,
    operand=words.OPERANDS_CORE,
    shape=words.SHAPES_CACHES,
    payload=words.PAYLOADS_CACHES,
    names=words.NAMES_CORE,
    schedule=words.CACHE_SCHEDULES,
    extra=(
        *words.SWAPPED_NAMES,
        "vmap(i:3, in=none) > jit > psum(i) | shape=scalar payload=counting schedule=weak",
    ),  # a scalar that no binder maps has no place in the table
)


def test_caches(line, conformance):
    conformance.check(line)
