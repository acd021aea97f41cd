"""Faults in the derivatives of the collectives: their jvp and transposition rules, and those of shard_map."""

from __future__ import annotations

from .leaves import around_leaves, names_of
from .library import fault
from .patching import around, around_rule


def _around_transposition(primitive):
    """Decorator: a transposition rule, for cotangents that are not zero.

    The decorated function gets the original as `rule(cotangent, **other_params)`, the cotangent, the params.
    """
    from jax._src.interpreters import ad

    def patch(replacement):
        @around_rule(ad.primitive_transposes, primitive)
        def transpose(original, cotangent, x, **params):
            if type(cotangent) is ad.Zero:
                return original(cotangent, x, **params)

            def rule(ct, **other):
                return original(ct, x, **(params | other))[0]

            return (replacement(rule, cotangent, **params),)

        return replacement

    return patch


@fault(
    breaks="the transpose of psum in a checked shard_map is multiplied by the axis size",
    family="collective",
    rules=("derivative.reverse",),
    component={
        "leaf": "psum",
        "binder": "shard_map",
        "option": "check_vma",
        "derivative": "grad",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        total = jax.shard_map(lambda x: lax.psum(x.sum(), "i"), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P())
        good = np.array_equal(jax.grad(total)(jnp.ones(8)), np.ones(8))
    """,
)
def co_grad_psum_invariant(jax):
    from jax._src.lax import parallel

    @_around_transposition(parallel.psum_invariant_p)
    def transpose(rule, cotangent, *, axes):
        return rule(cotangent) * jax.lax.axis_size(axes)


@fault(
    breaks="the gradient of a replicated argument of a checked shard_map is the mean over the axis",
    family="collective",
    rules=("derivative.reverse",),
    component={
        "leaf": "pvary",
        "binder": "shard_map",
        "option": "check_vma",
        "derivative": "grad",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        loss = jax.shard_map(lambda w, x: lax.psum((w * x).sum(), "i"), mesh=mesh,
                             in_specs=(jax.P(), jax.P("i")), out_specs=jax.P())
        good = jax.grad(loss)(jnp.float32(3), jnp.arange(8.0)) == 28
    """,
)
def co_grad_pvary(jax):
    from jax._src import core

    @_around_transposition(core.pvary_p)
    def transpose(rule, cotangent, *, axes):
        return rule(cotangent) / jax.lax.axis_size(axes)


@fault(
    breaks="the transpose of psum under vmap passes the cotangent on without summing it",
    family="collective",
    rules=("derivative.reverse",),
    component={"leaf": "psum", "binder": "vmap", "derivative": "grad"},
    witness="""
        slope = jax.grad(lambda x: lax.psum(x**2, "i"))
        good = np.array_equal(jax.vmap(slope, axis_name="i")(jnp.array([1.0, 2.0, 3.0])), [6, 12, 18])
    """,
)
def co_grad_psum_local(jax):
    from jax._src.lax import parallel

    @_around_transposition(parallel.psum_p)
    def transpose(rule, cotangent, *, axes, axis_index_groups):
        return rule(cotangent) if any(isinstance(axis, int) for axis in axes) else cotangent


@fault(
    breaks="the transpose of psum ignores axis_index_groups",
    family="collective",
    rules=("derivative.reverse",),
    component={"leaf": "psum", "option": "axis_index_groups", "derivative": "grad"},
    witness="""
        slope = jax.grad(lambda x: lax.psum(x**2, "i", axis_index_groups=[[0, 1], [2, 3]]))
        good = np.array_equal(jax.pmap(slope, axis_name="i")(jnp.ones(4)), np.full(4, 4))
    """,
)
def co_grad_psum_groups(jax):
    from jax._src.lax import parallel

    @_around_transposition(parallel.psum_p)
    def transpose(rule, cotangent, *, axes, axis_index_groups):
        return rule(cotangent, axis_index_groups=None)


@fault(
    breaks="the transpose of psum conjugates complex cotangents",
    family="collective",
    rules=("derivative.reverse",),
    component={"leaf": "psum", "dtype": "complex64", "derivative": "vjp"},
    witness="""
        def pull(x, ct):
            return jax.vjp(lambda x: lax.psum(x, "i"), x)[1](ct)[0]
        z = jnp.array([1 + 2j, 3 - 1j])
        good = np.array_equal(jax.vmap(pull, axis_name="i")(z, z), [4 + 1j, 4 + 1j])
    """,
)
def co_grad_psum_complex(jax):
    from jax._src.lax import parallel

    for primitive in (parallel.psum_p, parallel.psum_invariant_p):

        @_around_transposition(primitive)
        def transpose(rule, cotangent, **params):
            return rule(jax.numpy.conj(cotangent))


@fault(
    breaks="the derivative of pmean forgets to divide by the axis size",
    family="collective",
    rules=("derivative.reverse", "derivative.forward"),
    component={"leaf": "pmean", "derivative": "grad"},
    witness="""
        slope = jax.grad(lambda x: lax.pmean(x, "i"))
        good = np.array_equal(jax.vmap(slope, axis_name="i")(jnp.ones(4)), np.ones(4))
    """,
)
def co_grad_pmean(jax):
    @around_leaves("pmean")
    def pmean(original, x, axis_name, **options):
        mean = original(x, axis_name, **options)
        total = jax.lax.psum(x, axis_name, **options)
        if not jax.numpy.issubdtype(mean.dtype, jax.numpy.inexact):
            return mean
        # The value is the mean, the derivative that of the sum.
        return jax.lax.stop_gradient(mean) + (total - jax.lax.stop_gradient(total)).astype(mean.dtype)


@fault(
    breaks="the transpose of ppermute sends the cotangent in the forward direction",
    family="collective",
    rules=("derivative.reverse",),
    component={"leaf": "ppermute", "derivative": "vjp"},
    witness="""
        def pull(x):
            return jax.vjp(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), x)[1](x)[0]
        good = np.array_equal(jax.vmap(pull, axis_name="i")(jnp.arange(3.0)), [1, 2, 0])
    """,
)
def co_grad_ppermute(jax):
    from jax._src.lax import parallel

    @_around_transposition(parallel.ppermute_p)
    def transpose(rule, cotangent, *, axis_name, perm):
        return rule(cotangent, perm=tuple((b, a) for a, b in perm))


@fault(
    breaks="the transpose of all_gather keeps its own slice of the cotangent, unsummed over the ranks",
    family="collective",
    rules=("derivative.reverse",),
    component={"leaf": "all_gather", "derivative": "grad"},
    witness="""
        slope = jax.grad(lambda x: (lax.all_gather(x, "i") ** 2).sum())
        good = np.array_equal(jax.vmap(slope, axis_name="i")(jnp.arange(3.0)), [0, 6, 12])
    """,
)
def co_grad_all_gather(jax):
    from jax._src.lax import parallel

    @_around_transposition(parallel.all_gather_p)
    def transpose(
        rule,
        cotangent,
        *,
        all_gather_dimension,
        axis_name,
        axis_size,
        tiled,
        axis_index_groups,
    ):
        if axis_index_groups is not None:
            return rule(cotangent)
        width = cotangent.shape[all_gather_dimension] // axis_size
        start = jax.lax.axis_index(axis_name) * width
        own = jax.lax.dynamic_slice_in_dim(cotangent, start, width, all_gather_dimension)
        return own if tiled else own.squeeze(all_gather_dimension)


@fault(
    breaks="the transpose of all_gather to an invariant result takes the slice of the next rank",
    family="collective",
    rules=("derivative.reverse",),
    component={
        "leaf": "all_gather",
        "option": "to=invarying",
        "binder": "shard_map",
        "derivative": "grad",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        rows = jax.shard_map(lambda x: lax.all_gather(x, "i", tiled=True, to="invarying"), mesh=mesh,
                             in_specs=jax.P("i"), out_specs=jax.P())
        slope = jax.grad(lambda x: (rows(x) ** 2).sum())
        good = np.array_equal(slope(jnp.arange(8.0)), 2 * np.arange(8))
    """,
)
def co_grad_all_gather_invariant(jax):
    from jax._src.lax import parallel

    @_around_transposition(parallel.all_gather_invariant_p)
    def transpose(rule, cotangent, *, all_gather_dimension, axis_size, **params):
        width = cotangent.shape[all_gather_dimension] // axis_size
        return rule(jax.numpy.roll(cotangent, -width, all_gather_dimension))


@fault(
    breaks="the transpose of psum_scatter divides by the axis size",
    family="collective",
    rules=("derivative.reverse",),
    component={"leaf": "psum_scatter", "derivative": "grad"},
    witness="""
        slope = jax.grad(lambda x: lax.psum_scatter(x, "i"))
        good = np.array_equal(jax.vmap(slope, axis_name="i")(jnp.ones((2, 2))), np.ones((2, 2)))
    """,
)
def co_grad_psum_scatter(jax):
    from jax._src.lax import parallel

    @_around_transposition(parallel.reduce_scatter_p)
    def transpose(rule, cotangent, *, axis_size, **params):
        return rule(cotangent) / axis_size


@fault(
    breaks="the transpose of all_to_all returns the blocks in reverse",
    family="collective",
    rules=("derivative.reverse",),
    component={"leaf": "all_to_all", "derivative": "vjp"},
    witness="""
        def pull(x):
            return jax.vjp(lambda x: lax.all_to_all(x, "i", 0, 0), x)[1](x)[0]
        x = jnp.arange(9.0).reshape(3, 3)
        good = np.array_equal(jax.vmap(pull, axis_name="i")(x), x.T)
    """,
)
def co_grad_all_to_all(jax):
    from jax._src.lax import parallel

    @_around_transposition(parallel.all_to_all_p)
    def transpose(rule, cotangent, *, split_axis, **params):
        return jax.numpy.flip(rule(cotangent), split_axis)


@fault(
    breaks="the gradient of a replicated argument of an unchecked shard_map is that of one device",
    family="collective",
    rules=("derivative.reverse",),
    component={
        "binder": "shard_map",
        "option": "check_vma=False",
        "derivative": "grad",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        scale = jax.shard_map(lambda w, x: w * x, mesh=mesh, in_specs=(jax.P(), jax.P("i")),
                              out_specs=jax.P("i"), check_vma=False)
        good = jax.grad(lambda w: scale(w, jnp.arange(8.0)).sum())(jnp.float32(3)) == 28
    """,
)
def co_grad_shard_map_unchecked(jax):
    from jax._src import shard_map

    @around(shard_map, "_unmentioned2")
    def unmentioned(original, mesh, spec, manual_axes):
        return type(original(mesh, spec, manual_axes))()


@fault(
    breaks="the gradient of an unchecked shard_map with a replicated result is too large by the mesh size",
    family="collective",
    rules=("derivative.reverse",),
    component={
        "binder": "shard_map",
        "option": "check_vma=False",
        "operand": "replicated",
        "derivative": "grad",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        total = jax.shard_map(lambda x: lax.psum(x.sum(), "i"), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P(), check_vma=False)
        good = np.array_equal(jax.grad(total)(jnp.ones(8)), np.ones(8))
    """,
)
def co_grad_replicated_result(jax):
    from jax._src import shard_map

    # A result that no axis is mentioned for has its cotangent divided by the size of those axes.
    @around(shard_map, "_unmentioned2")
    def unmentioned(original, mesh, spec, manual_axes):
        left_out = original(mesh, spec, manual_axes)
        return left_out if any(part is not None for part in spec) else type(left_out)()


def _around_jvp(primitive):
    """Decorator: a jvp rule; the decorated function gets `(out, tangent out, tangent in, **params)`."""
    from jax._src.interpreters import ad

    def patch(replacement):
        @around_rule(ad.primitive_jvps, primitive)
        def jvp(original, primals, tangents, **params):
            out, tangent = original(primals, tangents, **params)
            return out, tangent if type(tangent) is ad.Zero else replacement(tangent, *tangents, **params)

        return replacement

    return patch


@fault(
    breaks="the jvp of psum under vmap does not sum the tangents",
    family="collective",
    rules=("derivative.forward",),
    component={"leaf": "psum", "binder": "vmap", "derivative": "jvp"},
    witness="""
        def push(x, t):
            return jax.jvp(lambda x: lax.psum(x, "i"), (x,), (t,))[1]
        x = jnp.array([1.0, 2.0, 4.0])
        good = np.array_equal(jax.vmap(push, axis_name="i")(x, x), [7, 7, 7])
    """,
)
def co_jvp_psum(jax):
    from jax._src.lax import parallel

    @_around_jvp(parallel.psum_p)
    def jvp(out, tangent, *, axes, **params):
        return tangent if not any(isinstance(axis, int) for axis in axes) else out


@fault(
    breaks="the jvp of psum in a checked shard_map doubles the tangent of the first rank",
    family="collective",
    rules=("derivative.forward", "derivative.reverse"),
    component={
        "leaf": "psum",
        "binder": "shard_map",
        "option": "check_vma",
        "derivative": "jvp",
    },
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        total = jax.shard_map(lambda x: lax.psum(x.sum(), "i"), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P())
        good = jax.jvp(total, (jnp.ones(8),), (jnp.ones(8),))[1] == 8
    """,
)
def co_jvp_psum_checked(jax):
    from jax._src.lax import parallel

    @_around_jvp(parallel.psum_invariant_p)
    def jvp(out, tangent, *, axes):
        first = jax.lax.axis_index(axes) == 0
        return out + jax.lax.psum(jax.numpy.where(first, tangent, jax.numpy.zeros_like(tangent)), axes)


@fault(
    breaks="the jvp of ppermute leaves the tangent where it is",
    family="collective",
    rules=("derivative.forward", "derivative.reverse"),
    component={"leaf": "ppermute", "derivative": "jvp"},
    witness="""
        def push(x):
            return jax.jvp(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), (x,), (x,))[1]
        good = np.array_equal(jax.vmap(push, axis_name="i")(jnp.arange(3.0)), [2, 0, 1])
    """,
)
def co_jvp_ppermute(jax):
    from jax._src.lax import parallel

    @_around_jvp(parallel.ppermute_p)
    def jvp(out, tangent, **params):
        return tangent


@fault(
    breaks="the jvp of all_gather keeps only the own rank's tangent",
    family="collective",
    rules=("derivative.forward",),
    component={"leaf": "all_gather", "derivative": "jvp"},
    witness="""
        def push(x):
            return jax.jvp(lambda x: lax.all_gather(x, "i"), (x,), (x,))[1]
        good = np.array_equal(jax.vmap(push, axis_name="i")(jnp.arange(3.0))[0], [0, 1, 2])
    """,
)
def co_jvp_all_gather(jax):
    from jax._src.lax import parallel

    jnp = jax.numpy

    @_around_jvp(parallel.all_gather_p)
    def jvp(out, tangent, *, all_gather_dimension, axis_name, axis_size, tiled, **params):
        if tiled or params["axis_index_groups"] is not None:
            return out
        shape = [axis_size if axis == all_gather_dimension else 1 for axis in range(out.ndim)]
        own = jnp.arange(axis_size).reshape(shape) == jax.lax.axis_index(names_of(axis_name))
        return jnp.where(own, out, jnp.zeros_like(out))


@fault(
    breaks="pcast to varying does nothing, so a gradient taken inside shard_map is summed over the devices",
    family="collective",
    rules=("derivative.reverse", "result.type"),
    component={"leaf": "pcast", "binder": "shard_map", "derivative": "grad"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
        def slope(w, x):
            return jax.grad(lambda w: (w * x).sum())(lax.pcast(w, "i", to="varying"))[None] + 0 * x
        slope = jax.shard_map(slope, mesh=mesh, in_specs=(jax.P(), jax.P("i")), out_specs=jax.P("i"))
        good = np.array_equal(slope(jnp.float32(3), jnp.arange(8.0)), np.arange(8))
    """,
)
def co_pcast_dropped(jax):
    @around_leaves("pcast")
    def pcast(original, x, axis_name, *, to):
        return x if to == "varying" else original(x, axis_name, to=to)
