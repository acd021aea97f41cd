"""What a backend can do: each answer of an examination, its way into a case's verdict, and the doctor that tells it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="capabilities are JAX's")

from harness import capabilities
from harness.capabilities import Capability, Trial
from harness.isolate import Parent

ROOT = Path(__file__).resolve().parent.parent
CPU = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}


def trial(function: Any, want: Any) -> Capability:
    return Capability("made_up", "", "made_up", lambda _: Trial(function, (np.ones(2),), np.asarray(want)))


def refuse(x: Any) -> Any:
    raise NotImplementedError("no such thing here")


def break_(x: Any) -> Any:
    raise ValueError("broken")


@pytest.mark.parametrize(
    "function, want, state",
    [
        (lambda x: x + 1, [2, 2], "works"),
        (lambda x: x + 1, [2, 3], "wrong"),
        (lambda x: x + 1, [[2, 2]], "wrong"),
        (refuse, [0], "declined"),
        (break_, [0], "failed"),
    ],
)
def test_an_examination_tells_apart(
    monkeypatch: pytest.MonkeyPatch, function: Any, want: Any, state: str
) -> None:
    monkeypatch.setitem(capabilities.BY_NAME, "made_up", trial(function, want))
    assert capabilities.examine("made_up")[0] == state


def test_only_what_is_declined_makes_a_case_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    for function, lacking in ((refuse, "the backend declines made_up: NotImplementedError"), (break_, "")):
        made = trial(function, [0])
        monkeypatch.setitem(capabilities.BY_NAME, "made_up", made)
        monkeypatch.setattr(capabilities, "CAPABILITIES", (made,))
        capabilities._known.cache_clear()
        assert capabilities.lacking("calls made_up", "float32").startswith(lacking or "\0") == bool(lacking)
        assert capabilities.lacking("calls nothing", "float32") == ""
    capabilities._known.cache_clear()


def test_64_bit_types_are_switched_back() -> None:
    import jax

    before = jax.config.read("jax_enable_x64")
    assert capabilities.examine("array", "float64")[0] == "works"
    assert jax.config.read("jax_enable_x64") == before


@pytest.mark.parametrize(
    "message, refused",
    [
        ("UNIMPLEMENTED: Supported lowering only of Sum all reduce", True),
        ("NotImplementedError: MLIR translation rule", True),
        ("No FFI handler registered for lapack_spotrf_ffi", True),
        ("INTERNAL: Check failed", False),
        ("AssertionError", False),
    ],
)
def test_the_words_of_a_refusal(message: str, refused: bool) -> None:
    assert capabilities.refusal(message) == refused


def test_a_program_needs_what_it_uses() -> None:
    used = capabilities.needs("y = lax.psum(x, 'i')\nz = lax.scan(f, x)", "int8")
    assert ("psum", "int8") in used and ("loops", "float32") in used and ("pmap", "float32") not in used


@pytest.fixture(scope="module")
def states() -> Iterator[dict[str, capabilities.State]]:
    parent = Parent(CPU)
    yield {
        capabilities.describe(name, dtype): state for name, dtype, state in capabilities.survey(parent, 120.0)
    }
    parent.close()


def test_the_host_can_do_what_it_can(states: dict[str, capabilities.State]) -> None:
    assert set(states) == {capabilities.describe(*question) for question in capabilities.questions()}
    declined = {name for name, (state, _) in states.items() if state == "declined"}
    assert {name.split(" of ")[0] for name in declined} <= {
        "pbroadcast",
        "ragged_all_to_all",
        "memory_kinds",
        "explicit_axes",
    }
    bad = {name: state for name, state in states.items() if state[0] not in ("works", "declined")}
    assert not bad


class Dying:
    """A parent whose runners die of one question."""

    def __init__(self) -> None:
        self.forked = 0

    def fork(self) -> Dying:
        self.forked += 1
        return self

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        from harness.isolate import Death

        if request["examine"] == "psum" and request["dtype"] == "complex128":
            return Death(False, -11, "")
        if request["examine"] == "sort":
            return Death(True, None, "")
        return {"results": ["works", ""]}

    def close(self) -> None:
        pass


def test_a_question_that_kills_costs_no_other() -> None:
    parent = Dying()
    found = {(name, dtype): state for name, dtype, state in capabilities.survey(parent, 5.0)}  # type: ignore[arg-type]
    assert found["psum", "complex128"] == ("died", "the process ended with signal 11")
    assert found["sort", "float32"] == ("died", "no answer within 5 s")
    assert found["psum", "float32"][0] == found["export", "float32"][0] == "works"
    assert parent.forked == 3


def doctor(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "JAX_", "XLA_"))}
    command = [sys.executable, str(ROOT / "scripts" / "doctor"), *options]
    return subprocess.run(
        command, env={**clean, **variables}, capture_output=True, text=True, timeout=300, cwd=ROOT.parent
    )


def test_the_doctor_foresees_what_a_run_says(tmp_path: Path) -> None:
    """The same cases are not applicable in a run, for the same reasons."""
    lines = tmp_path / "lines.txt"
    lines.write_text(
        "\n".join(
            [
                "vmap(i:2) > jit > psum(i)",
                "jit > shard_map(i:4, check=off) > pbroadcast(i)",
                "jit > shard_map(i:8) > psum(i)",
                "jit > shard_map(i:2) > axis_index(i)",
            ]
        )
    )
    done = doctor("--backend", "cpu", "--devices", "4", f"--profile={lines}", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["cases"], found["applicable"]) == (4, 2)
    assert found["not_applicable"] == {
        "the backend declines pbroadcast of float32": 1,
        "needs 8 devices, the backend has 4": 1,
    }
    assert found["facts"]["device_count"] == 4 and found["packages"]["jax"]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--backend",
            "cpu",
            "--devices",
            "4",
            f"--profile={lines}",
            f"--results={tmp_path / 'r'}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout
    results = [json.loads(text) for text in (tmp_path / "r" / "results.jsonl").read_text().splitlines()]
    away = [result["case"] for result in results if result["verdict"] == "not_applicable"]
    assert away == [lines.read_text().split("\n")[k] for k in (1, 2)]


def test_the_doctor_tells_people(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("vmap(i:2) > jit > psum(i)\n")
    done = doctor("--backend", "cpu", f"--profile={lines}", JAX_ENABLE_X64="1")
    assert done.returncode == 0
    assert "psum               works" in done.stdout
    assert "1 of 1 cases can run" in done.stdout
    assert "! JAX_ENABLE_X64=1: 64-bit types are on" in done.stdout


@pytest.mark.parametrize(
    "options, told",
    [
        (("--backend", "mars"), "--backend mars: unknown"),
        (("--profile", "nothing"), "profile nothing: neither a file nor one of"),
    ],
)
def test_the_doctor_refuses_what_it_cannot_use_in_one_line(options: tuple[str, ...], told: str) -> None:
    done = doctor(*options)
    assert done.returncode == 4 and told in done.stderr and done.stderr.count("\n") == 1


def test_a_backend_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    library = tmp_path / "no_plugin.so"
    library.write_text("this is no library")
    done = doctor("--backend", f"plugin:broken={library}")
    assert done.returncode == 1 and "could not be started" in done.stderr
