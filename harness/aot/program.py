"""An optimized program as plain Python data: what the compiler made, read through MLIR's Python API.

The compiler's text is parsed by XLA's own HLO parser and converted by XLA to StableHLO; from that module everything is
read that the evaluation needs. Nothing is matched by regular expressions but the numbers of constants in dtypes that
the API does not hand out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from harness import compat
from harness.aot import memory
from harness.errors import NotApplicable


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Shape and dtype of a value."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One operation.

    Attributes:
      op: its name, such as `stablehlo.add`.
      operands, results: numbers of values.
      types: of the results; None for what is no array (a handle of something asynchronous).
      attributes: by name, as Python and NumPy values.
      regions: the blocks of functions it holds.
    """

    op: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[Tensor | None, ...]
    attributes: dict[str, Any]
    regions: tuple[Block, ...] = ()


@dataclasses.dataclass(frozen=True)
class Block:
    """A straight run of instructions.

    Attributes:
      arguments: numbers of values.
      body: the instructions, in order.
      returns: numbers of the values it gives.
    """

    arguments: tuple[int, ...]
    body: tuple[Instruction, ...]
    returns: tuple[int, ...]


Values = list[np.ndarray]
"""What instructions take and give, on one device."""
Apply = Callable[[Block, Values], Values]
"""Runs a region without collectives, on arrays in the place of scalars."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A module: its functions by name; `main` is the program."""

    functions: dict[str, Block]

    @property
    def main(self) -> Block:
        return self.functions["main"]


def read(text: str) -> Program:
    """The program of a compiled module's HLO text; raises NotApplicable where XLA cannot convert it."""
    try:
        module = compat.stablehlo_of_hlo(_convertible(text))
    except Exception as error:
        raise NotApplicable(
            f"the compiler's output cannot be converted: {str(error).strip().splitlines()[0][:200]}"
        ) from error
    with module.context:
        return _Reader(module).program()


def _convertible(text: str) -> str:
    """HLO text without what says nothing of values and XLA's converter does not take: the layouts that a custom call
    wants its operands in, where they have tiles, and which operand's memory it reuses."""
    return without(without(text, "operand_layout_constraints"), "output_to_operand_aliasing")


def without(text: str, attribute: str) -> str:
    """HLO text without an attribute in braces."""
    mark = f", {attribute}={{"
    parts = text.split(mark)
    kept = [parts[0]]
    for part in parts[1:]:
        depth, end = 1, 0
        while depth:
            depth += {"{": 1, "}": -1}.get(part[end], 0)
            end += 1
        kept.append(part[end:])
    return "".join(kept)


