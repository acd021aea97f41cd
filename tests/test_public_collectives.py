"""Nothing public of jax.lax that takes an axis name is left out of the vocabulary."""

from __future__ import annotations

import inspect

from jax import lax

from harness.layers import LEAVES
from harness.probes import PROBES

PROBED = {
    "ragged_all_to_all": "ragged_all_to_all",
    "psend": "send_receive",
    "precv": "send_receive",
    "all_gather_invariant": "varying_types",  # as releases before `to` call it
}
"""Functions that a probe of its own checks: function -> probe."""
EARLIER = {"pvary": "pcast"}
"""Functions under an earlier name: function -> leaf."""


def public_names() -> set[str]:
    """The functions of the installed jax.lax with a parameter for names of axes."""
    found = set()
    for name in dir(lax):
        function = getattr(lax, name)
        if name.startswith("_") or isinstance(function, type) or not callable(function):
            continue
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            continue
        if {"axis_name", "axis_names"} & parameters.keys():
            found.add(name)
    return found


def test_every_public_collective_is_in_the_vocabulary():
    names = public_names()
    assert {"psum", "all_gather", "axis_index", "ppermute"} <= names
    missing = sorted(names - LEAVES.keys() - PROBED.keys() - EARLIER.keys())
    assert not missing, f"neither a leaf nor a probe: {missing}"
    assert set(PROBED.values()) <= PROBES.keys()
    assert set(EARLIER.values()) <= LEAVES.keys()
