"""Derivatives of functions that are split over devices, and of operations with ties and scalars."""

from __future__ import annotations

from harness.probes.base import Probe

IMPORTS = ("import jax.numpy as jnp", "import numpy as np", "from jax import lax")

POLICIES = (
    "everything_saveable",
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    'save_only_these_names("kept")',
    'save_anything_except_these_names("kept")',
)


def _policy(name: str, unused: bool) -> str:
    return (
        f"(lambda body: body, lambda f: jax.checkpoint(f, policy=jax.checkpoint_policies.{name}), {unused})"
    )


WRAPPERS = {
    "plain": "(lambda body: body, lambda f: f, False)",
    "unused": "(lambda body: body, lambda f: f, True)",
    "jit_inside": "(jax.jit, lambda f: f, False)",
    "jit_outside": "(lambda body: body, jax.jit, True)",
    "checkpoint_inside": "(jax.checkpoint, lambda f: f, False)",
    "checkpoint_outside": "(lambda body: body, jax.checkpoint, False)",
    "checkpoint_unused": "(lambda body: body, jax.checkpoint, True)",
    "checkpoint_of_jit": "(jax.jit, lambda f: jax.checkpoint(jax.jit(f)), True)",
    "checkpoint_both": "(jax.checkpoint, jax.checkpoint, True)",
    "loop_inside": "(lambda body: lambda x: lax.map(lambda _: body(x), jnp.arange(2))[1], lambda f: f, False)",
    **{name.split("(")[0]: _policy(name, False) for name in POLICIES},
    **{name.split("(")[0] + "_unused": _policy(name, True) for name in POLICIES},
}
"""What a body and the shard_map around it are wrapped in, and whether the shard_map has an output that nothing uses."""


CUSTOM = {
    "custom_jvp_inside": "lambda custom_jvp, custom_vjp: (custom_jvp, lambda f: f, False)",
    "custom_vjp_inside": "lambda custom_jvp, custom_vjp: (custom_vjp, lambda f: f, False)",
    "custom_vjp_outside": "lambda custom_jvp, custom_vjp: (lambda body: body, custom_vjp, True)",
    "custom_vjp_of_jit": "lambda custom_jvp, custom_vjp: (jax.jit, lambda f: custom_vjp(jax.jit(f)), False)",
}

EAGER = """if "psum" in results:
    results["psum"]["vmap of grad, not jitted"] = jax.vmap(jax.grad(lambda x: split(table["psum"][0])(x).sum()))(x)
"""

CUSTOM_RULES = """
def custom_jvp(f):
    g = jax.custom_jvp(f)
    g.defjvp(lambda primals, tangents: jax.jvp(f, primals, tangents))
    return g


def custom_vjp(f):
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: jax.vjp(f, x), lambda pull, y: pull(y))
    return g


inside, outside, unused = VALUE(custom_jvp, custom_vjp)"""

