"""The kinds of programs that JAX has got wrong, each as a law over many programs of its kind."""

from __future__ import annotations

from harness.probes.base import Probe

IMPORTS = ("import jax.numpy as jnp", "import numpy as np", "from jax import lax")

COLLECTIVES = """
rotate = [(k, (k + 1) % 4) for k in range(4)]
table = {  # what one member of the axis i, of four, does; what all four get, from their operands stacked
    "psum": (lambda x: lax.psum(x, "i"), lambda x: np.stack([x.sum(0)] * 4)),
    "pmax": (lambda x: lax.pmax(x, "i"), lambda x: np.stack([x.max(0)] * 4)),
    "pmin": (lambda x: lax.pmin(x, "i"), lambda x: np.stack([x.min(0)] * 4)),
    "pmean": (lambda x: lax.pmean(x, "i"), lambda x: np.stack([x.mean(0)] * 4)),
    "ppermute": (lambda x: lax.ppermute(x, "i", rotate), lambda x: np.roll(x, 1, 0)),
    "all_gather": (lambda x: lax.all_gather(x, "i"), lambda x: np.stack([x] * 4)),
    "all_gather tiled": (lambda x: lax.all_gather(x, "i", tiled=True), lambda x: np.stack([x.reshape(-1, *x.shape[2:])] * 4)),
    "all_to_all": (lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True), lambda x: np.swapaxes(x, 0, 1)),
    "psum_scatter": (lambda x: lax.psum_scatter(x, "i"), lambda x: x.sum(0)),
    "axis_index": (lambda x: x * 0 + lax.axis_index("i"), lambda x: x * 0 + np.arange(4, dtype="float32").reshape(4, 1, 1)),
    "size": (lambda x: x * 0 + lax.psum(1, "i"), lambda x: x * 0 + 4),
}
"""

HOLDS = """
facts = {}


def holds(name, compute, want):
    try:
        got = np.asarray(compute())
    except Exception as error:
        facts[f"{name} runs ({type(error).__name__}: {str(error)[:150]})"] = False
        return
    right = got.shape == np.shape(want) and bool(np.all(got == want))
    why = "" if right else f" (gave {got.shape} {got.ravel()[:8]}, should be {np.shape(want)} {np.ravel(want)[:8]})"
    facts[f"{name} is right{why}"] = right

"""

SHADOWED = (
    COLLECTIVES
    + HOLDS
    + """
mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
x = (np.arange(3 * 4 * 4 * 2) % 23 - 11.0).astype("float32").reshape(3, 4, 4, 2)  # lanes of the outer axis i, of the inner


def inner(f):  # f over an axis that is called i too
    BINDER


for name, (f, reference) in table.items():
    want = np.stack([reference(y) for y in x])
    holds(f"{name} under two axes of one name", lambda: jax.jit(jax.vmap(lambda x: inner(f)(x), axis_name="i"))(x), want)
    outer = jax.vmap(lambda x: inner(f)(x) + 0 * lax.psum(1, "i"), in_axes=1, axis_name="i")
    holds(f"{name}, mapped elsewhere", lambda: jax.jit(outer)(np.swapaxes(x, 0, 1)), want)
return facts
"""
)

SHARD = "lambda x: f(x[0])[None], mesh=mesh, in_specs=P('i'), out_specs=P('i')"
BINDERS = {
    "vmap": 'return jax.vmap(f, axis_name="i")',
    "shard_map": f"return jax.shard_map({SHARD})".replace("'", '"'),
    "shard_map_unchecked": f"return jax.shard_map({SHARD}, check_vma=False)".replace("'", '"'),
    "pmap": 'return jax.pmap(f, axis_name="i")',
}

