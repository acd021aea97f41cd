"""Laws of names that are not bound: a callable that ran with its axis bound must raise when it is run without.

- A collective over a name that is not bound raises an exception (NameError in the documentation of axis names), also
  when a trace made under the binder is remembered.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "unbound"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_ERRORS,
    sizes=words.SIZES_SINGLE,
    middle=words.MIDDLE_ERRORS,
    control=words.CONTROL_ERRORS,
    leaf=words.LEAVES_UNBOUND,
    operand=words.OPERANDS_CORE,
    payload=("basis", "counting"),
    names=words.NAMES_CORE,
    schedule=words.schedules("unbound"),
)


def test_unbound(line, conformance):
    conformance.check(line)
