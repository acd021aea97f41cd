"""Random numbers in axis contexts: the bits are those that the generator's definition gives, computed with NumPy."""

from __future__ import annotations

from harness.probes.base import Probe

IMPORTS = ("import jax.numpy as jnp", "import numpy as np", "from jax import lax")

THREEFRY = """
def threefry(key, high, low):  # 2 x 32 bits, 20 rounds, of two counters under a key of two words
    a, b = np.asarray(high, "uint32").copy(), np.asarray(low, "uint32").copy()
    keys = [np.uint32(key[0]), np.uint32(key[1])]
    keys.append(keys[0] ^ keys[1] ^ np.uint32(0x1BD11BDA))
    turns = [(13, 15, 26, 6), (17, 29, 16, 24)]
    a, b = a + keys[0], b + keys[1]
    for block in range(5):
        for turn in turns[block % 2]:
            a = a + b
            b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
        a, b = a + keys[(block + 1) % 3], b + keys[(block + 2) % 3] + np.uint32(block + 1)
    return a, b


def bits(key, shape):  # every number has the counter of its place
    count = np.arange(int(np.prod(shape)), dtype="uint32").reshape(shape)
    high, low = threefry(key, count * 0, count)
    return high ^ low


def fold(key, number):
    return np.stack(threefry(key, np.zeros((), "uint32"), np.uint32(number)))


def split(key, count):
    place = np.arange(count, dtype="uint32")
    return np.stack(threefry(key, place * 0, place), axis=-1)


def seed(number):
    return np.array([0, number], "uint32")


"""

FACTS = """
facts = {}


def holds(name, compute, want):
    try:
        got = compute()
        got = np.asarray(jax.random.key_data(got) if jnp.issubdtype(got.dtype, jax.dtypes.prng_key) else got)
    except Exception as error:
        facts[f"{name} can be drawn ({type(error).__name__}: {str(error)[:150]})"] = False
        return
    facts[f"{name} is the generator's"] = got.shape == np.shape(want) and bool(np.all(got == want))

"""

CONTEXTS = {
    "vmap": 'jax.vmap(f, axis_name="i")',
    "pmap": 'jax.pmap(f, axis_name="i")',
    "jit_pmap": 'jax.jit(jax.pmap(f, axis_name="i"))',
    "shard_map": 'jax.jit(jax.shard_map(lambda k: f(k[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i")))',
    "unchecked": 'jax.jit(jax.shard_map(lambda k: f(k[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False))',
    "eager_shard_map": 'jax.shard_map(lambda k: f(k[0])[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"))',
    "map": "lambda keys: lax.map(f, keys)",
}

BITS = (
    THREEFRY
    + FACTS
    + """
mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
words = split(seed(7), 4)  # the keys of four members
place = jnp.arange(4, dtype="uint32")


def over(f):
    return OVER


with jax.threefry_partitionable(True):
    for kind in ("typed", "raw"):
        data = jnp.asarray(words)
        keys = jax.random.wrap_key_data(data) if kind == "typed" else data
        make = jax.random.key if kind == "typed" else jax.random.PRNGKey
        rows = [(fold(w, k), k) for k, w in enumerate(words)]
        holds(f"bits, {kind}", lambda: over(lambda k: jax.random.bits(k, (3, 5)))(keys), np.stack([bits(w, (3, 5)) for w in words]))
        holds(f"a fold, {kind}", lambda: over(lambda k: jax.random.fold_in(k, 9))(keys), np.stack([fold(w, 9) for w in words]))
        holds(f"a split, {kind}", lambda: over(lambda k: jax.random.split(k, 3))(keys), np.stack([split(w, 3) for w in words]))
        uniform = np.stack([((bits(w, (6,)) >> np.uint32(9)) | np.uint32(0x3F800000)).view("float32") - 1 for w in words])
        holds(f"uniform numbers, {kind}", lambda: over(lambda k: jax.random.uniform(k, (6,)))(keys), uniform)
        closed = np.stack([bits(fold(seed(3), k), (4,)) for k in range(4)])
        holds(f"bits by place, {kind}", lambda: over(lambda k: jax.random.bits(jax.random.fold_in(make(3), k), (4,)))(place), closed)
        chained = np.stack([bits(split(fold(w, 1), 2)[1], (2,)) for w in words])
        holds(
            f"bits of a split of a fold, {kind}",
            lambda: over(lambda k: jax.random.bits(jax.random.split(jax.random.fold_in(k, 1))[1], (2,)))(keys),
            chained,
        )
        if NAMED:
            named = np.stack([bits(fold(w, k), (3,)) for k, w in enumerate(words)])
            holds(
                f"bits by axis_index, {kind}",
                lambda: over(lambda k: jax.random.bits(jax.random.fold_in(k, lax.axis_index("i")), (3,)))(keys),
                named,
            )
return facts
"""
)

