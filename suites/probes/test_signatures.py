"""Laws of calls of jitted functions.

- Dtype, weak type, shape and tree structure of the arguments, static values (by equality), and the callable itself each
  make a trace of their own; the order of keywords and dictionary keys, and values, make none.
- Every form of call and of making the jitted function gives what the function gives; donated arguments, and no others,
  are gone after the call.
"""

from harness import probes
from harness.space import Space

SUITE = "signatures"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_signatures(line, conformance):
    conformance.check(line)
