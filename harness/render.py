"""From a typed program to the Python module that runs it: the very text that is printed when it fails.

The module imports only jax and numpy (and the standard library). What does not depend on the step stands at module
level, so that ONE callable meets every axis environment; what does is built once for each environment.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap

from harness import payloads
from harness.case import line_of
from harness.compat import Spelling
from harness.dims import ONE, Dim
from harness.dtypes import WIDE, is_complex
from harness.layers.base import Axis, Scope, Type
from harness.layers.binders import DEVICE_ORDERS
from harness.layers.leaves import Leaf
from harness.layers.probe import ProbeLeaf
from harness.layout import tidy
from harness.names import NAME_KINDS, spell
from harness.program import Plan
from harness.schedules import Schedule
from harness.script import Script


@dataclasses.dataclass
class Module:
    """A module under construction.

    `define`, `assign` and `statement` append to the part that is being written: the module itself, or the builder of
    everything that depends on the step (entered by the first `step_size` of an axis whose size changes).
    """

    plan: Plan
    spelling: Spelling
    kept: list[str] = dataclasses.field(default_factory=list)
    built: list[str] = dataclasses.field(default_factory=list)
    imported: list[str] = dataclasses.field(default_factory=list)
    names: set[str] = dataclasses.field(default_factory=set)
    per_step: bool = False

    @property
    def params(self) -> tuple[str, ...]:
        return self.plan.params

    # Text

    def imports(self, line: str) -> None:
        if line not in self.imported:
            self.imported.append(line)

    def unique(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self.names:
            count += 1
            candidate = f"{name}_{count}"
        self.names.add(candidate)
        return candidate

    def statement(self, *lines: str) -> None:
        """Lines of the current part, followed by a blank."""
        if self.per_step:
            self.built.extend(lines)
        else:
            self.kept.extend([*lines, "", ""] if lines[0].startswith(("def ", "@")) else lines)

    def define(self, name: str, *lines: str) -> str:
        """Writes a function; `{name}` in its lines is replaced by the unique name, which is returned."""
        name = self.unique(name)
        self.statement(*[line.replace("{name}", name) for line in lines])
        return name

    def assign(self, name: str, expression: str) -> str:
        name = self.unique(name)
        self.statement(f"{name} = {expression}", *([] if self.per_step else [""]))
        return name

    # Spelling

    def name(self, symbol: str) -> str:
        """The Python expression of an axis name."""
        return spell(self.plan.case.names, symbol)

    def axis(self, symbol: str) -> str:
        """One name as the argument of a collective (a name that is itself a tuple is wrapped)."""
        return f"({self.name(symbol)},)" if self.plan.case.names == "tuple" else self.name(symbol)

    def axes(self, symbols: tuple[str, ...]) -> str:
        """One or several names as the argument of a collective."""
        if len(symbols) == 1:
            return self.axis(symbols[0])
        return f"({', '.join(map(self.name, symbols))})"

    def step_size(self, axis: Axis) -> str:
        """The size of an axis where it is bound: a number, or the step's variable."""
        if len(set(axis.sizes)) == 1:
            return str(axis.sizes[0])
        self.per_step = True
        return axis.key

    def size_of(self, symbols: tuple[str, ...], scope: Scope) -> str:
        """The size of bound axes where a program uses it."""
        if self.plan.swapped is not None:  # the same callable meets other sizes under the same name
            return self.axis_size(symbols)
        bound = {axis.symbol for axis in scope.axes}
        sizes = [set(scope.find(symbol).sizes) if symbol in bound else {2} for symbol in symbols]
        if all(len(size) == 1 for size in sizes):
            total = 1
            for size in sizes:
                total *= size.pop()
            return str(total)
        return self.axis_size(symbols)

    def axis_size(self, symbols: tuple[str, ...]) -> str:
        return self.spelling.axis_size.format(names=self.axes(symbols))

    # State of loops

    def state(self, own: str, start: str) -> tuple[str, str]:
        """(the carry of a scan, its start): the operand or a counter, with `n` where the program has it."""
        rest = [name for name in self.params if name != "x"]
        if own == "k" and "x" in self.params:  # the operand comes as scanned slices
            rest = [name for name in rest]
        names = [own, *rest]
        starts = [own if own == "x" else start, *rest]
        if len(names) == 1:
            return names[0], starts[0]
        return f"({', '.join(names)})", f"({', '.join(starts)})"

    def next(self, state: str) -> str:
        """The carry after one trip: the operand doubled, the counter one more."""
        names = state.strip("()").split(", ")
        steps = [{"x": "x + x", "k": "k + 1"}.get(name, name) for name in names]
        return f"({', '.join(steps)})" if state.startswith("(") else ", ".join(steps)

    def first(self, state: str) -> str:
        return state.strip("()").split(", ")[0]

    def devices(self, order: str, count: str) -> str:
        """The devices of a binder: a fixed choice, or the step's."""
        if self.plan.schedule.devices:
            self.per_step = True
            return "devices"
        source = DEVICE_ORDERS[order].format(count=count)
        return source.replace("[:(", "[: (").replace("):]", ") :]")

    def zeros(self, type_: Type, scope: Scope) -> str:
        """Zeros of a type, marked as varying where JAX tracks that."""
        spelled = {axis.key: self.size_of_key(axis, scope) for axis in self.plan.axes}
        dims = [dim.source(spelled) for dim in type_.shape]
        shape = f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
        zeros = f"jnp.zeros({shape}, {self.dtype(type_.dtype)})"
        tracked = [axis for axis in scope.axes if axis.checked and axis.key in type_.vary]
        if not tracked or not self.spelling.varying:
            return zeros
        names = ", ".join(self.name(axis.symbol or "") for axis in tracked)
        return self.spelling.varying.format(value=zeros, names=f"({names})" if len(tracked) > 1 else names)

    def size_of_key(self, axis: Axis, scope: Scope) -> str:
        if len(set(axis.sizes)) == 1 and (self.plan.swapped is None or axis.symbol is None):
            return str(axis.sizes[0])
        if axis.symbol is None or axis not in scope.axes or scope.find(axis.symbol) is not axis:
            return f"<size of {axis.key}>"
        return self.axis_size((axis.symbol,))

    def dtype(self, name: str) -> str:
        self.imports("import jax.numpy as jnp")
        return f"jnp.{'bool_' if name == 'bool' else name}"

    def stacked(self, inner: str) -> str:
        """A function that gives every output a new first dimension."""
        args = ", ".join(self.params)
        return self.define(
            "stacked",
            f"def {{name}}({args}):",
            f"    return jax.tree.map(lambda y: jnp.asarray(y)[None], {inner}({args}))",
        )

    def shard_map(
        self,
        inner: str,
        mesh: str,
        in_specs: str,
        out_specs: str,
        check: bool,
        manual: tuple[str, ...] = (),
        auto: tuple[str, ...] = (),
    ) -> str:
        """Source of a shard_map; over the `manual` axes only where some are given (their source), on the mesh of the
        one around it where `mesh` is ""."""
        options = "" if check else self.spelling.unchecked
        if manual:
            options += self.spelling.manual.format(manual=", ".join(manual), auto=", ".join(auto))
        call = self.spelling.shard_map if mesh else self.spelling.shard_map.replace(" mesh={mesh},", "")
        return call.format(
            inner=inner,
            mesh=mesh,
            in_specs=in_specs if self.params else "()",
            out_specs=out_specs,
            check=options,
        )


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A case as source.

    Attributes:
      source: the module that runs; it defines `steps()`, a generator that yields every step's result.
      plan: the typed program it stands for.
    """

    source: str
    plan: Plan


def render(plan: Plan, spelling: Spelling) -> Rendered:
    """Writes the module of a typed program."""
    if isinstance(plan.case.leaf, ProbeLeaf):
        return Rendered(_probe(plan.case.leaf, spelling), plan)
    module = Module(plan, spelling)
    schedule = plan.schedule
    operand = operand_lines(module)
    rebound = plan.inner_binder + 1 if schedule.rebinds and plan.inner_binder is not None else 0
    kept = _layers(module, _leaf(module, schedule), len(plan.case.layers), rebound)
    module.per_step = module.per_step or rebound > 0
    function = _layers(module, kept, rebound, 0)
    script = Script(module, kept, tuple(axis.key for axis in plan.varying_sizes()), schedule.devices)
    program = [*_preamble(module), *operand, "", ""]
    if schedule.factor:
        program += _factory(module, function, schedule.factor)
    else:
        program += [*module.kept, *_builder(module, function, script, "build")]
        if plan.swapped is not None:
            program += _swapped(module, kept, script)
        if not module.per_step and function != "program":
            program += [f"program = {function}", "", ""]
    program += schedule.script(script)
    return Rendered(_assemble(module, program), plan)


def _probe(leaf: ProbeLeaf, spelling: Spelling) -> str:
    """The module of a probe: its own source between the usual imports and `steps`."""
    body = [f"    {line}".rstrip() for line in leaf.probe.lines()]
    if spelling.imports:  # the older spelling of shard_map
        body = [
            line.replace("jax.shard_map(", "shard_map(").replace("check_vma=", "check_rep=") for line in body
        ]
    text = "\n".join(body)
    known = {
        "jnp.": "import jax.numpy as jnp",
        "np.": "import numpy as np",
        "lax.": "from jax import lax",
        "Mesh(": "from jax.sharding import Mesh",
        "NamedSharding(": "from jax.sharding import NamedSharding",
        "P(": "from jax.sharding import PartitionSpec as P",
    }
    used = [line for word, line in known.items() if re.search(rf"(?<![\w.]){re.escape(word)}", text)]
    imports = sorted({*used, *leaf.probe.imports}, key=lambda line: (line.startswith("from"), line))
    if "shard_map(" in text and spelling.imports:
        imports.append(spelling.imports)
    value = ["", f"VALUE = {leaf.probe.values[leaf.value]}"] if leaf.value else []
    lines = [
        f'"""{leaf}"""',
        "",
        "import jax",
        *imports,
        *value,
        "",
        "traces = []",
        "",
        "",
        "def probe():",
        *body,
    ]
    return "\n".join([*lines, "", "", "def steps():", "    yield probe()", ""])


def _layers(module: Module, function: str, start: int, end: int) -> str:
    """Renders the layers from depth `start` (exclusive) outwards to `end` around a function."""
    for depth in reversed(range(end, start)):
        function = module.plan.case.layers[depth].render(module, function, module.plan.places[depth])
    return function


def _builder(module: Module, function: str, script: Script, name: str) -> list[str]:
    """What depends on the step, built once for each environment."""
    if not module.per_step:
        return []
    module.imports("import functools")
    body = textwrap.indent("\n".join([*module.built, f"return {function}"]), "    ").split("\n")
    return ["@functools.cache", f"def {name}({', '.join(script.built())}):", *body, "", ""]


def _swapped(module: Module, kept: str, script: Script) -> list[str]:
    """The builder of the variant with swapped names, around the same inner callable."""
    assert module.plan.swapped is not None and module.plan.inner_binder is not None
    other = Module(
        module.plan.swapped, module.spelling, imported=module.imported, names=set(module.names), per_step=True
    )
    function = _layers(other, kept, module.plan.inner_binder + 1, 0)
    return _builder(other, function, script, "build_swapped")


def _assemble(module: Module, program: list[str]) -> str:
    plan = module.plan
    standard = sorted(line for line in module.imported if line.split()[1] in STANDARD)
    others = sorted(line for line in module.imported if line.split()[1] not in STANDARD)
    text = "\n".join(program)
    if "shard_map(" in text and module.spelling.imports:
        others.append(module.spelling.imports)
    if "jnp." in text and "import jax.numpy as jnp" not in others:
        others.append("import jax.numpy as jnp")
    head = [
        *standard,
        *([""] if standard else []),
        "import jax",
        *(o for o in sorted(others) if o.startswith("import jax")),
    ]
    head += ["import numpy as np"] if re.search(r"\bnp\.", text) else []
    head += ["from jax import lax", *(o for o in sorted(others) if o.startswith("from "))]
    lines = [f'"""{line_of(plan.case, plan.leaves.values())}"""', "", *head, "", *program]
    return "\n".join(tidy("\n".join(lines).split("\n"))) + "\n"


STANDARD = (
    "dataclasses",
    "enum",
    "functools",
    "gc",
    "threading",
    "weakref",
    "linecache",
    "os",
    "subprocess",
    "sys",
    "tempfile",
    "concurrent.futures",
)


def _preamble(module: Module) -> list[str]:
    kind = NAME_KINDS[module.plan.case.names]
    if module.plan.case.names == "enum":
        module.imports("import enum")
    if module.plan.case.names == "object":
        module.imports("import dataclasses")
    lines = [*kind.preamble, *([""] if kind.preamble else [])]
    if module.plan.case.dtype in WIDE:
        lines += ['jax.config.update("jax_enable_x64", True)']
    lines += ["traces = []  # one entry each time the leaf's Python is run", "", ""]
    if module.plan.schedule.meets:
        lines += [
            "together = threading.Barrier(2)",
            "",
            "",
            "def meet():  # two threads are inside the leaf at once, where JAX lets them be",
            "    try:",
            "        together.wait(timeout=1)",
            "    except threading.BrokenBarrierError:",
            "        pass",
            "",
            "",
        ]
    return lines


def operand_lines(module: Module) -> list[str]:
    """The function that makes the operand, and the closed-over array where there is one."""
    plan = module.plan
    case = plan.case
    if plan.local is None:
        return []
    spelled = {axis.key: axis.key if len(set(axis.sizes)) > 1 else str(axis.sizes[0]) for axis in plan.axes}
    count = payloads.count_of(tuple(Dim(1, (key,)) for key in plan.mapped), case.shape)
    dims = [spelled[key] for key in plan.mapped] + [dim.source(spelled) for dim in case.shape]
    shape = f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"
    payload = payloads.PAYLOADS[case.payload]
    body = payload.source.replace("*{shape}", ", ".join(dims) or "*()").format(
        shape=shape, dtype=case.dtype, columns=payloads.BULK_COLUMNS
    )
    factors = []
    if is_complex(case.dtype):
        factors.append("(1 + 2j)")
    if plan.unit != ONE:
        unit = plan.unit.source(spelled)
        factors.append(f"({unit})" if " " in unit else unit)
    lanes = " * ".join([*factors, body])
    used = sorted({axis for dim in (count, *case.shape, plan.unit) for axis in dim.axes} | set(plan.mapped))
    variables = [axis.key for axis in plan.varying_sizes() if axis.key in used]
    lines = [f"def operand({', '.join(variables)}):", f"    count = {count.source(spelled)}"]
    if "count" not in body:
        lines.pop()
    dtype = module.dtype(case.dtype) if case.dtype == "bfloat16" else f'"{case.dtype}"'
    cast = f".astype({dtype})"
    arrange = _arrange(plan, spelled)
    lines += [f"    lanes = {lanes}", f"    return {'lanes' + arrange}{cast}"]
    if case.operand == "closure":
        lines += ["", "", "data = jnp.asarray(operand())"]
    return lines


def _arrange(plan: Plan, spelled: dict[str, str]) -> str:
    """NumPy source that brings lanes-first values into the layout of the program's argument."""
    if plan.operand is None or plan.local is None:
        return ""
    locals_ = [f"local {d}" for d in range(len(plan.local.shape))]
    layout: list[list[str]] = [[name] for name in locals_]
    for depth in reversed(range(len(plan.case.layers))):
        layout = plan.case.layers[depth].layout(layout, plan.places[depth].inside)
    order = [*plan.mapped, *locals_]
    target = [label for dim in layout for label in dim]
    source = ""
    if target != order:
        source += f".transpose({', '.join(str(order.index(label)) for label in target)})"
    if any(len(dim) > 1 for dim in layout):
        dims = [dim.source(spelled) for dim in plan.operand.shape]
        source += f".reshape({', '.join(dims)})"
    return source


