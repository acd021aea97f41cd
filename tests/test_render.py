"""Rendered programs: they import jax and NumPy only, read as a person would write them, and do not change unnoticed.

`python tests/test_render.py` writes the golden files anew; look at the difference before it is committed.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from programs import SPELLING, likely

from harness.case import Case, parse_line
from harness.compat import Spelling, spelling
from harness.errors import Illegal
from harness.layout import WIDTH, tidy, wrap
from harness.program import plan
from harness.render import render
from harness.schedules import SCHEDULES

TESTS = Path(__file__).resolve().parent

GOLDEN = {
    "constant": "vmap(i:2,3,2) > jit > scan(2) > psum(i) of constant",
    "mesh": "shard_map(i:2, j:3, in=i.j) > jit > while_loop(reduced i) > psum(i+j) & all_gather(j, tiled) | dtype=bfloat16 shape=3x5",
    "derivative": "vmap(i:3) > vjp > custom_vjp > psum(i) & ppermute(i, perm=partial) | payload=counting",
    "swapped": "vmap(i:2) > vmap(j:3) > jit > all_gather(i) | schedule=swap",
}

LINES = """
    vmap(i:2,3,2) > jit > scan(2) > psum(i) of constant
    vmap(i:3) > psum(i)
    vmap(i:3, in=1, out=2) > psum(i) & all_gather(i, axis=1) | shape=2x3
    vmap(i:2,3) > vmap(j:3,2) > jit > psum(i+j) & ppermute(j+i, perm=reverse)
    vmap(i:4,8) > jit > ppermute(i) & ppermute(i, perm=partial) & all_gather(i) & all_to_all(i, tiled) | shape=2i
    shard_map(i:2, j:3, in=i.j) > jit > while_loop(reduced i) > psum(i+j) & all_gather(j, tiled) | dtype=bfloat16 shape=3x5
    shard_map(i:2,4, j:4,2, check=off, devices=interleaved) > jit > ppermute(i+j) & all_gather(i)
    jit > shard_map(i:2,3, j:3,2, in=j.i, out=j.i, devices=last) > fori_loop(arg) > ppermute(j) | shape=2x2
    pmap(i:2,4, in=1, out=1, devices=reversed) > psum(i)
    pmap(i:8) > vmap(j:2) > cond(index i) > psum(j) & pmax(j)
    vmap(i:4) > switch(index i) > psum(i) & pmin(i) | payload=special
    vmap(i:8) > vmap(j:8) > pmean(i) | payload=special shape=2
    vmap(i:4) > switch(arg) > custom_vjp > psum(i)
    vmap(i:3) > scan(3, xs, reverse) > all_gather(i)
    vmap(i:3) > scan(5, xs) > psum(i)
    vmap(i:3) > scan(4, unroll=2) > cond(arg) > while_loop(index i) > psum(i)
    vmap(i:3) > jit > checkpoint > custom_jvp > custom_vjp > psum(i)
    vmap(i:3) > jvp > custom_jvp > psum(i) & all_gather(i) | payload=counting
    vmap(i:3) > linearize > scan(2) > pmean(i) | payload=origin
    compiled > vmap(i:2,3) > psum(i)
    eval_shape > vmap(i:2,3) > psum(i) & axis_index(i)
    vmap(i:2,3) > jit > psum(i) & all_gather(i) of tree
    vmap(i:2,3) > jit > psum(i) of closure
    vmap(i:2,3) > jit > psum(i) | names=object
    vmap(i:2,3) > jit > psum(i) & all_gather(i) | names=enum
    vmap(i:2,3) > jit > psum(i) & all_gather(i) | names=tuple
    vmap(i:2,3) > jit > psum(i) & all_gather(i) & ppermute(i) & all_to_all(i) | names=long shape=i
    vmap(i:3) > jit > axis_index(i) | names=int
    shard_map(i:2, j:4) > jit > psum(i+j) & all_gather(i+j) & pmax(i) | names=unicode dtype=float64
    vmap(i:2) > psum(i) | dtype=complex64
    vmap(i:2) > psum(i) | dtype=int8 payload=wrap
    vmap(_:2) > vmap(i:3) > jit > pmean(i) | payload=empty
    vmap(i:2) > vmap(i:3) > jit > psum(i) of True
    vmap(i:2) > psum(i) of -1.5
    vmap(i:2,3) > jit > psum(i) | schedule=clear
    vmap(i:2) > vmap(j:3) > jit > psum(i) | schedule=swap
    vmap(i:3) > jit > psum(i) | schedule=unbound
    vmap(i:3) > psum(i+i) | schedule=raises
    vmap(i:3) > jit > scan(2) > psum(i) | schedule=closure
    vmap(i:3) > jit > psum(i) | schedule=reborn
    jit > vmap(i:3) > psum(i) | schedule=static
    vmap(i:3) > jit > psum(i) | schedule=x64
    vmap(i:3) > jit > psum(i) | schedule=promotion
    vmap(i:2,3) > jit > psum(i) | schedule=threads
    vmap(i:3) > jit > psum(i) | schedule=unseen
    jit > shard_map(i:4) > psum(i) & ppermute(i) | schedule=devices
    vmap(i:3) > jit > cond(arg) > psum(i) | schedule=release
    vmap(i:2,3) > jit > psum(i) | schedule=disk
