"""Layers that stage a function without changing its values: jit, checkpoint, custom rules, lower/compile, eval_shape."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

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
        name = module.define("with_jvp", "@jax.custom_jvp", f"def {{name}}({args}):", f"    return {inner}({args})")
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
        name = module.define("with_vjp", "@jax.custom_vjp", f"def {{name}}({args}):", f"    return {inner}({args})")
        forward = module.define(
            f"{name}_forward", f"def {{name}}({args}):", f"    return {inner}({args}), ({args}{',' * (len(module.params) == 1)})"
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
            "compiled", f"def {{name}}({args}):", f"    return jax.jit({inner}).lower({args}).compile()({args})"
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
        return _differentiable(self, _needs_argument(self, x))

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        tangents = {f"{mark}.{name}": type_ for name, type_ in _float_outputs(self, inner).items()}
        return {**inner, **tangents}

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        assert x is not None
        tangent = np.multiply(x, TANGENT).astype(x.dtype)
        here, there = inner(x, lanes), inner(x + tangent, lanes)
        return {**here, **{f"{place.mark}.{name}": there[name] - y for name, y in here.items()}}


def _differentiable(layer: Layer, x: Type) -> Type:
    if not x.dtype.startswith(("float", "bfloat")):
        raise Illegal(f"{layer.word} needs a real floating operand")
    return x


def _float_outputs(layer: Layer, inner: Types) -> Types:
    for name, type_ in inner.items():
        if not type_.dtype.startswith(("float", "bfloat")):
            raise Illegal(f"{layer.word} needs floating outputs, {name} is {type_.dtype}")
    return inner


def _prefixed(mark: str, value: str) -> str:
    return f'{{f"{mark}.{{key}}": value for key, value in {value}.items()}}'


@dataclasses.dataclass(frozen=True)
class Jvp(Forward):
    word: ClassVar[str] = "jvp"

    def render(self, module: Module, inner: str, place: Place) -> str:
        return module.define(
            "pushed_forward",
            "def {name}(x):",
            f"    out, tangent = jax.jvp({inner}, (x,), ({TANGENT} * x,))",
            f"    return {{**out, **{_prefixed(place.mark, 'tangent')}}}",
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
            f"    return {{**out, **{_prefixed(place.mark, 'tangent')}}}",
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
    rule: ClassVar[str | None] = "derivative.reverse"
    mark: ClassVar[bool] = True

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        return _differentiable(self, _needs_argument(self, x))

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        assert x is not None
        _float_outputs(self, inner)
        vary = x.vary | {axis.key for axis in scope.axes if not axis.checked}
        return {**inner, mark: Type(x.shape, x.dtype, vary)}

    def render(self, module: Module, inner: str, place: Place) -> str:
        module.imports("import jax.numpy as jnp")
        weigh = module.define(
            "weights",
            "def {name}(y):  # the cotangent of an output: 1..5 repeated, varying over axes as y does",
            f"    return y - y + (jnp.arange(y.size) % {COTANGENT_PERIOD} + 1).reshape(y.shape).astype(y.dtype)",
        )
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
        return {**outputs, place.mark: pull_back(inner, x, outputs, lanes, place)}


def pull_back(inner: Inner, x: np.ndarray, outputs: Values, lanes: Lanes, place: Place) -> np.ndarray:
    """J^T applied to the cotangents, J found by evaluating `inner` on every unit vector at once.

    The unit vectors stand along an extra, outermost lane axis that no name refers to.
    """
    unit = Axis(f"unit{lanes.ndim}", None, (x.size,), "vmap")
    sizes = {**lanes.sizes, unit.key: x.size}
    scope = Scope((unit, *lanes.scope.axes))
    stacked = Lanes(scope, sizes)
    basis = np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    at_units = inner(basis, stacked)
    at_zero = inner(np.zeros_like(x), lanes)
    total = np.zeros(x.size, x.dtype)
    for name, y in outputs.items():
        jacobian = (at_units[name] - at_zero[name][None]).reshape(x.size, y.size)
        total = total + jacobian @ _cotangents(y, place.inner[name], lanes).reshape(-1)
    total = total.astype(x.dtype).reshape(x.shape)
    assert place.x is not None
    for d in _single(place.x, lanes):
        total = np.broadcast_to(total.sum(axis=d, keepdims=True, dtype=x.dtype), total.shape)
    return total


def _single(type_: Type, lanes: Lanes) -> list[int]:
    """Lane dimensions along which JAX knows the value to be one and the same."""
    return [d for d, axis in enumerate(lanes.scope.axes) if axis.checked and axis.key not in type_.vary]


def _cotangents(y: np.ndarray, type_: Type, lanes: Lanes) -> np.ndarray:
    local = y.shape[lanes.ndim :]
    count = int(np.prod(local))
    weights = (np.arange(count) % COTANGENT_PERIOD + 1).reshape(local).astype(y.dtype)
    weights = np.broadcast_to(weights, y.shape).copy()
    for d in _single(type_, lanes):
        np.moveaxis(weights, d, 0)[1:] = 0
    return weights
