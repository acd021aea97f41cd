"""Laws of linearize: the derivative as a function of its own.

- The linear function that is returned gives what `jvp` gives (documentation of jax.linearize), under every binder.
"""

from harness.space import Space
from suites.vocabulary import binders, leaves, lines, settings, sizes

SUITE = "linearize"

SPACE = Space(
    SUITE,
    binder=binders.FORWARD,
    sizes=sizes.CORE,
    middle=(
        "linearize",
        "linearize > jit",
        "jit > linearize",
        "linearize > checkpoint",
        "linearize > custom_jvp",
    ),
    leaf=leaves.LINEAR,
    dtype=settings.DTYPES_FLOAT,
    shape=settings.SHAPES_CORE,
    payload=settings.PAYLOADS_DERIVATIVE,
    names=settings.NAMES_CORE,
    extra=lines.environments("linearize", lines.BAKED_FORWARD, constant=False),
)


def test_linearize(line, conformance):
    conformance.check(line)
