"""Laws of names that are not bound: a callable that ran with its axis bound must raise when it is run without.

- A collective over a name that is not bound raises an exception (NameError in the documentation of axis names), also
  when a trace made under the binder is remembered.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, settings, sizes

SUITE = "unbound"

SPACE = Space(
    SUITE,
    binder=binders.ERRORS,
    sizes=sizes.SINGLE,
    middle=layers.MIDDLE_ERRORS,
    control=layers.CONTROL_ERRORS,
    leaf=leaves.UNBOUND,
    operand=settings.OPERANDS_CORE,
    payload=("basis", "counting"),
    names=settings.NAMES_CORE,
    schedule=("unbound",),
)


def test_unbound(line, conformance):
    conformance.check(line)
