"""Faults in how the axis environment enters the keys of all of JAX's caches."""

from .library import fault
from .patching import around, rekey

FRESH = ("cache.fresh",)


def equal_environments(key):
    """Two axis environments are one to every cache key when `key` of their sizes (a dict name -> size) is equal."""
    from jax._src.core import AxisEnv

    AxisEnv.__eq__ = lambda self, other: key(self.axis_sizes) == key(other.axis_sizes)
    AxisEnv.__hash__ = lambda self: hash(key(self.axis_sizes))


def sizes_of(binding, revisit="2, 3, 2"):
    """A witness: what a jitted psum of 1 answers when `i` is bound to these sizes in turn."""
    return f"""
    f = jax.jit(lambda: lax.psum(1, "i"))
    {binding}
    good = [int(under(n)) for n in ({revisit})] == [{revisit}]
    """


UNDER_VMAP = 'under = lambda n: jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)()'


@fault(
    breaks="the axis environment is dropped from every trace cache and jit key",
    family="cache",
    rules=FRESH,
    component={"staging": "jit", "size": "any"},
    witness=sizes_of(UNDER_VMAP),
)
def ck_axis_env_dropped(jax):
    equal_environments(lambda sizes: 0)


@fault(
    breaks="only the names of the bound axes are part of the cache keys, not their sizes",
    family="cache",
    rules=FRESH,
    component={"staging": "jit", "schedule": "sizes"},
    witness=sizes_of(UNDER_VMAP),
)
def ck_axis_names_only(jax):
    equal_environments(frozenset)


@fault(
    breaks="axis sizes enter the keys truncated to two bits, so 1 and 5 are one size",
    family="cache",
    rules=FRESH,
    component={"size": ("5", "6", "8")},
    witness=sizes_of(UNDER_VMAP, "1, 5, 2, 6"),
)
def ck_axis_hash_collision(jax):
    equal_environments(lambda sizes: frozenset((name, size % 4) for name, size in sizes.items()))


@fault(
    breaks="axis sizes enter the keys saturated at 4",
    family="cache",
    rules=FRESH,
    component={"size": ("4", "5", "6", "7", "8")},
    witness=sizes_of(UNDER_VMAP, "3, 5, 7, 5"),
)
def ck_axis_size_saturated(jax):
    equal_environments(lambda sizes: frozenset((name, min(size, 4)) for name, size in sizes.items()))


@fault(
    breaks="only the most recently bound axis enters the keys",
    family="cache",
    rules=FRESH,
    component={"binder": "vmap", "axes": 2, "schedule": "outer size changed"},
    witness="""
    f = jax.jit(lambda: lax.psum(1, "i"))
    inner = jax.vmap(f, axis_name="j", axis_size=4, out_axes=None)
    under = lambda n: int(jax.vmap(inner, axis_name="i", axis_size=n, out_axes=None)())
    good = [under(n) for n in (2, 3, 2)] == [2, 3, 2]
    """,
)
def ck_axis_innermost_only(jax):
    equal_environments(lambda sizes: tuple(sizes.items())[-1:])


@fault(
    breaks="only the outermost bound axis enters the keys",
    family="cache",
    rules=FRESH,
    component={"binder": "vmap", "axes": 2, "schedule": "inner size changed"},
    witness="""
    f = jax.jit(lambda: lax.psum(1, "i"))
    inner = lambda n: jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)
    under = lambda n: int(jax.vmap(inner(n), axis_name="j", axis_size=4, out_axes=None)())
    good = [under(n) for n in (2, 3, 2)] == [2, 3, 2]
    """,
)
def ck_axis_outermost_only(jax):
    equal_environments(lambda sizes: tuple(sizes.items())[:1])


@fault(
    breaks="names and sizes enter the keys as two unrelated sets, so swapped sizes collide",
    family="cache",
    rules=FRESH,
    component={"binder": "vmap", "axes": 2, "schedule": "swap"},
    witness="""
    f = jax.jit(lambda: lax.axis_size("i"))
    def under(i, j):
        inner = jax.vmap(f, axis_name="j", axis_size=j, out_axes=None)
        return int(jax.vmap(inner, axis_name="i", axis_size=i, out_axes=None)())
    good = [under(2, 3), under(3, 2), under(2, 3)] == [2, 3, 2]
    """,
)
def ck_axis_sizes_unpaired(jax):
    equal_environments(lambda sizes: (frozenset(sizes), tuple(sorted(sizes.values()))))


