"""Run the witness of every fault, or of those named: `cd tests; python -m faults.witness [name ...]`.

JAX is imported once; each witness runs in a fork made before any backend exists, so a run costs a fraction of an import.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from . import library

# What must still work under every fault: nothing here names an axis.
ORDINARY = """
x = np.arange(6.0, dtype=np.float32).reshape(2, 3)

@jax.jit
def program(x):
    carry, rows = lax.scan(lambda c, r: (c + r, c), jnp.zeros(3), x)
    slope = jax.grad(lambda v: (v**2).sum())(x)
    mapped = jax.vmap(lambda v: v * v.sum())(x)
    return x @ x.T, jnp.sort(-x, axis=1), mapped, slope, carry, rows

expected = ([[5, 14], [14, 50]], [[-2, -1, 0], [-5, -4, -3]], [[0, 3, 6], [36, 48, 60]], 2 * x, [3, 5, 7],
            [[0, 0, 0], [0, 1, 2]])
for _ in range(2):
    for found, right in zip(program(x), expected, strict=True):
        assert np.array_equal(found, right), (found, right)
plus, doubled = jax.jit(lambda v: v + 1), jax.jit(lambda v: v * 2)
assert [float(plus(v)) for v in (1.0, 2.0)] == [2.0, 3.0] and int(doubled(3)) == 6
assert float(jnp.sin(0.0) + jax.grad(lambda v: v * v)(3.0)) == 6.0
"""

PREPARED = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def judge(name: str, faulty: bool) -> dict[str, Any]:
    """Run one witness here. `good` is what it found; `ordinary` tells how a program without axes fails, if it does."""
    import jax
    import numpy as np

    space = {"__name__": "__main__", "jax": jax, "jnp": jax.numpy, "lax": jax.lax, "np": np}
    if faulty:
        library.apply(name)
    warnings.simplefilter("ignore")
    ordinary = ""
    try:
        if faulty:
            exec(compile(ORDINARY, "<ordinary program>", "exec"), {**space})
    except Exception:
        ordinary = traceback.format_exc(limit=-3)
    try:
        exec(compile(library.faults()[name].witness, f"<witness of {name}>", "exec"), space)
        good, why = bool(space["good"]), ""
    except Exception as error:
        good, why = False, f"{type(error).__name__}: {error}"
    return {"good": good, "why": why[:300], "ordinary": ordinary}


DIED = {"good": False, "why": "died or hung", "ordinary": "died or hung"}
TOGETHER = 8  # sound witnesses that share a fork


def run(names: Iterable[str], jobs: int = 2, limit: float = 60.0) -> Iterator[dict[str, Any]]:
    """Judge every named fault with and without it, `jobs` forks at a time; one record for each, in order of completion.

    Every fault has a fork of its own. On sound JAX several witnesses share one, and those that fail there get their own.
    """
    names = list(names)
    tasks = [((name,), True) for name in names]
    tasks += [(tuple(names[k : k + TOGETHER]), False) for k in range(0, len(names), TOGETHER)]
    running: dict[int, tuple[int, tuple[str, ...], bool, float]] = {}
    while tasks or running:
        while tasks and len(running) < jobs:
            group, faulty = tasks.pop()
            read, pid = _fork(group, faulty)
            running[read] = (pid, group, faulty, time.monotonic())
        ready, _, _ = select.select(list(running), [], [], 1.0)
        now = time.monotonic()
        late = [r for r, task in running.items() if r not in ready and now - task[3] > limit * len(task[1])]
        for read in ready + late:
            pid, group, faulty, start = running.pop(read)
            if read in late:
                os.kill(pid, 9)
            with os.fdopen(read) as pipe:
                text = pipe.read()
            os.waitpid(pid, 0)
            # A child that says nothing has died, or was killed for being late: never good, never ordinary.
            records = json.loads(text) if text else [DIED] * len(group)
            seconds = round((time.monotonic() - start) / len(group), 2)
            for name, record in zip(group, records, strict=True):
                if len(group) > 1 and not record["good"]:
                    tasks.append(((name,), faulty))
                else:
                    yield {"name": name, "faulty": faulty, "seconds": seconds, **record}


def _fork(group: tuple[str, ...], faulty: bool) -> tuple[int, int]:
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return read, pid
    try:
        os.close(read)
        text = json.dumps([judge(name, faulty) for name in group])
        with os.fdopen(write, "w") as pipe:
            pipe.write(text)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def main(names: list[str]) -> int:
    """Print one JSON line per run; the exit code is 1 if any witness does not tell its fault from sound JAX."""
    os.environ.update(PREPARED)
    warnings.simplefilter("ignore")
    import jax

    known = library.faults()
    wanted = [n for n in names or known if known[n].covers(jax.__version__)]
    right = True
    for record in run(wanted):
        print(json.dumps(record), flush=True)
        right &= record["good"] != record["faulty"] and not record["ordinary"]
    return not right


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
