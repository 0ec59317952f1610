# SPDX-License-Identifier: Apache-2.0
"""Which of several backends is chosen."""
from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runnel import _backend

Devices = dict[str, int | Exception]  # of each backend that is built; an exception where its runtime does not load


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Chooses among backends that are made up. Returns the name of the chosen one, and the reasons."""

    def run(devices: Devices, asked: str = "", torch: dict[str, str] | None = None, cupy: int | None = None) -> tuple[str, list[str]]:
        def load(name: str) -> Any:
            count = devices.get(name, 1)
            if isinstance(count, Exception):
                raise count
            return SimpleNamespace(name=name, device_count=lambda: count, why_no_device=lambda: f"no device for {name}")

        monkeypatch.setattr(_backend, "_built", lambda: [name for name in _backend._NAMES if name in devices or name == "host"])
        monkeypatch.setattr(_backend, "_load", load)
        monkeypatch.setattr(_backend, "reasons", [])
        monkeypatch.setenv("RUNNEL_BACKEND", asked)
        for library, content in (("torch", {"version": SimpleNamespace(**torch)} if torch is not None else None),
                                 ("cupy", {"cuda": SimpleNamespace(runtime=SimpleNamespace(runtimeGetVersion=lambda: cupy))} if cupy else None)):
            made = ModuleType(library)
            made.__dict__.update(content or {})
            monkeypatch.setitem(sys.modules, library, made)
        return getattr(_backend.choose(), "name"), _backend.reasons

    return run


def test_the_first_backend_with_a_device(choose: Any) -> None:
    assert choose({"cuda13": 1, "cuda12": 1, "hip": 1}) == ("cuda13", [])
    assert choose({"cuda13": 0, "cuda12": 1, "hip": 1}) == ("cuda12", ["cuda13: no device for cuda13"])
    assert choose({"cuda13": 0, "cuda12": 0, "hip": 1})[0] == "hip"
    assert choose({"cuda13": 0, "hip": 0}) == ("host", ["cuda13: no device for cuda13", "hip: no device for hip"])
    assert choose({}) == ("host", [])


def test_a_runtime_that_does_not_load_is_passed_over(choose: Any) -> None:
    broken = ImportError("libcudart.so.13 was not found: pip install it")
    assert choose({"cuda13": broken, "cuda12": 1}) == ("cuda12", ["cuda13: libcudart.so.13 was not found: pip install it"])
    assert choose({"cuda13": OSError("broken")}) == ("host", ["cuda13: broken"])


def test_the_runtime_of_torch_or_cupy_comes_first(choose: Any) -> None:
    assert choose({"cuda13": 1, "cuda12": 1}, torch={"cuda": "12.8", "hip": None}) == ("cuda12", [])
    assert choose({"cuda13": 1, "hip": 1}, torch={"hip": "6.2", "cuda": None})[0] == "hip"
    assert choose({"cuda13": 1, "cuda12": 1}, torch={"cuda": None, "hip": None})[0] == "cuda13"
    assert choose({"cuda13": 1, "cuda12": 1}, cupy=12090)[0] == "cuda12"
    assert choose({"cuda13": 1}, torch={"cuda": "12.8", "hip": None})[0] == "cuda13"


def test_the_variable_chooses(choose: Any) -> None:
    assert choose({"cuda13": 1, "cuda12": 1}, "cuda12", torch={"cuda": "13.0", "hip": None}) == ("cuda12", [])
    assert choose({"cuda13": 0, "cuda12": 1}, "cuda")[0] == "cuda13"
    assert choose({"cuda13": 1}, "host")[0] == "host"
    with pytest.raises(ImportError, match="RUNNEL_BACKEND=vulkan.*built with cuda13, host"):
        choose({"cuda13": 1}, "vulkan")
    with pytest.raises(ImportError, match="gone"):
        choose({"cuda13": ImportError("gone")}, "cuda13")


def test_a_runtime_that_is_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "_places", lambda library: [f"/nowhere/{library}"])
    monkeypatch.setattr(_backend.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="libcudart.so.12 was not found: pip install 'runnel-streams.cuda12.' brings it"):
        _backend._load_runtime("cuda12", "libcudart.so.12")
    with pytest.raises(ImportError, match="libamdhip64.so.5 was not found: it comes with ROCm"):
        _backend._load_runtime("hip", "libamdhip64.so.5")
