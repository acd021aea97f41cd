"""Faults in checkpoint, custom derivative rules, eval_shape, lower, compile and export."""

from .library import fault
from .patching import around, around_rule, inside


@fault(
    breaks="the cotangents of a checkpointed function that contains a collective are doubled",
    family="control",
    rules=("checkpoint.value", "derivative.reverse"),
    component={"staging": "checkpoint", "derivative": "vjp", "leaf": "any"},
    witness="""
    f = jax.checkpoint(lambda x: lax.psum(x * x, "i"))
    good = jax.vmap(jax.grad(f), axis_name="i")(jnp.array([1.0, 3.0])).tolist() == \
        jax.vmap(jax.grad(lambda x: lax.psum(x * x, "i")), axis_name="i")(jnp.array([1.0, 3.0])).tolist()
    """,
)
def cf_remat_cotangent(jax):
    from jax._src import ad_checkpoint
    from jax._src.interpreters import ad

    from .branches import collectives_in

    @around_rule(ad.fancy_transposes, ad_checkpoint.remat_p)
    def transpose(original, cts, *args, jaxpr, **params):
        if collectives_in(jaxpr):
            cts = [ct if isinstance(ct, ad.Zero) else 2 * ct for ct in cts]
        return original(cts, *args, jaxpr=jaxpr, **params)


@fault(
    breaks="what a checkpointed function computes from axis_index is that of device 0",
    family="control",
    rules=("checkpoint.value", "axis_index.position"),
    component={"staging": "checkpoint", "leaf": "axis_index"},
    witness="""
    f = jax.checkpoint(lambda x: x * lax.axis_index("i"))
    good = jax.vmap(f, axis_name="i")(jnp.ones(3)).tolist() == [0, 1, 2]
    """,
)
def cf_remat_axis_index(jax):
    from jax._src.lax import parallel

    @around(parallel, "axis_index")
    def axis_index(original, axis_name):
        return original(axis_name) * (0 if inside("checkpoint / remat") else 1)


@fault(
    breaks="jax.checkpoint ignores its policy and saves nothing",
    family="control",
    rules=("checkpoint.value",),
    component={"staging": "checkpoint", "option": "policy"},
    witness="""
    def sines(policy):
        f = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=policy)
        return str(jax.make_jaxpr(jax.grad(f))(1.0)).count(" sin ")
    policies = jax.checkpoint_policies
    good = sines(policies.everything_saveable) < sines(policies.nothing_saveable)
    """,
)
def cf_remat_policy(jax):
    from jax._src import ad_checkpoint

    @around(ad_checkpoint, "checkpoint")
    def checkpoint(original, fun, *, policy=None, **options):
        return original(fun, **options)


@fault(
    breaks="the derivative rule of a custom_jvp function is ignored in the body of a scan",
    family="control",
    rules=("custom.rule", "derivative.forward"),
    component={"staging": "custom_jvp", "control": "scan", "derivative": "jvp"},
    witness="""
    g = jax.custom_jvp(lambda x: x * 2)
    g.defjvp(lambda p, t: (g(*p), 7 * t[0]))
    f = lambda x: lax.scan(lambda c, _: (g(c), None), x, None, length=1)[0]
    good = float(jax.jvp(f, (1.0,), (1.0,))[1]) == 7.0
    """,
)
def cf_custom_jvp_scan(jax):
    _rule_ignored("process_custom_jvp_call", "scan")


@fault(
    breaks="the derivative rule of a custom_vjp function is ignored in the branches of cond",
    family="control",
    rules=("custom.rule", "derivative.reverse"),
    component={"staging": "custom_vjp", "control": "cond", "derivative": "vjp"},
    witness="""
    g = jax.custom_vjp(lambda x: x * 2)
    g.defvjp(lambda x: (g(x), None), lambda _, t: (7 * t,))
    f = lambda x, p: lax.cond(p, g, lambda v: v, x)
    good = float(jax.grad(jax.jit(f))(1.0, True)) == 7.0
    """,
)
def cf_custom_vjp_cond(jax):
    _rule_ignored("process_custom_vjp_call", "cond")


def _rule_ignored(method, kind):
    """Staging a custom_jvp or custom_vjp function in a body of this kind: only what it computes is staged."""
    from jax._src import core
    from jax._src.interpreters import partial_eval as pe

    @around(pe.DynamicJaxprTrace, method)
    def process(original, self, primitive, fun, *rest, **params):
        if not inside(kind, trace=self):
            return original(self, primitive, fun, *rest, **params)
        with core.set_current_trace(self):
            return fun.call_wrapped(*rest[-1])


@fault(
    breaks="the derivative rule of a custom_vjp function is ignored under vmap with an axis name",
    family="control",
    rules=("custom.rule", "derivative.reverse"),
    component={"staging": "custom_vjp", "binder": "vmap", "derivative": "vjp"},
    witness="""
    g = jax.custom_vjp(lambda x: x * lax.psum(1, "i"))
    g.defvjp(lambda x: (g(x), None), lambda _, t: (7 * t,))
    f = lambda x: jax.vmap(g, axis_name="i")(x).sum()
    good = jax.grad(f)(jnp.ones(3)).tolist() == [7.0] * 3
    """,
)
def cf_custom_vjp_vmap(jax):
    from jax._src import core
    from jax._src.interpreters import batching

    @around(batching.BatchTrace, "process_custom_vjp_call")
    def process(original, self, primitive, fun, fwd, bwd, tracers, **params):
        with core.set_current_trace(self):
            return fun.call_wrapped(*tracers)


