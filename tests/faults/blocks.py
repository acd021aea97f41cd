"""Faults in the collectives that cut operands into blocks: all_to_all, psum_scatter, and the ragged one."""

from __future__ import annotations

from .leaves import around_leaves, names_of
from .library import fault
from .patching import around, around_lowering, around_rule


def _with_result(change):
    """Pass the result of all_to_all through `change(y, size, split, concat, tiled)`; axes count from 0."""
    import jax

    @around_leaves("all_to_all")
    def all_to_all(original, x, axis_name, split_axis, concat_axis, *, tiled=False, **options):
        y = original(x, axis_name, split_axis, concat_axis, tiled=tiled, **options)
        groups = options.get("axis_index_groups")
        size = len(groups[0]) if groups else jax.lax.axis_size(axis_name)
        return change(y, size, split_axis % x.ndim, concat_axis % x.ndim, tiled)


@fault(
    breaks="all_to_all puts the received axis one position early when it splits an earlier axis",
    family="collective",
    rules=("all_to_all.blocks", "result.type"),
    component={"leaf": "all_to_all", "option": "split < concat"},
    witness="""
        x = jnp.arange(12).reshape(2, 2, 3)
        got = jax.vmap(lambda x: lax.all_to_all(x, "i", 0, 1), axis_name="i")(x)
        good = np.array_equal(got, x.transpose(1, 2, 0))
    """,
)
def co_all_to_all_forward(jax):
    def early(y, size, split, concat, tiled):
        return jax.numpy.moveaxis(y, concat, concat - 1) if split < concat and not tiled else y

    _with_result(early)


@fault(
    breaks="all_to_all stacks the ranks in reverse when it splits a later axis",
    family="collective",
    rules=("all_to_all.blocks",),
    component={"leaf": "all_to_all", "option": "split > concat"},
    witness="""
        x = jnp.arange(12).reshape(2, 3, 2)
        got = jax.vmap(lambda x: lax.all_to_all(x, "i", 1, 0), axis_name="i")(x)
        good = np.array_equal(got, x.transpose(2, 0, 1))
    """,
)
def co_all_to_all_backward(jax):
    def reverse(y, size, split, concat, tiled):
        return jax.numpy.flip(y, concat) if split > concat and not tiled else y

    _with_result(reverse)


@fault(
    breaks="tiled all_to_all interleaves the blocks it received",
    family="collective",
    rules=("all_to_all.blocks",),
    component={"leaf": "all_to_all", "option": "tiled"},
    witness="""
        x = jnp.arange(8).reshape(2, 4)
        got = jax.vmap(lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True), axis_name="i")(x)
        good = np.array_equal(got, [[0, 1, 4, 5], [2, 3, 6, 7]])
    """,
)
def co_all_to_all_tiled(jax):
    def interleave(y, size, split, concat, tiled):
        if not tiled:
            return y
        blocks = y.reshape(*y.shape[:concat], size, -1, *y.shape[concat + 1 :])
        return blocks.swapaxes(concat, concat + 1).reshape(y.shape)

    _with_result(interleave)


@fault(
    breaks="all_to_all over an axis of size 2 swaps the two ranks",
    family="collective",
    rules=("all_to_all.blocks", "pswapaxes.swap"),
    component={"leaf": "all_to_all", "sizes": 2},
    witness="""
        x = jnp.arange(4).reshape(2, 2)
        got = jax.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")(x)
        good = np.array_equal(got, x.T)
    """,
)
def co_all_to_all_size_two(jax):
    def swap(y, size, split, concat, tiled):
        return jax.numpy.flip(y, concat) if size == 2 and not tiled else y

    _with_result(swap)


@fault(
    breaks="vmap of all_to_all with equal split and concat axes returns its operand",
    family="collective",
    rules=("all_to_all.blocks", "pswapaxes.swap"),
    component={"leaf": "all_to_all", "binder": "vmap", "option": "split == concat"},
    witness="""
        x = jnp.arange(9).reshape(3, 3)
        got = jax.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")(x)
        good = np.array_equal(got, x.T)
    """,
)
def co_all_to_all_vmap(jax):
    from jax._src.interpreters import batching
    from jax._src.lax import parallel

    @around_rule(batching.fancy_primitive_batchers, parallel.all_to_all_p)
    def batch(
        original,
        axis_data,
        values,
        dims,
        *,
        axis_name,
        split_axis,
        concat_axis,
        **params,
    ):
        own = axis_data.name in names_of(axis_name) and dims[0] is not None
        if own and split_axis == concat_axis:
            return values[0], dims[0]
        return original(
            axis_data,
            values,
            dims,
            axis_name=axis_name,
            split_axis=split_axis,
            concat_axis=concat_axis,
            **params,
        )