CLOSED = (
    COLLECTIVES
    + HOLDS
    + """
mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
x = (np.arange(3 * 4 * 4 * 2) % 23 - 11.0).astype("float32").reshape(3, 4, 4, 2)
counts = np.arange(4, dtype="float32")


def inner(f):
    BINDER


for name in VALUE:
    f, reference = table[name]
    same = reference(np.stack([x[1, 2]] * 4))  # every member has the same operand
    holds(f"{name} of an array closed over", lambda: jax.jit(inner(lambda k: f(jnp.asarray(x[1, 2]))))(counts.reshape(4, 1, 1)), same)

    def lane(y):  # a lane of the outer vmap is closed over
        return inner(lambda k: f(y) * 1.0)(jnp.asarray(counts.reshape(4, 1, 1)))

    wanted = np.stack([reference(np.stack([y] * 4)) for y in x[:, 0]])
    holds(f"{name} of a mapped array closed over", lambda: jax.jit(jax.vmap(lane, in_axes=2))(np.moveaxis(x[:, 0], 0, 2)), wanted)
    mixed = np.stack([reference(x[2] + y) for y in x[:, 0]])
    holds(
        f"{name} of an argument beside one closed over",
        lambda: jax.jit(jax.vmap(lambda y: inner(lambda z: f(z + y))(jnp.asarray(x[2]))))(x[:, 0]),
        mixed,
    )
return facts
"""
)

NEGATIVE = (
    HOLDS
    + """
mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
x = np.arange(2 * 6 * 4 * 10, dtype="float32").reshape(2, 6, 4, 10)  # two members, all other dimensions differ


def over(f):
    return jax.jit(BINDER)


def scattered(x, dim, tiled):
    blocks = np.split(x.sum(0), 2, axis=dim)
    return np.stack([block if tiled else block[(slice(None),) * (dim % 3) + (0,)] for block in blocks])


def exchanged(x, split, concat):
    blocks = [np.split(y, 2, axis=split) for y in x]
    return np.stack([np.concatenate([blocks[source][k] for source in range(2)], axis=concat) for k in range(2)])


for name, call, want in VALUE(x, scattered, exchanged):
    holds(name, lambda: over(call)(x), want)
return facts
"""
)

NEGATIVE_VALUES = {
    "all_gather": """lambda x, scattered, exchanged: [
    (
        f"all_gather(axis={axis}, tiled={tiled})",
        lambda x, axis=axis, tiled=tiled: lax.all_gather(x, "i", axis=axis, tiled=tiled),
        np.stack([np.concatenate(list(x), axis) if tiled else np.stack(list(x), axis)] * 2),
    )
    for axis in (-3, -2, -1, 0, 1, 2)
    for tiled in (True, False)
]""",
    "psum_scatter": """lambda x, scattered, exchanged: [
    (
        f"psum_scatter(scatter_dimension={dim})",
        lambda x, dim=dim: lax.psum_scatter(x, "i", scatter_dimension=dim, tiled=True),
        scattered(x, dim, True),
    )
    for dim in (-3, -2, -1, 0, 1, 2)
]""",
    "psum_scatter_untiled": """lambda x, scattered, exchanged: [
    (
        f"psum_scatter(scatter_dimension={dim})",
        lambda x, dim=dim: lax.psum_scatter(x[:2, :2, :2], "i", scatter_dimension=dim),
        scattered(x[:, :2, :2, :2], dim, False),
    )
    for dim in (-3, -2, -1, 0, 1, 2)
]""",
    "all_to_all": """lambda x, scattered, exchanged: [
    (
        f"all_to_all({split}, {concat})",
        lambda x, split=split, concat=concat: lax.all_to_all(x, "i", split, concat, tiled=True),
        exchanged(x, split, concat),
    )
    for split in (-3, -2, -1, 0, 1, 2)
    for concat in (-3, -1, 0, 2)
    if min(split, concat) < 0
]""",
}

