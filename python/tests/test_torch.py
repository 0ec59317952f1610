# SPDX-License-Identifier: Apache-2.0
"""torch's tensors in the host's memory, where torch is installed."""
from __future__ import annotations

from typing import Any

import pytest

import runnel
from conftest import check_python, on_host

torch: Any = pytest.importorskip("torch")

DTYPES = [name for name in ("float64", "float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128",
                            "uint16", "uint32", "uint64") if hasattr(torch, name)]


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_goes_and_comes_back(name: str, stream: runnel.Stream) -> None:
    x = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, name))
    block = runnel.to_device(x, stream=stream)
    assert (block.shape, block.dtype) == ((2, 3, 4), name)
    back = torch.zeros_like(x)
    runnel.copy(back, block, stream)
    stream.synchronize()
    assert bytes(back.view(torch.uint8).numpy() if name != "bool" else back.numpy()) == on_host(x, stream).tobytes()


def test_parts_zero_size_and_gradients(stream: runnel.Stream) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    for part in (x[:, ::2], x[1:3, 1:5], x[0], torch.tensor(5.0), torch.empty(0, 3), x.clone().requires_grad_(), torch.nn.Parameter(x.clone())):
        out = torch.zeros(tuple(part.shape))
        runnel.copy(out, part, stream)
        stream.synchronize()
        assert torch.equal(out, part.detach())
    for part in (x.t(), torch.ones(1).expand(5), torch.as_strided(x, (3, 3), (1, 1))):
        with pytest.raises(ValueError):
            runnel.copy(torch.zeros(tuple(part.shape)), part, stream)


def test_a_tensor_whose_memory_has_other_numbers_is_refused(stream: runnel.Stream) -> None:
    conjugate = torch.full((3,), 1 + 2j, dtype=torch.complex64).conj()
    for lazy in (conjugate, conjugate.imag):
        out = torch.zeros(3, dtype=lazy.dtype)
        for call in (lambda: runnel.copy(out, lazy, stream), lambda: runnel.copy(lazy, out, stream)):
            with pytest.raises(ValueError, match="resolve_conj"):
                call()
        runnel.copy(out, lazy.resolve_conj().resolve_neg(), stream)
        stream.synchronize()
        assert torch.equal(out, lazy.resolve_conj().resolve_neg())


def test_a_tensor_without_memory_is_refused(stream: runnel.Stream) -> None:
    freed = torch.ones(4)
    (freed.untyped_storage() if hasattr(freed, "untyped_storage") else freed.storage()).resize_(0)
    for tensor in (torch.empty(4, device="meta"), freed, torch.eye(4).to_sparse()):
        with pytest.raises((ValueError, RuntimeError)):
            runnel.copy(torch.zeros(tuple(tensor.shape)), tensor, stream)


def test_a_write_counts_in_the_version(stream: runnel.Stream) -> None:
    source, target = torch.ones(3), torch.zeros(3)
    writes: list[Any] = [lambda: runnel.copy(target, source, stream), lambda: runnel.copy_many([(target, source)], stream),
                         lambda: runnel.fill(target, 0, stream), lambda: runnel.to_host(source, target, stream)]
    for number, write in enumerate(writes):
        assert target._version == number
        write()
    assert (source._version, target._version) == (0, 4)
    with pytest.raises(ValueError):
        runnel.copy(target, torch.ones(4), stream)
    with torch.inference_mode():
        runnel.copy(torch.zeros(3), source, stream)
    stream.synchronize()
    assert target._version == 4


def test_types_of_torch_are_kept(stream: runnel.Stream) -> None:
    with pytest.raises(ValueError, match=r"float32 \(3,\).*int32 \(3,\)"):
        runnel.copy(torch.zeros(3), torch.ones(3, dtype=torch.int32), stream)
    half = torch.ones(3, dtype=torch.bfloat16)
    numbers = on_host(half, stream)
    assert str(numbers.dtype) == "uint16" and (numbers == 0x3F80).all()
    runnel.copy(half, numbers, stream)
    stream.synchronize()


def test_memory_that_is_taken_from_a_tensor_stays_until_the_copy_is_complete() -> None:
    check_python("""
        import runnel, threading, torch
        s, gate = runnel.Stream(), threading.Event()
        for take in (lambda x: setattr(x, "data", torch.zeros(3)), lambda x: x.set_(torch.zeros(3))):
            x = torch.ones(1 << 22)
            out = bytearray(x.nbytes)
            gate.clear()
            s.launch_host_func(gate.wait)
            runnel.copy(out, x, s)
            take(x)
            others = [torch.full((1 << 22,), 7.0) for _ in range(3)]
            gate.set()
            s.synchronize()
            assert (torch.frombuffer(out, dtype=torch.float32) == 1).all()
    """)