@fault(
    breaks="all_to_all over several axes takes the ranks in the order of the mesh, not of the names",
    family="collective",
    rules=("all_to_all.blocks",),
    component={
        "leaf": "all_to_all",
        "binder": "shard_map",
        "names": "tuple in another order",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        swap = jax.shard_map(lambda x: lax.all_to_all(x, ("j", "i"), 1, 0, tiled=True), mesh=mesh,
                             in_specs=jax.P(("j", "i")), out_specs=jax.P(None, ("j", "i")))
        x = jnp.arange(64).reshape(8, 8)
        good = np.array_equal(swap(x), x)
    """,
)
def co_all_to_all_name_order(jax):
    from jax._src import core

    @around_leaves("all_to_all")
    def all_to_all(original, x, axis_name, *args, **options):
        bound = list(core.get_axis_env().axis_sizes)
        return original(x, tuple(sorted(names_of(axis_name), key=bound.index)), *args, **options)


@fault(
    breaks="all_to_all accepts a split axis longer than the mapped axis and drops the rest",
    family="collective",
    rules=("error.shape",),
    component={"leaf": "all_to_all", "shape": "invalid"},
    witness="""
        try:
            jax.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")(jnp.zeros((2, 3)))
            good = False
        except ValueError:
            good = True
    """,
)
def co_all_to_all_unchecked(jax):
    @around_leaves("all_to_all")
    def all_to_all(original, x, axis_name, split_axis, concat_axis, *, tiled=False, **options):
        if not tiled and not options.get("axis_index_groups"):
            split = split_axis % x.ndim
            x = jax.lax.slice_in_dim(x, 0, min(x.shape[split], jax.lax.axis_size(axis_name)), axis=split)
        return original(x, axis_name, split_axis, concat_axis, tiled=tiled, **options)


@fault(
    breaks="pswapaxes always swaps with axis 0",
    family="collective",
    rules=("pswapaxes.swap",),
    component={"leaf": "pswapaxes", "option": "axis"},
    witness="""
        x = jnp.arange(8).reshape(2, 2, 2)
        got = jax.vmap(lambda x: lax.pswapaxes(x, "i", 1), axis_name="i")(x)
        good = np.array_equal(got, x.transpose(2, 1, 0))
    """,
)
def co_pswapaxes_axis(jax):
    @around_leaves("pswapaxes")
    def pswapaxes(original, x, axis_name, axis, **options):
        square = x.shape[0] == x.shape[axis]
        return original(x, axis_name, 0 if square else axis, **options)


def _with_operand(change):
    """Pass the operand of psum_scatter through `change(x, size, dimension, tiled)` first."""
    import jax

    @around_leaves("psum_scatter")
    def psum_scatter(original, x, axis_name, *, scatter_dimension=0, tiled=False, **options):
        groups = options.get("axis_index_groups")
        size = len(groups[0]) if groups else jax.lax.axis_size(axis_name)
        x = change(x, size, scatter_dimension % x.ndim, tiled)
        return original(x, axis_name, scatter_dimension=scatter_dimension, tiled=tiled, **options)


@fault(
    breaks="psum_scatter over three or more ranks gives rank k the block of rank k + 1",
    family="collective",
    rules=("psum_scatter.blocks",),
    component={"leaf": "psum_scatter", "sizes": "> 2"},
    witness="""
        got = jax.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(jnp.tile(jnp.arange(3), (3, 1)))
        good = np.array_equal(got, [0, 3, 6])
    """,
)
def co_psum_scatter_offset(jax):
    def next_block(x, size, dimension, tiled):
        return jax.numpy.roll(x, -(x.shape[dimension] // size), dimension) if size > 2 else x

    _with_operand(next_block)


@fault(
    breaks="tiled psum_scatter deals the elements out one by one instead of in blocks",
    family="collective",
    rules=("psum_scatter.blocks",),
    component={"leaf": "psum_scatter", "option": "tiled"},
    witness="""
        x = jnp.tile(jnp.arange(4), (2, 1))
        got = jax.vmap(lambda x: lax.psum_scatter(x, "i", tiled=True), axis_name="i")(x)
        good = np.array_equal(got, [[0, 2], [4, 6]])
    """,
)
def co_psum_scatter_tiled(jax):
    def deal(x, size, dimension, tiled):
        if not tiled or x.shape[dimension] % size:
            return x
        hands = x.reshape(*x.shape[:dimension], -1, size, *x.shape[dimension + 1 :])
        return hands.swapaxes(dimension, dimension + 1).reshape(x.shape)

    _with_operand(deal)


@fault(
    breaks="psum_scatter of a square matrix always scatters dimension 0",
    family="collective",
    rules=("psum_scatter.blocks",),
    component={
        "leaf": "psum_scatter",
        "option": "scatter_dimension",
        "shape": "square",
    },
    witness="""
        x = jnp.tile(jnp.arange(4).reshape(2, 2), (2, 1, 1))
        got = jax.vmap(lambda x: lax.psum_scatter(x, "i", scatter_dimension=1), axis_name="i")(x)
        good = np.array_equal(got, [[0, 4], [2, 6]])
    """,
)
def co_psum_scatter_dimension(jax):
    def transpose(x, size, dimension, tiled):
        return x.T if x.ndim == 2 and dimension == 1 and x.shape[0] == x.shape[1] else x

    _with_operand(transpose)


@fault(
    breaks="psum_scatter accepts a dimension that its ranks do not divide and drops the rest",
    family="collective",
    rules=("error.shape",),
    component={"leaf": "psum_scatter", "shape": "invalid", "option": "tiled"},
    witness="""
        scatter = jax.pmap(lambda x: lax.psum_scatter(x, "i", tiled=True), axis_name="i")
        try:
            scatter(jnp.zeros((2, 5)))
            good = False
        except ValueError:
            good = True
    """,
)
def co_psum_scatter_unchecked(jax):
    def trim(x, size, dimension, tiled):
        whole = x.shape[dimension] // size * size
        return jax.lax.slice_in_dim(x, 0, whole, axis=dimension) if tiled else x

    _with_operand(trim)


@fault(
    breaks="psum_scatter of an operand that is not batched forgets to multiply by the axis size",
    family="collective",
    rules=("psum_scatter.blocks",),
    component={"leaf": "psum_scatter", "binder": "vmap", "operand": "unbatched"},
    witness="""
        rows = jax.vmap(lambda x, c: lax.psum_scatter(c, "i") + x, in_axes=(0, None), axis_name="i")
        good = np.array_equal(rows(jnp.zeros(3), jnp.arange(3.0)), [0, 3, 6])
    """,
)
def co_psum_scatter_unbatched(jax):
    from jax._src.interpreters import batching
    from jax._src.lax import parallel

    @around_rule(batching.fancy_primitive_batchers, parallel.reduce_scatter_p)
    def batch(original, axis_data, values, dims, *, axis_name, **params):
        y, dim = original(axis_data, values, dims, axis_name=axis_name, **params)
        own = axis_data.name in names_of(axis_name)
        return y // axis_data.size if own and dims[0] is None else y, dim


@fault(
    breaks="ragged_all_to_all over one axis of a mesh communicates among all its devices",
    family="collective",
    rules=("ragged_all_to_all.blocks", "lower.text"),
    component={"leaf": "ragged_all_to_all", "binder": "shard_map"},
    # The CPU backend does not implement it: the lowered text tells the groups.
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("i", "j"))
        def send(x, y, k):
            return lax.ragged_all_to_all(x, y, k, k, k, k, axis_name="i")
        spec = jax.P(("i", "j"))
        send = jax.shard_map(send, mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec)
        lowered = jax.jit(send).lower(jnp.zeros(8), jnp.zeros(8), jnp.zeros(8, int))
        good = "[[0, 2], [1, 3]]" in lowered.as_text()
    """,
)
def co_ragged_all_to_all_groups(jax):
    from jax._src.lax import parallel

    @around_lowering(parallel.ragged_all_to_all_p)
    def lower(original, ctx, *operands, axis_name, **params):
        everyone = ctx.module_context.axis_context.mesh.axis_names
        return original(ctx, *operands, axis_name=everyone, **params)


@fault(
    breaks="jax.random.fold_in under a named axis uses the low two bits of traced data, so ranks share keys",
    family="collective",
    rules=("random.keyed",),
    component={"leaf": "random", "sizes": "> 4"},
    witness="""
        def draw(key):
            return jax.random.bits(jax.random.fold_in(key, lax.axis_index("i")))
        draw = jax.vmap(draw, in_axes=None, axis_name="i", axis_size=6)
        good = len(set(np.asarray(draw(jax.random.key(0))).tolist())) == 6
    """,
)
def co_random_fold_in(jax):
    from jax._src import core

    @around(jax.random, "fold_in")
    def fold_in(original, key, data):
        bound = core.get_axis_env().axis_sizes
        return original(key, data % 4 if bound and isinstance(data, core.Tracer) else data)


@fault(
    breaks="jax.random.bits and uniform under a named axis draw from the key of rank 0",
    family="collective",
    rules=("random.keyed",),
    component={"leaf": "random"},
    witness="""
        keys = jax.random.split(jax.random.key(0), 3)
        got = jax.vmap(lambda key: jax.random.bits(key), axis_name="i")(keys)
        good = np.array_equal(got, [jax.random.bits(key) for key in keys])
    """,
)
def co_random_rank_zero(jax):
    from jax._src import core

    def from_rank_zero(name):
        @around(jax.random, name)
        def draw(original, key, *args, **options):
            bound = core.get_axis_env().axis_sizes
            if bound and isinstance(key, core.Tracer):
                data = jax.random.key_data(key)
                data = jax.lax.all_gather(data, list(bound)[-1])[0]
                key = jax.random.wrap_key_data(data) if key.dtype != data.dtype else data
            return original(key, *args, **options)

    from_rank_zero("bits")
    from_rank_zero("uniform")