class _Reader:
    """Numbers the values of a module and turns its operations into data."""

    def __init__(self, module: Any):
        self.module = module
        self.meshes: dict[str, list[tuple[str, int]]] = {}
        self.numbers: dict[Any, int] = {}
        self.layouts: dict[int, memory.Layout] = {}

    def number(self, value: Any) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def program(self) -> Program:
        functions = {}
        for operation in self.module.body.operations:
            if operation.operation.name == "sdy.mesh":
                name = str(operation.attributes["sym_name"]).strip('"')
                axes = re.findall(r'"([^"]+)"\s*=\s*(\d+)', str(operation.attributes["mesh"]))
                self.meshes[name] = [(axis, int(size)) for axis, size in axes]
        for operation in self.module.body.operations:
            if operation.operation.name == "func.func":
                name = str(operation.attributes["sym_name"]).strip('"')
                block = operation.regions[0].blocks[0]
                if name == "main":
                    self.parameters(block)
                functions[name] = self.block(block)
        return Program(functions)

    def parameters(self, block: Any) -> None:
        """The layouts of the program's own arguments, which the module states."""
        attributes = self.module.operation.attributes
        kept = _names(attributes)
        if not {PARAMETER_LAYOUTS, PARAMETER_TILES} <= set(kept):
            return
        layouts = value_of(str(attributes[PARAMETER_LAYOUTS]), attributes[PARAMETER_LAYOUTS])
        tiles = value_of(str(attributes[PARAMETER_TILES]), attributes[PARAMETER_TILES])
        for argument, layout, tiled in zip(block.arguments, layouts, tiles):
            order = tuple(int(d) for d in layout)
            shapes = tuple(tuple(int(n) for n in tile) for tile in tiled)
            self.layouts[self.number(argument)] = memory.Layout(order, shapes)

    def block(self, block: Any) -> Block:
        arguments = tuple(self.number(argument) for argument in block.arguments)
        *body, last = [operation.operation for operation in block.operations]
        instructions = tuple(self.instruction(operation) for operation in body)
        return Block(arguments, instructions, tuple(self.number(value) for value in last.operands))

    def instruction(self, operation: Any) -> Instruction:
        operands = tuple(self.number(value) for value in operation.operands)
        results = tuple(self.number(value) for value in operation.results)
        types = tuple(tensor(str(value.type)) for value in operation.results)
        attributes = {
            name: self.attribute(operation, name)
            for name in _names(operation.attributes)
            if name not in IGNORED
        }
        self.remember(operation, operands, results)
        if operation.name == "mhlo.bitcast":
            attributes["memory"] = (self.layouts.get(operands[0]), self.layouts.get(results[0]))
        regions = tuple(self.block(region.blocks[0]) for region in operation.regions if len(region.blocks))
        return Instruction(operation.name, operands, results, types, attributes, regions)

    def remember(self, operation: Any, operands: tuple[int, ...], results: tuple[int, ...]) -> None:
        """Notes how results lie in memory, and that a region's arguments lie as its operands do."""
        if "xla_shape" in _names(operation.attributes):
            text = str(operation.attributes["xla_shape"]).strip('"')
            shapes = re.findall(r"\w+\[[\d,]*\](?:\{[^}]*\})?", text)
            if len(shapes) == len(results):
                self.layouts.update((n, memory.read(shape)) for n, shape in zip(results, shapes))
        for region in operation.regions:
            arguments = region.blocks[0].arguments if len(region.blocks) else ()
            if len(arguments) == len(operands):
                for argument, operand in zip(arguments, operands):
                    if operand in self.layouts:
                        self.layouts[self.number(argument)] = self.layouts[operand]

    def attribute(self, operation: Any, name: str) -> Any:
        """An attribute as Python data; a text where it is a structure of its own (see `evaluate`)."""
        try:
            attribute = operation.attributes[name]
        except TypeError:  # complex constants, which the API cannot hand out, but writes
            found = re.search(r"dense<.*> : tensor<[^ ]*>", str(operation))
            if name != "value" or found is None:
                raise NotApplicable(f"the attribute {name} of {operation.name} cannot be read") from None
            return dense(found.group(0).rstrip(), None)
        text = str(attribute)
        if name == "replica_groups" and "mesh_axes" in text:
            return self.mesh_groups(text)
        return value_of(text, attribute)

    def mesh_groups(self, text: str) -> np.ndarray:
        """Groups written as axes of a mesh, expanded: one row of device numbers for each group."""
        found = re.search(r"mesh\s*=\s*@([\w.]+)", text)
        if found is None or "sub_axis" in text or found.group(1) not in self.meshes:
            raise NotApplicable(f"replica groups in a form that is not known here: {text[:120]}")
        axes = self.meshes[found.group(1)]
        named = re.findall(r'name\s*=\s*"([^"]+)"', text)
        names = [name for name, _ in axes]
        within = [names.index(name) for name in named]
        outside = [k for k in range(len(axes)) if k not in within]
        numbers = np.arange(int(np.prod([size for _, size in axes]))).reshape([size for _, size in axes])
        size = int(np.prod([axes[k][1] for k in within]))
        return numbers.transpose([*outside, *within]).reshape(-1, size)


PARAMETER_LAYOUTS = "mhlo.xla_entry_computation_parameter_layouts"
PARAMETER_TILES = "mhlo.xla_entry_computation_parameter_tiles"
IGNORED = frozenset(
    {"xla_shape", "metadata", "backend_config_text", "frontend_attributes", "sharding", "execution_thread"}
)
"""Attributes that say nothing about values."""


def _names(attributes: Any) -> list[str]:
    """The names of an attribute map; what iterating gives differs between releases."""
    return [item if isinstance(item, str) else item.name for item in attributes]


