"""vmap(i:3) > vjp > custom_vjp > psum(i) & ppermute(i, perm=partial) | payload=counting"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

traces = []  # one entry each time the leaf's Python is run


def operand():
    count = 3 * 3
    lanes = np.arange(1, count + 1).reshape((3, 3))
    return lanes.astype("float32")


def leaf(x):
    traces.append(1)
    return {
        "psum": lax.psum(x, "i"),
        "ppermute": lax.ppermute(x, "i", [(k, k + 1) for k in range(3 - 1)]),
    }


@jax.custom_vjp
def with_vjp(x):
    return leaf(x)


def with_vjp_forward(x):
    return leaf(x), (x,)


def with_vjp_backward(residuals, cotangent):
    return jax.vjp(leaf, *residuals)[1](cotangent)


with_vjp.defvjp(with_vjp_forward, with_vjp_backward)


def weights(y):  # the cotangent of an output: 1..5 repeated, varying over axes as y does
    return y - y + (jnp.arange(y.size) % 5 + 1).reshape(y.shape).astype(y.dtype)


def pulled_back(x):
    out, pull_back = jax.vjp(with_vjp, x)
    (cotangent,) = pull_back(jax.tree.map(weights, out))
    return {**out, "vjp": cotangent}


vmapped = jax.vmap(pulled_back, axis_name="i")

program = vmapped


def run():
    return program(operand())


def steps():
    yield run()
    yield run()