CAPTURED = (
    HOLDS
    + """
mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
x = np.arange(8, dtype="float32").reshape(4, 2) - 3
place = np.arange(4, dtype="float32")[:, None]
seen = {  # a number that a body closes over -> its value on each member
    "axis_index": (lambda x: lax.axis_index("i"), place),
    "size": (lambda x: lax.psum(1, "i"), 4 + 0 * place),
    "psum": (lambda x: lax.psum(x[0], "i"), x[:, :1].sum() + 0 * place),
}


def over(f):
    return jax.jit(BINDER)


for name, (query, value) in seen.items():

    def one(x):
        q = query(x)
        return lax.cond(x[1] > 0, lambda x: x * q, lambda x: x, x)

    def other(x):
        q = query(x)
        return lax.cond(x[1] > 0, lambda x: x, lambda x: x * q, x)

    def switched(x):
        q = query(x)
        return lax.switch(lax.axis_index("i") % 3, [lambda x: x, lambda x: x + q, lambda x: x * 2], x)

    def inside(x):
        return lax.cond(x[1] > 0, lambda x: x * (query(x) if name != "psum" else 1), lambda x: x, x)

    def looped(x):
        q = query(x)
        return lax.fori_loop(0, 3, lambda k, y: y + x * q, x)

    def scanned(x):
        q = query(x)
        return lax.scan(lambda c, y: (c + y * q, None), x * 0, jnp.stack([x, x]))[0]

    def whiled(x):
        q = query(x)
        return lax.while_loop(lambda s: s[1] < q, lambda s: (s[0] + x, s[1] + 2), (x, q * 0))[0]

    def saved(x):
        q = query(x)
        return jax.checkpoint(lambda x: x * q)(x)

    def nested(x):
        q = query(x)
        return jax.jit(lambda x: lax.cond(x[1] > 0, lambda x: jax.jit(lambda x: x + q)(x), lambda x: x, x))(x)

    positive = x[:, 1:] > 0
    holds(f"{name} in the first branch", lambda: over(one)(x), np.where(positive, x * value, x))
    holds(f"{name} in the other branch", lambda: over(other)(x), np.where(positive, x, x * value))
    kind = place % 3
    holds(f"{name} in one branch of three", lambda: over(switched)(x), np.where(kind == 0, x, np.where(kind == 1, x + value, x * 2)))
    if name != "psum":
        holds(f"{name} asked in one branch", lambda: over(inside)(x), np.where(positive, x * value, x))
    holds(f"{name} in a fori_loop", lambda: over(looped)(x), x + 3 * x * value)
    holds(f"{name} in a scan", lambda: over(scanned)(x), 2 * x * value)
    holds(f"{name} in a while_loop", lambda: over(whiled)(x), x * (1 + np.maximum(0, np.ceil(value / 2))))
    holds(f"{name} in a checkpoint", lambda: over(saved)(x), x * value)
    holds(f"{name} in a branch of a jit", lambda: over(nested)(x), np.where(positive, x + value, x))
return facts
"""
)

JOINED = (
    HOLDS
    + """
mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("i", "j"))
specs = [P(), P("i"), P("j"), P(None, "i"), P(None, "j"), P("i", "j"), P("j", "i"), P(("i", "j"))]
x = np.arange(64, dtype="float32").reshape(8, 8)
join, reference = VALUE
pairs = [(one, two) for k, one in enumerate(specs) for two in (P(), one, specs[k - 3])]
operands = [[jax.device_put(v, NamedSharding(mesh, s)) for v, s in zip((x, -x), pair)] for pair in pairs]
results = jax.jit(lambda operands: [join(a, b) for a, b in operands])(operands)
for (one, two), result in zip(pairs, results):
    holds(f"{one} with {two}", lambda: result, reference(x, -x))
return facts
"""
)

JOINED_VALUES = {
    "concatenate": "(lambda a, b: jnp.concatenate([a, b, a[:4]]), lambda a, b: np.concatenate([a, b, a[:4]]))",
    "columns": "(lambda a, b: jnp.concatenate([a, b], axis=1), lambda a, b: np.concatenate([a, b], axis=1))",
    "stack": "(lambda a, b: jnp.stack([a, b], axis=1), lambda a, b: np.stack([a, b], axis=1))",
    "roll": "(lambda a, b: jnp.roll(a, 3, axis=0) + jnp.roll(b, 1, axis=1), lambda a, b: np.roll(a, 3, axis=0) + np.roll(b, 1, axis=1))",
    "pad": "(lambda a, b: jnp.pad(a, ((1, 2), (0, 3))) + b[0, 0], lambda a, b: np.pad(a, ((1, 2), (0, 3))) + b[0, 0])",
    "matmul": "(lambda a, b: a @ b, lambda a, b: a @ b)",
    "update": "(lambda a, b: a.at[2:5].set(b[1:4]), lambda a, b: np.concatenate([a[:2], b[1:4], a[5:]]))",
    "gather": "(lambda a, b: a[jnp.argsort(b[:, 0])], lambda a, b: a[np.argsort(b[:, 0])])",
    "reshape": "(lambda a, b: jnp.concatenate([a.reshape(4, 16), b.reshape(4, 16)]), lambda a, b: np.concatenate([a.reshape(4, 16), b.reshape(4, 16)]))",
}

