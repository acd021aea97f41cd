"""Mistakes of set-up: each is told, and a sound set-up has none. Imports no JAX."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import surroundings
from harness.surroundings import mistakes


@pytest.mark.parametrize(
    "version, condition, fits",
    [
        ("0.0.42.1", "==0.0.42.*", True),
        ("0.0.52", "==0.0.42.*", False),
        ("0.10.2", "<=0.10.2", True),
        ("0.12.0.1", "<=0.12.0", False),
        ("0.10.2", ">=0.10.2", True),
        ("0.10.1", ">=0.10.2", False),
        ("0.10.2.dev20260101", ">=0.10.2", True),
        ("0.6.2", "==0.6.2", True),
        ("1.2", "anything at all", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, condition: str, fits: bool) -> None:
    assert surroundings._fits(version, condition) == fits


@pytest.mark.parametrize(
    "variables, told",
    [
        ({"JAX_ENABLE_X64": "1"}, "JAX_ENABLE_X64=1: 64-bit types are on"),
        ({"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}, "results on the CPU round differently"),
        ({"JAX_DISABLE_JIT": "True"}, "nothing that is cached is tested"),
    ],
)
def test_a_variable_that_changes_results_is_told(variables: dict[str, str], told: str) -> None:
    assert any(told in mistake for mistake in mistakes(variables))


def test_a_variable_that_is_off_is_no_mistake() -> None:
    quiet = {"JAX_ENABLE_X64": "0", "JAX_DISABLE_JIT": "false", "XLA_FLAGS": "--xla_dump_to=/tmp/x"}
    assert mistakes(quiet) == mistakes({})


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    """A package as pip leaves it, without files."""
    place = folder / f"{name}-{version}.dist-info"
    place.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    place.joinpath("METADATA").write_text(
        "\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires)]) + "\n"
    )


def test_parts_that_do_not_fit_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    install(first, "jax", "0.10.2", "jaxlib<=0.10.2,>=0.10.2", 'libtpu==0.0.42.*; extra == "tpu"', "numpy>=2")
    install(first, "libtpu", "0.0.52")
    install(first, "jaxlib", "0.9.0")
    install(second, "jax", "0.9.0")
    monkeypatch.setattr("sys.path", [str(first), str(second)])
    found = surroundings._installed()
    assert list(surroundings._mismatches(found)) == [
        "jax 0.10.2 wants jaxlib<=0.10.2,>=0.10.2, installed is 0.9.0",
        "jax 0.10.2 wants libtpu==0.0.42.*, installed is 0.0.52",
    ]
    (double,) = surroundings._doubles(found)
    assert double.startswith("jax is installed 2 times: 0.10.2 in ")


def test_an_extra_that_is_not_about_hardware_wants_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(tmp_path, "jax", "0.10.2", 'jaxlib==0.10.1; extra == "minimum-jaxlib"')
    install(tmp_path, "jaxlib", "0.10.2")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert list(surroundings._mismatches(surroundings._installed())) == []


def test_hidden_devices_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Path, "glob", lambda self, pattern: [self / "nvidia0"] * 4 if "nvidia" in pattern else []
    )
    hidden = list(surroundings._hidden({"JAX_PLATFORMS": "cpu"}, {"backend": "cpu", "device_count": 8}))
    assert hidden == ["the machine has 4 NVIDIA GPUs, and JAX shows cpu devices (JAX_PLATFORMS=cpu)"]
    fewer = list(surroundings._hidden({"CUDA_VISIBLE_DEVICES": "0"}, {"backend": "gpu", "device_count": 1}))
    assert fewer == ["the machine has 4 NVIDIA GPUs, and JAX shows 1 (CUDA_VISIBLE_DEVICES=0)"]
    assert list(surroundings._hidden({}, {"backend": "gpu", "device_count": 4})) == []
