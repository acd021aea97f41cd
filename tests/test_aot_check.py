"""Whole cases on a compile-only backend, with XLA's host compiler in the place of the TPU's: right lines pass, and each
defect put into the compiled program is caught by the law it breaks. The TPU compiler itself is tried where it is
installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.case import parse_line
from harness.compat import spelling
from harness.isolate import Parent, Runner
from harness.program import plan
from harness.render import render
from harness.verdicts import Finding, Kind

pytest.importorskip("jax", reason="runners run JAX")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parent))
        flags = "--xla_force_host_platform_device_count=8"
        parent = Parent({"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}, module="hostcompiler")
        yield parent.fork()
        parent.close()


@pytest.fixture
def results(runner: Runner) -> Callable[..., list[dict[str, Any]]]:
    """What is said of a line's cases; JAX itself must be left as it was."""

    def ask(line: str, execute: bool = True, **more: Any) -> list[dict[str, Any]]:
        answer = runner.ask({"line": line, "execute": execute, **more}, 120)
        assert isinstance(answer, dict), answer
        assert answer["results"]["restored"]
        return answer["results"]["results"]

    return ask


RIGHT = [
    "vmap(i:2,3,2) > jit > scan(2) > psum(i) of constant",
    "jit > shard_map(i:2, j:4, in=i.j) > psum(i+j) & ppermute(i) & axis_index(i) & all_gather(j)",
    "jit > shard_map(i:4,2, devices=reversed) > ppermute(i, perm=partial)",
    "pmap(i:2,3) > psum(i)",
    "jit > shard_map(i:8, check=off) > psum(i, groups=interleaved)",
    "jit > shard_map(i:4) > jvp > psum(i) | payload=counting",
    "vmap(i:3) > jit > psum(i) | schedule=closure",
    "jit > shard_map(i:3) > psum(i) of constant | schedule=devices",
    "vmap(i:4) > vmap(j:2) > jit > psum(i+j) | schedule=swap",
    "eval_shape > vmap(i:2,3) > psum(i)",
]


@pytest.mark.parametrize("execute", [False, True], ids=["compiled", "executed"])
@pytest.mark.parametrize("line", RIGHT)
def test_right_programs_pass(results, line: str, execute: bool) -> None:
    for result in results(line, execute):
        assert (result["verdict"], result["message"]) == ("pass", "")
        assert not {"cache.retrace", "cache.recompile"} & set(result["rules"])


def test_what_is_not_executed_is_held_to_no_value(results) -> None:
    line = "jit > shard_map(i:4) > psum(i)"
    assert "psum.sum" in results(line, execute=True)[0]["rules"]
    assert "psum.sum" not in results(line, execute=False)[0]["rules"]
    assert "psum.constant" in results("vmap(i:3) > jit > psum(i) of constant", execute=False)[0]["rules"]


def test_what_must_raise_raises_here_too(results) -> None:
    result = results("vmap(i:3) > psum(j) | schedule=raises")[0]
    assert (result["verdict"], result["rule"]) == ("pass", "error.unbound")


