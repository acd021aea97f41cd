"""Schedules of JAX settings that caches must tell apart."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from harness.errors import Illegal
from harness.schedules.base import Schedule, Step, cached, one_environment, visits_of

if TYPE_CHECKING:
    from harness.program import Plan
    from harness.render import Script


class Flag(Schedule):
    """A global setting is changed and changed back; the trace made under one value must not serve the other.

    Attributes:
      name: JAX's configuration option.
      values: the two values as Python source.
      seen: what the output `flag` is under each; None where the program must raise.
    """

    rule = "cache.config"
    name: ClassVar[str]
    values: ClassVar[tuple[str, str]]
    seen: ClassVar[tuple[int | None, int | None]]

    def check(self, plan: Plan) -> None:
        one_environment(plan)
        cached(plan)
        if any(
            layer.family in ("derivative", "control") and layer.word not in ("cond", "switch", "scan")
            for layer in plan.case.layers
        ):
            raise Illegal("the output `flag` fits no loop or derivative")

    def steps(self, plan: Plan) -> list[Step]:
        (visit,) = visits_of(plan)
        return [self._step(visit, k) for k in (0, 1, 0, 1)]

    def _step(self, visit: Step, k: int) -> Step:
        outcome = "error" if self.seen[k] is None else "value"
        return dataclasses.replace(
            visit,
            about=f"{self.name}={self.values[k]}",
            environment=(k,),
            flag=self.seen[k],
            outcome=outcome,
            wide=self.word == "x64" and k == 1,
            rule=self.rule if outcome == "error" else "",
        )

    def script(self, script: Script) -> list[str]:
        calls = [self._call(k) for k in (0, 1)]
        step = [
            f'        jax.config.update("{self.name}", {{value}})',
            "        yield {call}",
        ]
        body = [line.format(value=self.values[k], call=calls[k]) for k in (0, 1, 0, 1) for line in step]
        raised = script.raised() if None in self.seen else []
        before = f"    before = jax.config.{self.name}"
        restore = [f'        jax.config.update("{self.name}", before)']
        return [*script.run(), *raised, "def steps():", before, "    try:", *body, "    finally:", *restore]

    def _call(self, k: int) -> str:
        return "raised(run)" if self.seen[k] is None else "run()"


class X64(Flag):
    word = "x64"
    name, values, seen = "jax_enable_x64", ("False", "True"), (4, 8)
    flag = "jnp.zeros(()).dtype.itemsize"


class Promotion(Flag):
    word = "promotion"
    name, values, seen = "jax_numpy_dtype_promotion", ('"standard"', '"strict"'), (3, None)
    flag = '(jnp.full((), 1, "int32") + jnp.full((), 2, "float32")).astype("int32")'


class Rank(Flag):
    word = "rank"
    name, values, seen = "jax_numpy_rank_promotion", ('"allow"', '"raise"'), (6, None)
    flag = '(jnp.ones((2, 3), "int32") + jnp.zeros((3,), "int32")).sum().astype("int32")'


class Precision(Flag):
    word = "precision"
    name, values, seen = "jax_default_matmul_precision", ('"float32"', '"bfloat16"'), (7, 8)
    flag = "len(jax.config.jax_default_matmul_precision)"


class Prng(Flag):
    word = "prng"
    name, values, seen = "jax_default_prng_impl", ('"threefry2x32"', '"rbg"'), (2, 4)
    flag = "jax.random.key_data(jax.random.key(0)).size"