@fault(
    breaks="sizes enter the keys as their product",
    family="cache",
    rules=FRESH,
    component={"binder": "vmap", "axes": 2, "size": "equal product"},
    witness="""
    f = jax.jit(lambda: lax.axis_index("i").max() * 0 + lax.psum(1, "i"))
    def under(i, j):
        inner = jax.vmap(f, axis_name="j", axis_size=j, out_axes=None)
        return int(jax.vmap(inner, axis_name="i", axis_size=i, out_axes=0)()[0])
    good = [under(2, 6), under(3, 4), under(6, 2)] == [2, 3, 6]
    """,
)
def ck_axis_product(jax):
    import math

    equal_environments(lambda sizes: (frozenset(sizes), math.prod(sizes.values())))


@fault(
    breaks="axes of size 1 are left out of the keys, as if unbound",
    family="cache",
    rules=("error.unbound", "cache.fresh"),
    component={"size": 1, "schedule": "unbound"},
    witness="""
    f = jax.jit(lambda: lax.psum(2, "i"))
    jax.vmap(f, axis_name="i", axis_size=1, out_axes=None)()
    try:
        jax.vmap(f, axis_name="j", axis_size=1, out_axes=None)()
        good = False
    except NameError:
        good = True
    """,
)
def ck_axis_size_one(jax):
    equal_environments(lambda sizes: frozenset((name, size) for name, size in sizes.items() if size != 1))


@fault(
    breaks="axis names enter the keys by hash, so names that hash alike are one name",
    family="cache",
    rules=(*FRESH, "error.unbound"),
    component={"names": "object"},
    witness="""
    class Name:
        def __hash__(self): return 7
    a, b = Name(), Name()
    f = jax.jit(lambda: lax.psum(1, a))
    def under(outer, inner):
        g = jax.vmap(f, axis_name=inner, axis_size=3, out_axes=None)
        return int(jax.vmap(g, axis_name=outer, axis_size=2, out_axes=None)())
    good = [under(a, b), under(b, a)] == [2, 3]
    """,
)
def ck_axis_name_by_hash(jax):
    equal_environments(lambda sizes: (frozenset(map(hash, sizes)), tuple(sorted(sizes.values()))))


@fault(
    breaks="axis names enter the keys as their text, so 1 and '1' are one name",
    family="cache",
    rules=(*FRESH, "error.unbound"),
    component={"names": "int"},
    witness="""
    f = jax.jit(lambda: lax.psum(1, "1"))
    jax.vmap(f, axis_name="1", axis_size=3, out_axes=None)()
    try:
        jax.vmap(f, axis_name=1, axis_size=3, out_axes=None)()
        good = False
    except NameError:
        good = True
    """,
)
def ck_axis_name_by_text(jax):
    equal_environments(lambda sizes: frozenset((str(name), size) for name, size in sizes.items()))


@fault(
    breaks="only the first four characters of an axis name enter the keys",
    family="cache",
    rules=(*FRESH, "error.unbound"),
    component={"names": "long"},
    witness="""
    f = jax.jit(lambda: lax.psum(1, "batch_row"))
    jax.vmap(f, axis_name="batch_row", axis_size=3, out_axes=None)()
    try:
        jax.vmap(f, axis_name="batch_column", axis_size=3, out_axes=None)()
        good = False
    except NameError:
        good = True
    """,
)
def ck_axis_name_prefix(jax):
    equal_environments(lambda sizes: frozenset((str(name)[:4], size) for name, size in sizes.items()))


@fault(
    breaks="an axis that shadows one of the same name keeps the first size in the keys",
    family="cache",
    rules=FRESH,
    component={"names": "shadowed"},
    witness="""
    f = jax.jit(lambda: lax.axis_size("i"))
    inner = lambda: (f(), jax.vmap(f, axis_name="i", axis_size=3, out_axes=None)())
    a, b = jax.vmap(inner, axis_name="i", axis_size=2, out_axes=None)()
    good = (int(a), int(b)) == (2, 3)
    """,
)
def ck_axis_shadowed(jax):
    from jax._src.core import AxisEnv, no_axis_name

    # A shadowed name keeps, beside its new size, the mark of the first: that mark alone is compared.
    first = {}
    original = AxisEnv.extend_pure

    def extend_pure(self, name_size_pairs):
        pairs = list(name_size_pairs)
        new = original(self, pairs)
        if all(name in self.axis_sizes for name, _ in pairs if name is not no_axis_name):
            first[id(new)] = (new, first.get(id(self), (self, self))[1])
        return new

    AxisEnv.extend_pure = extend_pure
    key = lambda env: id(first.get(id(env), (env, env))[1])  # noqa: E731
    AxisEnv.__eq__ = lambda self, other: key(self) == key(other)
    AxisEnv.__hash__ = key


