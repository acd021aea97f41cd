"""Faults in what is computed from the axis environment alone: psum of a constant, axis_size, axis_index."""

from __future__ import annotations

import math

from .leaves import around_leaves, is_traced, meshes_of_bodies, names_of
from .library import fault
from .patching import around, around_rule


@fault(
    breaks="psum of a Python constant over several axes uses only the first axis' size",
    family="collective",
    rules=("psum.constant", "axis_size.size"),
    component={"leaf": "psum", "operand": "constant", "names": "tuple"},
    witness="""
        inner = jax.vmap(lambda x: x + lax.psum(1, ("i", "j")), axis_name="j")
        good = (jax.vmap(inner, axis_name="i")(jnp.zeros((2, 3))) == 6).all()
    """,
)
def co_psum_const_tuple(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        return original(x, axis_name if is_traced(x) else names_of(axis_name)[:1], **options)


@fault(
    breaks="psum of a Python constant returns the axis size, ignoring the constant's value",
    family="collective",
    rules=("psum.constant",),
    component={"leaf": "psum", "operand": "constant"},
    witness="""
        good = jax.vmap(lambda x: x + lax.psum(2.5, "i"), axis_name="i")(jnp.zeros(3))[0] == 7.5
    """,
)
def co_psum_const_value(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        constant = isinstance(x, (bool, int, float, complex))
        return original(type(x)(1) if constant else x, axis_name, **options)


@fault(
    breaks="psum of a Python float counts its integral part only",
    family="collective",
    rules=("psum.constant",),
    component={"leaf": "psum", "operand": "constant", "dtype": "float"},
    witness="""
        good = jax.vmap(lambda x: x + lax.psum(1.5, "i"), axis_name="i")(jnp.zeros(4))[0] == 6
    """,
)
def co_psum_const_truncated(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        return original(float(int(x)) if isinstance(x, float) else x, axis_name, **options)


@fault(
    breaks="psum of a Python bool returns the bool instead of the count",
    family="collective",
    rules=("psum.constant", "result.type"),
    component={"leaf": "psum", "operand": "constant", "dtype": "bool"},
    witness="""
        good = jax.vmap(lambda x: x + lax.psum(True, "i"), axis_name="i")(jnp.zeros(4))[0] == 4
    """,
)
def co_psum_const_bool(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        return x if isinstance(x, bool) else original(x, axis_name, **options)


@fault(
    breaks="psum of a constant with axis_index_groups counts the whole axis, not the group",
    family="collective",
    rules=("psum.constant", "pmean.mean"),
    component={"leaf": "psum", "operand": "constant", "option": "axis_index_groups"},
    witness="""
        groups = [[0, 1, 2], [3, 4, 5]]
        count = jax.pmap(lambda x: x + lax.psum(1, "i", axis_index_groups=groups), axis_name="i")
        good = (count(jnp.zeros(6)) == 3).all()
    """,
)
def co_psum_const_groups(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, *, axis_index_groups=None):
        return original(x, axis_name, axis_index_groups=axis_index_groups if is_traced(x) else None)


@fault(
    breaks="psum of an array that the mapped function closes over returns it unsummed",
    family="collective",
    rules=("psum.sum", "psum.constant"),
    component={"leaf": "psum", "operand": "closed-over"},
    witness="""
        table = jnp.arange(3.0)
        got = jax.vmap(lambda x: x + lax.psum(table, "i"), axis_name="i")(jnp.zeros((4, 3)))
        good = np.array_equal(got[0], [0, 4, 8])
    """,
)
def co_psum_const_array(jax):
    import numpy as np

    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        closed_over = isinstance(x, (jax.Array, np.ndarray)) and not is_traced(x)
        return x if closed_over else original(x, axis_name, **options)


@fault(
    breaks="psum of a constant over an unbound name returns the constant instead of raising",
    family="collective",
    rules=("error.unbound",),
    component={"leaf": "psum", "operand": "constant", "names": "unbound"},
    witness="""
        try:
            jax.vmap(lambda x: x + lax.psum(1, "nowhere"), axis_name="i")(jnp.zeros(2))
            good = False
        except NameError:
            good = True
    """,
)
def co_psum_unbound(jax):
    @around_leaves("psum")
    def psum(original, x, axis_name, **options):
        try:
            return original(x, axis_name, **options)
        except NameError:
            if is_traced(x):
                raise
            return x


@fault(
    breaks="axis_index over an unbound name is 0 instead of an error",
    family="collective",
    rules=("error.unbound",),
    component={"leaf": "axis_index", "names": "unbound"},
    witness="""
        try:
            jax.jit(lambda: lax.axis_index("nowhere"))()
            good = False
        except NameError:
            good = True
    """,
)
def co_axis_index_unbound(jax):
    from jax._src.lax import parallel

    @around(parallel, "axis_index")
    def axis_index(original, axis_name):
        try:
            return original(axis_name)
        except NameError:
            return jax.numpy.int32(0)


@fault(
    breaks="lax.axis_size returns the product of all bound axes when nested",
    family="collective",
    rules=("axis_size.size",),
    component={"leaf": "axis_size", "binder": "nested"},
    witness="""
        inner = jax.vmap(lambda x: x + lax.axis_size("j"), axis_name="j")
        good = (jax.vmap(inner, axis_name="i")(jnp.zeros((2, 3))) == 3).all()
    """,
)
def co_axis_size_nested(jax):
    from jax._src import core
    from jax._src.lax import parallel

    @around(parallel, "axis_size")
    def axis_size(original, axis_name):
        bound = core.get_axis_env().axis_sizes
        return math.prod(bound.values()) if len(bound) > 1 else original(axis_name)


@fault(
    breaks="lax.axis_size of a tuple of names adds the sizes",
    family="collective",
    rules=("axis_size.size",),
    component={"leaf": "axis_size", "names": "tuple"},
    witness="""
        inner = jax.vmap(lambda x: x + lax.axis_size(("i", "j")), axis_name="j")
        good = (jax.vmap(inner, axis_name="i")(jnp.zeros((2, 3))) == 6).all()
    """,
)
def co_axis_size_added(jax):
    from jax._src.lax import parallel

    @around(parallel, "axis_size")
    def axis_size(original, axis_name):
        return sum(map(original, names_of(axis_name)))


@fault(
    breaks="lax.axis_size returns an array, which cannot be used as a shape in staged code",
    family="collective",
    rules=("result.type", "axis_size.size"),
    component={"leaf": "axis_size", "staging": "jit"},
    witness="""
        program = jax.jit(lambda x: jnp.ones(lax.axis_size("i")) * x)
        good = jax.vmap(program, axis_name="i")(jnp.zeros(3)).shape == (3, 3)
    """,
)
def co_axis_size_traced(jax):
    from jax._src.lax import parallel

    @around(parallel, "axis_size")
    def axis_size(original, axis_name):
        return jax.jit(lambda: jax.numpy.int32(original(axis_name)))()


@fault(
    breaks="axis_index over a non-string axis name returns 0",
    family="collective",
    rules=("axis_index.position",),
    component={"leaf": "axis_index", "names": "integer"},
    witness="""
        got = jax.vmap(lambda x: x + lax.axis_index(7), axis_name=7)(jnp.zeros(3))
        good = np.array_equal(got, [0, 1, 2])
    """,
)
def co_nonstring_name(jax):
    from jax._src.lax import parallel

    @around(parallel, "axis_index")
    def axis_index(original, axis_name):
        index = original(axis_name)
        return index if all(isinstance(name, str) for name in names_of(axis_name)) else index * 0


@fault(
    breaks="axis_index over a tuple of names lets the first name vary fastest",
    family="collective",
    rules=("axis_index.position",),
    component={"leaf": "axis_index", "names": "tuple"},
    witness="""
        inner = jax.vmap(lambda x: x + lax.axis_index(("i", "j")), axis_name="j")
        got = jax.vmap(inner, axis_name="i")(jnp.zeros((2, 3), int))
        good = np.array_equal(got, [[0, 1, 2], [3, 4, 5]])
    """,
)
def co_axis_index_tuple(jax):
    from jax._src.lax import parallel

    @around(parallel, "axis_index")
    def axis_index(original, axis_name):
        return original(axis_name[::-1] if isinstance(axis_name, (tuple, list)) else axis_name)


@fault(
    breaks="axis_index counts modulo 4",
    family="collective",
    rules=("axis_index.position",),
    component={"leaf": "axis_index", "sizes": "> 4"},
    witness="""
        got = jax.pmap(lambda x: x + lax.axis_index("i"), axis_name="i")(jnp.zeros(6, int))
        good = np.array_equal(got, np.arange(6))
    """,
)
def co_axis_index_modulo(jax):
    from jax._src.lax import parallel

    @around(parallel, "axis_index")
    def axis_index(original, axis_name):
        return original(axis_name) % 4


@fault(
    breaks="axis_index under vmap is unsigned",
    family="collective",
    rules=("result.type",),
    component={"leaf": "axis_index", "binder": "vmap"},
    witness="""
        got = jax.vmap(lambda x: lax.axis_index("i"), axis_name="i")(jnp.zeros(3))
        good = got.dtype == jnp.int32
    """,
)
def co_axis_index_unsigned(jax):
    from jax._src.interpreters import batching
    from jax._src.lax import parallel

    @around_rule(batching.fancy_primitive_batchers, parallel.axis_index_p)
    def batch(original, axis_data, values, dims, **params):
        index, dim = original(axis_data, values, dims, **params)
        return index if dim is None else index.astype("uint32"), dim


@fault(
    breaks="a name bound by two nested eager vmaps means the outer axis to axis_index and psum",
    family="collective",
    rules=("axis_index.position", "psum.sum"),
    component={"leaf": "axis_index", "binder": "nested vmap", "names": "shadowed"},
    witness="""
        inner = jax.vmap(lambda x: x + lax.axis_index("i"), axis_name="i")
        got = jax.vmap(inner, axis_name="i")(jnp.zeros((2, 3), int))
        good = np.array_equal(got, [[0, 1, 2], [0, 1, 2]])
    """,
)
def co_shadowed_name(jax):
    from jax._src import core
    from jax._src.interpreters import batching
    from jax._src.lax import parallel

    def bound_outside(name):
        trace = core.trace_ctx.trace  # a batching rule runs under the parent of its trace
        while isinstance(trace, batching.BatchTrace):
            if trace.axis_data.name == name:
                return True
            trace = trace.parent_trace
        return False

    def skip(primitive):
        @around_rule(batching.fancy_primitive_batchers, primitive)
        def batch(original, axis_data, values, dims, **params):
            if bound_outside(axis_data.name):
                return primitive.bind(*values, **params), (*dims, None)[0]
            return original(axis_data, values, dims, **params)

    skip(parallel.axis_index_p)
    skip(parallel.psum_p)


@fault(
    breaks="axis_index in a shard_map over part of the mesh axes is 0",
    family="collective",
    rules=("axis_index.position",),
    component={"leaf": "axis_index", "binder": "shard_map", "option": "axis_names"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        index = jax.shard_map(lambda x: x + lax.axis_index("i"), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P("i"), axis_names={"i"})
        good = np.array_equal(jax.jit(index)(jnp.zeros(2, int)), [0, 1])
    """,
)
def co_axis_index_partial_manual(jax):
    from jax._src.interpreters import mlir
    from jax._src.lax import parallel

    @around(parallel, "_build_axis_index_lowering_hlo")
    def build(original, ctx, axis_name, axis_ctx):
        manual = getattr(axis_ctx, "manual_axes", None)
        if manual and manual != frozenset(axis_ctx.mesh.axis_names):
            return mlir.lower_fun(lambda: jax.numpy.int32(0), multiple_results=False)(ctx)[0]
        return original(ctx, axis_name, axis_ctx)


@fault(
    breaks="axis_index over a one-axis mesh is the device's id instead of its place in the mesh",
    family="collective",
    rules=("axis_index.position", "device.order"),
    component={"leaf": "axis_index", "binder": "shard_map", "option": "device order"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()[::-1]), ("i",))
        index = jax.shard_map(lambda x: x + lax.axis_index("i"), mesh=mesh, in_specs=jax.P("i"),
                              out_specs=jax.P("i"))
        good = np.array_equal(index(jnp.zeros(8, int)), np.arange(8))
    """,
)
def co_axis_index_device_id(jax):
    from jax._src.lax import parallel

    meshes = meshes_of_bodies()

    @around(parallel, "axis_index")
    def axis_index(original, axis_name):
        index = original(axis_name)
        mesh = meshes[-1] if meshes else None
        if isinstance(mesh, jax.sharding.Mesh) and mesh.axis_names == names_of(axis_name):
            return jax.numpy.array([d.id for d in mesh.devices], "int32")[index]
        return index


def _with_names(change):
    """Let psum, axis_index and axis_size use other axis names: `change(name, bound names)` for each."""
    from jax._src import core
    from jax._src.lax import parallel

    def rename(function):
        @around(parallel, function)
        def collective(original, *args, **options):
            bound = list(core.get_axis_env().axis_sizes)
            *operand, axis_name = args
            names = tuple(change(name, bound) for name in names_of(axis_name))
            return original(*operand, names if isinstance(axis_name, (tuple, list)) else names[0], **options)

    for function in ("psum", "axis_index", "axis_size"):
        rename(function)


@fault(
    breaks="axis names are compared without regard to case",
    family="collective",
    rules=("psum.sum", "axis_index.position", "axis_size.size"),
    component={"names": "alike", "binder": "nested"},
    witness="""
        inner = jax.vmap(lambda x: x + lax.axis_index("I"), axis_name="I")
        got = jax.vmap(inner, axis_name="i")(jnp.zeros((2, 3), int))
        good = np.array_equal(got, [[0, 1, 2], [0, 1, 2]])
    """,
)
def co_names_case(jax):
    _with_names(lambda name, bound: next((b for b in bound if str(b).lower() == str(name).lower()), name))


@fault(
    breaks="axis names of equal hash are taken for the same name",
    family="collective",
    rules=("psum.sum", "axis_index.position", "axis_size.size"),
    component={"names": "equal hash", "binder": "nested"},
    witness="""
        class Name:
            def __hash__(self):
                return 7
        outer, inner = Name(), Name()
        total = jax.vmap(lambda x: lax.psum(x, inner), axis_name=inner)
        good = (jax.vmap(total, axis_name=outer)(jnp.ones((2, 3))) == 3).all()
    """,
)
def co_names_hash(jax):
    _with_names(lambda name, bound: next((b for b in bound if hash(b) == hash(name)), name))


@fault(
    breaks="in a shard_map nested in another, axis_index over an axis of the outer one is 0",
    family="collective",
    rules=("axis_index.position",),
    component={"leaf": "axis_index", "binder": "nested shard_map"},
    witness="""
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("i", "j"))
        inner = jax.shard_map(lambda x: x + lax.axis_index("i"), in_specs=jax.P("j"), out_specs=jax.P("j"),
                              axis_names={"j"})
        outer = jax.shard_map(lambda x: inner(x), mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P("i"),
                              axis_names={"i"})
        good = np.array_equal(jax.jit(outer)(jnp.zeros(8, int)), [0] * 4 + [1] * 4)
    """,
)
def co_axis_index_outer_shard_map(jax):
    from jax._src import shard_map
    from jax._src.lax import parallel

    bound = []  # the names of each shard_map around the one whose body is traced, and its own

    @around(shard_map, "_shard_map")
    def mapped(original, f, *, axis_names, **options):
        def body(*args):
            bound.append(axis_names)
            try:
                return f(*args)
            finally:
                bound.pop()

        return original(body, axis_names=axis_names, **options)

    @around(parallel, "axis_index")
    def axis_index(original, axis_name):
        index = original(axis_name)
        return index * 0 if len(bound) > 1 and not bound[-1].issuperset(names_of(axis_name)) else index
