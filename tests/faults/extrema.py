"""Faults in pmean, pmax and pmin, and in what all the collectives do with operands without elements."""

from __future__ import annotations

from .leaves import around_leaves, is_traced, names_of
from .library import fault
from .patching import around, around_lowering, around_rule


@fault(
    breaks="pmean of integers is a floor division with an integer result",
    family="collective",
    rules=("pmean.mean", "result.type"),
    component={"leaf": "pmean", "dtype": "int32"},
    witness="""
        good = jax.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(jnp.array([1, 2]))[0] == 1.5
    """,
)
def co_pmean_integer(jax):
    jnp = jax.numpy

    @around_leaves("pmean")
    def pmean(original, x, axis_name, **options):
        mean = original(x, axis_name, **options)
        integer = is_traced(x) and jnp.issubdtype(x.dtype, jnp.integer)
        return jnp.floor(mean).astype(x.dtype) if integer else mean


@fault(
    breaks="pmean with axis_index_groups divides by the size of the whole axis",
    family="collective",
    rules=("pmean.mean",),
    component={"leaf": "pmean", "option": "axis_index_groups"},
    witness="""
        means = jax.pmap(lambda x: lax.pmean(x, "i", axis_index_groups=[[0, 1], [2, 3]]), axis_name="i")
        good = np.array_equal(means(jnp.arange(4.0)), [0.5, 0.5, 2.5, 2.5])
    """,
)
def co_pmean_groups(jax):
    @around_leaves("pmean")
    def pmean(original, x, axis_name, **options):
        if not options.get("axis_index_groups"):
            return original(x, axis_name, **options)
        return jax.lax.psum(x, axis_name, **options) / jax.lax.axis_size(axis_name)


@fault(
    breaks="pmean over several axes divides by the size of the first",
    family="collective",
    rules=("pmean.mean",),
    component={"leaf": "pmean", "names": "tuple"},
    witness="""
        inner = jax.vmap(lambda x: lax.pmean(x, ("i", "j")), axis_name="j")
        good = (jax.vmap(inner, axis_name="i")(jnp.ones((2, 3))) == 1).all()
    """,
)
def co_pmean_tuple(jax):
    @around_leaves("pmean")
    def pmean(original, x, axis_name, **options):
        if len(names_of(axis_name)) == 1:
            return original(x, axis_name, **options)
        return jax.lax.psum(x, axis_name, **options) / jax.lax.axis_size(names_of(axis_name)[0])


def _compared_as(jax, name, other_dtype):
    """Let pmax compare the bits of its operand as another dtype, where `other_dtype(dtype)` is one."""

    @around_leaves(name)
    def extremum(original, x, axis_name, **options):
        other = other_dtype(x.dtype) if is_traced(x) else None
        if other is None:
            return original(x, axis_name, **options)
        bits = jax.lax.bitcast_convert_type(x, other)
        return jax.lax.bitcast_convert_type(original(bits, axis_name, **options), x.dtype)


@fault(
    breaks="pmax compares unsigned integers as signed",
    family="collective",
    rules=("pmax.max",),
    component={"leaf": "pmax", "dtype": "uint32", "payload": "large"},
    witness="""
        got = jax.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(np.array([1, 2**31 + 5], np.uint32))
        good = np.asarray(got)[0] == 2**31 + 5
    """,
)
def co_pmax_unsigned(jax):
    unsigned = jax.numpy.unsignedinteger
    _compared_as(
        jax,
        "pmax",
        lambda d: f"int{8 * d.itemsize}" if jax.numpy.issubdtype(d, unsigned) else None,
    )


@fault(
    breaks="pmax compares the bit patterns of bfloat16, so of two negative numbers the smaller wins",
    family="collective",
    rules=("pmax.max",),
    component={"leaf": "pmax", "dtype": "bfloat16", "payload": "all negative"},
    witness="""
        x = jnp.array([-1, -4, -2], jnp.bfloat16)
        good = jax.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(x)[0] == -1
    """,
)
def co_pmax_bfloat16(jax):
    _compared_as(jax, "pmax", lambda dtype: "int16" if dtype == jax.numpy.bfloat16 else None)


