"""Laws of calls that no JAX may answer.

- A name that is not bound, a name given twice, a permutation or groups that are none raise an exception at every call,
  and never an answer.
"""

from harness.space import Space
from suites.vocabulary import binders, layers, leaves, settings, sizes

SUITE = "raises"

SPACE = Space(
    SUITE,
    binder=binders.ERRORS,
    sizes=sizes.SINGLE,
    middle=layers.MIDDLE_ERRORS,
    control=layers.CONTROL_ERRORS,
    leaf=leaves.RAISES,
    operand=settings.OPERANDS_CORE,
    payload=("basis", "counting"),
    names=settings.NAMES_CORE,
    schedule=("raises",),
)


def test_raises(line, conformance):
    conformance.check(line)
