"""The typed program: what a case means before it is rendered or evaluated, or why it is illegal.

`plan(case)` walks the layers once inwards (arguments) and once outwards (outputs) and gives each layer its `Place`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from harness import payloads
from harness.case import Case
from harness.dims import ONE, Dim, product
from harness.dtypes import WIDE
from harness.errors import Illegal
from harness.layers.base import Axis, Layer, Place, Scope, Type, Types
from harness.layers.binders import Binder, Pmap, ShardMap, Vmap
from harness.layers.control import Control, Loop
from harness.layers.leaves import Leaf, Pmean, Query
from harness.layers.probe import ProbeLeaf
from harness.names import NAME_KINDS
from harness.schedules import SCHEDULES, Facts, Schedule


@dataclasses.dataclass(frozen=True)
class Plan:
    """A legal case, typed.

    Attributes:
      case: what was planned (its own leaf is the first of `leaves`).
      leaves: key of each leaf's output -> leaf.
      places: one for each layer, outermost first.
      inside: the scope of the leaves.
      operand: type of the program's argument x as the outside sees it, or None.
      local: type of x as the leaves see it (of the closed-over array for operand "closure"), or None for a constant.
      mapped: keys of the axes along which the operand's values are numbered, outermost first.
      params: names of the program's arguments, of "x" and "n".
      swapped: the same program with the names of its two axes exchanged, where it has exactly two named ones
        and its operand's shape says nothing of them.
      unit: what the payload's values are multiplied by (so that means are whole).
    """

    case: Case
    leaves: dict[str, Leaf]
    places: tuple[Place, ...]
    inside: Scope
    operand: Type | None
    local: Type | None
    mapped: tuple[str, ...]
    params: tuple[str, ...]
    unit: Dim
    swapped: Plan | None = None

    @property
    def schedule(self) -> Schedule:
        """What the program goes through."""
        leaf = self.case.leaf
        return Facts(leaf.probe.rule) if isinstance(leaf, ProbeLeaf) else SCHEDULES[self.case.schedule]

    @property
    def inner_binder(self) -> int | None:
        """The depth of the innermost binder."""
        depths = [depth for depth, layer in enumerate(self.case.layers) if isinstance(layer, Binder)]
        return depths[-1] if depths else None

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.inside.axes

    @property
    def outputs(self) -> Types:
        """Types of the program's results."""
        return self.places[0].outputs if self.places else leaf_types(self)

    @property
    def steps(self) -> list[dict[str, int]]:
        """The size of every axis at each step."""
        count = max((len(axis.sizes) for axis in self.axes), default=1)
        return [{axis.key: axis.sizes[step % len(axis.sizes)] for axis in self.axes} for step in range(count)]

    def devices(self, sizes: Mapping[str, int]) -> int:
        """How many devices the meshes have at a step."""
        count = 1
        for layer in self.case.layers:
            count *= getattr(layer, "other", 0) or 1
        for axis in self.axes:
            count *= sizes[axis.key] if axis.on_devices else 1
        return count

    def varying_sizes(self) -> tuple[Axis, ...]:
        """The axes whose size is not the same at every step."""
        return tuple(axis for axis in self.axes if len(set(axis.sizes)) > 1)


def unit_of(case: Case) -> tuple[str, ...]:
    """The axes a mean is taken over: cases that differ here have different operands and cannot share a program."""
    return case.leaf.names if isinstance(case.leaf, Pmean) else ()