@fault(
    breaks="two non-differentiable arguments reach the backward rule of custom_vjp in reverse",
    family="control",
    rules=("custom.rule", "derivative.reverse"),
    component={"staging": "custom_vjp", "option": "nondiff_argnums"},
    witness="""
    from functools import partial
    g = jax.custom_vjp(lambda x, a, b: x * a - b, nondiff_argnums=(1, 2))
    g.defvjp(lambda x, a, b: (g(x, a, b), None), lambda a, b, _, t: (a * t,))
    good = float(jax.grad(g)(1.0, 3.0, 5.0)) == 3.0
    """,
)
def cf_custom_vjp_nondiff(jax):
    from jax._src import custom_derivatives

    @around(custom_derivatives.custom_vjp, "defvjp")
    def defvjp(original, self, fwd, bwd, *args, **options):
        count = len(self.nondiff_argnums)
        if count < 2:
            return original(self, fwd, bwd, *args, **options)
        return original(self, fwd, lambda *a: bwd(*a[:count][::-1], *a[count:]), *args, **options)


@fault(
    breaks="jax.eval_shape loses the weak type",
    family="control",
    rules=("result.type",),
    component={"staging": "eval_shape", "dtype": "weak"},
    witness="good = jax.eval_shape(lambda x: x * 2, 1.0).weak_type",
)
def cf_eval_shape_weak(jax):
    from jax._src import api

    @around(api, "eval_shape")
    def eval_shape(original, fun, *args, **kwargs):
        shapes = original(fun, *args, **kwargs)
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=s.sharding), shapes)


@fault(
    breaks="eval_shape of an all_gather along a named axis has the axis last",
    family="control",
    rules=("result.type",),
    component={"staging": "eval_shape", "leaf": "all_gather"},
    witness="""
    f = jax.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")
    x = jnp.zeros((3, 2))
    good = jax.eval_shape(f, x).shape == f(x).shape == (3, 3, 2)
    """,
)
def cf_eval_shape_all_gather(jax):
    from jax._src import api
    from jax._src.lax import parallel

    asking = []

    @around(api, "eval_shape")
    def eval_shape(original, fun, *args, **kwargs):
        asking.append(True)
        try:
            # A function of its own: what is traced wrongly is not found by sound calls.
            return original(lambda *a, **k: fun(*a, **k), *args, **kwargs)
        finally:
            asking.pop()

    @around(parallel, "all_gather")
    def all_gather(original, x, axis_name, *, axis=0, **options):
        gathered = original(x, axis_name, axis=axis, **options)
        return jax.tree.map(lambda g: jax.numpy.moveaxis(g, axis, -1), gathered) if asking else gathered


@fault(
    breaks="lower() of a function that was lowered before returns the first text, whatever the arguments",
    family="control",
    rules=("lower.text", "cache.signature"),
    component={
        "staging": "lower",
        "schedule": "shape changed",
        "probe": (
            "lowering",
            "compiled_arguments",
        ),
    },
    witness="""
    f = jax.jit(lambda x: x + 1)
    good = [("tensor<%dxf32>" % n) in f.lower(jnp.ones(n)).as_text() for n in (2, 3)] == [True, True]
    """,
)
def cf_lower_stale(jax):
    from jax._src import pjit

    first = {}

    @around(pjit, "jit_lower")
    def lower(original, self, *args, **kwargs):
        return first.setdefault(id(self), (self, original(self, *args, **kwargs)))[1]


@fault(
    breaks="a compiled function called twice returns the first result",
    family="control",
    rules=("repeat.bitwise", "lower.text"),
    component={"staging": "compiled", "schedule": "entries"},
    witness="""
    f = jax.jit(lambda x: x + 1).lower(1.0).compile()
    good = [float(f(v)) for v in (1.0, 2.0)] == [2.0, 3.0]
    """,
)
def cf_compiled_second_call(jax):
    from jax._src import stages

    first = {}

    @around(stages.Compiled, "__call__")
    def call(original, self, *args, **kwargs):
        return first.setdefault(id(self), (self, original(self, *args, **kwargs)))[1]


@fault(
    breaks="an exported function returns two results of one type in reverse",
    family="control",
    rules=("export.roundtrip",),
    component={"staging": "export", "operand": "two results", "probe": ("exported",)},
    witness="""
    from jax import export
    f = export.export(jax.jit(lambda x: (x + 1, x * 10)))(jax.ShapeDtypeStruct((), jnp.float32))
    a, b = f.call(jnp.float32(3))
    good = (float(a), float(b)) == (4.0, 30.0)
    """,
)
def cf_export_results(jax):
    def change(results):
        if isinstance(results, tuple) and len(results) == 2:
            a, b = results
            if jax.tree.structure(a) == jax.tree.structure(b) and a.shape == b.shape and a.dtype == b.dtype:
                return (b, a)
        return results

    _exported(change)


@fault(
    breaks="unsigned results of an exported function come back signed",
    family="control",
    rules=("export.roundtrip", "result.type"),
    component={"staging": "export", "dtype": "unsigned", "probe": ("exported",)},
    witness="""
    from jax import export
    f = export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((), jnp.uint8))
    y = f.call(jnp.uint8(200))
    good = y.dtype == jnp.uint8 and int(y) == 201
    """,
)
def cf_export_unsigned(jax):
    def change(results):
        unsigned = jax.numpy.unsignedinteger
        flip = lambda y: y.astype(str(y.dtype)[1:]) if jax.numpy.issubdtype(y.dtype, unsigned) else y  # noqa: E731
        return jax.tree.map(flip, results)

    _exported(change)


def _exported(change):
    from jax._src.export import _export

    @around(_export.Exported, "call")
    def call(original, self, *args, **kwargs):
        return change(original(self, *args, **kwargs))