SHARDED = (
    THREEFRY
    + FACTS
    + """
mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("i", "j"))
with jax.threefry_partitionable(True):
    key = jax.random.key(5)
    want = bits(seed(5), (8, 12))
    for spec in (P(), P("i"), P(None, "j"), P("j", "i"), P(("i", "j"))):
        sharded = NamedSharding(mesh, spec)
        holds(f"bits placed by {spec}", lambda: jax.jit(lambda k: jax.random.bits(k, (8, 12)), out_shardings=sharded)(key), want)
        draw = lambda k: lax.with_sharding_constraint(jax.random.bits(k, (8, 12)), sharded)
        holds(f"bits held to {spec}", lambda: jax.jit(draw)(key), want)
    keys = jax.device_put(jax.random.split(key, 8), NamedSharding(mesh, P(("j", "i"))))
    holds("keys split over devices", lambda: keys, split(seed(5), 8))
    each = np.stack([bits(w, (3,)) for w in split(seed(5), 8)])
    holds("bits of keys on devices", lambda: jax.jit(jax.vmap(lambda k: jax.random.bits(k, (3,))))(keys), each)
return facts
"""
)

KEYS = (
    THREEFRY
    + FACTS
    + """
mesh = Mesh(np.array(jax.devices()[:4]), ("i",))
words = split(seed(7), 4)
keys = jax.random.wrap_key_data(jnp.asarray(words))


def over(f):
    return OVER


rotate = [(k, (k + 1) % 4) for k in range(4)]
table = {
    "itself": (lambda k: k, words),
    "a broadcast": (lambda k: jnp.stack([k, k]), np.repeat(words[:, None], 2, 1)),
    "an index": (lambda k: jnp.stack([k, jax.random.wrap_key_data(jnp.asarray(words[2]))])[0], words),
    "a selection": (lambda k: jnp.where(jax.random.key_data(k)[0] > 0, k, k), words),
    "a branch": (lambda k: lax.cond(jax.random.key_data(k)[0] >= 0, lambda k: k, lambda k: k, k), words),
    "a carry": (lambda k: lax.scan(lambda c, _: (c, None), k, None, length=2)[0], words),
    "a loop's carry": (lambda k: lax.fori_loop(0, 2, lambda _, c: c, k), words),
    "a jitted key": (jax.jit(lambda k: k), words),
    "a checkpoint": (jax.checkpoint(lambda k: k), words),
    "its data": (lambda k: jax.random.key_data(k), words),
    "a key of its data": (lambda k: jax.random.wrap_key_data(jax.random.key_data(k) + np.uint32(1)), words + np.uint32(1)),
}
for name, (f, want) in table.items():
    holds(f"{name} under CONTEXT", lambda: over(f)(keys), want)
return facts
"""
)


def _random(rule: str, source: str, word: str) -> Probe:
    source = (
        source.replace("OVER", CONTEXTS[word]).replace("NAMED", str(word != "map")).replace("CONTEXT", word)
    )
    return Probe(rule, source, "random", devices=4, imports=IMPORTS)


PROBES = {
    **{f"random_bits_{word}": _random("random.bits", BITS, word) for word in CONTEXTS},
    **{f"typed_keys_{word}": _random("random.keys", KEYS, word) for word in CONTEXTS},
    "random_bits_sharded": Probe("random.bits", SHARDED, "random", devices=8, imports=IMPORTS),
}