@functools.lru_cache(maxsize=4096)
def plan(case: Case, others: tuple[Leaf, ...] = ()) -> Plan:
    """Types the program of `case` and of the cases that share all but its leaf; raises Illegal.

    Args:
      case: the first case.
      others: further leaves carried by the same program.
    """
    if isinstance(case.leaf, ProbeLeaf):
        return _probe(case, case.leaf)
    for depth, layer in enumerate(case.layers):
        layer.stands(case.layers[:depth], case.layers[depth + 1 :])
    scopes = _scopes(case)
    inside = scopes[-1]
    _check_names(case, (case.leaf, *others), inside)
    if case.payload == "wrap" and any(isinstance(leaf, Pmean) for leaf in (case.leaf, *others)):
        raise Illegal("the mean of a sum that wrapped around is not exact")
    local, operand, mapped = _operand(case, scopes)
    params = _params(case)
    arguments = _arguments(case, scopes, operand)
    _check_divergence(case, (case.leaf, *others), scopes)
    _check_derivatives(case, (case.leaf, *others), params)
    one_sided = any(getattr(layer, "one", False) for layer in case.layers)
    if one_sided and case.dtype in WIDE and any(leaf.word == "axis_size" for leaf in (case.leaf, *others)):
        raise Illegal("a Python integer has the width of the mode, the zeros beside it have 32 bits")
    for leaf in (case.leaf, *others):
        if bool(leaf.error(inside)) != (case.schedule == "raises"):
            raise Illegal(leaf.error(inside) or "nothing here must raise")
    leaves = _keyed((case.leaf, *others))
    unit = product(tuple(Dim(1, (inside.find(name).key,)) for name in unit_of(case)))
    draft = Plan(case, leaves, (), inside, operand, local, mapped, params, unit)
    outputs = leaf_types(draft)
    places: list[Place] = []
    for depth in reversed(range(len(case.layers))):
        layer, mark = case.layers[depth], _mark(case.layers, depth)
        inner = outputs
        outputs = layer.outputs(
            inner, arguments[depth], scopes[depth + 1 if isinstance(layer, Binder) else depth], mark
        )
        places.insert(0, Place(scopes[depth], scopes[depth + 1], arguments[depth], inner, outputs, mark))
    _check_zeros(case, places, inside)
    typed = dataclasses.replace(draft, places=tuple(places))
    if SCHEDULES[case.schedule].rebinds:
        swapped = None if any(dim.axes for dim in case.shape) else _swap(case)  # both meet the same operand
        typed = dataclasses.replace(typed, swapped=_plan_of(swapped, others) if swapped else None)
    SCHEDULES[case.schedule].check(typed)
    return typed


def _probe(case: Case, leaf: ProbeLeaf) -> Plan:
    """A probe is a program of its own: it has no layers, operand or schedule."""
    leaf.check()
    if case != Case((), leaf):
        raise Illegal("a probe stands alone, without layers, operand or settings")
    return Plan(case, {"probe": leaf}, (), Scope(), None, None, (), (), ONE)


def _plan_of(case: Case, others: tuple[Leaf, ...]) -> Plan:
    """The plan of a variant: the schedule plays no part in it."""
    return plan(dataclasses.replace(case, schedule="sizes"), others)


def _swap(case: Case) -> Case | None:
    """The case with the names of its two axes exchanged where they are bound; what is inside stays."""
    bound = [symbol for layer in case.layers if isinstance(layer, Binder) for symbol, _ in layer.bindings]
    if len(bound) != 2 or "_" in bound or bound[0] == bound[1]:
        return None
    other = dict(zip(bound, reversed(bound)))
    layers = [
        dataclasses.replace(layer, bindings=tuple((other[symbol], sizes) for symbol, sizes in layer.bindings))
        if isinstance(layer, Binder)
        else layer
        for layer in case.layers
    ]
    return dataclasses.replace(case, layers=tuple(layers))


def leaf_types(plan_: Plan) -> Types:
    """The types of the leaves' own results."""
    local = plan_.local or Type((), "int32")
    return {key: _leaf_type(plan_, leaf, local) for key, leaf in plan_.leaves.items()}


def _leaf_type(plan_: Plan, leaf: Leaf, local: Type) -> Type:
    case = plan_.case
    if plan_.local is None and not isinstance(leaf, Query):
        if leaf.word not in ("psum", "pmean") or not leaf.names:
            raise Illegal(f"{leaf} of a Python constant")
        dtype = "float32" if "." in case.operand or leaf.word == "pmean" else "int32"
        return dataclasses.replace(leaf.output(Type((), dtype), plan_.inside), vary=frozenset())
    if plan_.case.schedule == "raises":
        return local
    output = leaf.output(local, plan_.inside)
    if case.operand != "tree":
        return output
    if isinstance(leaf, Query):
        raise Illegal(f"{leaf.word} takes no operand")
    return dataclasses.replace(output, shape=(Dim(2), *output.shape))


