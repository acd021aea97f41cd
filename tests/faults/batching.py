"""Faults in how the binders meet the collectives: vmap, pmap and shard_map, alone and in one another."""

from __future__ import annotations

from .leaves import names_of
from .library import fault
from .patching import around, around_rule


def _around_foreign_batch(primitive):
    """Decorator: the batching rule for an axis that the collective is not over, with a batched operand.

    The decorated function gets the original rule, which takes (axis_data, values, dims, **params), likewise.
    """
    from jax._src.interpreters import batching

    def patch(replacement):
        @around_rule(batching.fancy_primitive_batchers, primitive)
        def batch(original, axis_data, values, dims, **params):
            own = axis_data.name in names_of(params["axes"] if "axes" in params else params["axis_name"])
            if own or dims[0] is None:
                return original(axis_data, values, dims, **params)
            return replacement(original, axis_data, values, dims, **params)

        return replacement

    return patch


@fault(
    breaks="batching psum over an unrelated axis claims output batch dimension 0 whatever the input's",
    family="collective",
    rules=("batching.mapped", "psum.sum"),
    component={"leaf": "psum", "binder": "nested vmap", "option": "in_axes"},
    witness="""
        rows = jax.vmap(lambda v: lax.psum(v, "i"), in_axes=1)
        got = jax.vmap(rows, axis_name="i")(jnp.arange(8).reshape(2, 2, 2))
        good = np.array_equal(got[0], [[4, 8], [6, 10]])
    """,
)
def co_vmap_psum_dim(jax):
    from jax._src.lax import parallel

    @_around_foreign_batch(parallel.psum_p)
    def batch(original, axis_data, values, dims, **params):
        return original(axis_data, values, dims, **params)[0], 0

    @_around_foreign_batch(parallel.psum_invariant_p)
    def batch_checked(original, axis_data, values, dims, **params):
        return original(axis_data, values, dims, **params)[0], 0


@fault(
    breaks="an unnamed vmap between the binder and psum is summed over as well",
    family="collective",
    rules=("psum.sum", "batching.mapped"),
    component={"leaf": "psum", "binder": "unnamed vmap"},
    witness="""
        each = jax.vmap(lambda v: lax.psum(v, "i"))
        got = jax.vmap(each, axis_name="i")(jnp.arange(6).reshape(2, 3))
        good = np.array_equal(got[0], [3, 5, 7])
    """,
)
def co_vmap_unnamed_summed(jax):
    from jax._src import core
    from jax._src.lax import parallel

    @_around_foreign_batch(parallel.psum_p)
    def batch(original, axis_data, values, dims, **params):
        (x,), (dim,) = values, dims
        if axis_data.name is core.no_axis_name:
            x = jax.numpy.broadcast_to(x.sum(dim, keepdims=True), x.shape).astype(x.dtype)
        return original(axis_data, (x,), dims, **params)


@fault(
    breaks="batching all_gather over an unrelated axis forgets that the new dimension moves the batch's",
    family="collective",
    rules=("batching.mapped", "all_gather.order"),
    component={"leaf": "all_gather", "binder": "nested vmap", "option": "in_axes"},
    witness="""
        rows = jax.vmap(lambda v: lax.all_gather(v, "i"), in_axes=1)
        x = jnp.arange(8).reshape(2, 2, 2)
        good = np.array_equal(jax.vmap(rows, axis_name="i")(x)[0], x.transpose(2, 0, 1))
    """,
)
def co_vmap_all_gather_dim(jax):
    from jax._src.lax import parallel

    @_around_foreign_batch(parallel.all_gather_p)
    def batch(original, axis_data, values, dims, **params):
        return original(axis_data, values, dims, **params)[0], dims[0]


@fault(
    breaks="batching all_to_all over an unrelated axis does not shift the concatenation axis",
    family="collective",
    rules=("batching.mapped", "all_to_all.blocks"),
    component={"leaf": "all_to_all", "binder": "nested vmap"},
    witness="""
        each = jax.vmap(lambda v: lax.all_to_all(v, "i", 0, 1, tiled=True))
        x = jnp.arange(16).reshape(2, 2, 4, 1)
        got = jax.vmap(each, axis_name="i")(x)
        good = got.shape == (2, 2, 2, 2) and np.array_equal(got[0, 0], [[0, 8], [1, 9]])
    """,
)
def co_vmap_all_to_all_dim(jax):
    from jax._src.lax import parallel

    @_around_foreign_batch(parallel.all_to_all_p)
    def batch(original, axis_data, values, dims, *, split_axis, concat_axis, **params):
        dim = dims[0]
        split_axis += dim <= split_axis
        y = parallel.all_to_all_p.bind(*values, split_axis=split_axis, concat_axis=concat_axis, **params)
        return y, dim


