"""Laws of linearize: the derivative as a function of its own.

- The linear function that is returned gives what `jvp` gives (documentation of jax.linearize), under every binder.
"""

from harness.space import Space
from suites import vocabulary as words

SUITE = "linearize"

SPACE = Space(
    SUITE,
    binder=words.BINDERS_FORWARD,
    sizes=words.SIZES_CORE,
    middle=(
        "linearize",
        "linearize > jit",
        "jit > linearize",
        "linearize > checkpoint",
        "linearize > custom_jvp",
    ),
    leaf=words.LEAVES_LINEAR,
    dtype=words.DTYPES_FLOAT,
    shape=words.SHAPES_CORE,
    payload=words.PAYLOADS_DERIVATIVE,
    names=words.NAMES_CORE,
    extra=words.environments("linearize", words.BAKED_FORWARD, constant=False),
)


def test_linearize(line, conformance):
    conformance.check(line)
