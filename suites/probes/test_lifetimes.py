"""Laws of what caches keep.

- Functions, what they close over, arguments and results die when they are dropped, also when a trace fails.
- Entries stay as long as they are of use, and no longer than until they are cleared.
- Executables in memory and on disk are never taken for those of another program; threads have their own answers.
"""

from harness import probes
from harness.space import Space

SUITE = "lifetimes"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_lifetimes(line, conformance):
    conformance.check(line)
