"""The second oracle: a program evaluated by NumPy, with every bound axis as a leading dimension.

It reads the case, not the rendered source, and must never import JAX (a test holds it to that).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.layers.base import Lanes, Scope, Values
from harness.layers.leaves import Leaf, Query
from harness.program import Plan

Given = tuple[np.ndarray | None, int]
"""The closed-over array, where there is one, and the factor of the step."""


def evaluate(plan: Plan, operand: np.ndarray | None, sizes: Mapping[str, int], factor: int = 1) -> Values:
    """The program's outputs under one axis environment.

    Args:
      plan: the typed program.
      operand: the program's argument, or the closed-over array, as the rendered module makes it; None for a constant.
      sizes: the size of every axis, by key.
      factor: what the leaves multiply their operand by.

    Returns:
      the results by output key, with the shapes and dtypes that the laws promise.
    """
    with np.errstate(all="ignore"):  # wrap-around and NaN are payloads
        argument = operand if plan.case.takes_argument else None
        return _layer(plan, 0, argument, (operand, factor), Lanes(Scope(), sizes))


def _layer(plan: Plan, depth: int, x: np.ndarray | None, given: Given, lanes: Lanes) -> Values:
    if depth == len(plan.case.layers):
        return {key: _leaf(plan, leaf, x, given, lanes) for key, leaf in plan.leaves.items()}

    def inner(x: np.ndarray | None, lanes: Lanes) -> Values:
        return _layer(plan, depth + 1, x, given, lanes)

    return plan.case.layers[depth].evaluate(inner, x, plan.case.n, lanes, plan.places[depth])


def _leaf(plan: Plan, leaf: Leaf, x: np.ndarray | None, given: Given, lanes: Lanes) -> np.ndarray:
    operand, factor = given
    if isinstance(leaf, Query):
        return leaf.evaluate(np.zeros(lanes.shape), lanes)
    if x is None and operand is not None:  # closed over: the same everywhere
        x = operand
        x = np.broadcast_to(x, lanes.shape + x.shape)
    elif x is None:
        x = np.full(lanes.shape, _constant(plan.case.operand))
        if x.dtype != bool:
            x = x.astype(np.float32 if x.dtype.kind == "f" else np.int32)
    x = np.multiply(x, factor).astype(x.dtype) if factor != 1 else x
    if plan.case.operand == "tree":
        return np.stack([leaf.evaluate(x, lanes), leaf.evaluate(np.add(x, x), lanes)], axis=lanes.ndim)
    return leaf.evaluate(x, lanes)


def _constant(operand: str) -> int | float | bool:
    if operand == "constant":
        return 1
    return float(operand) if "." in operand else operand == "True" or int(operand)