PARTIAL = (
    HOLDS
    + """
sizes, names = VALUE
count = int(np.prod(sizes))
mesh = Mesh(np.array(jax.devices()[:count]).reshape(sizes), ("i", "j", "k")[: len(sizes)])
n = sizes[0]
x = np.arange(n * 12, dtype="float32").reshape(n, 12) - 7
rest = [name for name in mesh.axis_names if name not in names]
operand = jax.device_put(x, NamedSharding(mesh, P("i", tuple(rest) or None)))
rotate = [(k, (k + 1) % n) for k in range(n)]
table = {
    "no collective": (lambda x: x * 2, 2 * x),
    "psum": (lambda x: x + lax.psum(x, "i"), x + x.sum(0)),
    "pmax": (lambda x: x + lax.pmax(x, "i"), x + x.max(0)),
    "axis_index": (lambda x: x + lax.axis_index("i"), x + np.arange(n)[:, None]),
    "all_gather": (lambda x: x + lax.all_gather(x, "i", tiled=True).sum(0), x + x.sum(0)),
    "ppermute": (lambda x: lax.ppermute(x, "i", rotate), np.roll(x, 1, 0)),
    "all of them": (
        lambda x: lax.ppermute(lax.psum(x, "i") * lax.axis_index("i"), "i", rotate),
        np.roll(x.sum(0) * np.arange(n)[:, None], 1, 0),
    ),
    "scan": (lambda x: lax.scan(lambda c, _: (c + lax.psum(x, "i"), None), x, None, length=2)[0], x + 2 * x.sum(0)),
    "matmul": (lambda x: x @ (jnp.eye(12) * 2), 2 * x),
    "cond": (lambda x: lax.cond(lax.psum(x, "i")[0, 0] > -99, lambda x: x * 2, lambda x: x, x), 2 * x),
    "reduction": (lambda x: x - x.sum(1, keepdims=True), x - x.sum(1, keepdims=True)),
}
for name, (f, want) in table.items():
    if name not in SKIPPED:
        mapped = jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names=set(names))
        holds(f"{name} over i alone", lambda: jax.jit(mapped)(operand), want)
        batched = jax.vmap(mapped, in_axes=1, out_axes=1)
        both = np.stack([x, x], 1)
        holds(f"{name} under vmap", lambda: jax.jit(batched)(both), np.stack([want, want], 1))
return facts
"""
)

PARTIAL_VALUES = {
    "two_of_two": '((2, 4), ("i", "j"))',
    "one_of_two": '((2, 4), ("i",))',
    "of_size_one": '((1, 4), ("i",))',
    "beside_size_one": '((4, 1), ("i",))',
    "one_of_three": '((2, 2, 2), ("i",))',
    "two_of_three": '((2, 2, 2), ("i", "k"))',
    "of_three": '((3, 2), ("i",))',
}