def _scopes(case: Case) -> list[Scope]:
    """The scope around each layer, and last the scope of the leaf."""
    scopes = [Scope()]
    for depth, layer in enumerate(case.layers):
        if getattr(layer, "outermost", False) and depth:
            raise Illegal(f"{layer.word} is the outermost layer")
        taken = frozenset(axis.key for axis in scopes[-1].axes)
        scopes.append(scopes[-1].bind(*layer.axes(taken)))
    lengths = {len(axis.sizes) for axis in scopes[-1].axes} - {1}
    if len(lengths) > 1:
        raise Illegal("every axis needs one size or as many sizes as the others")
    return scopes


def _check_names(case: Case, leaves: tuple[Leaf, ...], inside: Scope) -> None:
    kind = NAME_KINDS[case.names]
    for layer in case.layers:
        if isinstance(layer, (ShardMap, Pmap)) and not kind.mesh:
            raise Illegal(f"a mesh has no {case.names} names")
    for leaf in leaves:
        if case.names == "int" and (leaf.positional_names or not _plain(case)):
            raise Illegal(f"{leaf.word} reads integers as positions, not names")
        if case.names in ("int", "tuple") and len(leaf.names) > 1:
            raise Illegal("several names at once are strings here")
    unbound = {key for dim in case.shape for key in dim.axes} - {axis.key for axis in inside.axes}
    if unbound:
        raise Illegal(f"the shape depends on {', '.join(sorted(unbound))}, which is not bound")
    counted = any(isinstance(layer, Control) and layer.count.symbol for layer in case.layers)
    if case.names == "tuple" and (counted or any(leaf.word in ("axis_index", "random") for leaf in leaves)):
        raise Illegal("axis_index reads a tuple as several names")


def _plain(case: Case) -> bool:
    """Whether nothing but binders and jit stands around the leaf: integer names go no further in JAX."""
    return all(layer.family == "binder" or layer.word == "jit" for layer in case.layers)


def _params(case: Case) -> tuple[str, ...]:
    needs_n = any(isinstance(layer, Control) and layer.count.kind == "arg" for layer in case.layers)
    if case.n != Case.n and not needs_n:
        raise Illegal("nothing here reads n")
    needs_x = case.takes_argument or any(isinstance(layer, Pmap) for layer in case.layers)
    return ("x",) * needs_x + ("n",) * needs_n


def _operand(case: Case, scopes: list[Scope]) -> tuple[Type | None, Type | None, tuple[str, ...]]:
    """(local type, outside type, mapped keys) of the operand."""
    payloads.check_dtype(case.payload, case.dtype)
    if not case.takes_argument and case.operand != "closure":
        if (case.dtype, case.shape, case.payload) != (Case.dtype, Case.shape, Case.payload):
            raise Illegal("a number has no dtype, shape or payload to choose")
        if _params(case)[:1] == ("x",):
            raise Illegal("pmap of a constant")
        return None, None, ()
    if case.operand == "closure":
        if _params(case)[:1] == ("x",):
            raise Illegal("pmap of a closed-over operand")
        if unit_of(case) and any(len(set(axis.sizes)) > 1 for axis in scopes[-1].axes):
            raise Illegal("a closed-over array whose mean is whole has axes of one size")
        shape = payloads.local_shape(case.payload, case.shape, product(case.shape))
        if any(dim.axes for dim in shape):
            raise Illegal("a closed-over array has one shape")
        return Type(shape, case.dtype), None, ()
    mapped = tuple(
        key for depth, layer in enumerate(case.layers) for key in _mapped(layer, scopes[depth + 1])
    )
    count = payloads.count_of(tuple(Dim(1, (key,)) for key in mapped), case.shape)
    local = Type(payloads.local_shape(case.payload, case.shape, count), case.dtype, frozenset(mapped))
    outside = Type(local.shape, case.dtype)
    for depth in reversed(range(len(case.layers))):
        outside = case.layers[depth].operand(outside, scopes[depth + 1])
    return local, outside, mapped


def _mapped(layer: Layer, inside: Scope) -> list[str]:
    """Keys of the axes along which a binder splits the operand, in scope order."""
    if isinstance(layer, ShardMap):
        used = {symbol for dim in layer._in_spec() for symbol in dim}
        return [axis.key for axis in layer.own_axes(inside) if axis.symbol in used]
    if isinstance(layer, Vmap) and layer.entry != "none":
        return [inside.axes[-1].key]
    return []