@fault(
    breaks="batching psum_scatter over an unrelated axis scatters the batch dimension",
    family="collective",
    rules=("batching.mapped", "psum_scatter.blocks"),
    component={"leaf": "psum_scatter", "binder": "nested vmap"},
    witness="""
        each = jax.vmap(lambda v: lax.psum_scatter(v, "i"))
        got = jax.vmap(each, axis_name="i")(jnp.tile(jnp.arange(4).reshape(2, 2), (2, 1, 1)))
        good = np.array_equal(got, [[0, 4], [2, 6]])
    """,
)
def co_vmap_psum_scatter_dim(jax):
    from jax._src.lax import parallel

    @_around_foreign_batch(parallel.reduce_scatter_p)
    def batch(original, axis_data, values, dims, *, scatter_dimension, **params):
        (x,), (dim,) = values, dims
        if (
            x.shape[dim] != axis_data.size
            or x.shape[dim] != x.shape[scatter_dimension + (dim <= scatter_dimension)]
        ):
            return original(axis_data, values, dims, scatter_dimension=scatter_dimension, **params)
        swapped = x.swapaxes(dim, scatter_dimension + (dim <= scatter_dimension))
        return original(axis_data, (swapped,), dims, scatter_dimension=scatter_dimension, **params)


@fault(
    breaks="psum of an operand that is not batched forgets to multiply by the axis size",
    family="collective",
    rules=("psum.sum",),
    component={
        "leaf": "psum",
        "binder": "vmap",
        "staging": "jit",
        "operand": "unbatched",
    },
    witness="""
        program = jax.jit(lambda x, c: x + lax.psum(c, "i"))
        got = jax.vmap(program, in_axes=(0, None), axis_name="i")(jnp.zeros(3), 2.0)
        good = np.array_equal(got, [6, 6, 6])
    """,
)
def co_vmap_psum_unbatched(jax):
    from jax._src.interpreters import batching
    from jax._src.lax import parallel

    @around_rule(batching.fancy_primitive_batchers, parallel.psum_p)
    def batch(original, axis_data, values, dims, *, axes, **params):
        if axis_data.name in axes and len(axes) == 1 and dims[0] is None:
            return values[0], None
        return original(axis_data, values, dims, axes=axes, **params)


def _with_vmap(change):
    """Let jax.vmap with an axis name get other options: `change(options)` edits the keyword arguments."""
    from jax._src import api

    @around(api, "vmap")
    def vmap(original, fun, in_axes=0, out_axes=0, axis_name=None, *args, **options):
        options |= {"in_axes": in_axes, "out_axes": out_axes, "axis_name": axis_name}
        if axis_name is not None:
            change(options)
        return original(
            fun,
            options.pop("in_axes"),
            options.pop("out_axes"),
            options.pop("axis_name"),
            *args,
            **options,
        )


@fault(
    breaks="a named vmap takes a negative in_axes for 0",
    family="collective",
    rules=("batching.mapped",),
    component={"binder": "vmap", "option": "negative in_axes"},
    witness="""
        x = jnp.arange(4).reshape(2, 2)
        got = jax.vmap(lambda v: lax.psum(v, "i"), in_axes=-1, axis_name="i")(x)
        good = np.array_equal(got[0], [1, 5])
    """,
)
def co_vmap_negative_in_axes(jax):
    def change(options):
        if isinstance(options["in_axes"], int):
            options["in_axes"] = max(options["in_axes"], 0)

    _with_vmap(change)


@fault(
    breaks="a named vmap takes every integer out_axes for 0",
    family="collective",
    rules=("batching.mapped", "result.type"),
    component={"binder": "vmap", "option": "out_axes"},
    witness="""
        got = jax.vmap(lambda v: lax.psum(v, "i"), out_axes=1, axis_name="i")(jnp.ones((2, 3)))
        good = got.shape == (3, 2)
    """,
)
def co_vmap_out_axes(jax):
    def change(options):
        if isinstance(options["out_axes"], int):
            options["out_axes"] = 0

    _with_vmap(change)