""".strip().splitlines()  # fmt: skip


def source(line: str, spelled: Spelling = SPELLING) -> str:
    first, *others = parse_line(line.strip())
    return render(plan(first, tuple(case.leaf for case in others)), spelled).source


@pytest.mark.parametrize("name", GOLDEN)
def test_a_program_reads_as_it_did(name: str) -> None:
    assert source(GOLDEN[name]) == (TESTS / "golden" / f"{name}.py").read_text(encoding="utf-8")


def ruff(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).parent / "ruff"
    command = str(beside) if beside.exists() else shutil.which("ruff")
    if command is None:
        pytest.skip("ruff is not installed: pip install ruff")
    return subprocess.run([command, *words, "."], cwd=folder, capture_output=True, text=True, check=False)


def test_a_formatter_and_a_linter_find_nothing_to_say(tmp_path: Path) -> None:
    for number, line in enumerate(LINES):
        (tmp_path / f"case_{number:02}.py").write_text(source(line), encoding="utf-8")
    looks = ruff("check", "--isolated", "--select", "E,F,W", "--ignore", "E501,E731", folder=tmp_path)
    assert looks.returncode == 0, looks.stdout
    form = ruff("format", "--isolated", "--diff", "--line-length", str(WIDTH), folder=tmp_path)
    assert form.returncode == 0, form.stdout


def test_the_linter_would_notice(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text("import numpy as np\nx=1\n", encoding="utf-8")
    assert ruff("check", "--isolated", "--select", "F", folder=tmp_path).returncode
    assert ruff("format", "--isolated", "--diff", folder=tmp_path).returncode


def test_every_schedule_is_looked_at() -> None:
    seen = {parse_line(line.strip())[0].schedule for line in LINES}
    flags = {
        word
        for word, schedule in SCHEDULES.items()
        if any(base.__name__ == "Flag" for base in type(schedule).__mro__)
    }
    assert len(set(SCHEDULES) - seen - flags) <= 4, sorted(set(SCHEDULES) - seen - flags)


def imports(text: str) -> set[str]:
    """The packages a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


@settings(
    max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(likely())
def test_a_program_stands_alone(case: Case) -> None:
    try:
        text = render(plan(case), SPELLING).source
    except Illegal:
        assume(False)
    assert imports(text) - set(sys.stdlib_module_names) <= {"jax", "numpy"}
    assert ast.get_docstring(ast.parse(text)) == str(case)
    names = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert "steps" in names and "harness" not in text and "<size" not in text


def test_an_import_of_something_else_would_be_noticed() -> None:
    assert imports("import jax\nfrom harness.case import parse\nimport scipy.linalg") == {
        "jax",
        "harness",
        "scipy",
    }


@pytest.mark.parametrize("line", LINES)
def test_lines_are_short(line: str) -> None:
    for number, text in enumerate(source(line).splitlines()):
        assert (
            number == 0 or len(text) <= WIDTH or (wrap(text) == [text] and "(" not in text.partition('"')[0])
        ), text


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.4.37", {"from jax.experimental.shard_map import shard_map", "check_rep=False", "lax.psum(1, "}),
        ("0.6.2", {"jax.shard_map(", "check_vma=False", "lax.axis_size("}),
        ("0.10.2", {"jax.shard_map(", "check_vma=False", "lax.axis_size("}),
    ],
)
def test_every_release_gets_its_own_spelling(version: str, words: set[str]) -> None:
    text = source("shard_map(i:2,4, check=off) > axis_size(i)", spelling(version))
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("version", "word"), [("0.5.3", ""), ("0.6.2", "lax.pvary("), ("0.10.2", "lax.pcast(")]
)
def test_varying_zeros_are_spelled_as_the_release_has_it(version: str, word: str) -> None:
    text = source("shard_map(i:2) > while_loop(2) > all_gather(i)", spelling(version))
    assert (word in text) if word else ("pvary" not in text and "pcast" not in text)


# Layout


def test_functions_stand_apart() -> None:
    lines = [
        "import a",
        "def f():",
        "    x = 1",
        "    def g():",
        "        return x",
        "    return g",
        "y = f",
        "",
        "",
        "",
        "z = y",
    ]
    assert tidy(lines) == [
        *("import a", "", "", "def f():", "    x = 1", "", "    def g():", "        return x", ""),
        *("    return g", "", "", "y = f", "", "", "z = y"),
    ]


def test_decorators_and_first_lines_stay_where_they_are() -> None:
    lines = ["@cache", "", "def f():  # why", "", "    @cache", "    def g():", "        pass"]
    assert tidy(lines) == ["@cache", "def f():  # why", "    @cache", "    def g():", "        pass"]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("x = f(1)", ["x = f(1)"]),
        (f"x = f({'a' * 105})", ["x = f(", f"    {'a' * 105}", ")"]),
        (f"    f({'a' * 60}, [{'b' * 60}, c])", ["    f(", f"        {'a' * 60},", f"        [{'b' * 60}, c],", "    )"]),
        (f'f("(", {"a" * 105})', ["f(", '    "(",', f"    {'a' * 105},", ")"]),
        (
            f"f([{'a' * 60} for k in range({'b' * 60})])",
            ["f(", "    [", f"        {'a' * 60}", f"        for k in range({'b' * 60})", "    ]", ")"],
        ),
    ],
)  # fmt: skip
def test_long_lines_are_broken_at_brackets(line: str, want: list[str]) -> None:
    got = wrap(line)
    assert [text for text in got if len(text) > WIDTH] == []
    if "for k" not in line:
        assert got == want
    assert ast.dump(ast.parse("\n".join(got).lstrip() if line[0] == " " else "\n".join(got))) == ast.dump(
        ast.parse(line.lstrip())
    )


def write_golden() -> None:
    for name, line in GOLDEN.items():
        (TESTS / "golden" / f"{name}.py").write_text(source(line), encoding="utf-8")


if __name__ == "__main__":
    write_golden()