REPEATED = (
    HOLDS
    + """
mesh = Mesh(np.array(jax.devices()[:6]).reshape(3, 2), ("i", "j"))
x = np.arange(36, dtype="float32").reshape(6, 6) % 7 - 3
blocks = x.reshape(3, 2, 1, 6)
total, top, low = blocks.sum(0), blocks.max(0), blocks.min(0)  # over i, the blocks along j still apart
table = {  # of a shard -> what every shard gets, or what j's shards get
    "psum twice": (lambda x: lax.psum(lax.psum(x, "i"), "i"), 3 * total),
    "psum over one, then the other": (lambda x: lax.psum(lax.psum(x, "i"), "j"), np.stack([total.sum(0)] * 2)),
    "psum over both": (lambda x: lax.psum(x, ("j", "i")), np.stack([total.sum(0)] * 2)),
    "pmax of psum": (lambda x: lax.pmax(lax.psum(x, "i"), "i"), total),
    "psum of pmax": (lambda x: lax.psum(lax.pmax(x, "i"), "i"), 3 * top),
    "pmin of pmin": (lambda x: lax.pmin(lax.pmin(x, "i"), "i"), low),
    "pmax": (lambda x: lax.pmax(x, "i"), top),
    "pmean of psum": (lambda x: lax.pmean(lax.psum(x, "i"), "i"), total),
    "psum of a constant array": (lambda x: lax.psum(x, "i") + lax.psum(jnp.ones(6), "i"), total + 3),
    "operation on a psum": (lambda x: jnp.cumsum(lax.psum(x, "i"), axis=1), np.cumsum(total, axis=2)),
    "sort of a psum": (lambda x: jnp.sort(lax.psum(x, "i"), axis=1), np.sort(total, axis=2)),
    "insertion in a psum": (lambda x: jnp.insert(lax.psum(x, "i"), 2, 9, axis=1), np.insert(total, 2, 9, axis=2)),
    "repetition of a pmax": (lambda x: jnp.repeat(lax.pmax(x, "i"), 2, axis=1), np.repeat(top, 2, axis=2)),
    "scan over a psum": (lambda x: lax.scan(lambda c, y: (c + y, c), lax.psum(x[0] * 0, "i"), lax.psum(x, "i"))[1], np.cumsum(total, axis=1) - total),
    "while with a psum": (lambda x: lax.while_loop(lambda s: s[1] < 2, lambda s: (s[0] + lax.psum(x, "i"), s[1] + 1), (lax.psum(x, "i"), 0))[0], 3 * total),
    "cond on a psum": (lambda x: lax.cond(lax.psum(x[0, 0], ("i", "j")) > -99, lambda y: y * 2, lambda y: y, lax.psum(x, "i")), 2 * total),
}


def program(f, jit):
    mapped = jax.shard_map(f, mesh=mesh, in_specs=P(("i", "j")), out_specs=P("j")CHECK)
    return jax.jit(mapped) if jit else mapped


for name in VALUE:
    f, want = table[name]
    want = want.reshape(-1, want.shape[-1])
    holds(f"{name}, jitted", lambda: program(f, True)(x), want)
    EAGER
return facts
"""
)

NESTED = (
    HOLDS
    + """
x = np.arange(8, dtype="float32")
two, three = x.reshape(2, 4), x.reshape(2, 2, 2)
for name, axes in {"rows": "i", "columns": "j", "both": ("i", "j")}.items():
    f = jax.pmap(jax.pmap(lambda x: lax.psum(x, axes), axis_name="j"), axis_name="i")
    want = two.sum(tuple("ij".index(axis) for axis in axes), keepdims=True) + 0 * two
    holds(f"psum over {name}", lambda: f(two), want)
f = jax.pmap(jax.pmap(jax.pmap(lambda x: lax.psum(x, ("i", "k")), axis_name="k"), axis_name="j"), axis_name="i")
holds("psum over two of three", lambda: f(three), three.sum((0, 2), keepdims=True) + 0 * three)
return facts
"""
)

EXPLICIT = (
    COLLECTIVES
    + HOLDS
    + """
explicit = jax.sharding.AxisType.Explicit
mesh = jax.make_mesh((2, 4), ("j", "i"), axis_types=(explicit, explicit), devices=jax.devices()[:8])
x = (np.arange(2 * 4 * 4 * 2) % 23 - 11.0).astype("float32").reshape(2, 4, 4, 2)
one = jax.device_put(x[0], NamedSharding(mesh, P("i")))
lanes = jax.device_put(x, NamedSharding(mesh, P(None, "i")))
split = jax.device_put(x, NamedSharding(mesh, P("j", "i")))
for name in VALUE:
    f, reference = table[name]
    mapped = jax.shard_map(lambda x: f(x[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    holds(f"{name}, STAGED", lambda: STAGE(mapped)(one), reference(x[0]))
    want = np.stack([reference(y) for y in x])
    manual = jax.shard_map(lambda x: f(x[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names={"i"})
    holds(f"{name} under vmap, STAGED", lambda: STAGE(jax.vmap(mapped))(lanes), want)
    holds(f"{name} under vmap over j, STAGED", lambda: STAGE(jax.vmap(manual))(split), want)
return facts
"""
)