@fault(
    breaks="vmap ignores spmd_axis_name",
    family="collective",
    rules=("result.placement",),
    component={"binder": "vmap of shard_map", "option": ("vmap.spmd",)},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        total = jax.shard_map(lambda x: lax.psum(x, "j"), mesh=mesh, in_specs=jax.P("j"), out_specs=jax.P())
        got = jax.jit(jax.vmap(total, axis_name="b", spmd_axis_name="i"))(jnp.ones((2, 4)))
        good = got.addressable_shards[0].data.shape == (1, 1)
    """,
)
def co_vmap_spmd_axis_name(jax):
    _with_vmap(lambda options: options.pop("spmd_axis_name", None))


@fault(
    breaks="vmap does not check axis_size against its arguments",
    family="collective",
    rules=("error.shape",),
    component={"binder": "vmap", "option": "axis_size", "payload": "invalid"},
    witness="""
        try:
            jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i", axis_size=3)(jnp.ones(2))
            good = False
        except ValueError:
            good = True
    """,
)
def co_vmap_axis_size_unchecked(jax):
    from jax._src import api

    @around(api, "_mapped_axis_size")
    def mapped_axis_size(original, fun, tree, values, dims, name, axis_size=None):
        try:
            return original(fun, tree, values, dims, name, axis_size)
        except ValueError:
            if axis_size is None:
                raise
            return original(fun, tree, values, dims, name)


@fault(
    breaks="vmap of a shard_map inserts the batch dimension of every spec at position 0",
    family="collective",
    rules=("batching.mapped", "result.placement"),
    component={"binder": "vmap of shard_map", "option": ("vmap.in=1",)},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",))
        index = jax.shard_map(lambda x: x + lax.axis_index("i"), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P("i"))
        got = jax.vmap(index, in_axes=1, out_axes=1)(jnp.zeros((2, 2), int))
        good = np.array_equal(got, [[0, 0], [1, 1]])
    """,
)
def co_vmap_shard_map_spec(jax):
    from jax._src.interpreters import pxla

    @around(pxla, "batch_spec")
    def batch_spec(original, spec, dim, value):
        return original(spec, 0, value)


