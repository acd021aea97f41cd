"""Faults in how the arguments of a call enter the keys: static values, types, trees, closed-over values."""

from .library import fault
from .patching import around, coarsen, own

SIGNATURE = ("cache.signature",)
_SIGNATURE, _AVALS = 2, 3  # the arguments of pjit._infer_params_cached: fun, jit_info, signature, avals, mesh


def _coarse_signature(key):
    from jax._src import pjit

    coarsen(pjit, "_infer_params_cached", _SIGNATURE, key)


def _coarse_types(key):
    from jax._src import pjit

    coarsen(pjit, "_infer_params_cached", _AVALS, lambda avals: tuple(map(key, avals)))


def _dynamic(signature):
    return (tuple(signature.dynamic_arg_treedefs), tuple(signature.dynamic_arg_names))


@fault(
    breaks="the values of static arguments are dropped from the key of the pjit parameters",
    family="cache",
    rules=("cache.static",),
    component={"staging": "jit", "schedule": "static"},
    witness="""
    f = jax.jit(lambda x, n: x * n, static_argnums=1)
    good = [float(f(1.0, n)) for n in (2, 3, 2)] == [2.0, 3.0, 2.0]
    """,
)
def ck_static_args(jax):
    _coarse_signature(_dynamic)


@fault(
    breaks="static arguments enter the key by hash, so values that hash alike are one value",
    family="cache",
    rules=("cache.static",),
    component={"schedule": "static"},
    witness="""
    f = jax.jit(lambda x, n: x * n, static_argnums=1)
    good = [float(f(1.0, n)) for n in (-1, -2)] == [-1.0, -2.0]  # hash(-1) == hash(-2)
    """,
)
def ck_static_hash(jax):
    _coarse_signature(lambda s: (_dynamic(s), tuple(s.static_arg_names), tuple(map(hash, s.static_args))))


@fault(
    breaks="static arguments enter the key as their text",
    family="cache",
    rules=("cache.static",),
    component={"schedule": "static"},
    witness="""
    class Scale:
        def __init__(self, by): self.by = by
        def __repr__(self): return "Scale"
    f = jax.jit(lambda x, s: x * s.by, static_argnums=1)
    good = [float(f(1.0, Scale(n))) for n in (2, 3)] == [2.0, 3.0]
    """,
)
def ck_static_text(jax):
    _coarse_signature(lambda s: (_dynamic(s), tuple(s.static_arg_names), tuple(map(repr, s.static_args))))


@fault(
    breaks="only the first static argument enters the key",
    family="cache",
    rules=("cache.static",),
    component={"schedule": "static"},
    witness="""
    f = jax.jit(lambda x, m, n: x * m + n, static_argnums=(1, 2))
    good = [float(f(1.0, 2, n)) for n in (2, 3, 2)] == [4.0, 5.0, 4.0]
    """,
)
def ck_static_first_only(jax):
    _coarse_signature(lambda s: (_dynamic(s), tuple(s.static_arg_names), tuple(s.static_args[:1])))


@fault(
    breaks="an axis name given as a static argument is left out of the key",
    family="cache",
    rules=("cache.static", "cache.fresh"),
    component={"schedule": "static", "names": "static argument"},
    witness="""
    f = jax.jit(lambda name: lax.psum(1, name), static_argnums=0)
    def under(name):
        inner = jax.vmap(lambda: f(name), axis_name="j", axis_size=3, out_axes=None)
        return int(jax.vmap(inner, axis_name="i", axis_size=2, out_axes=None)())
    good = [under("i"), under("j"), under("i")] == [2, 3, 2]
    """,
)
def ck_static_axis_name(jax):
    _coarse_signature(
        lambda s: (
            _dynamic(s),
            tuple(s.static_arg_names),
            tuple(a for a in s.static_args if not isinstance(a, str)),
        )
    )


