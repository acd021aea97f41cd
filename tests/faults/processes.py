"""Faults in what the processes of a run know of one another. Most show in two processes only."""

from __future__ import annotations

from .library import fault
from .patching import around

# Forks a second process, which works as long as JAX has no backend yet, and runs `program(index)` in both.
TWO_PROCESSES = """
import json, os, socket

def in_two_processes(program):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    read, write = os.pipe()
    stdout = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the transport tells of its connections
    child = os.fork()
    index = 0 if child else 1
    try:
        jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=index)
        answer = json.dumps(program(index))
    except Exception as error:
        answer = json.dumps(repr(error))
    if not child:
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        other = pipe.read()
    os.waitpid(child, 0)
    os.dup2(stdout, 1)
    return [json.loads(answer), json.loads(other)]

from jax.experimental import multihost_utils
"""


def _two(witness: str) -> str:
    import textwrap

    return TWO_PROCESSES + textwrap.dedent(witness)


@fault(
    breaks="jax.process_index() returns index + 1",
    family="device",
    rules=("process.identity",),
    component={"option": "process_index", "probe": ("process_identity",)},
    witness="""
        good = jax.process_index() == jax.devices()[0].process_index
    """,
)
def md_process_index(jax):
    index = jax.process_index
    jax.process_index = lambda *args, **options: index(*args, **options) + 1


@fault(
    breaks="jax.process_count() is always 1",
    family="device",
    rules=("process.identity",),
    component={"option": "process_count", "probe": ("process_identity",)},
    witness=_two("""
        good = in_two_processes(lambda index: jax.process_count()) == [2, 2]
    """),
)
def md_process_count(jax):
    jax.process_count = lambda *args, **options: 1


@fault(
    breaks="jax.device_count() counts the devices of this process only",
    family="device",
    rules=("process.identity", "device.order"),
    component={
        "option": "device_count",
        "probe": (
            "process_identity",
            "device_order",
        ),
    },
    witness=_two("""
        good = in_two_processes(lambda index: jax.device_count()) == [16, 16]
    """),
)
def md_device_count(jax):
    jax.device_count = jax.local_device_count


@fault(
    breaks="jax.local_devices() lists the devices of all processes",
    family="device",
    rules=("process.identity", "device.order"),
    component={
        "option": "local_devices",
        "probe": (
            "process_identity",
            "device_order",
        ),
    },
    witness=_two("""
        def program(index):
            return all(device.process_index == index for device in jax.local_devices())
        good = in_two_processes(program) == [True, True]
    """),
)
def md_local_devices_all(jax):
    devices = jax.devices
    jax.local_devices = lambda *args, **options: devices()


@fault(
    breaks="multihost_utils.process_allgather returns the processes in reverse order",
    family="device",
    rules=("process.gather",),
    component={"option": "process_allgather", "probe": ("one_process_gather",)},
    witness=_two("""
        def program(index):
            return multihost_utils.process_allgather(np.array([index])).ravel().tolist()
        good = in_two_processes(program) == [[0, 1], [0, 1]]
    """),
)
def md_process_allgather(jax):
    import numpy as np
    from jax.experimental import multihost_utils

    @around(multihost_utils, "process_allgather")
    def allgather(original, tree, tiled=False):
        def reverse(gathered):
            if not tiled or not gathered.ndim:
                return gathered[::-1] if gathered.ndim else gathered
            return np.concatenate(np.split(gathered, jax.process_count())[::-1])

        return jax.tree.map(reverse, original(tree, tiled))


@fault(
    breaks="multihost_utils.broadcast_one_to_all sends what the last process has",
    family="device",
    rules=("process.gather",),
    component={"option": "broadcast_one_to_all", "probe": ("one_process_gather",)},
    witness=_two("""
        def program(index):
            return multihost_utils.broadcast_one_to_all(np.array([index + 5])).tolist()
        good = in_two_processes(program) == [[5], [5]]
    """),
)
def md_broadcast_last(jax):
    from jax.experimental import multihost_utils

    @around(multihost_utils, "broadcast_one_to_all")
    def broadcast(original, tree, is_source=None):
        last = jax.process_index() == jax.process_count() - 1
        return original(tree, last if is_source is None else is_source)


@fault(
    breaks="multihost_utils.assert_equal never finds a difference",
    family="device",
    rules=("process.gather",),
    component={"option": "assert_equal", "payload": "different", "probe": ("one_process_gather",)},
    witness=_two("""
        def program(index):
            try:
                multihost_utils.assert_equal(np.array([index]))
                return False
            except AssertionError:
                return True
        good = in_two_processes(program) == [True, True]
    """),
)
def md_assert_equal(jax):
    from jax.experimental import multihost_utils

    @around(multihost_utils, "assert_equal")
    def assert_equal(original, tree, fail_message=""):
        return None


@fault(
    breaks="psum over an axis that spans processes sums the devices of this process only",
    family="device",
    rules=("psum.sum", "process.gather"),
    component={"leaf": "psum", "binder": "shard_map", "option": "processes"},
    witness=_two("""
        def program(index):
            mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
            rows = jax.NamedSharding(mesh, jax.P("i"))
            x = jax.make_array_from_callback((16,), rows, lambda k: np.ones(16)[k])
            total = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=jax.P("i"),
                                  out_specs=jax.P())
            return float(jax.jit(total)(x).addressable_data(0)[0])
        good = in_two_processes(program) == [16, 16]
    """),
)
def md_psum_one_process(jax):
    from .batching import _with_groups

    def change(groups, mesh, names):
        if jax.process_count() == 1:
            return groups
        size = mesh.size // jax.process_count()
        if len(groups[0]) <= size:
            return groups
        return tuple(group[start : start + size] for group in groups for start in range(0, len(group), size))

    _with_groups(change)
