"""Laws of public collectives, and of their arguments, that no leaf expresses.

- Integers among the names of a reduction are dimensions of the operand (documentation of jax.lax.psum).
- ragged_all_to_all puts each sender's rows where the receiver was told to expect them; psend and precv hand on a value.
- A gather or cast to another varying type changes what is known of the value and not the value.
"""

from harness import probes
from harness.space import Space

SUITE = "exchanges"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_exchanges(line, conformance):
    conformance.check(line)
