# SPDX-License-Identifier: Apache-2.0
"""Which of several backends is chosen."""
from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import runnel
from conftest import ON_HOST, check_python
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


@pytest.mark.skipif(ON_HOST, reason="there torch has no streams")
def test_copies_of_tensors_go_to_the_current_stream_of_torch() -> None:
    check_python("""
        import sys, types
        import runnel
        torch, memory = types.ModuleType("torch"), runnel.empty(1 << 20)
        pool, external = runnel.Stream(), runnel.Stream()
        now, asked = [pool], []

        class Tensor:  # of torch, as far as a copy asks
            is_cuda, nbytes, shape, dtype, device = True, 1 << 20, (1 << 20,), "torch.uint8", types.SimpleNamespace(index=0)
            def data_ptr(self): return memory.ptr
            def is_contiguous(self): return True

        def raw(device):
            asked.append(now[0])
            return now[0].handle

        torch.Tensor = Tensor
        # The stream of a pool has an odd number; that of other code has its handle.
        torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=raw, _cuda_getCurrentStream=lambda d: (3 if now[0] is pool else now[0].handle, d, 1))
        sys.modules["torch"] = torch
        import threading
        for stream, count in ((pool, 1), (external, 3)):
            now[0] = stream
            for _ in range(3):
                gate = threading.Event()
                stream.launch_host_func(gate.wait)
                runnel.copy(Tensor(), bytes(1 << 20), pageable="stage")
                gate.set()
                stream.synchronize()
            assert asked.count(stream) == count, asked
        for call in (lambda: runnel.copy(bytearray(1 << 20), Tensor()), lambda: runnel.fill(Tensor(), 0)):
            now[0] = pool
            gate = threading.Event()
            pool.launch_host_func(gate.wait)
            call()
            assert not pool.query() and external.query()
            gate.set()
            pool.synchronize()
    """)


@pytest.mark.skipif(ON_HOST, reason="the host is always there")
def test_what_is_refused_without_a_device_says_why() -> None:
    check_python("""
        import runnel
        assert runnel.device_count() == 0 and runnel.why_no_device()
        for call in (runnel.Stream, runnel.StreamPool, lambda: runnel.empty(8), lambda: runnel.copy(bytearray(8), bytes(8)), runnel.synchronize,
                     lambda: runnel.pinned_empty(8), lambda: runnel.to_device(bytes(8)), lambda: runnel.Device(0).name):
            try:
                call()
            except runnel.NoDevice as error:
                assert runnel.why_no_device() in str(error) and error.code == "no_device", error
            else:
                raise AssertionError(call)
    """, RUNNEL_BACKEND=runnel.backend, CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="", STANDIN_DEVICES="0")
