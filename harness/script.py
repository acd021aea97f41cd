"""What schedules write the end of a rendered module with: `run`, and the pieces of `steps`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from harness import payloads
from harness.dims import Dim
from harness.layers.binders import DEVICE_ORDERS

if TYPE_CHECKING:
    from harness.program import Plan
    from harness.render import Module


@dataclasses.dataclass
class Script:
    """The parts of a module a schedule can speak of.

    Attributes:
      kept: name of the function inside the innermost binder, where the schedule rebinds it.
      variables: the sizes that change between steps.
      chooses_devices: whether the step says which devices are used.
    """

    module: Module
    kept: str
    variables: tuple[str, ...]
    chooses_devices: bool = False

    @property
    def plan(self) -> Plan:
        return self.module.plan

    def built(self) -> list[str]:
        """Parameters of what is built for each environment."""
        return [*self.variables, *(["devices"] if self.chooses_devices else [])]

    def values(self) -> dict[str, str]:
        """Source of each of the program's arguments at a step."""
        used = [name for name in self.variables if self._operand_uses(name)]
        values = {"x": f"operand({', '.join(used)})", "n": f"np.int32({self.plan.case.n})"}
        return {name: values[name] for name in self.plan.params}

    def arguments(self) -> str:
        return ", ".join(self.values().values())

    def local_arguments(self) -> str:
        """Source of arguments for the function inside the innermost binder."""
        depth = self.plan.inner_binder
        assert depth is not None
        inside = self.plan.places[depth + 1].x if depth + 1 < len(self.plan.places) else self.plan.local
        sizes = self.plan.steps[0]
        values = {"n": f"np.int32({self.plan.case.n})"}
        if "x" in self.plan.params and inside is not None:
            shape = tuple(dim.at(sizes) for dim in inside.shape)
            values["x"] = f"np.ones({shape}, {self.module.dtype(inside.dtype)})"
        return ", ".join(values[name] for name in self.plan.params)

    def _operand_uses(self, key: str) -> bool:
        case = self.plan.case
        dims = (payloads.count_of(tuple(Dim(1, (k,)) for k in self.plan.mapped), case.shape), self.plan.unit)
        return any(key in dim.axes for dim in dims)

    def run(self) -> list[str]:
        """`run(sizes...)`: one call under one axis environment, and `run_swapped` where there is that variant."""
        lines = self._run("run", "build")
        return (
            [*lines, *self._run("run_swapped", "build_swapped")] if self.plan.swapped is not None else lines
        )

    def _run(self, name: str, build: str) -> list[str]:
        built = ", ".join(self.built())
        program = f"{build}({built})" if self.module.per_step else "program"
        return [f"def {name}({built}):", f"    return {program}({self.arguments()})", "", ""]

    def call(self, sizes: dict[str, int], name: str = "run") -> str:
        return f"{name}({', '.join(f'{key}={sizes[key]}' for key in self.variables)})"

    def devices(self, order: str) -> str:
        """Source of the devices in one of the named orders, as many as the program uses."""
        count = 1
        for axis in self.plan.axes:
            count *= axis.sizes[0] if axis.on_devices else 1
        for layer in self.module.plan.case.layers:
            count *= getattr(layer, "other", 0) or 1
        return DEVICE_ORDERS[order].format(count=count)

    def raised(self) -> list[str]:
        """A helper that turns what a call raises into its result."""
        return [
            "def raised(call):",
            "    try:",
            "        return call()",
            "    except Exception as error:",
            "        return error",
            "",
            "",
        ]
