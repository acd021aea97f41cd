"""vmap(i:2) > vmap(j:3) > jit > all_gather(i) | schedule=swap"""

import functools

import jax
import numpy as np
from jax import lax

traces = []  # one entry each time the leaf's Python is run


def operand():
    count = 3 * 2 * 3
    lanes = np.eye(count).reshape(2, 3, 3, count)
    return lanes.astype("float32")


def leaf(x):
    traces.append(1)
    return {"all_gather": lax.all_gather(x, "i")}


jitted = jax.jit(leaf)


@functools.cache
def build():
    vmapped = jax.vmap(jitted, axis_name="j")
    vmapped_2 = jax.vmap(vmapped, axis_name="i")
    return vmapped_2


@functools.cache
def build_swapped():
    vmapped_3 = jax.vmap(jitted, axis_name="i")
    vmapped_4 = jax.vmap(vmapped_3, axis_name="j")
    return vmapped_4


def run():
    return build()(operand())


def run_swapped():
    return build_swapped()(operand())


def steps():
    yield run()
    yield run_swapped()
    yield run()
    yield run_swapped()
