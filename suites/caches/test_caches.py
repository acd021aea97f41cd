"""Laws of caches: one callable, and what happens between its calls.

- An answer traced under one axis environment, setting, closure, mesh or dtype is never given under another
  (`cache.*` rules of the schedules; jax#9187 and its kin).
- Emptying the caches changes no answer; returning to a known state traces and compiles nothing.
- What cannot be seen from inside (an unnamed vmap around) causes no trace.
- When a callable is dropped, JAX keeps neither it nor its arguments.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, lines, settings, sizes

SUITE = "caches"

SPACE = Space(
    SUITE,
    binder=binders.CACHES,
    sizes=sizes.CACHES,
    middle=layers.MIDDLE_CACHES,
    control=layers.CONTROL_CACHES,
    leaf=leaves.CACHES,
    operand=settings.OPERANDS_CORE,
    shape=settings.SHAPES_CACHES,
    payload=settings.PAYLOADS_CACHES,
    names=settings.NAMES_CORE,
    schedule=settings.CACHE_SCHEDULES,
    extra=(
        *lines.SWAPPED_NAMES,
        "vmap(i:3, in=none) > jit > psum(i) | shape=scalar payload=counting schedule=weak",
    ),  # a scalar that no binder maps has no place in the table
)


def test_caches(line, conformance):
    conformance.check(line)
