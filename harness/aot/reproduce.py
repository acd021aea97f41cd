"""The file a failure on a compile-only backend leaves behind: the rendered module, compiled by hand for the topology."""

from __future__ import annotations

import platform

import numpy as np

from harness import backends, surroundings
from harness.aot.names import Target
from harness.layers.binders import Pmap, ShardMap
from harness.program import Plan
from harness.render import Rendered
from harness.rules import rules
from harness.verdicts import Finding

PMAP = """
pmap = jax.pmap


def pmap_there(function, **settings):  # jax.pmap takes the host's devices where it is given none
    if "devices" in settings:
        return pmap(function, **settings)
    return lambda *arguments: pmap(function, **settings, devices=devices[: SIZE])(*arguments)


jax.pmap = pmap_there
"""


def reproducer(target: Target, rendered: Rendered, finding: Finding) -> str:
    """A program that needs the compiler and numpy only, and prints what the compiler makes of every step.

    It raises, or ends, where the compiler does; a wrong program is in what it prints.
    """
    _, title, source = rendered.source.split('"""', 2)
    law = rules()[finding.rule]
    parts = ", ".join(f"{name} {version}" for name, version in surroundings.versions().items())
    mesh = any(isinstance(layer, (Pmap, ShardMap)) for layer in rendered.plan.case.layers)
    lines = [
        f"# Breaks {finding.rule} ({finding.kind}): {law.law}",
        f"# The law is from: {law.origin}.",
        *(f"#   {line}" for line in finding.message.splitlines()[:6]),
        f"# Seen on {parts}, numpy {np.__version__}, Python {platform.python_version()}, for {target.name}.",
        f'"""{title}',
        "",
        "Compiles the program for devices that are not there and prints what the compiler makes of each step.",
        '"""',
        "",
        "import os",
        "",
        f"os.environ.update({backends.load(target.name).environment!r})",
        "",
        "import jax",
        "from jax.experimental import topologies",
        "",
        *_topology(target),
        "devices = sorted(topology.devices, key=lambda device: device.id)",
        "jax.devices = lambda backend=None: devices  # what the program is compiled for",
        *_pmap(rendered.plan),
        source.strip("\n"),
        "",
        "",
        "def compiled(function):",
        "    def call(*arguments):",
        f"        staged = jax.jit(function{'' if mesh else PLACED})",
        "        print(staged.lower(*arguments).compile().as_text())",
        "",
        "    return call",
        "",
        "",
        'if __name__ == "__main__":',
        *_replaced(source),
        "    for _ in steps():",
        "        pass",
        "",
    ]
    return "\n".join(lines)


PLACED = (
    ", in_shardings=jax.sharding.SingleDeviceSharding(devices[0])"
    ", out_shardings=jax.sharding.SingleDeviceSharding(devices[0])"
)


def _topology(target: Target) -> list[str]:
    if target.platform == "tpu":
        arguments = f'platform="tpu", topology_name="{target.topology}"'
        return [f"topology = topologies.get_topology_desc({arguments})"]
    described = target.description.read_text(encoding="utf-8")
    return [
        f'described = """\n{described}"""',
        "topology = topologies.get_topology_desc(",
        f'    platform="cuda", target_config=described, topology="{target.topology}"',
        ")",
    ]


def _pmap(plan: Plan) -> list[str]:
    """The lines that put a pmap on the topology's devices, as many as the failing environment has positions."""
    layers = [layer for layer in plan.case.layers if isinstance(layer, Pmap)]
    if not layers:
        return []
    sizes = layers[0].bindings[0][1]
    if len(set(sizes)) == 1:
        return PMAP.replace("SIZE", str(sizes[0])).rstrip().split("\n")
    return PMAP.replace("SIZE", f"arguments[0].shape[{layers[0].entry}]").rstrip().split("\n")


def _replaced(source: str) -> list[str]:
    """Puts compiling programs in the place of those that the steps call."""
    lines = [
        f"    {name} = compiled({name})" for name in ("program", "one", "three") if f"\n{name} = " in source
    ]
    lines += [
        f"    {name} = (lambda made: lambda *sizes: compiled(made(*sizes)))({name})"
        for name in ("build", "build_swapped", "make")
        if f"\ndef {name}(" in source
    ]
    return lines or ["    program = compiled(program)"]
