"""What is under test: versions, devices, flags. Imports JAX."""

from __future__ import annotations

import os
import platform
from typing import Any

import jax
import numpy as np

from harness.backends import NAMED


def facts() -> dict[str, Any]:
    """The environment as a JSON object."""
    import jaxlib

    devices = jax.devices()
    return {
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "backend": os.environ.get(NAMED) or jax.default_backend(),
        "platform_version": devices[0].client.platform_version,
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "process_count": jax.process_count(),
        "flags": {
            key: os.environ[key]
            for key in ("XLA_FLAGS", "JAX_PLATFORMS", "LIBTPU_INIT_ARGS")
            if key in os.environ
        },
    }