def _arguments(case: Case, scopes: list[Scope], operand: Type | None) -> list[Type | None]:
    """The type of each layer's own argument."""
    arguments: list[Type | None] = []
    x = operand
    for depth, layer in enumerate(case.layers):
        arguments.append(x)
        x = layer.argument(x, scopes[depth + 1 if isinstance(layer, Binder) else depth])
    return arguments


def _check_divergence(case: Case, leaves: tuple[Leaf, ...], scopes: list[Scope]) -> None:
    """Devices that take different branches must not wait for each other inside them."""
    diverged: set[str] = set()
    for depth, layer in enumerate(case.layers):
        if not isinstance(layer, Control):
            continue
        if layer.count.kind == "reduced" and scopes[depth].find(layer.count.symbol).key in diverged:
            raise Illegal("a collective inside control flow on which devices diverge")
        if layer.count.kind == "index":
            axis = scopes[depth].find(layer.count.symbol)
            diverged |= {axis.key} if axis.on_devices else set()
    for leaf in leaves:
        if case.schedule != "raises" and leaf.communicates and leaf.keys(scopes[-1]) & diverged:
            raise Illegal("a collective inside control flow on which devices diverge")


def _check_zeros(case: Case, places: list[Place], inside: Scope) -> None:
    """A loop starts its sums from zeros, whose shape it can only spell with the sizes of axes it can name."""
    for layer, place in zip(case.layers, places):
        keys = {key for type_ in place.inner.values() for dim in type_.shape for key in dim.axes}
        for axis in inside.axes if isinstance(layer, Loop) or getattr(layer, "one", False) else ():
            named = axis in place.scope.axes and axis.symbol and place.scope.find(axis.symbol) is axis
            if axis.key in keys and len(set(axis.sizes)) > 1 and not named:
                raise Illegal(
                    f"{layer.word} cannot name axis {axis.key}, on whose changing size its sums depend"
                )


def _check_derivatives(case: Case, leaves: tuple[Leaf, ...], params: tuple[str, ...]) -> None:
    """The reference of a derivative holds for affine functions of a finite argument of moderate size."""
    if all(layer.family != "derivative" for layer in case.layers):
        return
    reversed_ = derived = False
    for layer in case.layers:
        reversed_ = reversed_ or layer.reverse
        derived = derived or layer.family == "derivative"
        if (
            reversed_
            and isinstance(layer, Loop)
            and (layer.word == "while_loop" or layer.count.kind != "fixed")
        ):
            raise Illegal("no reverse mode through a loop whose trips are not known to the trace")
        varying = isinstance(layer, Control) and layer.count.kind == "index"
        if derived and varying and any(leaf.communicates for leaf in leaves):
            raise Illegal("the derivative of a collective that some positions do not reach is not defined")
    words = [layer.word for layer in case.layers]
    if "hvp" in words and "custom_vjp" in words:
        raise Illegal("a custom_vjp has no forward derivative of its reverse one")
    if {"vjp", "grad", "hvp", "jacobian", "linear_transpose"} & set(words) and _mean_rounds(case, leaves):
        raise Illegal("the transposed mean is exact for powers of two only")
    payload = payloads.PAYLOADS[case.payload]
    if payload.extra is not None or not payload.finite or params != ("x",):
        raise Illegal(
            "a derivative is taken by x alone, with a finite payload without a dimension of its own"
        )
    if not all(leaf.linear for leaf in leaves):
        raise Illegal("a derivative needs leaves that are affine in their operand")


def _mean_rounds(case: Case, leaves: tuple[Leaf, ...]) -> bool:
    sizes = [
        n for layer in case.layers if isinstance(layer, Binder) for _, each in layer.bindings for n in each
    ]
    return any(isinstance(leaf, Pmean) for leaf in leaves) and any(n & (n - 1) for n in sizes)


def _keyed(leaves: tuple[Leaf, ...]) -> dict[str, Leaf]:
    """A short unique name for each leaf's output."""
    keyed: dict[str, Leaf] = {}
    for leaf in leaves:
        key, count = leaf.word, 1
        while key in keyed:
            count += 1
            key = f"{leaf.word}_{count}"
        keyed[key] = leaf
    return keyed


def _mark(layers: tuple[Layer, ...], depth: int) -> str:
    """The key of a layer's own output: its word, numbered when the word is met again further in."""
    same = sum(layer.word == layers[depth].word for layer in layers[depth:])
    return layers[depth].word if same == 1 else f"{layers[depth].word}_{same}"
