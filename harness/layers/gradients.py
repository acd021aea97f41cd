"""Reverse mode in its other forms: grad, value_and_grad, linear_transpose, Hessian times vector, Jacobians."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.dtypes import is_float
from harness.errors import Illegal
from harness.layers.base import Inner, Lanes, Layer, Param, Place, Scope, Type, Types, Values, choice, flag
from harness.layers.binders import ShardMap
from harness.layers.staging import (
    TANGENT,
    CustomJvp,
    CustomVjp,
    Vjp,
    at_units,
    cotangent_type,
    differentiable,
    float_outputs,
    gathered,
    jacobian,
    once,
    pull_back,
    weights,
    weights_of,
)

if TYPE_CHECKING:
    from harness.render import Module


def _united(types: Types) -> frozenset[str]:
    """Along which axes a sum over all floating outputs varies."""
    return frozenset(key for type_ in types.values() if is_float(type_.dtype) for key in type_.vary)


def _spread(cotangents: Values, place: Place, lanes: Lanes) -> Values:
    """The cotangents of outputs that were added up to one number for each position.

    The number varies along every axis that one of the outputs varies along: the others are one value for all
    positions, used by each of them.
    """
    united = Type((), "float32", _united(place.inner))
    return {name: once(y, united, lanes) for name, y in cotangents.items()}


@dataclasses.dataclass(frozen=True)
class Grad(Layer):
    """`grad`, `grad(value)`: the gradient of the sum of all floating outputs, each element with its weight 1..5.

    The law (jax.grad, jax.value_and_grad): the pullback of the weights, and with `value` the sum itself.
    """

    word: ClassVar[str] = "grad"
    family: ClassVar[str] = "derivative"
    rule: ClassVar[str | None] = "derivative.reverse"
    mark: ClassVar[bool] = True
    reverse: ClassVar[bool] = True
    params: ClassVar[tuple[Param, ...]] = (flag("value"),)
    value: bool = False

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        return differentiable(self, x)

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        assert x is not None
        float_outputs(self, inner)
        value = {f"{mark}.value": Type((), x.dtype, _united(inner))} if self.value else {}
        return {**inner, mark: cotangent_type(x, scope), **value}

    def render(self, module: Module, inner: str, place: Place) -> str:
        loss = _loss(module, inner, place, "{weigh}(lax.stop_gradient(y)) * y")
        if not self.value:
            return module.define(
                "gradient",
                "def {name}(x):",
                f"    slope, out = jax.grad({loss}, has_aux=True)(x)",
                f'    return {{**out, "{place.mark}": slope}}',
            )
        return module.define(
            "value_and_gradient",
            "def {name}(x):",
            f"    (value, out), slope = jax.value_and_grad({loss}, has_aux=True)(x)",
            f'    return {{**out, "{place.mark}": slope, "{place.mark}.value": value}}',
        )

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        assert x is not None
        outputs = inner(x, lanes)
        floats = {name: y for name, y in outputs.items() if is_float(place.inner[name].dtype)}
        scales = {name: weights_of(y, lanes) for name, y in floats.items()}
        slope = pull_back(inner, x, _spread(scales, place, lanes), lanes, place)
        local = {name: tuple(range(lanes.ndim, y.ndim)) for name, y in floats.items()}
        total = sum((scales[name] * y).sum(axis=local[name], dtype=x.dtype) for name, y in floats.items())
        value = {f"{place.mark}.value": np.asarray(total, x.dtype)} if self.value else {}
        return {**outputs, place.mark: slope, **value}


def _loss(module: Module, inner: str, place: Place, term: str) -> str:
    """Writes the number that is differentiated: the sum of `term` over the elements of all floating outputs."""
    weigh = weights(module, place.inner)
    mixed = any(not is_float(type_.dtype) for type_ in place.inner.values())
    kept = " if jnp.issubdtype(jnp.result_type(y), jnp.floating)" if mixed else ""
    return module.define(
        "loss",
        "def {name}(x):",
        f"    out = {inner}(x)",
        f"    return sum(jnp.sum({term.format(weigh=weigh)}) for y in jax.tree.leaves(out){kept}), out",
    )


@dataclasses.dataclass(frozen=True)
class Hvp(Grad):
    """`hvp(forward)`, `hvp(reverse)`: the Hessian of the sum of weight * y**2, times three times the operand.

    `forward` is jvp of grad, `reverse` is grad of jvp. The law: for y = f(x) affine with contribution matrix J the
    gradient is 2 J^T (w y) and the Hessian times t is 2 J^T (w J t).
    """

    word: ClassVar[str] = "hvp"
    rule: ClassVar[str | None] = "derivative.second"
    params: ClassVar[tuple[Param, ...]] = (
        Param("mode", choice("forward", "reverse"), "forward|reverse", kind="positional"),
    )
    mode: str = "forward"

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        assert x is not None
        float_outputs(self, inner)
        return {**inner, mark: cotangent_type(x, scope)}

    def render(self, module: Module, inner: str, place: Place) -> str:
        loss = _loss(module, inner, place, "{weigh}(lax.stop_gradient(y)) * y * y")
        if self.mode == "forward":
            lines = [
                f"    slope = jax.grad(lambda x: {loss}(x)[0])",
                f"    _, product = jax.jvp(slope, (x,), ({TANGENT} * x,))",
            ]
        else:
            lines = [
                f"    tangent = {TANGENT} * x",
                f"    along = lambda x: jax.jvp(lambda x: {loss}(x)[0], (x,), (tangent,))[1]",
                "    product = jax.grad(along)(x)",
            ]
        tail = [f'    return {{**{inner}(x), "{place.mark}": product}}']
        return module.define("hessian_vector", "def {name}(x):", *lines, *tail)

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        assert x is not None
        outputs = inner(x, lanes)
        there = inner(x + np.multiply(x, TANGENT).astype(x.dtype), lanes)
        scales = {
            name: 2 * weights_of(y, lanes) * (there[name] - y)
            for name, y in outputs.items()
            if is_float(place.inner[name].dtype)
        }
        return {**outputs, place.mark: pull_back(inner, x, _spread(scales, place, lanes), lanes, place)}


@dataclasses.dataclass(frozen=True)
class LinearTranspose(Vjp):
    """`linear_transpose`: the transpose of a linear function, applied to the weights.

    The law (jax.linear_transpose): the transposed contribution matrix, as for vjp.
    """

    word: ClassVar[str] = "linear_transpose"

    def stands(self, around: tuple[Layer, ...], inside: tuple[Layer, ...]) -> None:
        for layer in inside:
            if isinstance(layer, (CustomJvp, CustomVjp)) or layer.word in ("fori_loop", "while_loop"):
                raise Illegal(f"{layer.word} has no transpose of its own")

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        if len(float_outputs(self, inner)) < len(inner):
            raise Illegal("linear_transpose needs floating outputs only")
        return super().outputs(inner, x, scope, mark)

    def render(self, module: Module, inner: str, place: Place) -> str:
        weigh = weights(module, place.inner)
        return module.define(
            "transposed",
            "def {name}(x):",
            f"    out = {inner}(x)",
            f"    (cotangent,) = jax.linear_transpose({inner}, x)(jax.tree.map({weigh}, out))",
            f'    return {{**out, "{place.mark}": cotangent}}',
        )


@dataclasses.dataclass(frozen=True)
class Jacobian(Layer):
    """`jacobian(fwd)`, `jacobian(rev)`: jacfwd and jacrev, the outputs `jacobian.LEAF`.

    The law (jax.jacfwd, jax.jacrev): every position perturbs the same element of its argument (fwd), or asks for
    the same element of its output (rev), and sees what the whole program makes of that.
    """

    word: ClassVar[str] = "jacobian"
    family: ClassVar[str] = "derivative"
    rule: ClassVar[str | None] = "derivative.jacobian"
    mark: ClassVar[bool] = True
    reverse: ClassVar[bool] = True
    params: ClassVar[tuple[Param, ...]] = (Param("mode", choice("fwd", "rev"), "fwd|rev", kind="positional"),)
    mode: str = "fwd"

    def since(self, around: tuple[Layer, ...]) -> str:
        """Where variation is tracked, older releases refuse the unit vectors that these functions start from."""
        return "0.7" if any(isinstance(layer, ShardMap) and layer.check == "on" for layer in around) else ""

    def argument(self, x: Type | None, scope: Scope) -> Type | None:
        return differentiable(self, x)

    def outputs(self, inner: Types, x: Type | None, scope: Scope, mark: str) -> Types:
        assert x is not None
        if len(float_outputs(self, inner)) < len(inner):
            raise Illegal("a Jacobian needs floating outputs only")
        vary = cotangent_type(x, scope).vary if self.mode == "rev" else frozenset()
        found = {
            f"{mark}.{key}": Type(y.shape + x.shape, y.dtype, vary or y.vary) for key, y in inner.items()
        }
        return {**inner, **found}

    def render(self, module: Module, inner: str, place: Place) -> str:
        return module.define(
            "with_jacobian",
            "def {name}(x):",
            f"    matrices = jax.jac{self.mode}({inner})(x)",
            f'    return {{**{inner}(x), **{{f"{place.mark}.{{key}}": value for key, value in matrices.items()}}}}',
        )

    def evaluate(self, inner: Inner, x: np.ndarray | None, n: int, lanes: Lanes, place: Place) -> Values:
        assert x is not None
        outputs = inner(x, lanes)
        find = self._forward if self.mode == "fwd" else self._reverse
        matrices = find(inner, x, outputs, lanes, place)
        return {**outputs, **{f"{place.mark}.{name}": matrix for name, matrix in matrices.items()}}

    def _forward(self, inner: Inner, x: np.ndarray, outputs: Values, lanes: Lanes, place: Place) -> Values:
        local = x.shape[lanes.ndim :]
        count = int(np.prod(local))
        units = np.eye(count, dtype=x.dtype).reshape(count, *(1,) * lanes.ndim, *local)
        moved = at_units(inner, np.broadcast_to(units, (count, *x.shape)), lanes)
        still = inner(np.zeros_like(x), lanes)
        found = {name: np.moveaxis(moved[name] - still[name][None], 0, -1) for name in outputs}
        return {name: matrix.reshape(*matrix.shape[:-1], *local) for name, matrix in found.items()}

    def _reverse(self, inner: Inner, x: np.ndarray, outputs: Values, lanes: Lanes, place: Place) -> Values:
        found: Values = {}
        for name, matrix in jacobian(inner, x, lanes).items():
            y = outputs[name]
            counted = once(np.ones_like(y), place.inner[name], lanes)
            rows = (matrix * counted[None]).sum(axis=tuple(range(1, 1 + lanes.ndim)), dtype=x.dtype)
            rows = gathered(rows.reshape(*x.shape, -1), place, lanes)
            rows = np.moveaxis(rows, -1, lanes.ndim)
            found[name] = rows.reshape(*lanes.shape, *y.shape[lanes.ndim :], *x.shape[lanes.ndim :])
        return found