@fault(
    breaks="every binding of an axis makes a new key, so that no entry is ever found again",
    family="cache",
    rules=("cache.retrace", "cache.entries"),
    component={"schedule": "entries"},
    witness="""
    traces = []
    f = jax.jit(lambda: traces.append(1) or lax.psum(1, "i"))
    for n in (2, 3, 2, 3):
        jax.vmap(f, axis_name="i", axis_size=n, out_axes=None)()
    good = len(traces) == 2
    """,
)
def ck_never_hits(jax):
    from jax._src.core import AxisEnv

    AxisEnv._create = staticmethod(uninterned)


def uninterned(*fields):
    """An axis environment of its own, equal to no other."""
    from jax._src.core import AxisEnv

    env = object.__new__(AxisEnv)
    for name, value in zip(
        ("axis_sizes", "spmd_axis_names", "explicit_mesh_axis_names"), fields, strict=True
    ):
        object.__setattr__(env, name, value)
    return env


@fault(
    breaks="a vmap without a name makes a new axis environment, which causes a retrace",
    family="cache",
    rules=("cache.unseen",),
    component={"binder": "vmap", "schedule": "unseen"},
    witness="""
    traces = []
    f = jax.jit(lambda: traces.append(1) or jnp.float32(1))
    for n in (2, 3):
        jax.vmap(f, axis_size=n, out_axes=None)()
    good = len(traces) == 1
    """,
)
def ck_unnamed_vmap_seen(jax):
    from jax._src.core import AxisEnv, no_axis_name

    original = AxisEnv.extend_pure

    def extend_pure(self, name_size_pairs):
        pairs = list(name_size_pairs)
        new = original(self, pairs)
        if any(name is no_axis_name for name, _ in pairs):
            return uninterned(new.axis_sizes, new.spmd_axis_names, new.explicit_mesh_axis_names)
        return new

    AxisEnv.extend_pure = extend_pure


@fault(
    breaks="the axis environment of one thread is seen by threads that bind nothing",
    family="cache",
    rules=("cache.threads", "error.unbound"),
    component={"schedule": "threads"},
    witness="""
    import threading
    seen = []
    def other():
        try:
            seen.append(lax.axis_size("i"))
        except NameError:
            seen.append("unbound")
    def body(x):
        thread = threading.Thread(target=other)
        thread.start(); thread.join()
        return x
    jax.vmap(body, axis_name="i")(jnp.zeros(3))
    good = seen == ["unbound"]
    """,
)
def ck_axis_env_crosses_threads(jax):
    from jax._src import core

    @around(core.TracingContext, "set_axis_env")
    def set_axis_env(original, self, env):
        core.axis_env_state.set_global(env)
        return original(self, env)


@fault(
    breaks="each thread keeps its own traces",
    family="cache",
    rules=("cache.threads", "cache.retrace"),
    component={"schedule": "threads"},
    witness="""
    import threading
    traces = []
    f = jax.jit(lambda: traces.append(1) or lax.psum(1, "i"))
    call = lambda: jax.vmap(f, axis_name="i", axis_size=3, out_axes=None)()
    for _ in range(2):
        thread = threading.Thread(target=call)
        thread.start(); thread.join()
    call()
    good = len(traces) == 1
    """,
)
def ck_trace_per_thread(jax):
    import threading

    from jax._src import config, pjit
    from jax._src.interpreters import partial_eval as pe

    local = threading.local()

    def context():
        # Not the thread's identifier, which the next thread may get again.
        local.mark = getattr(local, "mark", None) or object()
        return (*config.trace_context(), local.mark)

    rekey(pjit, "_infer_params_cached", context)
    rekey(pe, "trace_to_jaxpr", context)