SHARD_MAP = """
inside, outside, unused = VALUE
mesh = Mesh(np.array(jax.devices()[:6]).reshape(2, 3), ("j", "i"))
x = (np.arange(30, dtype="float32") * 7 % 11 - 5).reshape(2, 15)  # two lanes, of which each device holds five numbers
t = (np.arange(30, dtype="float32") % 4 - 1).reshape(2, 15)
around = [(k, (k + 1) % 3) for k in range(3)]


def total(x):  # what psum gives to every device
    return np.tile(x.reshape(3, 5).sum(0), 3)


table = {  # the body of a device, and the gradient of the sum of all results
    "square": (lambda x: x * x, lambda x: 2 * x),
    "psum": (lambda x: x * lax.psum(x, "i"), lambda x: 2 * total(x)),
    "all_gather": (lambda x: x * lax.all_gather(x, "i").sum(0), lambda x: 2 * total(x)),
    "ppermute": (lambda x: x * lax.ppermute(x, "i", around), lambda x: np.roll(x, 5) + np.roll(x, -5)),
    "all_to_all": (lambda x: x * lax.all_to_all(lax.all_gather(x, "i"), "i", 0, 0, tiled=True).sum(0), lambda x: 6 * x),
    "repeat": (lambda x: jnp.repeat(x * x, 2), lambda x: 4 * x),
    "cumsum": (lambda x: jnp.cumsum(x * x), lambda x: 2 * x * np.tile([5, 4, 3, 2, 1], 3)),
    "full_like": (lambda x: x * x * jnp.full_like(x, 3), lambda x: 6 * x),
    "axis_index": (lambda x: x * x * lax.axis_index("i"), lambda x: 2 * x * np.repeat([0, 1, 2], 5)),
}


def split(body):  # the sharded function; of its further results one is dropped within, one without, and none is used
    def several(x):
        return (inside(body)(x), lax.psum(x, "i"), jnp.exp(x / 9)) if unused else inside(body)(x)

    specs = (P("i"), P(), P("i")) if unused else P("i")
    mapped = jax.shard_map(several, mesh=mesh, in_specs=P("i"), out_specs=specs)
    kept = outside((lambda x: mapped(x)[:2]) if unused else mapped)
    return lambda x: kept(x)[0] if unused else kept(x)


def ways(f, x, t):
    def loss(x):
        return f(x).sum()

RETURN


def wanted(gradient):
    each = np.stack([gradient(y) for y in x])
    second = np.stack([(gradient(y + s) - gradient(y - s)) / 2 for y, s in zip(x, t)])  # gradients are linear here
    return {"jvp": (each * t).sum(1), "jvp of grad": second}, each



def compute(names):
    return jax.jit(lambda x, t: {name: ways(split(table[name][0]), x, t) for name in names})(x, t)


facts, results = {}, {}
try:
    results = compute(list(table))
except Exception:  # one of them cannot be run: which?
    for name in table:
        try:
            results |= compute([name])
        except Exception as error:
            facts[f"{name} has a derivative ({type(error).__name__}: {str(error)[:150]})"] = False
EAGERLY
for name, given in results.items():
    special, each = wanted(table[name][1])
    for way, got in given.items():
        facts[f"{name}: {way} is as by hand"] = bool(np.array_equal(got, special.get(way, each)))
return facts
"""

ALL = """
    return {
        "grad": jnp.stack([jax.grad(loss)(x[0]), jax.grad(loss)(x[1])]),
        "vmap of grad": jax.vmap(jax.grad(loss))(x),
        "grad of vmap": jax.grad(lambda x: jax.vmap(f, in_axes=1, out_axes=1)(x.T).sum())(x),FORWARD
    }"""

PLACED = """
    return {"vmap of grad over a mesh axis": jax.vmap(jax.grad(loss), spmd_axis_name="j")(x)}"""

FORWARD = """
        "jvp": jax.vmap(lambda x, t: jax.jvp(loss, (x,), (t,))[1])(x, t),
        "jvp of grad": jax.vmap(lambda x, t: jax.jvp(jax.grad(loss), (x,), (t,))[1])(x, t),"""


def _shard_map(
    rule: str, values: dict[str, str], check: str = "", custom: bool = False, placed: bool = False
) -> Probe:
    forward = "" if custom else FORWARD
    source = SHARD_MAP.replace("RETURN", PLACED[1:] if placed else ALL[1:].replace("FORWARD", forward))
    source = source.replace("EAGERLY\n", "" if placed else EAGER)
    source = source.replace("out_specs=specs)", f"out_specs=specs{check})")
    if custom:
        source = source.replace("\ninside, outside, unused = VALUE", CUSTOM_RULES)
    return Probe(rule=rule, suite="autodiff", source=source, values=values, devices=6, imports=IMPORTS)


TIES = {
    "lax_max": "(lax.max, lambda x, y: (1.0 * (x > y) + 0.5 * (x == y), 1.0 * (x < y) + 0.5 * (x == y)))",
    "lax_min": "(lax.min, lambda x, y: (1.0 * (x < y) + 0.5 * (x == y), 1.0 * (x > y) + 0.5 * (x == y)))",
    "maximum": "(jnp.maximum, lambda x, y: (1.0 * (x > y) + 0.5 * (x == y), 1.0 * (x < y) + 0.5 * (x == y)))",
    "minimum": "(jnp.minimum, lambda x, y: (1.0 * (x < y) + 0.5 * (x == y), 1.0 * (x > y) + 0.5 * (x == y)))",
    "where": "(lambda x, y: jnp.where(x > 0, x, y), lambda x, y: (1.0 * (x > 0), 1.0 * (x <= 0) + 0 * y))",
    "multiply": "(lambda x, y: x * y, lambda x, y: (0 * x + y, x + 0 * y))",
    "subtract": "(lambda x, y: x - y, lambda x, y: (1 + 0 * x + 0 * y, -1 + 0 * x + 0 * y))",
    "divide": "(lambda x, y: x / y, lambda x, y: (1 / y + 0 * x, -x / y / y))",
    "power": "(lambda x, y: (x * x + y) ** 2, lambda x, y: (4 * x * (x * x + y), 2 * (x * x + y)))",
    "select": "(lambda x, y: lax.select(x > 0, x, jnp.broadcast_to(y, jnp.shape(x))), lambda x, y: (1.0 * (x > 0), 1.0 * (x <= 0) + 0 * y))",
    "clip": "(lambda x, y: jnp.minimum(jnp.maximum(x, -y), y), lambda x, y: (1.0 * (abs(x) < y) + 0.5 * (abs(x) == y), np.sign(x) * ((abs(x) > y) + 0.5 * (abs(x) == y))))",
}
"""Operations of two numbers, the second of which is a scalar, and their two derivatives; a tie halves."""

