"""Public collectives and arguments of theirs that no leaf expresses.

Positional axes beside names (documentation of lax.psum), ragged_all_to_all, psend and precv, and the types that
all_gather and pcast can give their result under a checked shard_map.
"""

from __future__ import annotations

from harness.probes.base import Probe

IMPORTS = ("import jax.numpy as jnp", "import numpy as np", "from jax import lax", "from jax.sharding import Mesh, PartitionSpec as P")  # fmt: skip

POSITIONAL = """
x = (np.arange(24) * 7 % 24 - 9).reshape(3, 4, 2).astype("float32")
ways = {
    "psum": (lax.psum, np.sum),
    "pmax": (lax.pmax, np.max),
    "pmin": (lax.pmin, np.min),
}
axes = {  # as the collective gets them: the dimensions of x that they stand for
    "last and name": ((1, "i"), (0, 2)),
    "name and first": (("i", 0), (0, 1)),
    "both and name": ((0, 1, "i"), (0, 1, 2)),
    "first alone": (0, (1,)),
}
mesh = Mesh(np.array(jax.devices()[:3]), ("i",))
facts = {}
for word, (collective, reference) in ways.items():
    for text, (names, dimensions) in axes.items():
        f = lambda y: collective(y, names)
        want = reference(x, axis=dimensions, keepdims=True)
        want = np.stack([np.squeeze(w, tuple(d - 1 for d in dimensions if d)) for w in np.broadcast_to(want, (3, *want.shape[1:]))])
        got = {
            "vmap": jax.vmap(f, axis_name="i")(x),
            "jitted": jax.jit(jax.vmap(f, in_axes=2, axis_name="i"))(np.moveaxis(x, 0, 2)),
            "pmap": jax.pmap(f, axis_name="i")(x),
            "shard_map": jax.jit(jax.shard_map(lambda y: f(y[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))(x),
        }
        for binder, result in got.items():
            result = np.asarray(result)
            right = result.shape == want.shape and bool(np.all(result == want))
            facts[f"{word} over {text} under {binder} is {want.tolist()}" + ("" if right else f", not {result.tolist()}")] = right
slope = jax.vmap(jax.grad(lambda y: 2 * lax.psum(y, (0, 1, "i"))), axis_name="i")(x)
facts[f"the gradient of a sum over all of three lanes is 6, not {np.unique(slope)}"] = bool(np.all(np.asarray(slope) == 6))
return facts
"""

RAGGED = """
n = 4
mesh = Mesh(np.array(jax.devices()[:n]), ("i",))
sizes = np.array([[1, 2, 0, 3], [2, 2, 1, 0], [0, 1, 3, 1], [2, 0, 1, 1]], "int32")  # [sender, receiver]
operand = np.arange(n * 8, dtype="float32").reshape(n, 8)
starts = np.cumsum(sizes, 1) - sizes
places = np.cumsum(sizes, 0) - sizes
want = np.full((n, 10), -1, "float32")
for sender in range(n):
    for receiver in range(n):
        rows = operand[sender, starts[sender, receiver] :][: sizes[sender, receiver]]
        want[receiver, places[sender, receiver] :][: len(rows)] = rows


def exchange(*arguments):
    return lax.ragged_all_to_all(*[argument[0] for argument in arguments], axis_name="i")[None]


f = jax.jit(jax.shard_map(exchange, mesh=mesh, in_specs=P("i"), out_specs=P("i")))
got = np.asarray(f(operand, np.full((n, 10), -1, "float32"), starts, sizes, places, sizes.T))
return {f"each receiver has what was sent to it, {want.tolist()}, not {got.tolist()}": bool(np.all(got == want))}
"""

SEND = """
mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
x = np.arange(6, dtype="float32")


def pass_on(y):
    if not hasattr(lax, "psend"):
        raise NotImplementedError("this JAX has no psend")
    token = lax.psend(y, "i", [(0, 1)])
    return lax.precv(token, jax.ShapeDtypeStruct(y.shape, y.dtype), "i", [(0, 1)])


got = jax.jit(jax.shard_map(pass_on, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))(x)
return {"the second member has what the first sent": bool(np.all(np.asarray(got)[3:] == x[:3]))}
"""

TYPES = """
mesh = Mesh(np.array(jax.devices()[:3]), ("i",))
x = (np.arange(18) * 5 % 18 - 4).reshape(6, 3).astype("float32")
weights = np.arange(18, dtype="float32").reshape(6, 3)
facts = {}


def holds(name, f, specs, want):
    mapped = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=specs[0], out_specs=specs[1]))
    got = np.asarray(mapped(x))
    right = got.shape == want.shape and bool(np.all(got == want))
    facts[f"{name} is {want.tolist()}" + ("" if right else f", not {got.tolist()}")] = right
    return mapped


gathered = holds("a gather everyone agrees on", lambda v: lax.all_gather(v, "i", tiled=True, to="invarying"), (P("i"), P()), x)
stacked = x.reshape(3, 2, 3).transpose(1, 0, 2)
holds("a stacked one", lambda v: lax.all_gather(v, "i", axis=1, to="invarying"), (P("i"), P()), stacked)
slope = jax.grad(lambda x: (gathered(x) * weights).sum())(x)
facts["its gradient is the weights"] = bool(np.all(np.asarray(slope) == weights))
holds("the sum of what is not yet reduced", lambda v: lax.psum(lax.pcast(v, "i", to="unreduced"), "i"), (P("i"), P()), x.reshape(3, 2, 3).sum(0))
holds(
    "the scattered sum of what is not yet reduced",
    lambda v: lax.psum_scatter(lax.pcast(v, "i", to="unreduced"), "i", tiled=True),
    (P(None, "i"), P("i")),
    x.sum(1, keepdims=True),
)
holds(
    "what is reduced, said to vary",
    lambda v: lax.pcast(lax.pcast(v, "i", to="reduced"), "i", to="varying"),
    (P(), P("i")),
    np.concatenate([x] * 3),
)
return facts
"""

PROBES = {
    "positional_axes": Probe("exchange.positional", POSITIONAL, "exchanges", devices=3, imports=IMPORTS),
    "ragged_all_to_all": Probe(
        "exchange.ragged", RAGGED, "exchanges", devices=4, imports=IMPORTS, since="0.6.2", optional=True
    ),
    "send_receive": Probe(
        "exchange.send", SEND, "exchanges", devices=2, imports=IMPORTS, since="0.10.2", optional=True
    ),
    "varying_types": Probe("exchange.types", TYPES, "exchanges", devices=3, imports=IMPORTS, since="0.10.2"),
}
