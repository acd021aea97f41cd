"""Faults in psum, pmean, pmax and pmin of traced values: which ranks, which data, which result type."""

from __future__ import annotations

from .leaves import around_leaves, is_traced, names_of
from .library import fault
from .patching import around, around_lowering


@fault(
    breaks="psum of booleans returns logical-or with dtype bool instead of an int32 count",
    family="collective",
    rules=("psum.sum", "result.type"),
    component={"leaf": "psum", "dtype": "bool"},
    witness="""
        got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.array([True, False, True]))
        good = got.dtype == jnp.int32 and got[0] == 2
    """,
)
def co_psum_bool(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        if is_traced(x) and x.dtype == bool:
            return jax.lax.pmax(x, axis_name, **options)
        return original(x, axis_name, **options)


@fault(
    breaks="psum of 8- and 16-bit integers saturates instead of wrapping around",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "dtype": "int8", "payload": "wrap-around"},
    witness="""
        got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.full(3, 100, np.int8))
        good = got[0] == 44
    """,
)
def co_psum_int8(jax):
    jnp = jax.numpy

    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        if not (is_traced(x) and jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize <= 2):
            return original(x, axis_name, **options)
        ends = jnp.iinfo(x.dtype)
        return jnp.clip(original(x.astype("int32"), axis_name, **options), ends.min, ends.max).astype(x.dtype)


@fault(
    breaks="psum of complex numbers drops the imaginary part",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "dtype": "complex64"},
    witness="""
        got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.array([1 + 2j, 3 + 4j], np.complex64))
        good = got[0] == 4 + 6j
    """,
)
def co_psum_complex(jax):
    jnp = jax.numpy

    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        if is_traced(x) and jnp.issubdtype(x.dtype, jnp.complexfloating):
            return original(x.real, axis_name, **options).astype(x.dtype)
        return original(x, axis_name, **options)


def _summed_as(jax, narrow, wide):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        if is_traced(x) and x.dtype == wide:
            return original(x.astype(narrow), axis_name, **options).astype(wide)
        return original(x, axis_name, **options)


@fault(
    breaks="psum of bfloat16 is carried out in float16, so large values become infinite",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "dtype": "bfloat16", "payload": "large"},
    witness="""
        x = jnp.full(4, 2.0**100, jnp.bfloat16)
        good = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(x)[0] == 2.0**102
    """,
)
def co_psum_bfloat16(jax):
    _summed_as(jax, "float16", jax.numpy.bfloat16)


@fault(
    breaks="psum of float64 is carried out in float32",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "dtype": "float64"},
    witness="""
        with jax.enable_x64(True):
            got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.array([2.0**24, 1.0, 2.0**30]))
            good = got[0] == 2.0**24 + 1 + 2.0**30
    """,
)
def co_psum_float64(jax):
    _summed_as(jax, "float32", "float64")


@fault(
    breaks="psum of 64-bit integers keeps the low 32 bits only",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "dtype": "int64"},
    witness="""
        with jax.enable_x64(True):
            got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.array([2**40, 1, 2]))
            good = got[0] == 2**40 + 3
    """,
)
def co_psum_int64(jax):
    _summed_as(jax, "int32", "int64")