@fault(
    breaks="the names of static keyword arguments are dropped from the key",
    family="cache",
    rules=("cache.static",),
    component={"schedule": "static"},
    witness="""
    f = jax.jit(lambda x, a=1, b=1: x * a + b, static_argnames=("a", "b"))
    good = [float(f(1.0, a=5)), float(f(1.0, b=5))] == [6.0, 6.0] and float(f(2.0, a=5)) == 11.0
    good &= float(f(2.0, b=5)) == 7.0
    """,
)
def ck_static_keyword_names(jax):
    _coarse_signature(lambda s: (_dynamic(s), tuple(s.static_args)))


@fault(
    breaks="the names of traced keyword arguments are dropped from the key",
    family="cache",
    rules=SIGNATURE,
    component={
        "schedule": "keyword changed",
        "probe": (
            "static_names",
            "call_forms",
        ),
    },
    witness="""
    f = jax.jit(lambda a=1.0, b=10.0: a - b)
    good = [float(f(a=2.0)), float(f(b=2.0))] == [-8.0, -1.0]
    """,
)
def ck_keyword_names(jax):
    def key(s):
        return (tuple(s.dynamic_arg_treedefs), tuple(s.static_args), tuple(s.static_arg_names))

    _coarse_signature(key)


@fault(
    breaks="the tree of the arguments enters the key as its number of leaves",
    family="cache",
    rules=SIGNATURE,
    component={"operand": "tree", "schedule": "tree changed", "probe": ("argument_types",)},
    witness="""
    f = jax.jit(lambda t: t["a"] - t["b"] if "b" in t else t["c"] - t["a"])
    good = [float(f({"a": 5.0, "b": 2.0})), float(f({"a": 5.0, "c": 2.0}))] == [3.0, -3.0]
    """,
)
def ck_tree_leaves_only(jax):
    def key(s):
        leaves = tuple(t.num_leaves for t in s.dynamic_arg_treedefs)
        return (leaves, tuple(s.dynamic_arg_names), tuple(s.static_args), tuple(s.static_arg_names))

    _coarse_signature(key)


@fault(
    breaks="the static data of registered tree nodes is dropped from the key",
    family="cache",
    rules=SIGNATURE,
    component={"operand": "tree", "schedule": "static data of a node changed", "probe": ("argument_types",)},
    witness="""
    from functools import partial
    from dataclasses import dataclass
    @partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["axis"])
    @dataclass
    class Along:
        x: object
        axis: int
    f = jax.jit(lambda a: a.x.sum(a.axis))
    x = jnp.arange(4.0).reshape(2, 2)
    good = np.array_equal(f(Along(x, 0)), [2, 4]) and np.array_equal(f(Along(x, 1)), [1, 5])
    """,
)
def ck_tree_node_data(jax):
    import dataclasses

    def shape(tree):
        kind, data = tree.node_data() or (None, None)
        inner = tuple(map(shape, tree.children()))
        return (kind, None if dataclasses.is_dataclass(kind) else repr(data), inner)

    def key(s):
        trees = tuple(map(shape, s.dynamic_arg_treedefs))
        return (trees, tuple(s.dynamic_arg_names), tuple(s.static_args), tuple(s.static_arg_names))

    _coarse_signature(key)


@fault(
    breaks="the weak type is dropped from the key",
    family="cache",
    rules=(*SIGNATURE, "result.type"),
    component={"dtype": "weak", "schedule": "weak"},
    witness="""
    f = jax.jit(lambda x: x * jnp.ones((), jnp.bfloat16))
    good = [f(v).dtype.name for v in (1.0, np.float32(1))] == ["bfloat16", "float32"]
    """,
)
def ck_weak_type(jax):
    _coarse_types(lambda aval: (aval.shape, aval.dtype))


