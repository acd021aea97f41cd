"""Makes collectives misbehave as only real processes can, for the tests of whole runs (`PYTHONPATH` with this folder).

`pmax` ends the process, `all_to_all` never returns, `pmin` fails every second time, `all_gather` fails once `pmean` has
been called in the process. JAX_TROUBLE names a folder for what must be remembered between processes.
"""

import os

FOLDER = os.environ.get("JAX_TROUBLE")

if FOLDER:
    import ctypes

    import jax

    called = set()
    sound = {name: getattr(jax.lax, name) for name in ("pmin", "pmean", "all_gather")}

    def pmax(*_, **__):
        os.abort()

    def all_to_all(*_, **__):
        ctypes.CDLL(None).sleep(1000)

    def pmin(*args, **options):
        path = os.path.join(FOLDER, "pmin")
        with open(path, "a") as file:
            file.write(".")
        if os.path.getsize(path) % 2:
            raise ValueError("every second time")
        return sound["pmin"](*args, **options)

    def pmean(*args, **options):
        called.add("pmean")
        return sound["pmean"](*args, **options)

    def all_gather(*args, **options):
        if "pmean" in called:
            raise ValueError("after pmean")
        return sound["all_gather"](*args, **options)

    for trouble in (pmax, all_to_all, pmin, pmean, all_gather):
        setattr(jax.lax, trouble.__name__, trouble)