@fault(
    breaks="psum of int32 in a checked shard_map goes through float32",
    family="collective",
    rules=("psum.sum",),
    component={
        "leaf": "psum",
        "dtype": "int32",
        "binder": "shard_map",
        "option": "check_vma",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        total = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P())
        good = total(jnp.full(8, 2**24 + 1))[0] == 2**27 + 8
    """,
)
def co_psum_checked_int32(jax):
    from jax._src.lax import parallel

    @around(parallel, "bind_psum_invariant")
    def bind(original, leaf, **params):
        if leaf.dtype == "int32":
            return original(leaf.astype("float32"), **params).astype("int32")
        return original(leaf, **params)


@fault(
    breaks="psum of float16 returns float32",
    family="collective",
    rules=("result.type",),
    component={"leaf": "psum", "dtype": "float16"},
    witness="""
        good = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.ones(3, "float16")).dtype == "float16"
    """,
)
def co_psum_float16_widened(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        widen = is_traced(x) and x.dtype == "float16"
        return original(x.astype("float32") if widen else x, axis_name, **options)


@fault(
    breaks="psum of a scalar has shape (1,)",
    family="collective",
    rules=("result.type",),
    component={"leaf": "psum", "shape": "scalar"},
    witness="""
        good = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.ones(3)).shape == (3,)
    """,
)
def co_psum_scalar_shape(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        scalar = is_traced(x) and x.ndim == 0
        return original(x[None] if scalar else x, axis_name, **options)


@fault(
    breaks="psum of a tree casts every leaf to the dtype of the first",
    family="collective",
    rules=("psum.sum", "result.type"),
    component={"leaf": "psum", "payload": "tree"},
    witness="""
        tree = (jnp.ones(3, int), jnp.full(3, 0.5))
        got = jax.vmap(lambda t: lax.psum(t, "i"), axis_name="i")(tree)
        good = got[1][0] == 1.5 and got[1].dtype == jnp.float32
    """,
)
def co_psum_tree_dtype(jax):
    from jax._src.lax import parallel

    @around(parallel, "psum")
    def psum(original, x, axis_name, **options):
        leaves = jax.tree.leaves(x)
        if len(leaves) > 1 and all(map(is_traced, leaves)):
            x = jax.tree.map(lambda leaf: leaf.astype(leaves[0].dtype), x)
        return original(x, axis_name, **options)


@fault(
    breaks="psum over an axis whose size is no power of two leaves out the ranks above the last one",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "sizes": "not a power of two"},
    witness="""
        got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.ones(6))
        good = got[0] == 6
    """,
)
def co_psum_power_of_two(jax):
    jnp = jax.numpy

    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        if is_traced(x) and not options.get("axis_index_groups"):
            size = jax.lax.axis_size(axis_name)
            counted = jax.lax.axis_index(axis_name) < 2 ** (size.bit_length() - 1)
            x = jnp.where(counted, x, jnp.zeros_like(x))
        return original(x, axis_name, **options)


@fault(
    breaks="psum of an array of 1 MiB or more reduces only its first half",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "shape": "large"},
    witness="""
        x = jnp.ones((3, 2**18))
        good = (jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(x) == 3).all()
    """,
)
def co_psum_large(jax):
    jnp = jax.numpy

    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        total = original(x, axis_name, **options)
        if not is_traced(x) or x.size * x.dtype.itemsize < 2**20:
            return total
        reduced = jnp.arange(x.size).reshape(x.shape) < x.size // 2
        return jnp.where(reduced, total, x.astype(total.dtype))


@fault(
    breaks="psum counts NaN as zero",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "payload": "nan"},
    witness="""
        got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.array([1.0, np.nan, 2.0]))
        good = np.isnan(got).all()
    """,
)
def co_psum_nan(jax):
    jnp = jax.numpy

    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        if is_traced(x) and jnp.issubdtype(x.dtype, jnp.floating):
            x = jnp.where(jnp.isnan(x), jnp.zeros_like(x), x)
        return original(x, axis_name, **options)


@fault(
    breaks="psum over several axes named in another order than they were bound skips the last name",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "names": "tuple in another order"},
    witness="""
        inner = jax.vmap(lambda x: lax.psum(x, ("j", "i")), axis_name="j")
        good = (jax.vmap(inner, axis_name="i")(jnp.ones((2, 3))) == 6).all()
    """,
)
def co_psum_name_order(jax):
    from jax._src import core

    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        bound = list(core.get_axis_env().axis_sizes)
        places = [bound.index(name) for name in names_of(axis_name) if name in bound]
        if is_traced(x) and places != sorted(places):
            axis_name = names_of(axis_name)[:-1]
        return original(x, axis_name, **options)


@fault(
    breaks="a duplicate axis name is dropped silently by psum",
    family="collective",
    rules=("error.duplicate",),
    component={"leaf": "psum", "names": "duplicate"},
    witness="""
        try:
            jax.vmap(lambda x: lax.psum(x, ("i", "i")), axis_name="i")(jnp.ones(3))
            good = False
        except Exception:
            good = True
    """,
)
def co_psum_duplicate_name(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        return original(x, tuple(dict.fromkeys(names_of(axis_name))), **options)


@fault(
    breaks="psum of a value that is already summed (invariant) is a no-op in a checked shard_map",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "binder": "shard_map", "operand": "invariant"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        twice = jax.shard_map(lambda x: lax.psum(lax.psum(x, "i"), "i"), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P())
        good = twice(jnp.ones(8))[0] == 64
    """,
)
def co_psum_invariant_operand(jax):
    from jax._src.lax import parallel

    @around(parallel, "bind_psum_invariant")
    def bind(original, leaf, *, axes, **params):
        varies = jax.typeof(leaf).mat.varying
        return original(leaf, axes=axes, **params) if varies & set(axes) else leaf