SCALARS = """
operation, derivatives = VALUE
x, y = np.array([-4, -2, -1, 1, 2, 8], "float32"), 2.0
dx, dy = derivatives(x, np.float32(y))
ONLY


def right(got, want):
    return bool(np.array_equal(np.asarray(got, "float32"), np.asarray(want, "float32")))


def loss(x, y):
    return operation(x, y).sum()


def scalar(x, y):
    return operation(x, y)


def tangent(x, y):
    return jax.jvp(lambda y: operation(x, y), (y,), (1.0,))[1]


facts = {}


def holds(name, compute, want):
    try:
        got = compute()
        facts[f"{name} is as by hand"] = right(got, want)
    except Exception as error:
        facts[f"{name} can be taken ({type(error).__name__}: {str(error)[:150]})"] = False


for word, stage in (("eagerly", lambda f: f), ("jitted", jax.jit)):
WAYS
return facts
"""

HOST_WAYS = """
    holds(f"{word}, the derivative by an array", lambda: stage(jax.grad(loss))(jnp.asarray(x), y), dx)
    holds(f"{word}, by an array beside a scalar array", lambda: stage(jax.grad(loss))(jnp.asarray(x), jnp.float32(y)), dx)
    holds(f"{word}, by a Python scalar", lambda: stage(jax.grad(loss, 1))(jnp.asarray(x), y), dy.sum())
    holds(f"{word}, by two Python scalars", lambda: stage(jax.grad(scalar, (0, 1)))(2.0, 3.0), np.array(derivatives(np.float32(2), np.float32(3))))
    holds(f"{word}, forwards by a Python scalar", lambda: stage(tangent)(jnp.asarray(x), y), dy)
    holds(f"{word}, forwards by a scalar of a scalar", lambda: stage(tangent)(2.0, 3.0), derivatives(np.float32(2), np.float32(3))[1])
    holds(f"{word}, under vmap", lambda: stage(jax.vmap(jax.grad(scalar), (0, None)))(x, y), dx)
    holds(f"{word}, by what vmap does not map", lambda: stage(jax.vmap(jax.grad(scalar, 1), (0, None)))(x, y), dy)
"""

MESH_WAYS = """
    split = jax.device_put(x, NamedSharding(mesh, P("i")))
    holds(f"{word}, by a sharded array", lambda: stage(jax.grad(loss))(split, y), dx)
    holds(f"{word}, by a scalar beside it", lambda: stage(jax.grad(loss, 1))(split, y), dy.sum())
    holds(f"{word}, forwards", lambda: stage(tangent)(split, y), dy)
    body = lambda x: jax.grad(loss)(x, y)
    mapped = jax.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    holds(f"{word}, inside shard_map", lambda: stage(mapped)(x), dx)
    mapped_loss = jax.shard_map(lambda x: operation(x, y), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    holds(f"{word}, of a shard_map", lambda: stage(jax.grad(lambda x: mapped_loss(x).sum()))(jnp.asarray(x)), dx)
    mapped_pair = jax.shard_map(operation, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))
    holds(
        f"{word}, of a shard_map by its replicated scalar",
        lambda: stage(jax.grad(lambda y: mapped_pair(jnp.asarray(x), y).sum()))(jnp.float32(y)),
        dy.sum(),
    )
"""

EXPLICIT_WAYS = """
    with jax.set_mesh(mesh):
        split = jax.device_put(x, NamedSharding(mesh, P("i")))
        holds(f"{word}, by a sharded array", lambda: stage(jax.grad(loss))(split, y), dx)
        holds(f"{word}, by a scalar beside it", lambda: stage(jax.grad(loss, 1))(split, y), dy.sum())
        holds(f"{word}, forwards", lambda: stage(tangent)(split, y), dy)
"""


