"""What a backend can do, found by doing it: one small program for each capability, judged by value.

A program either works, is *declined* (the backend says that it does not implement it), gives a wrong value, or fails
in some other way. Only what is declined makes cases not applicable; all else is a finding. Each examination belongs
into a process that may die of it (see `survey`). `CAPABILITIES` is the one table: the doctor prints it, and a case
needs those whose pattern its rendered program matches.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import collectives, compat
from harness.dtypes import NAMES, WIDE, numpy_dtype
from harness.errors import NotApplicable

if TYPE_CHECKING:
    from harness.isolate import Parent

WORKS, DECLINED, WRONG, FAILED, DIED, UNKNOWN = "works", "declined", "wrong", "failed", "died", "unknown"
"""What an examination can find; `died` is said by the process that watched it."""

State = tuple[str, str]
"""(one of the words above, detail)."""

DTYPE = "float32"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A program and its right answer.

    Attributes:
      function: of `arguments`, traced like any program.
      arguments: NumPy arrays.
      want: the right value.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    want: np.ndarray


@dataclasses.dataclass(frozen=True)
class Capability:
    """One thing a backend may lack.

    Attributes:
      name: short, unique.
      about: what it is, for people.
      used: regular expression that a rendered program matches when it needs the capability; "" for none.
      trial: the program for a dtype, or
      fact: what to do where a program is not enough; True where it works.
      typed: whether dtypes are worth telling apart.
      without: kinds of dtypes (as NumPy's letters) that JAX does not define it for.
      since: first JAX release that has it.
    """

    name: str
    about: str
    used: str
    trial: Callable[[str], Trial] | None = None
    fact: Callable[[], bool] | None = None
    typed: bool = False
    without: str = ""
    since: str = ""


Run = Callable[[Callable[[], Trial]], tuple[Trial, np.ndarray | None]]
"""Makes a trial and executes it; None where nothing is executed (it was compiled)."""


def execute(make: Callable[[], Trial]) -> tuple[Trial, np.ndarray | None]:
    """Runs a trial on the default backend."""
    import jax

    trial = make()
    return trial, np.asarray(jax.jit(trial.function)(*trial.arguments))


def examine(name: str, dtype: str = DTYPE, run: Run = execute) -> State:
    """Tries one capability in this process, with 64-bit types on where the dtype needs them."""
    import jax

    capability = BY_NAME[name]
    if compat.version(jax.__version__) < compat.version(capability.since or "0"):
        return DECLINED, f"JAX has it from {capability.since} on"
    wide = jax.config.read("jax_enable_x64")
    try:
        if dtype in WIDE:
            jax.config.update("jax_enable_x64", True)
        return _examine(capability, dtype, run)
    except NotApplicable as reason:
        return UNKNOWN, f"compiles; {reason}"
    except Exception as error:
        said = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        return (DECLINED if refusal(f"{type(error).__name__}: {error}") else FAILED), said
    finally:
        jax.config.update("jax_enable_x64", wide)


def _examine(capability: Capability, dtype: str, run: Run) -> State:
    if capability.trial is None:
        assert capability.fact is not None
        if run is not execute:
            return UNKNOWN, "nothing is executed here"
        return (WORKS, "") if capability.fact() else (WRONG, "the result is not what it should be")
    trial, got = run(functools.partial(capability.trial, dtype))
    if got is None:
        return WORKS, "compiles"
    same = got.shape == trial.want.shape and np.array_equal(got, trial.want)
    return (WORKS, "") if same else (WRONG, f"gave {_short(got)}, should be {_short(trial.want)}")


def _short(value: np.ndarray) -> str:
    return np.array2string(value, threshold=6, edgeitems=2).replace("\n", "")


def refusal(message: str) -> bool:
    """Whether an error message says that something is not implemented, rather than that something went wrong."""
    return any(word in message for word in compat.REFUSALS)


def needs(source: str, dtype: str) -> list[tuple[str, str]]:
    """The (capability, dtype) pairs a rendered program uses."""
    used = [c for c in CAPABILITIES if c.used and re.search(c.used, source)]
    return [("array", dtype), *((c.name, dtype if c.typed else DTYPE) for c in used)]


@functools.lru_cache(maxsize=512)
def _known(name: str, dtype: str, run: Run) -> State:
    return examine(name, dtype, run)


def lacking(source: str, dtype: str, run: Run = execute) -> str:
    """The first capability a program uses that this backend declines, and its words; "" where there is none."""
    for name, of in needs(source, dtype):
        state, detail = _known(name, of, run)
        if state == DECLINED:
            return f"the backend declines {describe(name, of)}: {detail}"
    return ""


def describe(name: str, dtype: str) -> str:
    return f"{name} of {dtype}" if BY_NAME[name].typed else name


def questions() -> Iterator[tuple[str, str]]:
    """What the doctor asks: everything once, and every dtype of what has several."""
    for capability in CAPABILITIES:
        dtypes = NAMES if capability.typed else (DTYPE,)
        kinds = {dtype: numpy_dtype(dtype).kind for dtype in dtypes}
        yield from ((capability.name, dtype) for dtype in dtypes if kinds[dtype] not in capability.without)


def survey(parent: Parent, seconds: float) -> Iterator[tuple[str, str, State]]:
    """(capability, dtype, state) for every question, each asked in a process that may die of it.

    Args:
      parent: forks the processes.
      seconds: one answer may take.
    """
    from harness.isolate import Death

    runner = parent.fork()
    try:
        for name, dtype in questions():
            answer = runner.ask({"examine": name, "dtype": dtype}, seconds)
            if isinstance(answer, Death):
                yield name, dtype, (DIED, _how(answer, seconds))
                runner.close()
                runner = parent.fork()
            else:
                state, detail = answer["results"]
                yield name, dtype, (state, detail)
    finally:
        runner.close()


def _how(death: Any, seconds: float) -> str:
    if death.hang:
        return f"no answer within {seconds:.0f} s"
    return f"the process ended with {f'signal {-death.status}' if (death.status or 0) < 0 else f'status {death.status}'}"


# The programs. Each runs over all devices (one is enough), on a mesh of one axis `i`.


def _members(dtype: str) -> np.ndarray:
    """One row for each device, of as many small numbers: exact in every dtype, summed or not."""
    import jax

    count = min(jax.device_count(), 8)
    return (np.arange(count * count).reshape(count, count) % 3).astype(numpy_dtype(dtype))


def _mesh(count: int, **settings: Any) -> Any:
    import jax

    return jax.sharding.Mesh(np.array(jax.devices()[:count]), ("i",), **settings)


def _manual(body: Callable[[Any], Any]) -> Callable[[str], Trial]:
    """A trial of `body` on each device's row; what it must give is left to the caller."""

    def trial(dtype: str) -> Trial:
        from jax.sharding import PartitionSpec as P

        x = _members(dtype)
        call = compat.shard_map(lambda x: body(x[0])[None], _mesh(len(x)), P("i"), P("i"))
        return Trial(call, (x,), x)

    return trial


def _collective(
    word: str,
    call: Callable[[Any, Any], Any],
    reference: Callable[[np.ndarray], np.ndarray],
    without: str = "",
) -> Capability:
    """A collective of jax.lax over all devices, against its NumPy meaning."""

    def trial(dtype: str) -> Trial:
        import jax

        made = _manual(lambda x: call(jax.lax, x))(dtype)
        return dataclasses.replace(made, want=reference(made.arguments[0]))

    about = f"jax.lax.{word} over the devices of a mesh"
    return Capability(word, about, rf"lax\.{word}\(", trial, typed=True, without=without)


def _ring(count: int) -> list[tuple[int, int]]:
    return [(k, (k + 1) % count) for k in range(count)]


def _ragged(dtype: str) -> Trial:
    """Every member sends its k-th number to member k: an all_to_all in ragged terms."""
    import jax
    from jax.sharding import PartitionSpec as P

    x = _members(dtype)
    count = len(x)
    starts = np.broadcast_to(np.arange(count, dtype=np.int32), (count, count)).copy()
    ones = np.ones((count, count), np.int32)
    places = np.broadcast_to(np.arange(count, dtype=np.int32)[:, None], (count, count)).copy()

    def body(x: Any, starts: Any, ones: Any, places: Any) -> Any:
        out = jax.numpy.zeros_like(x[0])
        return jax.lax.ragged_all_to_all(x[0], out, starts[0], ones[0], places[0], ones[0], axis_name="i")[
            None
        ]

    call = compat.shard_map(body, _mesh(count), (P("i"),) * 4, P("i"))
    return Trial(call, (x, starts, ones, places), x.T.copy())


def _array(dtype: str) -> Trial:
    x = np.arange(6).reshape(2, 3).astype(numpy_dtype(dtype))
    return Trial(lambda x: x.T, (x,), x.T)


def _partial(_: str) -> Trial:
    """A shard_map that is manual over one axis of a mesh of two."""
    import jax
    from jax.sharding import Mesh
    from jax.sharding import PartitionSpec as P

    count = min(jax.device_count(), 8)
    other = 2 if count % 2 == 0 else 1
    mesh = Mesh(np.array(jax.devices()[:count]).reshape(count // other, other), ("i", "other"))
    x = np.arange(count, dtype=np.float32)
    call = compat.shard_map(lambda x: jax.lax.psum(x, "i"), mesh, P("i"), P("i"), manual=frozenset({"i"}))
    sums = x.reshape(count // other, -1).sum(axis=0)
    return Trial(call, (x,), np.tile(sums, count // other))


def _explicit(_: str) -> Trial:
    import jax
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    count = min(jax.device_count(), 8)
    mesh = _mesh(count, axis_types=(AxisType.Explicit,))
    sharding = NamedSharding(mesh, P("i"))
    x = np.arange(count, dtype=np.float32)
    double = compat.shard_map(lambda x: x * 2, mesh, P("i"), P("i"))
    return Trial(lambda x: double(jax.sharding.reshard(x, sharding)), (x,), x * 2)


def _pmapped(_: str) -> Trial:
    import jax

    x = _members("float32")
    devices = jax.devices()[: len(x)]
    call = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i", devices=devices)
    return Trial(call, (x,), collectives.psum(x))


def _loops(_: str) -> Trial:
    import jax

    def body(x: Any) -> Any:
        x = jax.lax.scan(lambda c, _: (c + 1, None), x, None, length=3)[0]
        x = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + 1), (0, x))[1]
        return jax.lax.cond(x[0] > 5, lambda x: x + 1, lambda x: x, x)

    x = np.zeros(2, np.float32)
    return Trial(body, (x,), x + 7)


def _random(_: str) -> Trial:
    import jax

    key = np.asarray(jax.random.PRNGKey(7))
    words = np.array([0]), np.array([7])
    counters = np.zeros(4, np.uint32), np.arange(4, dtype=np.uint32)
    if jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]  # element k: both words of (0, k)
        high, low = collectives.threefry(_uint32(words), counters)
        bits = high ^ low
    else:  # halves of the counters in the two words
        halves = np.arange(2, dtype=np.uint32), np.arange(2, 4, dtype=np.uint32)
        bits = np.concatenate(collectives.threefry(_uint32(words), halves))
    return Trial(lambda key: jax.random.bits(key, (4,)), (key,), bits)


def _uint32(words: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return words[0].astype(np.uint32), words[1].astype(np.uint32)


def _sort(_: str) -> Trial:
    import jax.numpy as jnp

    x = np.array([3, 1, 2], np.float32)
    return Trial(lambda x: jnp.sort(x), (x,), np.sort(x))


def _linalg(_: str) -> Trial:
    import jax.numpy as jnp

    x = np.diag(np.array([4, 9, 16], np.float32))
    return Trial(lambda x: jnp.linalg.cholesky(x), (x,), np.sqrt(x))


def _matmul(_: str) -> Trial:
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    return Trial(lambda x: x @ x, (x,), x @ x)


def _callback() -> bool:
    import jax

    def program(x: Any) -> Any:
        return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return np.asarray(jax.jit(program)(np.ones(2, np.float32))).tolist() == [2, 2]


def _printing() -> bool:
    import jax

    seen: list[Any] = []

    def program(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(np.asarray(v).tolist()), x)
        return x

    jax.jit(program)(np.float32(3)).block_until_ready()
    jax.effects_barrier()
    return seen == [3]


def _donation() -> bool:
    import jax

    x = jax.device_put(np.ones(8, np.float32))
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x).block_until_ready()
    return x.is_deleted() and np.asarray(y).tolist() == [2] * 8


def _memories() -> bool:
    import jax
    from jax.sharding import SingleDeviceSharding

    device = jax.devices()[0]
    kinds = sorted(memory.kind for memory in device.addressable_memories())
    if "pinned_host" not in kinds:
        raise NotImplementedError(f"memory kinds are {', '.join(kinds)}")
    there = jax.device_put(np.ones(2), SingleDeviceSharding(device, memory_kind="pinned_host"))
    return bool(there.sharding.memory_kind == "pinned_host" and np.asarray(there).tolist() == [1, 1])


def _serialised() -> bool:
    import jax
    from jax.experimental import serialize_executable

    x = np.ones(2, np.float32)
    parts = serialize_executable.serialize(jax.jit(lambda x: x + 1).lower(x).compile())
    load = serialize_executable.deserialize_and_load
    where = inspect.signature(load).parameters.keys() & {
        "execution_devices"
    }  # older releases take all devices
    loaded = load(*parts, **dict.fromkeys(where, jax.devices()[:1]))
    return np.asarray(loaded(x)).tolist() == [2, 2]


def _exported() -> bool:
    import jax
    from jax import export

    x = np.ones(2, np.float32)
    return np.asarray(export.export(jax.jit(lambda x: x + 1))(x).call(x)).tolist() == [2, 2]


def _wide() -> bool:
    import jax

    before = jax.config.read("jax_enable_x64")
    try:
        jax.config.update("jax_enable_x64", True)
        return int(jax.jit(lambda x: x + 1)(np.int64(2) ** 40)) == 2**40 + 1
    finally:
        jax.config.update("jax_enable_x64", before)


CAPABILITIES: tuple[Capability, ...] = (
    Capability("array", "arrays of a dtype, there and back", "", _array, typed=True),
    Capability("x64", "64-bit types", "jax_enable_x64|enable_x64", fact=_wide),
    _collective("psum", lambda lax, x: lax.psum(x, "i"), collectives.psum),
    _collective("pmean", lambda lax, x: lax.pmean(x, "i"), collectives.pmean),
    _collective("pmax", lambda lax, x: lax.pmax(x, "i"), collectives.pmax, without="c"),
    _collective("pmin", lambda lax, x: lax.pmin(x, "i"), collectives.pmin, without="c"),
    _collective(
        "ppermute",
        lambda lax, x: lax.ppermute(x, "i", _ring(len(x))),
        lambda x: collectives.ppermute(x, _ring(len(x))),
    ),
    _collective(
        "pbroadcast",
        lambda lax, x: lax.pbroadcast(x, "i", 0),
        lambda x: collectives.pbroadcast(x, 0).copy(),
    ),
    _collective(
        "all_gather",
        lambda lax, x: lax.all_gather(x, "i"),
        lambda x: collectives.all_gather(x, 1, 0, False),
    ),
    _collective(
        "all_to_all",
        lambda lax, x: lax.all_to_all(x, "i", 0, 0),
        lambda x: collectives.all_to_all(x, 1, 0, 0, False),
    ),
    _collective(
        "psum_scatter",
        lambda lax, x: lax.psum_scatter(x, "i", tiled=True),
        lambda x: collectives.psum_scatter(x, 1, 0, True),
        without="b",
    ),
    _collective(
        "axis_index",
        lambda lax, x: x + lax.axis_index("i").astype(x.dtype),
        lambda x: (x + np.arange(len(x)).astype(x.dtype)[:, None]).astype(x.dtype),
    ),
    Capability(
        "ragged_all_to_all",
        "jax.lax.ragged_all_to_all over the devices of a mesh",
        r"ragged_all_to_all\(",
        _ragged,
        since="0.4.38",
    ),
    Capability("pmap", "one device for each position of a mapped axis", r"jax\.pmap\(", _pmapped),
    Capability(
        "partial_manual",
        "a shard_map over some of a mesh's axes",
        r"axis_names=|auto=frozenset",
        _partial,
        since="0.6.2",
    ),
    Capability(
        "explicit_axes", "mesh axes of type explicit", r"AxisType\.Explicit", _explicit, since="0.7.0"
    ),
    Capability(
        "loops", "scan, while_loop and cond", r"lax\.(scan|while_loop|fori_loop|cond|switch|map)\(", _loops
    ),
    Capability("random", "jax.random's Threefry bits", r"jax\.random\.", _random),
    Capability("sort", "sorting", r"\.(arg)?sort\(", _sort),
    Capability("matmul", "matrix products of whole numbers, exact", r"jnp\.(dot|matmul|einsum)\(", _matmul),
    Capability(
        "linalg", "dense factorisations (LAPACK or its like)", r"jnp\.linalg\.|lax\.linalg\.", _linalg
    ),
    Capability("callback", "pure_callback from a program to Python", r"(pure|io)_callback\(", fact=_callback),
    Capability("print", "debug.callback and debug.print", r"debug\.(callback|print)\(", fact=_printing),
    Capability("donation", "donated arguments give their memory", r"donate_arg", fact=_donation),
    Capability("memory_kinds", "arrays in pinned host memory", r"pinned_host", fact=_memories),
    Capability("serialisation", "executables to bytes and back", r"serialize_executable", fact=_serialised),
    Capability("export", "jax.export and back", r"export\.export\(", fact=_exported),
)

BY_NAME = {capability.name: capability for capability in CAPABILITIES}