@fault(
    breaks="a tuple of axes in the out_specs of shard_map is taken in reverse",
    family="collective",
    rules=("result.placement", "all_gather.order"),
    component={"binder": "shard_map", "option": "out_specs", "names": "tuple"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        same = jax.shard_map(lambda x: x, mesh=mesh, in_specs=jax.P(("i", "j")), out_specs=jax.P(("i", "j")))
        good = np.array_equal(same(jnp.arange(8)), np.arange(8))
    """,
)
def co_shard_map_out_specs(jax):
    from jax._src import shard_map

    def reverse(spec):
        if not isinstance(spec, jax.P):
            return spec
        return jax.P(*(part[::-1] if isinstance(part, tuple) else part for part in spec))

    @around(shard_map, "_shard_map")
    def mapped(original, f, *, out_specs, **options):
        specs = jax.tree.map(reverse, out_specs, is_leaf=lambda spec: isinstance(spec, jax.P))
        return original(f, out_specs=specs, **options)


@fault(
    breaks="shard_map accepts a result that varies over an axis its out_specs leave out",
    family="collective",
    rules=("error.varying",),
    component={"binder": "shard_map", "option": "check_vma", "payload": "invalid"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        try:
            jax.shard_map(lambda x: x, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P())(jnp.arange(8))
            good = False
        except ValueError:
            good = True
    """,
)
def co_shard_map_varying_unchecked(jax):
    from jax._src import shard_map

    @around(shard_map, "_shard_map")
    def mapped(original, f, *, check_vma, **options):
        def call(*args):
            try:
                return original(f, check_vma=check_vma, **options)(*args)
            except ValueError as error:
                if "out_specs" not in str(error):
                    raise
                return original(f, check_vma=False, **options)(*args)

        return call


def _with_pmap_axis(name):
    """Let jax.pmap take 0 for a positive integer in_axes or out_axes."""
    from jax._src import pmap as module

    @around(module, "pmap")
    def pmap(original, *args, **options):
        if isinstance(options.get(name), int):
            options[name] = 0
        return original(*args, **options)


@fault(
    breaks="pmap takes every integer in_axes for 0",
    family="collective",
    rules=("batching.mapped",),
    component={"binder": "pmap", "option": "in_axes"},
    witness="""
        x = jnp.arange(4).reshape(2, 2)
        good = np.array_equal(jax.pmap(lambda v: lax.psum(v, "i"), "i", in_axes=1)(x)[0], [1, 5])
    """,
)
def co_pmap_in_axes(jax):
    _with_pmap_axis("in_axes")


@fault(
    breaks="pmap takes every integer out_axes for 0",
    family="collective",
    rules=("batching.mapped", "result.type"),
    component={"binder": "pmap", "option": "out_axes"},
    witness="""
        good = jax.pmap(lambda v: lax.psum(v, "i"), "i", out_axes=1)(jnp.ones((2, 3))).shape == (3, 2)
    """,
)
def co_pmap_out_axes(jax):
    _with_pmap_axis("out_axes")


def _with_groups(change):
    """Let collectives of shard_map and pmap use other groups of devices: `change(groups, mesh, names)`."""
    from jax._src.lax import parallel

    @around(parallel, "_replica_groups")
    def replica_groups(original, context, axis_name, index_groups):
        groups = original(context, axis_name, index_groups)
        return change(groups, context.mesh, names_of(axis_name)) if index_groups is None else groups

    if hasattr(parallel, "_try_mesh_axes_replica_group"):
        # JAX 0.12 lowers to the mesh axes themselves where it can: back to lists of devices.
        @around(parallel, "_try_mesh_axes_replica_group")
        def dense(original, ctx, axis_name, index_groups):
            groups = parallel._replica_groups(ctx.module_context.axis_context, axis_name, index_groups)
            return parallel._device_list_replica_groups_hlo(groups)


def _contiguous(groups):
    ids, size = sorted(rank for group in groups for rank in group), len(groups[0])
    return tuple(tuple(ids[start : start + size]) for start in range(0, len(ids), size))


@fault(
    breaks="collectives over the first axis of a mesh of two use groups of adjacent devices",
    family="collective",
    rules=("psum.sum", "all_gather.order", "lower.text"),
    component={"binder": "shard_map", "names": "first of two axes"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        total = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=jax.P("i", "j"),
                              out_specs=jax.P(None, "j"))
        good = np.array_equal(total(jnp.arange(8).reshape(2, 4)), [[4, 6, 8, 10]])
    """,
)
def co_groups_first_axis(jax):
    def change(groups, mesh, names):
        first = len(mesh.axis_names) == 2 and names == mesh.axis_names[:1]
        return _contiguous(groups) if first else groups

    _with_groups(change)


@fault(
    breaks="collectives over the middle axis of a mesh of three use groups of adjacent devices",
    family="collective",
    rules=("psum.sum", "all_gather.order", "lower.text"),
    component={"binder": "shard_map", "names": "middle of three axes"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("i", "j", "k"))
        total = jax.shard_map(lambda x: lax.psum(x, "j"), mesh=mesh, in_specs=jax.P("i", "j", "k"),
                              out_specs=jax.P("i", None, "k"))
        x = jnp.arange(8).reshape(2, 2, 2)
        good = np.array_equal(total(x), x.sum(1, keepdims=True))
    """,
)
def co_groups_middle_axis(jax):
    def change(groups, mesh, names):
        middle = len(mesh.axis_names) == 3 and names == mesh.axis_names[1:2]
        return _contiguous(groups) if middle else groups

    _with_groups(change)


@fault(
    breaks="a collective over a mesh axis of size 1 runs among all devices of the mesh",
    family="collective",
    rules=("psum.sum", "pmax.max"),
    component={"binder": "shard_map", "sizes": 1},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(8, 1), ("i", "j"))
        total = jax.shard_map(lambda x: lax.psum(x, "j"), mesh=mesh, in_specs=jax.P("i", "j"),
                              out_specs=jax.P("i"))
        good = np.array_equal(total(jnp.arange(8).reshape(8, 1))[:, 0], np.arange(8))
    """,
)
def co_groups_size_one(jax):
    def change(groups, mesh, names):
        alone = len(groups[0]) == 1 and len(groups) > 1
        return (tuple(group[0] for group in groups),) if alone else groups

    _with_groups(change)
