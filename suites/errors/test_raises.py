"""Laws of calls that no JAX may answer.

- A name that is not bound, a name given twice, a permutation or groups that are none raise an exception at every call,
  and never an answer.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "raises"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_ERRORS,
    sizes=words.SIZES_SINGLE,
    middle=words.MIDDLE_ERRORS,
    control=words.CONTROL_ERRORS,
    leaf=words.LEAVES_RAISES,
    operand=words.OPERANDS_CORE,
    payload=("basis", "counting"),
    names=words.NAMES_CORE,
    schedule=words.schedules("raises"),
)


def test_raises(line, conformance):
    conformance.check(line)