DEFECTS = {
    "wrong group": (
        "jit > shard_map(i:2, j:2, in=i.j) > psum(i)",
        (r"replica_groups=\S*( \{'i'\})?,", "replica_groups={{0,1},{2,3}},"),
        ("aot.groups", "wrong groups"),
        ("psum.sum", "wrong value"),
    ),
    "swapped pair": (
        "jit > shard_map(i:4) > ppermute(i)",
        (r"\{0,1\},\{1,2\}", "{0,2},{1,1}"),
        ("aot.groups", "wrong groups"),
        ("ppermute.pairs", "wrong value"),
    ),
    "lost pair": (
        "jit > shard_map(i:3) > ppermute(i)",
        (r"source_target_pairs=\{\{0,1\},", "source_target_pairs={"),
        ("aot.groups", "wrong groups"),
        ("ppermute.pairs", "wrong value"),
    ),
    "wrong constant": (
        "vmap(i:3) > jit > psum(i) of constant",
        (r"s32\[\] constant\(3\)", "s32[] constant(2)"),
        ("psum.constant", "wrong value"),
        ("psum.constant", "wrong value"),
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_compiler_is_caught_by_structure_and_by_value(results, defect: str) -> None:
    line, alter, structure, value = DEFECTS[defect]
    compiled = results(line, execute=False, alter=alter)[0]
    assert (compiled["verdict"], compiled["rule"], compiled["kind"]) == ("fail", *structure)
    executed = results(line, execute=True, alter=alter)[0]
    assert executed["verdict"] == "fail"
    said = [(executed["rule"], executed["kind"]), *(tuple(also.split(": ")) for also in executed["also"])]
    assert value in said


def test_an_executable_that_two_environments_share_is_stale(results) -> None:
    """As jax#9187: the program made for one environment is given for another."""
    result = results("vmap(i:2,3) > jit > psum(i) of constant", execute=False, shared=True)[0]
    assert (result["verdict"], result["kind"]) == ("fail", "stale entry")
    assert "the answer of step 0" in result["message"]


def test_an_operation_that_is_not_known_makes_a_case_not_applicable(results) -> None:
    alter = (r" bitcast\((%\S+)\)(, metadata.*)?", r' custom-call(\1), custom_call_target="Mystery"')
    result = results("jit > shard_map(i:2) > psum(i)", alter=alter)[0]
    assert result["verdict"] == "not_applicable", result["message"]
    assert "Mystery is not executed here" in result["message"]


@pytest.mark.parametrize(
    "line, reason",
    [
        ("probe(device_order)", "a probe is a program that runs itself"),
        ("vmap(i:3) > jit > psum(i) | schedule=release", "the schedule release is about running"),
        ("compiled > vmap(i:3) > psum(i)", "calls its own executable"),
        ("jit > shard_map(i:9) > psum(i)", "needs 9 devices, the backend has 8"),
    ],
)
def test_what_has_no_meaning_without_devices_says_so(results, line: str, reason: str) -> None:
    result = results(line)[0]
    assert result["verdict"] == "not_applicable" and reason in result["message"]


@pytest.mark.parametrize("line", [*RIGHT, "jit > shard_map(i:2) > psum(i) | names=unicode"])
def test_what_a_failure_leaves_behind_is_a_program(line: str) -> None:
    from harness.aot.names import parse
    from harness.aot.reproduce import reproducer

    rendered = render(plan(parse_line(line)[0]), spelling("0.10.2"))
    finding = Finding("aot.groups", Kind.WRONG_GROUPS, "as it is\nand should be")
    text = reproducer(parse("aot:tpu:v5e:2x4"), rendered, finding)
    compile(text, "reproducer", "exec")
    assert line.partition(" & ")[0].partition(" | ")[0] in text and "#   as it is" in text
    assert 'topology_name="v5e:2x4"' in text and "compiled(" in text.split("__main__")[1]
    described = reproducer(parse("aot:cuda:h100:1x1x8"), rendered, finding)
    compile(described, "reproducer", "exec")
    assert "core_count: 132" in described and 'topology="1x1x8"' in described


LIBTPU = importlib.util.find_spec("libtpu") is not None
tpu = pytest.mark.skipif(not LIBTPU, reason="needs the TPU compiler: pip install 'jax[tpu]'")


def suite(folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The results of a run of the suite by pytest, by case."""
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "JAX_", "XLA_"))
    }
    command = [sys.executable, "-m", "pytest", "-q", f"--results={folder}", *options]
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=600)
    assert (folder / "results.jsonl").exists(), done.stdout + done.stderr
    found = [json.loads(text) for text in (folder / "results.jsonl").read_text().splitlines()]
    return {result["case"]: result for result in found}


@tpu
@pytest.mark.parametrize("topology", ["v5e:2x4", "v4:2x2x1", "tpu7x:2x2x1"])
def test_the_tpu_compiler_itself(tmp_path: Path, topology: str) -> None:
    lines = [
        "vmap(i:2,3,2) > jit > psum(i) of constant",
        "jit > shard_map(i:2, j:4, in=i.j) > psum(i) & ppermute(j)",
    ]
    options = [option for line in lines for option in ("--case", line)]
    found = suite(tmp_path / "r", "--backend", f"aot:tpu:{topology}+execute", *options)
    assert [result["verdict"] for result in found.values()] == ["pass"] * 3
    environment = json.loads((tmp_path / "r" / "environment.json").read_text())
    assert environment["device_count"] == 8 and environment["backend"].startswith("aot:tpu:")


@tpu
def test_a_topology_that_the_compiler_refuses_is_a_usage_error(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--backend",
        "aot:tpu:v5e:3x5",
        "--case",
        "vmap(i:2) > psum(i)",
    ]
    done = subprocess.run(
        [*command, f"--results={tmp_path / 'r'}"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 4 and "aot:tpu:v5e:3x5" in done.stdout + done.stderr


@tpu
def test_a_case_that_kills_the_compiler_is_a_crash_and_costs_no_other(tmp_path: Path) -> None:
    killer, sound = "jit > shard_map(i:2, j:3, in=i.j) > psum(i+j)", "vmap(i:2) > jit > psum(i)"
    found = suite(
        tmp_path / "r",
        "--backend",
        "aot:tpu:v5e:2x4",
        "--case",
        killer,
        "--case",
        sound,
        f"--expectations={tmp_path}",
    )
    assert (found[killer]["verdict"], found[sound]["verdict"]) == ("crash", "pass")


@tpu
def test_the_program_that_a_failure_leaves_behind_fails_by_itself(tmp_path: Path) -> None:
    line = "jit > shard_map(i:6) > all_gather(i)"
    found = suite(
        tmp_path / "r", "--backend", "aot:tpu:v5e:2x4", "--case", line, f"--expectations={tmp_path}"
    )
    assert (found[line]["verdict"], found[line]["rule"]) == ("fail", "aot.compiles")
    program = tmp_path / "r" / found[line]["reproducer"]
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "total_device_count" in done.stderr
