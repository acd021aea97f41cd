"""The vocabulary of programs. Adding a layer or a leaf is adding its class to one of these tables."""

from harness.layers import binders, control, gradients, keys, leaves, mapping, staging
from harness.layers.base import Layer
from harness.layers.leaves import Leaf
from harness.layers.probe import ProbeLeaf

LAYERS: dict[str, type[Layer]] = {
    layer.word: layer
    for layer in (
        binders.Vmap,
        binders.Pmap,
        binders.ShardMap,
        staging.Jit,
        staging.Checkpoint,
        staging.CustomJvp,
        staging.CustomVjp,
        staging.Compiled,
        staging.EvalShape,
        staging.Jvp,
        staging.Linearize,
        staging.Vjp,
        gradients.Grad,
        gradients.LinearTranspose,
        gradients.Hvp,
        gradients.Jacobian,
        control.Scan,
        control.WhileLoop,
        control.ForiLoop,
        control.Cond,
        control.Switch,
        mapping.Map,
        mapping.AssociativeScan,
    )
}

LEAVES: dict[str, type[Leaf]] = {
    leaf.word: leaf
    for leaf in (
        leaves.Psum,
        leaves.Pmean,
        leaves.Pmax,
        leaves.Pmin,
        leaves.Ppermute,
        leaves.Pshuffle,
        leaves.Pbroadcast,
        leaves.Pcast,
        leaves.AllGather,
        leaves.AllToAll,
        leaves.Pswapaxes,
        leaves.PsumScatter,
        leaves.AxisIndex,
        leaves.AxisSize,
        keys.Random,
        ProbeLeaf,
    )
}