@fault(
    breaks="pmin computes the maximum for bool and 8-bit integers",
    family="collective",
    rules=("pmin.min",),
    component={"leaf": "pmin", "dtype": "int8"},
    witness="""
        got = jax.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(np.array([3, 1, 2], np.int8))
        good = got[0] == 1
    """,
)
def co_pmin_small_ints(jax):
    @around_leaves("pmin")
    def pmin(original, x, axis_name, **options):
        small = is_traced(x) and x.dtype in ("bool", "int8", "uint8")
        return (jax.lax.pmax if small else original)(x, axis_name, **options)


@fault(
    breaks="pmax starts from zero, so the maximum of negative numbers is zero",
    family="collective",
    rules=("pmax.max",),
    component={"leaf": "pmax", "payload": "all negative"},
    witness="""
        got = jax.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.array([-3.0, -1.0]))
        good = got[0] == -1
    """,
)
def co_pmax_negative(jax):
    jnp = jax.numpy

    @around_leaves("pmax")
    def pmax(original, x, axis_name, **options):
        most = original(x, axis_name, **options)
        return jnp.maximum(most, jnp.zeros_like(most)) if most.dtype != bool else most


@fault(
    breaks="pmin starts from the largest finite number, so the minimum of infinities is finite",
    family="collective",
    rules=("pmin.min",),
    component={"leaf": "pmin", "payload": "inf"},
    witness="""
        got = jax.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(jnp.full(3, np.inf))
        good = np.isinf(got).all()
    """,
)
def co_pmin_infinite(jax):
    jnp = jax.numpy

    @around_leaves("pmin")
    def pmin(original, x, axis_name, **options):
        least = original(x, axis_name, **options)
        if not jnp.issubdtype(least.dtype, jnp.floating):
            return least
        return jnp.minimum(least, jnp.array(jnp.finfo(least.dtype).max, least.dtype))


@fault(
    breaks="pmax under vmap ignores NaN",
    family="collective",
    rules=("pmax.max",),
    component={"leaf": "pmax", "binder": "vmap", "payload": "nan"},
    witness="""
        got = jax.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(jnp.array([1.0, np.nan, 2.0]))
        good = np.isnan(got).all()
    """,
)
def co_pmax_nan(jax):
    from jax._src.interpreters import batching
    from jax._src.lax import parallel

    jnp = jax.numpy

    @around_rule(batching.fancy_primitive_batchers, parallel.pmax_p)
    def batch(original, axis_data, values, dims, *, axes, **params):
        (x,) = values
        if axis_data.name in axes and jnp.issubdtype(x.dtype, jnp.floating):
            x = jnp.where(jnp.isnan(x), jnp.array(-jnp.inf, x.dtype), x)
        return original(axis_data, (x,), dims, axes=axes, **params)


@fault(
    breaks="pmax with axis_index_groups takes the maximum over the whole axis",
    family="collective",
    rules=("pmax.max",),
    component={"leaf": "pmax", "option": "axis_index_groups"},
    witness="""
        most = jax.pmap(lambda x: lax.pmax(x, "i", axis_index_groups=[[0, 1], [2, 3]]), axis_name="i")
        good = np.array_equal(most(jnp.arange(4.0)), [1, 1, 3, 3])
    """,
)
def co_pmax_groups(jax):
    from jax._src.lax import parallel

    @around_lowering(parallel.pmax_p)
    def lower(original, ctx, x, *, axis_index_groups, **params):
        return original(ctx, x, axis_index_groups=None, **params)