def _call(module: Module, leaf: Leaf, x: str) -> str:
    """Source of a leaf's call, of an array or of a pytree whose results are stacked."""
    if module.plan.case.operand != "tree":
        return leaf.expression(module, x, module.plan.inside)
    call = leaf.expression(module, f'{{"one": {x}, "two": ({x} + {x},)}}', module.plan.inside)
    return f'(lambda tree: jnp.stack([tree["one"], tree["two"][0]]))({call})'


def _leaf(module: Module, schedule: Schedule) -> str:
    plan, factor, flag = module.plan, schedule.factor, schedule.flag
    case = plan.case
    x = {"argument": "x", "tree": "x", "closure": "data", "constant": "1"}.get(case.operand, case.operand)
    lines = ["def {name}(" + ", ".join(plan.params) + "):", "    traces.append(1)"]
    if schedule.meets:
        lines.append("    meet()")
    if factor and x in ("x", "data"):
        lines.append(f"    x = {x} * {factor}")
        x = "x"
    elif factor:
        x = f"{x} * {factor}"
    items = [f'"{key}": {_call(module, leaf, x)}' for key, leaf in plan.leaves.items()]
    if flag:
        items.append(f'"flag": {flag}')
    text = "    return {" + ", ".join(items) + "}"
    if len(text) > 100:
        text = "\n".join(["    return {", *(f"        {item}," for item in items), "    }"])
    return module.define("leaf", *lines, *text.split("\n"))


def _factory(module: Module, function: str, factor: str) -> list[str]:
    """Everything inside a function, so that it can be made anew with another closed-over constant."""
    body = "\n".join([*module.kept, *module.built, f"return {function}"])
    lines = textwrap.indent(body, "    ").split("\n")
    return [f"def make({factor}):", *lines, "", ""]