BRANCHES = (
    HOLDS
    + """
explicit = jax.sharding.AxisType.Explicit
mesh = jax.make_mesh((2, 4), ("i", "j"), axis_types=(explicit, explicit), devices=jax.devices()[:8])
x = np.arange(64, dtype="float32").reshape(8, 8)
which = np.arange(8, dtype="int32") % 3
branches = [lambda x: x + 1, lambda x: x * 2, lambda x: -x]
want = np.stack([[y + 1, y * 2, -y][k] for y, k in zip(x, which)])
rows, flags = VALUE
data, index = jax.device_put(x, NamedSharding(mesh, rows)), jax.device_put(which, NamedSharding(mesh, flags))
enter = jax.set_mesh if hasattr(jax, "set_mesh") else jax.sharding.use_mesh
for word, stage in (("eagerly", lambda f: f), ("jitted", jax.jit)):
    switched = lambda k, x: lax.switch(k, branches, x)
    holds(f"switch of {rows} by {flags}, {word}", lambda: stage(jax.vmap(switched))(index, data), want)
    some = lambda k, x: lax.switch(k, [branches[0], lambda x: jnp.zeros(x.shape, x.dtype), branches[2]], x)  # of no sharding
    with enter(mesh):
        holds(f"switch to a constant of {rows} by {flags}, {word}", lambda: stage(jax.vmap(some))(index, data), want * (which != 1)[:, None])
    chosen = lambda k, x: lax.cond(k == 0, branches[0], branches[2], x)
    holds(f"cond of {rows} by {flags}, {word}", lambda: stage(jax.vmap(chosen))(index, data), np.where(which[:, None] == 0, x + 1, -x))
    selected = lambda k, x: jnp.where(k == 0, x + 1, -x)
    holds(f"where of {rows} by {flags}, {word}", lambda: stage(jax.vmap(selected))(index, data), np.where(which[:, None] == 0, x + 1, -x))
return facts
"""
)

EAGER = (
    HOLDS
    + """
mesh = Mesh(np.array(jax.devices()[:3]), ("i",))
x = np.arange(6, dtype="float32") - 2


@jax.custom_jvp
def double(x):
    return 2 * x


double.defjvp(lambda primals, tangents: (double(*primals), 2 * tangents[0]))


@jax.custom_vjp
def triple(x):
    return 3 * x


triple.defvjp(lambda x: (3 * x, None), lambda _, y: (3 * y,))
table = {
    "custom_jvp": (double, 2 * x),
    "custom_vjp": (triple, 3 * x),
    "jit of custom_jvp": (jax.jit(double), 2 * x),
    "jit of custom_vjp": (jax.jit(triple), 3 * x),
    "jit of jit of custom_jvp": (jax.jit(lambda x: jax.jit(double)(x) + 1), 2 * x + 1),
    "checkpoint": (jax.checkpoint(double), 2 * x),
    "axis_index": (lambda x: x + lax.axis_index("i"), x + np.repeat(np.arange(3), 2)),
    "jit of axis_index": (jax.jit(lambda x: x + lax.axis_index("i")), x + np.repeat(np.arange(3), 2)),
    "loop over axis_index": (lambda x: lax.fori_loop(0, lax.axis_index("i"), lambda _, y: y + 1, x), x + np.repeat(np.arange(3), 2)),
    "cond on axis_index": (lambda x: lax.cond(lax.axis_index("i") == 1, lambda x: -x, lambda x: x, x), np.where(np.repeat(np.arange(3), 2) == 1, -x, x)),
    "gradient": (lambda x: jax.grad(lambda x: (double(x) * x).sum())(x), 4 * x),
    "vmap": (lambda x: jax.vmap(lambda y: double(y) + lax.psum(1, "i"))(x), 2 * x + 3),
    "relu": (jax.nn.relu, np.maximum(x, 0)),
    "insertion": (lambda x: jnp.insert(x, 1, 9), np.insert(x.reshape(3, 2), 1, 9, axis=1).ravel()),
    "Python number": (lambda x: x * float(lax.psum(2, "i")), 6 * x),
}
for name in VALUE:
    f, want = table[name]
    mapped = jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i")CHECK)
    holds(f"{name}, eagerly", lambda: mapped(jnp.asarray(x)), want)
    holds(f"{name}, jitted", lambda: jax.jit(mapped)(x), want)
    if name in ("jit of custom_jvp", "custom_vjp", "axis_index"):
        holds(f"{name}, vmapped", lambda: jax.vmap(mapped)(jnp.stack([x, x])), np.stack([want, want]))
return facts
"""
)


EAGER_VALUES = {
    "custom": '("custom_jvp", "custom_vjp", "jit of custom_jvp", "jit of custom_vjp", "jit of jit of custom_jvp")',
    "queries": '("axis_index", "jit of axis_index", "loop over axis_index", "cond on axis_index", "Python number")',
    "others": '("checkpoint", "gradient", "vmap", "relu", "insertion")',
}

