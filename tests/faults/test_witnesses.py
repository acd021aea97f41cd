"""Every fault's witness is right on the installed JAX and wrong under the fault, and ordinary programs still work.

One test for each module of faults: JAX is imported once for it, in a process of its own, and forked for each witness.
A single fault is tried with `cd tests; python -m faults.witness ck_scan`.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from importlib import metadata

import pytest

from faults import library, witness

VERSION = metadata.version("jax")
BY_MODULE = collections.defaultdict(list)
for fault in library.faults().values():
    BY_MODULE[fault.inject.__module__.rpartition(".")[2]].append(fault)


def python(*command: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if k not in ("JAX_AXIS_FAULT", "PYTHONPATH")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=library.HERE.parent,
        env=environment | witness.PREPARED | variables,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("module", sorted(BY_MODULE))
def test_witnesses(module: str) -> None:
    names = [fault.name for fault in BY_MODULE[module] if fault.covers(VERSION)]
    done = python("-m", "faults.witness", *names)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(records) == 2 * len(names), done.stderr[-2000:]
    wrong = []
    for record in records:
        name = record["name"]
        if record["good"] and record["faulty"]:
            wrong.append(f"{name}: the witness does not notice the fault")
        if not record["good"] and not record["faulty"]:
            wrong.append(f"{name}: the witness fails without the fault: {record['why']}")
        if record["ordinary"]:
            wrong.append(f"{name}: an ordinary program breaks: {record['ordinary']}")
    assert not wrong, "\n".join([*wrong, done.stderr[-1000:]])


def test_every_fault_works_on_this_release() -> None:
    """A fault out of range is no failure, but few may be: they would prove nothing."""
    known = library.faults().values()
    assert sum(fault.covers(VERSION) for fault in known) >= 0.9 * len(known)


def test_a_fault_reaches_grandchildren() -> None:
    program = "import jax, jax.numpy as jnp; print(jax.lax.cond(True, lambda: 1, lambda: 2))"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}], check=True)"
    assert python("-c", child).stdout == "1\n"
    assert python("-c", child, **library.environment("cf_cond_constant", {})).stdout == "2\n"


@pytest.mark.parametrize("name, words", [("no_such_fault", "no such fault"), ("", "")])
def test_an_unknown_fault_stops_the_program(name: str, words: str) -> None:
    done = python("-c", "import jax; print('ran')", **library.environment(name, {}))
    assert done.stderr.count("\n") == bool(words) and words in done.stderr
    assert (done.returncode, done.stdout) == ((2, "") if words else (0, "ran\n"))


def test_a_fault_out_of_range_stops_the_program() -> None:
    fault = library.Fault("f", "", "cache", ("r",), {}, "", "0.10.2", "0.11", lambda jax: None)
    assert [fault.covers(v) for v in ("0.10.1", "0.10.2", "0.11.0.dev1", "0.11", "0.12.0.1")] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_nothing_is_imported_without_a_fault() -> None:
    hook = library.environment("x", {})["PYTHONPATH"]
    loaded = "import sys; print(sorted(m for m in sys.modules if 'jax' in m or m == 'importlib.util'))"
    assert python("-S", "-c", loaded).stdout == python("-c", loaded, PYTHONPATH=hook).stdout.replace(
        "['importlib.util']", "[]"
    )


def test_another_sitecustomize_still_runs(tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')")
    variables = library.environment("ck_scan", {"PYTHONPATH": str(tmp_path)})
    assert python("-c", "print('ours')", **variables).stdout == "theirs\nours\n"