def _scalars(rule: str, ways: str, mesh: str = "", devices: int = 1, since: str = "") -> Probe:
    return Probe(
        rule=rule,
        suite="autodiff",
        source=SCALARS.replace("ONLY\n", mesh).replace("WAYS\n", ways.lstrip("\n")),
        values={word: value for word, value in TIES.items() if word != "select" or "set_mesh" not in ways},
        devices=devices,
        since=since,
        imports=IMPORTS,
    )


COTANGENT = """
mesh = Mesh(np.array(jax.devices()[:3]), ("i",))
x = np.arange(6, dtype="float32") - 2
like = {
    "full_like": lambda y: jnp.full_like(y, 2),
    "ones_like": lambda y: jnp.ones_like(y) * 2,
    "zeros_like": lambda y: jnp.zeros_like(y) + 2,
    "sum": lambda y: y * 0 + 2,
}


def body(f, make):
    def shard(x):
        y, pull = jax.vjp(f, x)
        return pull(make(y))[0]

    return jax.shard_map(shard, mesh=mesh, in_specs=P("i"), out_specs=P("i"))


facts = {}
for name, make in like.items():
    for word, stage in (("eagerly", lambda f: f), ("jitted", jax.jit)):
        try:
            got = stage(body(lambda x: x * x, make))(x)
            facts[f"{word}, a cotangent made by {name} gives the gradient"] = bool(np.array_equal(got, 4 * x))
        except Exception as error:
            facts[f"{word}, {name} makes a cotangent ({type(error).__name__}: {str(error)[:150]})"] = False
return facts
"""

MESH = 'mesh = Mesh(np.array(jax.devices()[:3]), ("i",))\n'
EXPLICIT = """mesh = jax.make_mesh((3,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,), devices=jax.devices()[:3])
"""

POLICY = """
from jax.ad_checkpoint import checkpoint_name

policies = jax.checkpoint_policies


def computed(word, policy, f=lambda x: jnp.sin(jnp.sin(x))):  # how often an operation stands in the gradient's program
    wrapped = jax.checkpoint(f) if policy is None else jax.checkpoint(f, policy=policy)
    return str(jax.make_jaxpr(jax.grad(lambda x: wrapped(x).sum()))(np.ones((2, 2), "float32"))).count(f" {word}")


def named(x):
    return jnp.sin(checkpoint_name(jnp.sin(x), "kept"))


def multiplied(x):
    return jnp.sin(jnp.sin(x @ x))


dot = "dot_general["
kept, dropped = policies.save_only_these_names("kept"), policies.save_only_these_names("others")
return {
    "without a policy what is needed is computed again": computed("sin ", None) > computed("sin ", policies.everything_saveable),
    "nothing_saveable is no policy": computed("sin ", policies.nothing_saveable) == computed("sin ", None),
    "everything_saveable computes nothing again": computed("sin ", policies.everything_saveable) == 2,
    "dots_saveable keeps products": computed(dot, policies.dots_saveable, multiplied) < computed(dot, None, multiplied),
    "and computes the rest again": computed("sin ", policies.dots_saveable, multiplied) == computed("sin ", None, multiplied),
    "a name that is kept": computed("sin ", kept, named) < computed("sin ", dropped, named),
    "a name that is not": computed("sin ", dropped, named) == computed("sin ", None, named),
}
"""

PROBES = {
    "shard_map_gradient": _shard_map("autodiff.shard_map", WRAPPERS),
    "shard_map_gradient_unchecked": _shard_map("autodiff.unchecked", WRAPPERS, ", check_vma=False"),
    "shard_map_gradient_spmd": _shard_map("autodiff.placed", WRAPPERS, placed=True),
    "shard_map_gradient_spmd_unchecked": _shard_map(
        "autodiff.placed", WRAPPERS, ", check_vma=False", placed=True
    ),
    "shard_map_gradient_custom": _shard_map("autodiff.custom", CUSTOM, custom=True),
    "scalar_gradient": _scalars("autodiff.scalar", HOST_WAYS),
    "scalar_gradient_sharded": _scalars("autodiff.sharded", MESH_WAYS, MESH, 3),
    "scalar_gradient_explicit": _scalars("autodiff.explicit", EXPLICIT_WAYS, EXPLICIT, 3, "0.7.2"),
    "checkpoint_policy": Probe("autodiff.policy", POLICY, "autodiff", imports=IMPORTS),
    "cotangent_like": Probe("autodiff.cotangent", COTANGENT, "autodiff", devices=3, imports=IMPORTS),
}
