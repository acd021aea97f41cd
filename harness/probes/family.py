"""Tables of expressions: what JAX and NumPy compute of the same operand, one expression a line."""

from __future__ import annotations

import dataclasses
import textwrap

NUMBERS = 'lambda k: k.astype("float32")'
INTEGERS = 'lambda k: k.astype("int32")'


@dataclasses.dataclass(frozen=True)
class Family:
    """Operations that share an operand.

    Attributes:
      table: the operations, one a line.
      operand: source of the operand from distinct integers of both signs.
    """

    table: str
    operand: str = NUMBERS

    def source(self) -> str:
        """A function of helpers (see `operations.BEFORE`) that gives `(operand, {name: (jax, numpy, bound)})`, as Python source."""
        rows = []
        for line in textwrap.dedent(self.table).strip().split("\n"):
            name, _, rest = line.partition(": ")
            jax, numpy, bound = ([part.strip() for part in rest.split(";")] + ["", ""])[:3]
            numpy = numpy or jax.replace("jnp.", "np.")
            rows.append(f'        "{name}": (lambda x: {jax}, lambda x: {numpy}, {bound or 0}),')
        return "\n".join(
            [
                "lambda fold, loop, forward, backward, scaled: (",
                f"    {self.operand},",
                "    {",
                *rows,
                "    },",
                ")",
            ]
        )