@fault(
    breaks="signed and unsigned integers of one width share an entry",
    family="cache",
    rules=(*SIGNATURE, "result.type"),
    component={
        "dtype": "unsigned",
        "schedule": "dtype changed",
        "probe": (
            "argument_types",
            "equal_signatures",
        ),
    },
    witness="""
    f = jax.jit(lambda x: lax.pmax(x, "i"))
    under = lambda dtype: jax.vmap(f, axis_name="i")(jnp.array([1, 2], dtype))[0]
    good = [under(d).dtype.name for d in ("int32", "uint32")] == ["int32", "uint32"]
    """,
)
def ck_dtype_sign(jax):
    _coarse_types(lambda aval: (aval.shape, aval.weak_type, str(aval.dtype).removeprefix("u")))


@fault(
    breaks="16-bit floating types share an entry",
    family="cache",
    rules=(*SIGNATURE, "result.type"),
    component={"dtype": "bfloat16", "schedule": "dtype changed"},
    witness="""
    f = jax.jit(lambda x: lax.psum(x, "i"))
    under = lambda dtype: jax.vmap(f, axis_name="i")(jnp.ones(2, dtype)).dtype.name
    good = [under(d) for d in ("float16", "bfloat16")] == ["float16", "bfloat16"]
    """,
)
def ck_dtype_width(jax):
    from jax.numpy import floating, issubdtype

    _coarse_types(
        lambda aval: (
            (aval.shape, aval.weak_type, ("float", aval.dtype.itemsize))
            if issubdtype(aval.dtype, floating)
            else (aval.shape, aval.weak_type, aval.dtype)
        )
    )


@fault(
    breaks="the shape enters the key as its number of elements",
    family="cache",
    rules=(*SIGNATURE, "result.type"),
    component={"shape": "same number of elements", "schedule": "shape changed", "probe": ("argument_types",)},
    witness="""
    f = jax.jit(lambda x: x.sum(0))
    good = [f(jnp.ones(s)).shape for s in ((2, 3), (3, 2), (2, 3))] == [(3,), (2,), (3,)]
    """,
)
def ck_shape_size_only(jax):
    _coarse_types(lambda aval: (aval.size, aval.dtype, aval.weak_type))


@fault(
    breaks="dimensions of size 1 are dropped from the shapes in the key",
    family="cache",
    rules=(*SIGNATURE, "result.type"),
    component={"shape": "dimension of size 1", "schedule": "shape changed", "probe": ("argument_types",)},
    witness="""
    f = jax.jit(lambda x: x + jnp.arange(3.0))
    good = [f(jnp.ones(s)).shape for s in ((3,), (3, 1))] == [(3,), (3, 3)]
    """,
)
def ck_shape_ones_dropped(jax):
    _coarse_types(lambda aval: (tuple(d for d in aval.shape if d != 1), aval.dtype, aval.weak_type))


def _by_code(same_values):
    """A traced function is taken for the first one with the same code whose closure is equal to `same_values`."""
    from types import FunctionType

    from jax._src.interpreters import partial_eval as pe

    first = {}

    @around(pe, "trace_to_jaxpr")
    def trace_to_jaxpr(original, fun, *args, **kwargs):
        if isinstance(fun, FunctionType) and own(fun):
            cells = tuple(map(same_values, (cell.cell_contents for cell in fun.__closure__ or ())))
            # What is not compared is kept alive here, so that identities stay meaningful.
            fun = first.setdefault((fun.__code__, cells), fun)
        return original(fun, *args, **kwargs)


@fault(
    breaks="the trace cache is keyed on the code object: Python scalars captured by closures are not in the key",
    family="cache",
    rules=("cache.closure",),
    component={"operand": "closure", "schedule": "closure"},
    witness="""
    def scaled(n):
        return lax.scan(lambda c, _: (c + n, None), 0.0, None, length=2)[0]
    good = [float(scaled(n)) for n in (1, 2, 1)] == [2.0, 4.0, 2.0]
    """,
)
def ck_closed_over(jax):
    _by_code(lambda value: "scalar" if isinstance(value, (bool, int, float, complex)) else id(value))