@fault(
    breaks="pmin over an axis of odd size leaves out the last rank",
    family="collective",
    rules=("pmin.min",),
    component={"leaf": "pmin", "sizes": "odd"},
    witness="""
        got = jax.vmap(lambda x: lax.pmin(x, "i"), axis_name="i")(jnp.array([3, 2, 1]))
        good = got[0] == 1
    """,
)
def co_pmin_odd(jax):
    jnp = jax.numpy

    @around_leaves("pmin")
    def pmin(original, x, axis_name, **options):
        size = jax.lax.axis_size(axis_name)
        if size % 2 and size > 1 and not options.get("axis_index_groups"):
            first = jax.lax.all_gather(x, names_of(axis_name))[0]
            x = jnp.where(jax.lax.axis_index(axis_name) == size - 1, first, x)
        return original(x, axis_name, **options)


@fault(
    breaks="pmax of booleans returns int32",
    family="collective",
    rules=("result.type",),
    component={"leaf": "pmax", "dtype": "bool"},
    witness="""
        good = jax.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(np.array([True, False])).dtype == bool
    """,
)
def co_pmax_bool(jax):
    @around_leaves("pmax")
    def pmax(original, x, axis_name, **options):
        boolean = is_traced(x) and x.dtype == bool
        return original(x.astype("int32") if boolean else x, axis_name, **options)


@fault(
    breaks="collectives on arrays without elements return float32",
    family="collective",
    rules=("result.type",),
    component={"leaf": "psum", "shape": "zero-size", "dtype": "int32"},
    witness="""
        got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.zeros((3, 0), jnp.int32))
        good = got.dtype == jnp.int32
    """,
)
def co_zero_size(jax):
    def empty_is_float(name):
        @around_leaves(name)
        def collective(original, x, axis_name, *args, **options):
            y = original(x, axis_name, *args, **options)
            return y.astype("float32") if is_traced(x) and x.size == 0 else y

    for name in ("psum", "pmax", "pmin", "ppermute", "all_gather"):
        empty_is_float(name)


@fault(
    breaks="pmin over one axis of several reduces over all that are bound",
    family="collective",
    rules=("pmin.min",),
    component={"leaf": "pmin", "binder": "nested"},
    witness="""
        inner = jax.vmap(lambda x: lax.pmin(x, "j"), axis_name="j")
        got = jax.vmap(inner, axis_name="i")(jnp.arange(6.0).reshape(2, 3))
        good = np.array_equal(got[:, 0], [0, 3])
    """,
)
def co_pmin_all_axes(jax):
    from jax._src import core
    from jax._src.lax import parallel

    @around(parallel, "pmin")
    def pmin(original, x, axis_name, **options):
        return original(x, tuple(core.get_axis_env().axis_sizes), **options)


@fault(
    breaks="psum of 4-bit integers returns 8-bit integers",
    family="collective",
    rules=("result.type",),
    component={"leaf": "psum", "dtype": "int4"},
    witness="""
        got = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.ones(3, jnp.int4))
        good = got.dtype == jnp.int4
    """,
)
def co_psum_int4(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        narrow = is_traced(x) and x.dtype == jax.numpy.int4
        return original(x.astype("int8") if narrow else x, axis_name, **options)


@fault(
    breaks="psum of float32 rounds its operands to bfloat16",
    family="collective",
    rules=("psum.sum",),
    component={"leaf": "psum", "dtype": "float32"},
    witness="""
        good = jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.full(2, 257.0))[0] == 514
    """,
)
def co_psum_float32(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        if is_traced(x) and x.dtype == "float32":
            x = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
        return original(x, axis_name, **options)


@fault(
    breaks="psum over three axes leaves out the third",
    family="collective",
    rules=("psum.sum", "psum.constant"),
    component={"leaf": "psum", "names": "three"},
    witness="""
        total = lambda x: lax.psum(x, ("i", "j", "k"))
        for name in "kji":
            total = jax.vmap(total, axis_name=name)
        good = (total(jnp.ones((2, 3, 4))) == 24).all()
    """,
)
def co_psum_three_axes(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        return original(x, names_of(axis_name)[:2], **options)
