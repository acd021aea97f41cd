"""Layers that stage a function without changing its values: jit, checkpoint, custom rules, lower/compile, eval_shape."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.dtypes import is_float
from harness.errors import Illegal
from harness.layers.base import Axis, Inner, Lanes, Layer, Place, Scope, Type, Types, Values

if TYPE_CHECKING:
    from harness.render import Module


@dataclasses.dataclass(frozen=True)
class Staging(Layer):
    """A transform whose value is that of the function inside (jax's documentation of each)."""

    family: ClassVar[str] = "staging"


@dataclasses.dataclass(frozen=True)
class Jit(Staging):
    word: ClassVar[str] = "jit"
    caches: ClassVar[bool] = True

    def render(self, module: Module, inner: str, place: Place) -> str:
        return module.assign("jitted", f"jax.jit({inner})")


@dataclasses.dataclass(frozen=True)
class Checkpoint(Staging):
    word: ClassVar[str] = "checkpoint"
    caches: ClassVar[bool] = True

    def render(self, module: Module, inner: str, place: Place) -> str:
        return module.assign("checkpointed", f"jax.checkpoint({inner})")


@dataclasses.dataclass(frozen=True)
class CustomJvp(Staging):
    """A custom_jvp whose rule is the true derivative."""

    word: ClassVar[str] = "custom_jvp"

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        return _needs_argument(self, x)

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        name = module.define(
            "with_jvp", "@jax.custom_jvp", f"def {{name}}({args}):", f"    return {inner}({args})"
        )
        module.define(
            f"{name}_rule",
            f"@{name}.defjvp",
            "def {name}(primals, tangents):",
            f"    return jax.jvp({inner}, primals, tangents)",
        )
        return name


@dataclasses.dataclass(frozen=True)
class CustomVjp(Staging):
    """A custom_vjp whose rule is the true derivative."""

    word: ClassVar[str] = "custom_vjp"

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        return _needs_argument(self, x)

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        name = module.define(
            "with_vjp", "@jax.custom_vjp", f"def {{name}}({args}):", f"    return {inner}({args})"
        )
        forward = module.define(
            f"{name}_forward",
            f"def {{name}}({args}):",
            f"    return {inner}({args}), ({args}{',' * (len(module.params) == 1)})",
        )
        backward = module.define(
            f"{name}_backward",
            "def {name}(residuals, cotangent):",
            f"    return jax.vjp({inner}, *residuals)[1](cotangent)",
        )
        module.statement(f"{name}.defvjp({forward}, {backward})")
        return name


def _needs_argument(layer: Layer, x: Type | None) -> Type:
    if x is None:
        raise Illegal(f"{layer.word} needs an argument")
    return x


@dataclasses.dataclass(frozen=True)
class Compiled(Staging):
    """`jax.jit(f).lower(x).compile()(x)`: ahead-of-time compilation; outermost, since it needs concrete arguments."""

    word: ClassVar[str] = "compiled"
    outermost: ClassVar[bool] = True

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        return module.define(
            "compiled",
            f"def {{name}}({args}):",
            f"    return jax.jit({inner}).lower({args}).compile()({args})",
        )


@dataclasses.dataclass(frozen=True)
class EvalShape(Staging):
    """`jax.eval_shape(f, x)`: shapes and dtypes of the outputs, nothing computed; outermost."""

    word: ClassVar[str] = "eval_shape"
    outermost: ClassVar[bool] = True

    def render(self, module: Module, inner: str, place: Place) -> str:
        args = ", ".join(module.params)
        call = ", ".join([inner, *module.params])
        return module.define("shapes", f"def {{name}}({args}):", f"    return jax.eval_shape({call})")


TANGENT = 3
"""The tangent is the operand times this: exact, and different from the operand itself."""


@dataclasses.dataclass(frozen=True)
class Forward(Layer):
    """The derivative along a tangent, for a function that is affine in its argument.

    The law (jax.jvp, jax.linearize): for an affine f the derivative along t at x is f(x + t) - f(x).
    """

    family: ClassVar[str] = "derivative"
    rule: ClassVar[str | None] = "derivative.forward"
    mark: ClassVar[bool] = True

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        return differentiable(self, x)

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        tangents = {f"{mark}.{name}": type_ for name, type_ in float_outputs(self, inner).items()}
        return {**inner, **tangents}

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        assert x is not None
        tangent = np.multiply(x, TANGENT).astype(x.dtype)
        here, there = inner(x, lanes), inner(x + tangent, lanes)
        tangents = {name: there[name] - y for name, y in here.items() if is_float(place.inner[name].dtype)}
        return {**here, **{f"{place.mark}.{name}": y for name, y in tangents.items()}}


def differentiable(layer: Layer, x: Type | None) -> Type:
    """The operand; raises Illegal when no derivative is taken by it."""
    x = _needs_argument(layer, x)
    if not is_float(x.dtype):
        raise Illegal(f"{layer.word} needs a real floating operand")
    return x


def float_outputs(layer: Layer, inner: Types) -> Types:
    """The outputs that have a derivative; whole numbers (indices, counters) may stand beside them."""
    found = {name: type_ for name, type_ in inner.items() if is_float(type_.dtype)}
    if not found:
        raise Illegal(f"{layer.word} needs a floating output")
    return found


def _prefixed(inner: Types, mark: str, value: str) -> str:
    """Source of the tangents under their keys; a whole number has a tangent of no type that could be compared."""
    mixed = any(not is_float(type_.dtype) for type_ in inner.values())
    kept = " if value.dtype != jax.dtypes.float0" if mixed else ""
    return f'{{f"{mark}.{{key}}": value for key, value in {value}.items(){kept}}}'


@dataclasses.dataclass(frozen=True)
class Jvp(Forward):
    word: ClassVar[str] = "jvp"

    def render(self, module: Module, inner: str, place: Place) -> str:
        return module.define(
            "pushed_forward",
            "def {name}(x):",
            f"    out, tangent = jax.jvp({inner}, (x,), ({TANGENT} * x,))",
            f"    return {{**out, **{_prefixed(place.inner, place.mark, 'tangent')}}}",
        )


@dataclasses.dataclass(frozen=True)
class Linearize(Forward):
    word: ClassVar[str] = "linearize"

    def render(self, module: Module, inner: str, place: Place) -> str:
        return module.define(
            "linearized",
            "def {name}(x):",
            f"    out, push_forward = jax.linearize({inner}, x)",
            f"    tangent = push_forward({TANGENT} * x)",
            f"    return {{**out, **{_prefixed(place.inner, place.mark, 'tangent')}}}",
        )


COTANGENT_PERIOD = 5
"""Cotangents repeat 1..5 over each output's elements, so that a misplaced contribution shows."""


@dataclasses.dataclass(frozen=True)
class Vjp(Layer):
    """Reverse mode: the output `vjp` is the pullback of fixed cotangents.

    The law (jax.vjp; for collectives the transposed contribution matrix): with J the matrix of the whole function
    over all positions of all bound axes, the pullback is J^T applied to the cotangents. Along an axis whose variation
    JAX tracks, an output that does not vary is one value and has one cotangent, and an argument that does not vary is
    one value whose cotangent is the sum over positions (JAX's documentation of `check_vma`).
    """

    word: ClassVar[str] = "vjp"
    family: ClassVar[str] = "derivative"
    reverse: ClassVar[bool] = True
    rule: ClassVar[str | None] = "derivative.reverse"
    mark: ClassVar[bool] = True

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        return differentiable(self, x)

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        assert x is not None
        float_outputs(self, inner)
        return {**inner, mark: cotangent_type(x, scope)}

    def render(self, module: Module, inner: str, place: Place) -> str:
        weigh = weights(module, place.inner)
        return module.define(
            "pulled_back",
            "def {name}(x):",
            f"    out, pull_back = jax.vjp({inner}, x)",
            f"    (cotangent,) = pull_back(jax.tree.map({weigh}, out))",
            f'    return {{**out, "{place.mark}": cotangent}}',
        )

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        assert x is not None
        outputs = inner(x, lanes)
        cotangents = {
            name: once(weights_of(y, lanes), place.inner[name], lanes)
            for name, y in outputs.items()
            if is_float(place.inner[name].dtype)
        }
        return {**outputs, place.mark: pull_back(inner, x, cotangents, lanes, place)}


def cotangent_type(x: Type, scope: Scope) -> Type:
    """The type of what reverse mode gives for an argument: it may vary wherever JAX does not track variation."""
    return Type(x.shape, x.dtype, x.vary | {axis.key for axis in scope.axes if not axis.checked})


def weights(module: Module, inner: Types) -> str:
    """Writes the function that gives an output its cotangent, and returns its name."""
    module.imports("import jax.numpy as jnp")
    whole = [
        "    if not jnp.issubdtype(jnp.result_type(y), jnp.floating):",
        "        return np.zeros(jnp.shape(y), jax.dtypes.float0)",
    ]
    mixed = any(not is_float(type_.dtype) for type_ in inner.values())
    return module.define(
        "weights",
        "def {name}(y):  # the cotangent of an output: 1..5 repeated, varying over axes as y does",
        *(whole if mixed else []),
        f"    return y - y + (jnp.arange(y.size) % {COTANGENT_PERIOD} + 1).reshape(y.shape).astype(y.dtype)",
    )


def at_units(inner: Inner, basis: np.ndarray, lanes: Lanes) -> Values:
    """`inner` at many arguments at once: they stand along an extra, outermost lane axis that no name refers to."""
    unit = Axis(f"unit{lanes.ndim}", None, (basis.shape[0],), "vmap")
    stacked = Lanes(Scope((unit, *lanes.scope.axes)), {**lanes.sizes, unit.key: basis.shape[0]})
    return inner(basis, stacked)


def jacobian(inner: Inner, x: np.ndarray, lanes: Lanes) -> Values:
    """The contribution matrix over all positions: output -> array of shape (x.size, *output.shape)."""
    basis = np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    moved, still = at_units(inner, basis, lanes), inner(np.zeros_like(x), lanes)
    return {name: y - still[name][None] for name, y in moved.items()}


def pull_back(inner: Inner, x: np.ndarray, cotangents: Values, lanes: Lanes, place: Place) -> np.ndarray:
    """J^T applied to the cotangents (those of values that JAX knows to be one: once, see `once`)."""
    matrix = jacobian(inner, x, lanes)
    total = np.zeros(x.size, x.dtype)
    for name, cotangent in cotangents.items():
        total = total + matrix[name].reshape(x.size, cotangent.size) @ cotangent.reshape(-1)
    return gathered(total.astype(x.dtype).reshape(x.shape), place, lanes)


def gathered(total: np.ndarray, place: Place, lanes: Lanes) -> np.ndarray:
    """The cotangent of an argument that is one value for all positions of an axis: the sum over them."""
    assert place.x is not None
    for d in _single(place.x, lanes):
        total = np.broadcast_to(total.sum(axis=d, keepdims=True, dtype=total.dtype), total.shape)
    return total


def _single(type_: Type, lanes: Lanes) -> list[int]:
    """Lane dimensions along which JAX knows the value to be one and the same."""
    return [d for d, axis in enumerate(lanes.scope.axes) if axis.checked and axis.key not in type_.vary]


def weights_of(y: np.ndarray, lanes: Lanes) -> np.ndarray:
    """The numbers that `weights` gives at every position."""
    local = y.shape[lanes.ndim :]
    numbers = np.arange(int(np.prod(local))) % COTANGENT_PERIOD + 1
    return np.broadcast_to(numbers.reshape(local).astype(y.dtype), y.shape)


def once(cotangent: np.ndarray, type_: Type, lanes: Lanes) -> np.ndarray:
    """The cotangent with zeros where a value that is one along an axis would be counted again."""
    cotangent = cotangent.copy()
    for d in _single(type_, lanes):
        np.moveaxis(cotangent, d, 0)[1:] = 0
    return cotangent
