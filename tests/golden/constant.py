"""vmap(i:2,3,2) > jit > scan(2) > psum(i) of constant"""

import functools

import jax
from jax import lax

traces = []  # one entry each time the leaf's Python is run


def leaf():
    traces.append(1)
    return {"psum": lax.psum(1, "i")}


def scan_step(carry, _):
    k = carry
    return k + 1, leaf()


def scan():
    k, out = lax.scan(scan_step, 0, None, length=2)
    return {"scan": k, **out}


jitted = jax.jit(scan)


@functools.cache
def build(i):
    vmapped = jax.vmap(jitted, axis_name="i", axis_size=i)
    return vmapped


def run(i):
    return build(i)()


def steps():
    yield run(i=2)
    yield run(i=3)
    yield run(i=2)
    yield run(i=2)
    yield run(i=3)
    yield run(i=2)
