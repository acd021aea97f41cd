"""Laws of programs that are lowered, compiled, exported or evaluated for their shapes.

- Lowered text is the same each time and differs for different programs.
- Compiled functions answer each call and refuse other arguments; exported ones give the results of the function.
- `eval_shape` gives shape, dtype and weak type, and runs nothing.
"""

from harness import probes
from harness.space import Space

SUITE = "staged"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_staged(line, conformance):
    conformance.check(line)