BRANCHES_VALUES = {
    "whole": "(P(), P())",
    "lanes": '(P("i"), P("i"))',
    "lanes_twice": '(P(("i", "j")), P(("i", "j")))',
    "columns": '(P(None, "j"), P())',
    "both": '(P("i", "j"), P("i"))',
}

REPEATED_VALUES = {
    "reductions": '("psum twice", "pmax of psum", "psum of pmax", "pmin of pmin", "pmax", "pmean of psum")',
    "names": '("psum over one, then the other", "psum over both", "psum of a constant array")',
    "operations": '("operation on a psum", "sort of a psum", "insertion in a psum", "repetition of a pmax")',
    "control": '("scan over a psum", "while with a psum", "cond on a psum")',
}

CLOSED_VALUES = {
    "reductions": '("psum", "pmax", "pmin", "pmean", "size")',
    "movement": '("ppermute", "all_gather", "all_gather tiled", "axis_index")',
    "all_to_all": '("all_to_all",)',
    "psum_scatter": '("psum_scatter",)',
}


def _history(
    rule: str,
    source: str,
    devices: int = 4,
    since: str = "",
    values: dict[str, str] | None = None,
    **replace: str,
) -> Probe:
    for word, text in replace.items():
        source = source.replace(word, text)
    imports = (
        *IMPORTS,
        *(("from jax.sharding import PartitionSpec as P",) if values is BRANCHES_VALUES else ()),
    )
    return Probe(rule, source, "history", values or {}, devices, since, imports)


def _over(binder: str) -> str:
    """Source of `f` over members that the first dimension numbers."""
    return {
        "vmap": 'jax.vmap(f, axis_name="i")',
        "pmap": 'jax.pmap(f, axis_name="i")',
        "shard_map": 'jax.shard_map(lambda x: f(x[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"))',
        "unchecked": 'jax.shard_map(lambda x: f(x[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)',
    }[binder]


PROBES = {
    **{
        f"shadowed_{word}": _history("history.shadowed", SHADOWED, BINDER=source)
        for word, source in BINDERS.items()
    },
    **{
        f"closed_over_{word}": _history("history.closed", CLOSED, values=CLOSED_VALUES, BINDER=source)
        for word, source in BINDERS.items()
    },
    **{
        f"negative_axes_{word}": _history(
            "history.negative", NEGATIVE, 2, values=NEGATIVE_VALUES, BINDER=_over(word)
        )
        for word in ("vmap", "pmap", "shard_map", "unchecked")
    },
    **{
        f"captured_{word}": _history("history.captured", CAPTURED, BINDER=_over(word))
        for word in ("vmap", "pmap", "shard_map", "unchecked")
    },
    "joined": _history("history.joined", JOINED, 8, values=JOINED_VALUES),
    "partial_manual": _history("history.partial", PARTIAL, 8, "0.6.2", PARTIAL_VALUES, SKIPPED="()"),
    "reduced_again": _history(
        "history.reduced",
        REPEATED,
        6,
        values=REPEATED_VALUES,
        CHECK="",
        EAGER='holds(f"{name}, eagerly", lambda: program(f, False)(jnp.asarray(x)), want)',
    ),
    "reduced_again_unchecked": _history(
        "history.reduced", REPEATED, 6, values=REPEATED_VALUES, CHECK=", check_vma=False", EAGER=""
    ),
    "pmap_nested": _history("history.nested", NESTED, 8),
    "explicit_shard_map": _history(
        "history.explicit", EXPLICIT, 8, "0.6.2", CLOSED_VALUES, STAGED="jitted", STAGE="jax.jit"
    ),
    "explicit_shard_map_eager": _history(
        "history.explicit", EXPLICIT, 8, "0.6.2", CLOSED_VALUES, STAGED="eagerly", STAGE=""
    ),
    "explicit_branches": _history("history.branches", BRANCHES, 8, "0.6.2", BRANCHES_VALUES),
    "eager_shard_map": _history("history.eager", EAGER, 3, values=EAGER_VALUES, CHECK=""),
    "eager_shard_map_unchecked": _history(
        "history.eager", EAGER, 3, values=EAGER_VALUES, CHECK=", check_vma=False"
    ),
}
