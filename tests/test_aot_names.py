"""Names of backends: each wrong one is refused with one line that says what would be right. Imports no JAX."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import backends
from harness.aot import names
from harness.errors import UsageError

WRONG = {
    "aot:tpu:v4-8": "expected aot:tpu:GENERATION:CHIPS",
    "aot:tpu:v5litepod:2x4": "no TPU generation v5litepod; known: v2, v3, v4, v5e, v5p, v6e, tpu7x",
    "aot:tpu:v7x:2x2x1": "no TPU generation v7x",
    "aot:tpu:v5e:2x2x2": "a v5e topology has 2 dimensions of chips, such as aot:tpu:v5e:2x4",
    "aot:tpu:v4:2x4": "a v4 topology has 3 dimensions of chips, such as aot:tpu:v4:2x2x1",
    "aot:tpu:v5e:0x4": "0 chips",
    "aot:tpu:v5e:200x200": "40000 chips; expected 1 to 9216",
    "aot:rocm:mi300:1x1x8": "no compile-only platform rocm; known: cuda, tpu",
    "aot:cuda:gtx:1x1x8": "no description gtx.txtpb in configs/targets",
    "aot:tpu": "expected aot:tpu:GENERATION:CHIPS",
    "plugin:": "expected plugin:NAME or plugin:NAME=LIBRARY",
    "plugin:x=": "expected plugin:NAME or plugin:NAME=LIBRARY",
    "plugin:x=/no/such.so": "no library /no/such.so",
    "plugin:x=no_such_package/lib.so": "needs the Python package no_such_package, which is not installed",
    "plugin:cpu": "describes no plugin",
    "mars": "unknown; known: cpu, default, gpu",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_name_is_told_in_one_line(name: str) -> None:
    with pytest.raises(UsageError) as told:
        backends.load(name)
    assert WRONG[name] in str(told.value) and "\n" not in str(told.value)
    assert name.split("=")[0] in str(told.value)


@pytest.mark.parametrize(
    "name, devices, topology",
    [
        ("aot:tpu:v5e:2x4", 8, "v5e:2x4"),
        ("aot:tpu:v4:2x2x2+execute", 16, "v4:2x2x2"),
        ("aot:tpu:v2:2x2", 8, "v2:2x2"),
        ("aot:tpu:tpu7x:2x2x1", 8, "tpu7x:2x2x1"),
        ("aot:tpu:v5p:8x8x16", 1024, "v5p:8x8x16"),
    ],
)
def test_a_topology_has_its_devices(name: str, devices: int, topology: str) -> None:
    target = names.parse(name)
    assert (target.devices, target.topology, target.execute) == (devices, topology, "+execute" in name)


def test_every_generation_has_an_example_of_eight_devices() -> None:
    for kind, generation in names.GENERATIONS.items():
        assert names.parse(f"aot:tpu:{kind}:{generation.example}").devices == 8


def test_what_a_name_asks_for_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = tmp_path / "lib.so"
    library.touch()
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    variables = backends.load(f"plugin:mine={library}").variables(None)
    assert variables["JAX_PLATFORMS"] == "mine,cpu"
    assert variables["PJRT_NAMES_AND_LIBRARY_PATHS"] == f"mine:{library}"
    assert variables[backends.NAMED] == "plugin:mine"


def test_a_plugin_is_a_file_and_no_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(backends, "FOLDER", tmp_path)
    library = tmp_path / "lib.so"
    library.touch()
    (tmp_path / "ours.toml").write_text(
        f'plugin = "chip"\nlibrary = "{library}"\ndeadline = 7\n[environment]\nCHIP_LOG = 1\n'
    )
    for name in ("ours", "plugin:ours"):
        backend = backends.load(name)
        assert (backend.name, backend.deadline) == ("plugin:ours", 7.0)
        assert backend.variables(None)["JAX_PLATFORMS"] == "chip,cpu"
        assert backend.variables(None)["CHIP_LOG"] == "1"
    other = tmp_path / "other.so"
    other.touch()
    paths = backends.load(f"plugin:ours={other}").variables(None)["PJRT_NAMES_AND_LIBRARY_PATHS"]
    assert paths == f"chip:{other}"


@pytest.mark.parametrize(
    "text, told",
    [
        ("deadlin = 3", "unknown key deadlin; known: alone, deadline, devices"),
        ('deadline = "long"', "deadline is 'long', should be of type float"),
        ("devices = true", "devices is True, should be of type int"),
        ("[environment", "Expected"),
    ],
)
def test_a_wrong_file_is_told_with_its_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, told: str
) -> None:
    monkeypatch.setattr(backends, "FOLDER", tmp_path)
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(UsageError, match=told):
        backends.load("bad")


def test_every_shipped_file_can_be_read() -> None:
    for path in backends.FOLDER.glob("*.toml"):
        assert set(backends._table(path)) <= set(backends.KEYS)


def test_a_worker_that_sees_one_chip_is_told_that_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_VISIBLE_CHIPS", raising=False)
    tpu = backends.load("tpu")
    assert tpu.variables(None, 3)["TPU_VISIBLE_CHIPS"] == "3"
    assert tpu.variables(None, 3)["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "1,1,1"
    assert not {"TPU_VISIBLE_CHIPS", "TPU_CHIPS_PER_PROCESS_BOUNDS"} & set(tpu.variables(None))
    assert backends.load("gpu").variables(None, 2)["CUDA_VISIBLE_DEVICES"] == "2"
