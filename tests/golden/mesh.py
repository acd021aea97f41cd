"""shard_map(i:2, j:3, in=i.j) > jit > while_loop(reduced i) > psum(i+j) & all_gather(j, tiled) | dtype=bfloat16 shape=3x5"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

traces = []  # one entry each time the leaf's Python is run


def operand():
    count = 15 * 2 * 3
    lanes = np.eye(count).reshape(2, 3, 3, 5, count)
    return lanes.transpose(0, 2, 1, 3, 4).reshape(3 * 2, 5 * 3, 15 * 2 * 3).astype(jnp.bfloat16)


def leaf(x):
    traces.append(1)
    return {"psum": lax.psum(x, ("i", "j")), "all_gather": lax.all_gather(x, "j", tiled=True)}


def while_test(state):
    k, x, out = state
    return k < lax.pmax(lax.axis_index("i"), "i")


def while_body(state):
    k, x, out = state
    return k + 1, x + x, jax.tree.map(jnp.add, out, leaf(x))


def while_loop(x):
    zeros = {
        "psum": jnp.zeros((3, 5, 15 * 2 * 3), jnp.bfloat16),
        "all_gather": lax.pcast(jnp.zeros((3 * 3, 5, 15 * 2 * 3), jnp.bfloat16), ("i", "j"), to="varying"),
    }
    k, x, out = lax.while_loop(while_test, while_body, (0, x, zeros))
    return {"while_loop": x, **out}


jitted = jax.jit(while_loop)


def stacked(x):
    return jax.tree.map(lambda y: jnp.asarray(y)[None], jitted(x))


mesh = Mesh(np.array(jax.devices()[:6]).reshape(2, 3), ("i", "j"))

sharded = jax.shard_map(stacked, mesh=mesh, in_specs=P("i", "j"), out_specs=P(("i", "j")))

program = sharded


def run():
    return program(operand())


def steps():
    yield run()
    yield run()
