"""Laws of devices and meshes.

- `jax.devices()` lists every device once in ascending order; `local_devices()` are those of this process, and the
  process's index and count agree with the owners of the devices.
- A mesh has the devices, shape, names and axis types it was given, and is equal to no mesh that differs in any of them;
  the mesh of `jax.set_mesh` is seen inside its block and nowhere else.
- `pmap` runs row k on device k of its list; the gathers of `multihost_utils` are identities in a single process.
"""

from harness import probes
from harness.space import Space

SUITE = "devices"

SPACE = Space(SUITE, binder=("",), sizes=("",), leaf=probes.leaves(SUITE), bundle=1)


def test_devices(line, conformance):
    conformance.check(line)
