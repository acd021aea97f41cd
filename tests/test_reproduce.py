"""Every reproducer fails by plain `python` where the failure is there, and says all is well where it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from harness.isolate import Death, Parent
from tests.faults import library

pytest.importorskip("jax")

DEVICES = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}

FAILURES = {
    # kind: (fault, case)
    "wrong value": (
        "cf_scan_reverse_stack",
        "vmap(i:2,3) > scan(3, reverse, xs) > all_to_all(i) | dtype=int32 shape=scalar",
    ),
    "stale entry": ("ck_enable_x64", "vmap(i:2) > vmap(j:3) > jit > switch(2) > psum(i) | schedule=x64"),
    "needless retrace": ("ck_never_hits", "vmap(i:4) > jit > psum(i)"),
    "wrong shape": (
        "co_psum_scalar_shape",
        "pmap(i:2) > vmap(j:4) > psum(i+j) | dtype=bfloat16 shape=scalar payload=origin",
    ),
    "wrong dtype": ("co_psum_float16_widened", "vmap(i:3) > psum(i) | dtype=float16"),
    "wrong placement": (
        "md_second_call_gathered",
        "compiled > shard_map(i:4) > psum_scatter(i, dim=1, tiled) | shape=2xi payload=special",
    ),
    "entry growth": ("", "vmap(i:3) > jit > psum(i) of constant | schedule=entries"),  # JAX itself, today
    "no error raised": ("co_psum_unbound", "jit > vmap(i:2) > vmap(j:3) > psum(i) | schedule=unbound"),
    "not deterministic": ("md_second_call_shard_swap", "jit > shard_map(i:2, j:4, in=i.j) > psum(i)"),
    "not released": ("ck_unbounded_growth", "vmap(i:3) > jit > psum(i) | schedule=release"),
}


def failure(fault: str, line: str) -> dict:
    """How a case ends under a fault, or without any."""
    parent = Parent({**DEVICES, **(library.environment(fault) if fault else {})})
    try:
        if fault and not library.faults()[fault].covers(parent.jax_version):
            pytest.skip(f"{fault} cannot be injected into JAX {parent.jax_version}")
        runner = parent.fork()
        answer = runner.ask({"line": line}, 120)
        runner.close()
    finally:
        parent.close()
    assert not isinstance(answer, Death), answer
    return answer["results"][0]


@pytest.mark.parametrize("kind", FAILURES)
def test_it_fails_under_the_fault_and_only_there(kind, tmp_path):
    fault, line = FAILURES[kind]
    result = failure(fault, line)
    if not fault and result["verdict"] == "pass":
        pytest.skip("this JAX gets it right")
    assert (result["verdict"], result["kind"]) == ("fail", kind), result["message"]
    source = result["reproducer"]
    file = tmp_path / "reproducer.py"
    file.write_text(source)
    plain = {key: value for key, value in os.environ.items() if key not in ("XLA_FLAGS", "PYTHONPATH")}
    runs = [
        subprocess.Popen(
            [sys.executable, file],
            env={**plain, "JAX_PLATFORMS": "cpu", **extra},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for extra in (library.environment(fault, {}) if fault else {}, {})
    ]
    broken, sound = (run.communicate(timeout=180)[0] for run in runs)
    assert runs[0].returncode == 1, broken
    assert "expected" in broken
    assert runs[1].returncode == (0 if fault else 1), sound
    imported = set(re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) <= {"jax", "numpy"}
    assert source.startswith(f"# Breaks {result['rule']} ({kind}): ")
    assert re.search(
        r"^# Seen on jax [\d.]+, jaxlib [\d.]+, numpy [\d.]+, Python [\d.]+, cpu\.$", source, re.MULTILINE
    )


def test_a_recompilation_that_does_not_happen_is_not_seen(tmp_path):
    """No fault here recompiles without tracing again: what the reproducer counts is checked on sound JAX."""
    code = """
from harness.case import parse
from harness.check import spelling
from harness.program import plan
from harness.render import render
from harness.reproduce import reproducer
from harness.verdicts import Finding, Kind

rendered = render(plan(parse("vmap(i:2,3) > jit > psum(i)")), spelling())
print(reproducer(rendered, Finding("cache.recompile", Kind.RECOMPILE, "made up", 3)))
"""
    made = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **DEVICES}
    )
    file = tmp_path / "reproducer.py"
    file.write_text(made.stdout)
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}
    )
    assert done.returncode == 0, made.stderr + done.stdout + done.stderr
    assert re.findall(r"compiled (\d+) times, expected (\d+)", done.stdout)[2:] == [("0", "0"), ("0", "0")]
    assert not done.stdout.startswith("i=2 compiled 0")