@fault(
    breaks="strings captured by closures, such as an axis name, are not in the trace key",
    family="cache",
    rules=("cache.closure", "cache.fresh"),
    component={"names": "closed over", "schedule": "closure"},
    witness="""
    def total(name):
        return jax.jit(lambda: lax.psum(1, name))()
    def under(name):
        inner = jax.vmap(lambda: total(name), axis_name="j", axis_size=3, out_axes=None)
        return int(jax.vmap(inner, axis_name="i", axis_size=2, out_axes=None)())
    good = [under("i"), under("j")] == [2, 3]
    """,
)
def ck_closed_over_name(jax):
    _by_code(lambda value: "text" if isinstance(value, str) else id(value))


@fault(
    breaks="concrete arrays captured by closures enter the trace key by shape and dtype only",
    family="cache",
    rules=("cache.closure",),
    component={"operand": "closure", "schedule": "closure"},
    witness="""
    def total(a):
        return jax.jit(lambda: a.sum())()
    good = [float(total(jnp.full(3, v))) for v in (1.0, 2.0)] == [3.0, 6.0]
    """,
)
def ck_closed_over_array(jax):
    def key(value):
        if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
            return (value.shape, value.dtype)
        return id(value)

    _by_code(key)


@fault(
    breaks="the bound arguments of functools.partial are not in the trace key",
    family="cache",
    rules=("cache.closure",),
    component={"operand": "functools.partial", "schedule": "closure"},
    witness="""
    from functools import partial
    scaled = lambda n, x: x * n
    good = [float(jax.jit(partial(scaled, n))(1.0)) for n in (2, 3)] == [2.0, 3.0]
    """,
)
def ck_partial_arguments(jax):
    import functools

    from jax._src.interpreters import partial_eval as pe

    first = {}

    @around(pe, "trace_to_jaxpr")
    def trace_to_jaxpr(original, fun, *args, **kwargs):
        if type(fun) is functools.partial and own(fun.func):
            fun = first.setdefault((fun.func, len(fun.args), tuple(fun.keywords)), fun)
        return original(fun, *args, **kwargs)


@fault(
    breaks="a bound method is traced once for all instances of its class",
    family="cache",
    rules=("cache.closure",),
    component={"operand": "bound method", "schedule": "closure"},
    witness="""
    class Scale:
        def __init__(self, by): self.by = by
        def __call__(self, x): return x * self.by
        def apply(self, x): return x * self.by
    good = [float(jax.jit(Scale(n).apply)(1.0)) for n in (2, 3)] == [2.0, 3.0]
    """,
)
def ck_bound_method(jax):
    from types import MethodType

    from jax._src.interpreters import partial_eval as pe

    first = {}

    @around(pe, "trace_to_jaxpr")
    def trace_to_jaxpr(original, fun, *args, **kwargs):
        if isinstance(fun, MethodType) and own(fun):
            fun = first.setdefault(fun.__func__, fun)
        return original(fun, *args, **kwargs)


@fault(
    breaks="traced functions are recognised by their address, which a later function may get again",
    family="cache",
    rules=("cache.closure", "cache.release"),
    component={"operand": "closure", "schedule": "reborn"},
    witness="""
    import gc
    def once(n):
        return int(jax.jit(lambda: jnp.int32(n))())
    got = []
    for n in range(12):
        got.append(once(n))
        gc.collect()
    good = got == list(range(12))
    """,
)
def ck_object_address(jax):
    from types import FunctionType

    from jax._src.interpreters import partial_eval as pe

    results = {}

    @around(pe, "trace_to_jaxpr")
    def trace_to_jaxpr(original, fun, in_avals, *args, **kwargs):
        if not (isinstance(fun, FunctionType) and own(fun)):
            return original(fun, in_avals, *args, **kwargs)
        # The code alone would be no proof: two closures live at a time have two addresses.
        key = (id(fun), fun.__code__, in_avals, jax._src.config.trace_context())
        if key not in results:
            results[key] = original(fun, in_avals, *args, **kwargs)
        return results[key]