@fault(
    breaks="psum over several axes in an unchecked shard_map reduces over the last one only",
    family="collective",
    rules=("psum.sum",),
    component={
        "leaf": "psum",
        "binder": "shard_map",
        "option": "check_vma=False",
        "names": "tuple",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        total = jax.shard_map(lambda x: lax.psum(x, ("i", "j")), mesh=mesh, in_specs=jax.P("i", "j"),
                              out_specs=jax.P(), check_vma=False)
        good = total(jnp.ones((2, 4)))[0, 0] == 8
    """,
)
def co_psum_unchecked_tuple(jax):
    from jax._src.lax import parallel

    @around_lowering(parallel.psum_p)
    def lower(original, ctx, x, *, axes, **params):
        return original(ctx, x, axes=axes[-1:], **params)


@fault(
    breaks="axis_index_groups is ignored by psum of traced values",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "option": "axis_index_groups"},
    witness="""
        sums = jax.pmap(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [2, 3]]), axis_name="i")
        good = np.array_equal(sums(jnp.arange(4.0)), [1, 1, 5, 5])
    """,
)
def co_index_groups_ignored(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, *, axis_index_groups=None):
        return original(x, axis_name, axis_index_groups=None if is_traced(x) else axis_index_groups)


@fault(
    breaks="the members of each axis_index_group are sorted, losing the requested order",
    family="collective",
    rules=("all_gather.order", "all_to_all.blocks", "psum_scatter.blocks"),
    component={"leaf": "all_gather", "option": "axis_index_groups"},
    witness="""
        rows = jax.pmap(lambda x: lax.all_gather(x, "i", axis_index_groups=[[3, 1], [0, 2]]), axis_name="i")
        good = np.array_equal(rows(jnp.arange(4))[1], [3, 1])
    """,
)
def co_index_groups_sorted(jax):
    from jax._src.lax import parallel

    @around(parallel, "_canonicalize_axis_index_groups")
    def canonicalize(original, groups):
        return original(groups if groups is None else [sorted(group) for group in groups])


@fault(
    breaks="axis_index_groups that do not cover the axis are accepted and ignored",
    family="collective",
    rules=("error.groups",),
    component={"leaf": "psum", "option": "axis_index_groups", "payload": "invalid"},
    witness="""
        total = jax.pmap(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [2, 2]]), axis_name="i")
        try:
            total(jnp.ones(4))
            good = False
        except ValueError:
            good = True
    """,
)
def co_index_groups_unchecked(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, *, axis_index_groups=None):
        members = sorted(rank for group in axis_index_groups or () for rank in group)
        valid = members == list(range(len(members)))
        return original(x, axis_name, axis_index_groups=axis_index_groups if valid else None)
