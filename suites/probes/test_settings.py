"""Laws of settings.

- A trace or result made under one value of a setting never serves another: inside and outside of its context, nested, in
  other threads and after a block that failed, for jit, scan, while_loop, cond, checkpoint and custom_jvp.
"""

from harness import probes
from harness.space import Space

SUITE = "settings"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_settings(line, conformance):
    conformance.check(line)