DTYPES: dict[str, np.dtype] = {
    "i1": np.dtype(bool),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    "i4": np.dtype(ml_dtypes.int4),
    "ui4": np.dtype(ml_dtypes.uint4),
    "f16": np.dtype("float16"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype("float32"),
    "f64": np.dtype("float64"),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "complex<f32>": np.dtype("complex64"),
    "complex<f64>": np.dtype("complex128"),
    "index": np.dtype("int64"),
}
"""NumPy's dtypes by MLIR's names."""


def tensor(text: str) -> Tensor | None:
    """`tensor<2x3xf32>` or `tensor<f32>`; None for anything else."""
    match = re.match(r"tensor<((?:\d+x)*)(\w+(?:<\w+>)?)", text)
    if match is None or match.group(2) not in DTYPES:
        return None
    return Tensor(tuple(int(length) for length in match.group(1).split("x")[:-1]), DTYPES[match.group(2)])


def value_of(text: str, attribute: Any) -> Any:
    """An attribute's value: an array for what is dense, a number, a truth value, a list of these, or its text."""
    if text.startswith("dense<"):
        return dense(text, attribute)
    if text.startswith("array<"):
        return [_scalar(part) for part in text.partition(":")[2].rstrip(">").split(",") if part.strip()]
    if text.startswith("[") and text.endswith("]"):
        return [value_of(str(item), item) for item in attribute]
    number = re.fullmatch(r"(-?\d+) : \w+", text)
    return int(number.group(1)) if number else {"true": True, "false": False, "unit": True}.get(text, text)


def _scalar(text: str) -> int | bool:
    word = text.strip()
    return word == "true" if word in ("true", "false") else int(word)


def dense(text: str, attribute: Any) -> np.ndarray:
    """A dense constant. What MLIR's API does not hand out (bfloat16, complex, ...) is read from its text."""
    kind = tensor(text.rpartition(" : ")[2])
    if kind is None:
        raise NotApplicable(f"a constant of type {text.rpartition(' : ')[2][:60]}")
    if (
        kind.dtype.name in ("float32", "float64", "int32", "int64", "uint32", "uint64")
        and attribute is not None
    ):
        return np.array(attribute).astype(kind.dtype).reshape(kind.shape)
    return _parsed(text[len("dense<") : text.rindex("> : ")], kind)


def _parsed(body: str, kind: Tensor) -> np.ndarray:
    """`[[1.0, 0x7FC0], ...]`, `(1.0,2.0)`, `true`, or the bytes of all elements as one hexadecimal string."""
    if body.startswith('"0x'):
        data = np.frombuffer(bytes.fromhex(body[3:-1]), np.uint8 if kind.dtype == bool else kind.dtype)
        if kind.dtype == bool:
            data = np.unpackbits(data, bitorder="little")[: int(np.prod(kind.shape))].astype(bool)
        return np.broadcast_to(data.reshape(kind.shape if data.size > 1 else ()), kind.shape)
    if not body:
        return np.zeros(kind.shape, kind.dtype)
    bits = kind.dtype if kind.dtype.kind != "c" else np.dtype(f"float{kind.dtype.itemsize * 4}")
    body = re.sub(r"0x[0-9A-Fa-f]+", lambda m: _from_bits(m.group(0), bits), body)
    body = body.replace("true", "True").replace("false", "False")
    values = _literal(body)
    if kind.dtype.kind == "c":
        parts = np.array(values, np.float64)
        return np.broadcast_to((parts[..., 0] + 1j * parts[..., 1]).astype(kind.dtype), kind.shape)
    return np.broadcast_to(np.array(values).astype(kind.dtype), kind.shape)


def _literal(body: str) -> Any:
    """Nested lists of numbers; NaN and infinity are names in Python."""
    return eval(body, {"__builtins__": {}}, {"nan": float("nan"), "inf": float("inf")})


def _from_bits(text: str, dtype: np.dtype) -> str:
    """A number given by its bits, as MLIR writes NaN and infinity."""
    if dtype.kind in "iub":
        return str(int(text, 16))
    raw = int(text, 16).to_bytes(dtype.itemsize, "little")
    value = float(np.frombuffer(raw, dtype)[0])
    return repr(value)
