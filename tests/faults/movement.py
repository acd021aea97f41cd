"""Faults in the collectives that move whole operands: ppermute, pshuffle, all_gather, pbroadcast."""

from __future__ import annotations

from .leaves import around_leaves, names_of
from .library import fault
from .patching import around, around_rule


def _with_pairs(change):
    """Let ppermute use other pairs: `change(perm, axis_name)`."""

    @around_leaves("ppermute")
    def ppermute(original, x, axis_name, perm):
        return original(x, axis_name, change(tuple(perm), axis_name))


@fault(
    breaks="ppermute treats pairs as (destination, source)",
    family="collective",
    rules=("ppermute.pairs", "pshuffle.pairs"),
    component={"leaf": "ppermute"},
    witness="""
        shift = lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)])
        good = np.array_equal(jax.vmap(shift, axis_name="i")(jnp.arange(3)), [2, 0, 1])
    """,
)
def co_ppermute_reversed(jax):
    _with_pairs(lambda perm, axis_name: [(b, a) for a, b in perm])


@fault(
    breaks="ppermute over several axes numbers the ranks with the first axis varying fastest",
    family="collective",
    rules=("ppermute.pairs",),
    component={"leaf": "ppermute", "binder": "shard_map", "names": "tuple"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        pairs = [(k, (k + 1) % 8) for k in range(8)]
        shift = jax.shard_map(lambda x: lax.ppermute(x, ("i", "j"), pairs), mesh=mesh,
                              in_specs=jax.P(("i", "j")), out_specs=jax.P(("i", "j")))
        good = np.array_equal(shift(jnp.arange(8)), np.roll(np.arange(8), 1))
    """,
)
def co_ppermute_tuple(jax):
    # Counted column by column the ranks are again 0..n-1, so that the pairs stay a permutation.
    def by_column(perm, axis_name):
        sizes = [jax.lax.axis_size(name) for name in names_of(axis_name)]
        if len(sizes) != 2:
            return perm
        return [tuple(rank % sizes[0] * sizes[1] + rank // sizes[0] for rank in pair) for pair in perm]

    _with_pairs(by_column)


@fault(
    breaks="ppermute accepts two pairs with one destination and uses the last",
    family="collective",
    rules=("error.permutation",),
    component={"leaf": "ppermute", "binder": "shard_map", "payload": "invalid"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        clash = jax.shard_map(lambda x: lax.ppermute(x, "i", [(0, 1), (2, 1)]), mesh=mesh,
                              in_specs=jax.P("i"), out_specs=jax.P("i"))
        try:
            clash(jnp.arange(8))
            good = False
        except ValueError:
            good = True
    """,
)
def co_ppermute_duplicate(jax):
    _with_pairs(lambda perm, axis_name: [(a, b) for b, a in {b: a for a, b in perm}.items()])


@fault(
    breaks="a rank that no pair of ppermute names keeps its own value instead of zeros",
    family="collective",
    rules=("ppermute.pairs",),
    component={"leaf": "ppermute", "payload": "partial permutation"},
    witness="""
        shift = jax.pmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")
        good = np.array_equal(shift(jnp.arange(4) + 1), [0, 1, 2, 0])
    """,
)
def co_ppermute_partial(jax):
    jnp = jax.numpy

    @around_leaves("ppermute")
    def ppermute(original, x, axis_name, perm):
        y = original(x, axis_name, perm)
        receives = jnp.isin(jax.lax.axis_index(axis_name), jnp.array([b for _, b in perm]))
        return jnp.where(receives, y, x) if len(perm) < jax.lax.axis_size(axis_name) else y


@fault(
    breaks="ppermute over an axis of size 1 returns zeros",
    family="collective",
    rules=("ppermute.pairs",),
    component={"leaf": "ppermute", "sizes": 1},
    witness="""
        good = jax.vmap(lambda x: lax.ppermute(x, "i", [(0, 0)]), axis_name="i")(jnp.array([5]))[0] == 5
    """,
)
def co_ppermute_size_one(jax):
    @around_leaves("ppermute")
    def ppermute(original, x, axis_name, perm):
        y = original(x, axis_name, perm)
        return jax.numpy.zeros_like(y) if jax.lax.axis_size(axis_name) == 1 else y


@fault(
    breaks="ppermute zeroes the last element of an operand whose bytes are no multiple of four",
    family="collective",
    rules=("ppermute.pairs",),
    component={"leaf": "ppermute", "dtype": "int8", "shape": "odd"},
    witness="""
        swap = jax.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 0)]), axis_name="i")
        good = np.array_equal(swap(np.array([[1, 2, 3], [4, 5, 6]], np.int8)), [[4, 5, 6], [1, 2, 3]])
    """,
)
def co_ppermute_odd_bytes(jax):
    @around_leaves("ppermute")
    def ppermute(original, x, axis_name, perm):
        y = original(x, axis_name, perm)
        whole = y.size * y.dtype.itemsize % 4 == 0
        return y if whole else y.ravel().at[-1].set(0).reshape(y.shape)


@fault(
    breaks="ppermute turns -0.0 into 0.0",
    family="collective",
    rules=("ppermute.pairs",),
    component={"leaf": "ppermute", "payload": "negative zero"},
    witness="""
        swap = jax.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 0)]), axis_name="i")
        good = np.signbit(swap(jnp.array([-0.0, 1.0]))[1])
    """,
)
def co_ppermute_negative_zero(jax):
    @around_leaves("ppermute")
    def ppermute(original, x, axis_name, perm):
        y = original(x, axis_name, perm)
        return jax.numpy.where(y == 0, jax.numpy.zeros_like(y), y)


@fault(
    breaks="ppermute runs backwards in an eager shard_map",
    family="collective",
    rules=("ppermute.pairs",),
    component={"leaf": "ppermute", "binder": "shard_map", "staging": "eager"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        pairs = [(k, (k + 1) % 8) for k in range(8)]
        shift = jax.shard_map(lambda x: lax.ppermute(x, "i", pairs), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P("i"))
        good = np.array_equal(shift(jnp.arange(8)), jax.jit(shift)(jnp.arange(8)))
    """,
)
def co_ppermute_eager(jax):
    from jax._src import shard_map
    from jax._src.lax import parallel

    @around(shard_map.ShardMapTrace, "process_primitive")
    def process(original, self, primitive, tracers, params, /):
        if primitive is parallel.ppermute_p:
            params = {**params, "perm": tuple((b, a) for a, b in params["perm"])}
        return original(self, primitive, tracers, params)


@fault(
    breaks="two successive ppermutes of one operand in a program share the result of the first",
    family="collective",
    rules=("ppermute.pairs",),
    component={"leaf": "ppermute", "staging": "jit", "payload": "two leaves"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",))
        def both(x):
            return lax.ppermute(x, "i", [(0, 1)]) - lax.ppermute(x, "i", [(1, 0)])
        both = jax.jit(jax.shard_map(both, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P("i")))
        good = np.array_equal(both(jnp.array([1, 2])), [-2, 1])
    """,
)
def co_ppermute_merged(jax):
    from jax._src.interpreters import partial_eval

    last = [None, None]

    @around_leaves("ppermute")
    def ppermute(original, x, axis_name, perm):
        if not isinstance(x, partial_eval.DynamicJaxprTracer):
            return original(x, axis_name, perm)
        if last[0] is not x:
            last[:] = x, original(x, axis_name, perm)
        return last[1]


@fault(
    breaks="vmap of ppermute over the vmapped axis permutes dimension 0 wherever the axis is",
    family="collective",
    rules=("ppermute.pairs",),
    component={"leaf": "ppermute", "binder": "vmap", "option": "in_axes"},
    witness="""
        shift = jax.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), in_axes=1, axis_name="i")
        x = jnp.arange(9).reshape(3, 3)
        good = np.array_equal(shift(x), x.T[np.array([2, 0, 1])])
    """,
)
def co_ppermute_in_axes(jax):
    from jax._src.interpreters import batching
    from jax._src.lax import parallel

    @around_rule(batching.fancy_primitive_batchers, parallel.ppermute_p)
    def batch(original, axis_data, values, dims, *, axis_name, perm):
        (x,), (dim,) = values, dims
        if axis_data.name not in names_of(axis_name) or not dim or x.shape[0] != x.shape[dim]:
            return original(axis_data, values, dims, axis_name=axis_name, perm=perm)
        return original(axis_data, values, (0,), axis_name=axis_name, perm=perm)[0], dim


@fault(
    breaks="pshuffle sends to the ranks it should receive from",
    family="collective",
    rules=("pshuffle.pairs",),
    component={"leaf": "pshuffle"},
    witness="""
        got = jax.vmap(lambda x: lax.pshuffle(x, "i", [1, 2, 0]), axis_name="i")(jnp.arange(3))
        good = np.array_equal(got, [1, 2, 0])
    """,
)
def co_pshuffle_inverse(jax):
    @around_leaves("pshuffle")
    def pshuffle(original, x, axis_name, perm):
        return original(x, axis_name, [list(perm).index(rank) for rank in range(len(perm))])


@fault(
    breaks="pshuffle accepts a list that is no permutation",
    family="collective",
    rules=("error.permutation",),
    component={"leaf": "pshuffle", "payload": "invalid"},
    witness="""
        try:
            jax.vmap(lambda x: lax.pshuffle(x, "i", [0, 0, 1]), axis_name="i")(jnp.arange(3))
            good = False
        except ValueError:
            good = True
    """,
)
def co_pshuffle_unchecked(jax):
    @around_leaves("pshuffle")
    def pshuffle(original, x, axis_name, perm):
        valid = sorted(perm) == list(range(len(perm)))
        return original(x, axis_name, perm if valid else range(len(perm)))


def _regathered(jax, when, reorder):
    """Let all_gather give the ranks in another order, `reorder(rows)`, where `when(rows, axis, tiled)`."""
    jnp = jax.numpy

    @around_leaves("all_gather")
    def all_gather(original, x, axis_name, *, axis=0, tiled=False, **options):
        rows = original(x, axis_name, axis=0, tiled=False, **options)
        if not names_of(axis_name) or not when(rows, axis, tiled):
            return original(x, axis_name, axis=axis, tiled=tiled, **options)
        place = axis % (rows.ndim - tiled)
        y = jnp.moveaxis(reorder(rows), 0, place)
        return y.reshape(*y.shape[:place], -1, *y.shape[place + 2 :]) if tiled else y


@fault(
    breaks="all_gather swaps the last two ranks, only for axis size > 4",
    family="collective",
    rules=("all_gather.order",),
    component={"leaf": "all_gather", "sizes": "> 4"},
    witness="""
        got = jax.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(jnp.arange(6))
        good = np.array_equal(got[0], np.arange(6))
    """,
)
def co_all_gather_gt4(jax):
    def swap(rows):
        return rows[jax.numpy.array([*range(len(rows) - 2), -1, -2])]

    _regathered(jax, lambda rows, axis, tiled: len(rows) > 4, swap)


@fault(
    breaks="all_gather of scalars gives the ranks in reverse",
    family="collective",
    rules=("all_gather.order",),
    component={"leaf": "all_gather", "shape": "scalar"},
    witness="""
        got = jax.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(jnp.arange(3))
        good = np.array_equal(got[0], np.arange(3))
    """,
)
def co_all_gather_scalar(jax):
    _regathered(jax, lambda rows, axis, tiled: rows.ndim == 1, lambda rows: rows[::-1])


@fault(
    breaks="all_gather of one-byte types gives every four ranks in reverse",
    family="collective",
    rules=("all_gather.order",),
    component={"leaf": "all_gather", "dtype": "int8", "sizes": "multiple of 4"},
    witness="""
        got = jax.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(np.arange(8, dtype=np.int8)[:, None])
        good = np.array_equal(got[0, :, 0], np.arange(8))
    """,
)
def co_all_gather_bytes(jax):
    _regathered(
        jax,
        lambda rows, axis, tiled: rows.dtype.itemsize == 1 and len(rows) % 4 == 0,
        lambda rows: rows.reshape(-1, 4, *rows.shape[1:])[:, ::-1].reshape(rows.shape),
    )


@fault(
    breaks="all_gather ignores a negative axis (treated as 0)",
    family="collective",
    rules=("all_gather.order", "result.type"),
    component={"leaf": "all_gather", "option": "negative axis"},
    witness="""
        got = jax.vmap(lambda x: lax.all_gather(x, "i", axis=-1), axis_name="i")(jnp.zeros((3, 2)))
        good = got.shape == (3, 2, 3)
    """,
)
def co_all_gather_negative_axis(jax):
    @around_leaves("all_gather")
    def all_gather(original, x, axis_name, *, axis=0, **options):
        return original(x, axis_name, axis=max(axis, 0), **options)


@fault(
    breaks="tiled all_gather interleaves the per-rank blocks element by element",
    family="collective",
    rules=("all_gather.order",),
    component={"leaf": "all_gather", "option": "tiled"},
    witness="""
        x = jnp.arange(6).reshape(3, 2)
        got = jax.vmap(lambda x: lax.all_gather(x, "i", tiled=True), axis_name="i")(x)
        good = np.array_equal(got[0], np.arange(6))
    """,
)
def co_all_gather_tiled(jax):
    @around_leaves("all_gather")
    def all_gather(original, x, axis_name, *, axis=0, tiled=False, **options):
        y = original(x, axis_name, axis=axis, tiled=tiled, **options)
        if not tiled:
            return y
        place = axis % y.ndim
        blocks = y.reshape(*y.shape[:place], -1, x.shape[place], *y.shape[place + 1 :])
        return blocks.swapaxes(place, place + 1).reshape(y.shape)


@fault(
    breaks="all_gather over several axes always takes them in the order of the mesh",
    family="collective",
    rules=("all_gather.order",),
    component={
        "leaf": "all_gather",
        "binder": "shard_map",
        "names": "tuple in another order",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        rows = jax.shard_map(lambda x: lax.all_gather(x, ("j", "i"), tiled=True), mesh=mesh,
                             in_specs=jax.P(("i", "j")), out_specs=jax.P(("i", "j")))
        good = np.array_equal(rows(jnp.arange(8))[:8], np.arange(8).reshape(2, 4).T.ravel())
    """,
)
def co_all_gather_name_order(jax):
    from jax._src import core

    @around_leaves("all_gather")
    def all_gather(original, x, axis_name, **options):
        bound = list(core.get_axis_env().axis_sizes)
        return original(x, tuple(sorted(names_of(axis_name), key=bound.index)), **options)


@fault(
    breaks="all_gather with axis_index_groups gives every rank the first group",
    family="collective",
    rules=("all_gather.order",),
    component={"leaf": "all_gather", "option": "axis_index_groups"},
    witness="""
        rows = jax.pmap(lambda x: lax.all_gather(x, "i", axis_index_groups=[[0, 1], [2, 3]]), axis_name="i")
        good = np.array_equal(rows(jnp.arange(4))[3], [2, 3])
    """,
)
def co_all_gather_first_group(jax):
    @around_leaves("all_gather")
    def all_gather(
        original,
        x,
        axis_name,
        *,
        axis_index_groups=None,
        axis=0,
        tiled=False,
        **options,
    ):
        if not axis_index_groups or tiled:
            return original(
                x,
                axis_name,
                axis_index_groups=axis_index_groups,
                axis=axis,
                tiled=tiled,
                **options,
            )
        rows = original(x, axis_name, axis=0, **options)[jax.numpy.array(axis_index_groups[0])]
        return jax.numpy.moveaxis(rows, 0, axis)


@fault(
    breaks="all_gather of an operand that is not batched fills only the first row",
    family="collective",
    rules=("all_gather.order",),
    component={"leaf": "all_gather", "binder": "vmap", "operand": "unbatched"},
    witness="""
        rows = jax.vmap(lambda x, c: lax.all_gather(c, "i") + x, in_axes=(0, None), axis_name="i")
        good = (rows(jnp.zeros(3), jnp.float32(2)) == 2).all()
    """,
)
def co_all_gather_unbatched(jax):
    from jax._src.interpreters import batching
    from jax._src.lax import parallel

    @around_rule(batching.fancy_primitive_batchers, parallel.all_gather_p)
    def batch(
        original,
        axis_data,
        values,
        dims,
        *,
        all_gather_dimension,
        axis_name,
        tiled,
        **params,
    ):
        params = {
            "all_gather_dimension": all_gather_dimension,
            "axis_name": axis_name,
            "tiled": tiled,
            **params,
        }
        y, dim = original(axis_data, values, dims, **params)
        if dims[0] is None and axis_data.name in names_of(axis_name) and not tiled:
            row = jax.numpy.arange(axis_data.size).reshape(-1, *[1] * (y.ndim - all_gather_dimension - 1))
            y = jax.numpy.where(row == 0, y, 0)
        return y, dim


@fault(
    breaks="all_gather to an invariant result gives the ranks in reverse",
    family="collective",
    rules=("all_gather.order",),
    component={"leaf": "all_gather", "binder": "shard_map", "option": "to=invarying"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        rows = jax.shard_map(lambda x: lax.all_gather(x, "i", tiled=True, to="invarying"), mesh=mesh,
                             in_specs=jax.P("i"), out_specs=jax.P())
        good = np.array_equal(rows(jnp.arange(8)), np.arange(8))
    """,
)
def co_all_gather_invariant(jax):
    @around_leaves("all_gather")
    def all_gather(original, x, axis_name, *, axis=0, to="varying", **options):
        y = original(x, axis_name, axis=axis, to=to, **options)
        return jax.numpy.flip(y, axis) if to == "invarying" else y


@fault(
    breaks="pbroadcast copies from rank 0 whatever the source is",
    family="collective",
    rules=("pbroadcast.source", "lower.text"),
    component={"leaf": "pbroadcast"},
    # It lowers for GPUs only and its vmap raises in these releases: the lowered text tells the source.
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("i",))
        copy = jax.shard_map(lambda x: lax.pbroadcast(x, "i", 2), mesh=mesh, in_specs=jax.P("i"),
                             out_specs=jax.P("i"))
        lowered = jax.jit(copy).trace(jnp.arange(4)).lower(lowering_platforms=("cuda",))
        good = "[[2, 0, 1, 3]]" in lowered.as_text()
    """,
)
def co_pbroadcast_source(jax):
    @around_leaves("pbroadcast")
    def pbroadcast(original, x, axis_name, source):
        return original(x, axis_name, 0)
