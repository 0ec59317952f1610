# SPDX-License-Identifier: Apache-2.0
"""Arrays of every form: parts and types of blocks, orders of elements, batches, and what has no memory of its own."""
from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import runnel
from conftest import ON_HOST, Gate, on_host

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


def test_blocks_have_a_shape_and_a_type(stream: runnel.Stream) -> None:
    block = runnel.empty((3, 4), "float32", stream)
    assert (block.shape, block.dtype, block.nbytes, block.ndim, block.itemsize, block.size, len(block)) == ((3, 4), "float32", 48, 2, 4, 12, 3)
    assert block.strides == (16, 4) and runnel.empty((), np.int64).shape == () and runnel.empty([2, 0], dtype="bool").nbytes == 0
    for dtype, size in (("bfloat16", 2), ("float8_e4m3fn", 1), ("float8_e5m2", 1), (np.float16, 2), ("complex128", 16)):
        assert runnel.empty(5, dtype).nbytes == 5 * size
    for shape, of in (((-1, 2), "int8"), ((2**62, 8), "int8"), (3, "quaternion")):
        with pytest.raises(ValueError):
            runnel.empty(shape, of)
    with pytest.raises(TypeError, match="no length"):
        len(runnel.empty((), "int8"))


def test_parts_of_blocks(stream: runnel.Stream) -> None:
    x = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    block = runnel.to_device(x, stream=stream)
    indices: list[Any] = [0, -1, slice(1, 3), slice(None), slice(5, 9), slice(-2, None), (1, slice(1, 3)), (2, 3), (1, 2, slice(1, 4)), (0, 0, 0), (2, -1, -1)]
    for index in indices:
        part = block[index]
        assert part.shape == x[index].shape and (on_host(part, stream) == x[index]).all()
    runnel.copy(block[1, 2], np.full(5, -1, np.int32), stream)
    x[1, 2] = -1
    assert (on_host(block, stream) == x).all()
    assert (on_host(block.reshape(5, -1), stream) == x.reshape(5, -1)).all() and block.reshape((60,)).shape == block.reshape([60]).shape == (60,)
    assert [row.shape for row in block] == [(4, 5)] * 3
    wrong: list[tuple[Any, type[Exception], str]] = [(3, IndexError, "outside"), ((0, 0, 0, 0), IndexError, "dimensions"), (slice(0, 3, 2), ValueError, "step"),
                                                     ((slice(0, 2), 1), ValueError, "gaps"), ("x", TypeError, "integer"), (None, TypeError, "integer")]
    for index, error, text in wrong:
        with pytest.raises(error, match=text):
            block[index]
    for shape in ((7,), (-1, 7), (0,), (61,)):
        with pytest.raises(ValueError):
            block.reshape(shape)


@pytest.mark.parametrize("order", [(1, 0), (2, 1, 0), (0, 2, 3, 1), (1, 0, 2)])
def test_the_order_of_elements_is_kept(order: tuple[int, ...], stream: runnel.Stream) -> None:
    x = np.arange(120, dtype=np.int16)[: (24 if len(order) == 2 else 120)].reshape((4, 6) if len(order) == 2 else (4, 6, 5) if len(order) == 3 else (2, 3, 4, 5))
    turned = x.transpose(order)
    block = runnel.to_device(turned, stream=stream)
    assert block.shape == turned.shape and block.strides == turned.strides
    back = runnel.to_host(block, stream=stream)
    copies = runnel.copy_many([(np.zeros_like(turned), turned), (np.zeros(turned.shape, np.int16)[...], np.ascontiguousarray(turned))], stream)
    stream.synchronize()
    assert back.strides == turned.strides and (back == turned).all() and sum(copies.counts.values()) == 2
    for call in (lambda: block[0], lambda: block.reshape(-1), lambda: block.view("uint8")):
        with pytest.raises(ValueError, match="not in C's order"):
            call()
    if ON_HOST:
        assert (np.from_dlpack(block) == turned).all()
        assert runnel.to_device(turned, like=np, stream=stream).strides == turned.strides
    gaps = np.zeros((4, 12), np.int16)[:, ::2].T
    assert runnel.to_device(np.ascontiguousarray(gaps), stream=stream).strides == (8, 2)
    stream.synchronize()


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_channels_last_is_kept(stream: runnel.Stream) -> None:
    x = torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    block, numbers = runnel.to_device(x, stream=stream), runnel.to_host(x, stream=stream)
    if ON_HOST:
        made = runnel.to_device(x, like=torch, stream=stream)
        assert made.is_contiguous(memory_format=torch.channels_last)
    stream.synchronize()
    assert block.strides == numbers.strides == tuple(4 * step for step in x.stride()) and (numbers == x.numpy()).all()


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Sample:
    image: Any
    label: int


def test_batches_keep_their_form(stream: runnel.Stream) -> None:
    x = [np.full((2, 3), i, np.float32) for i in range(5)]
    batch = {"pair": Pair(x[0], x[1]), "list": [x[2], "text", None], "tuple": (x[3], 3), "sample": Sample(x[4], 7)}
    moved, handle = runnel.to_device(batch, stream=stream, handle=True)
    assert isinstance(handle, runnel.Copies) and sum(handle.counts.values()) == 5
    back = runnel.to_host(moved, stream=stream, non_blocking=False)
    assert isinstance(back["pair"], Pair) and isinstance(back["tuple"], tuple) and back["list"][1:] == ["text", None] and back["tuple"][1] == 3
    arrays = [*back["pair"], back["list"][0], back["tuple"][0], back["sample"].image]
    assert all((array == i).all() and array.shape == (2, 3) for i, array in enumerate(arrays)) and back["sample"].label == 7
    for wrong in ([1], {}, (), ["x"], {"a": None}):
        with pytest.raises(TypeError, match="no memory.*batch"):
            runnel.to_device(wrong, stream=stream)
    with pytest.raises(TypeError, match="class 'object'"):
        runnel.to_device([x[0], object()], stream=stream)
    with pytest.raises(TypeError, match="copy_many"):
        runnel.to_host([x[0]], x[0], stream)


def test_handles_and_waits(stream: runnel.Stream, gate: Gate) -> None:
    gate.close(stream)
    x = np.ones(1 << 18)
    block, handle = runnel.to_device(x, stream=stream, handle=True)
    target, other = runnel.to_host(block, np.zeros_like(x), stream, handle=True)
    assert not handle.done() and not other.done()
    gate.open()
    other.wait()
    assert handle.done() and (target == 1).all()
    assert runnel.copy(target, block, stream, non_blocking=False).done()


def test_pinned_results(stream: runnel.Stream) -> None:
    block = runnel.to_device(np.arange(1000.0), stream=stream)
    before = runnel.PinnedPool.statistics()["in_use"]
    made = runnel.to_host(block, stream=stream, pinned=True, non_blocking=False)
    assert (made == np.arange(1000.0)).all() and runnel.PinnedPool.statistics()["in_use"] > before


def test_devices_are_named_as_torch_names_them() -> None:
    for name in ("cuda", "cuda:0", "host", "hip:0"):
        assert runnel.Stream(name).device == runnel.current_stream(name).device == runnel.Device(0)
        runnel.to_device(np.ones(3), device=name, non_blocking=False)
    for name in ("cpu", "cuda:", "cuda:-1", "cuda:x", ""):
        with pytest.raises(ValueError, match="'cuda:1'"):
            runnel.Stream(name)
    assert runnel.Event(enable_timing=True).timing


def test_columns_say_what_to_write(stream: runnel.Stream) -> None:
    class Column:  # as pandas, polars and pyarrow have them
        dtype, shape, nbytes = np.dtype("float64"), (3,), 24

        def to_numpy(self) -> Any:
            return np.arange(3.0)

    calls: list[Any] = [lambda: runnel.to_device(Column(), stream=stream), lambda: runnel.to_host(Column(), stream=stream),
                        lambda: runnel.copy(np.zeros(3), Column(), stream), lambda: runnel.overlap(Column(), None, len)]  # type: ignore[arg-type]
    for call in calls:
        with pytest.raises(TypeError, match=r"x\.to_numpy\(\)"):
            call()


def test_turned_parts_go_to_the_device_and_back(stream: runnel.Stream) -> None:
    """With gaps and other orders of dimensions, as a part of a picture with its channels first."""
    picture = np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)
    for part in (picture[2:9, 5:25].transpose(2, 0, 1), picture[::2, :, 1:].T, picture[:, 3:4].transpose(1, 0, 2)):
        block = runnel.to_device(part, stream=stream)
        back = runnel.to_host(block, stream=stream)
        again = np.zeros_like(picture)[2:9, 5:25].transpose(2, 0, 1) if part.shape == (3, 7, 20) else np.empty_like(part)
        runnel.copy(again, part, stream)
        stream.synchronize()
        assert block.shape == part.shape and (back == part).all() and (again == part).all()
    for part in (picture[::-1], np.broadcast_to(picture[:1], (4, 30, 3))):
        with pytest.raises(ValueError, match=r"numpy.ascontiguousarray\(x\)"):
            runnel.to_device(part, stream=stream)
    with pytest.raises(ValueError, match=r"numpy.ascontiguousarray\(x\)"):
        runnel.copy(np.zeros((3, 7, 20), np.uint8), picture[2:9, 5:25].transpose(2, 0, 1), stream)


def test_batches_go_into_batches(stream: runnel.Stream) -> None:
    batch = {"x": [np.ones(3), np.zeros((0, 2))], "n": 3, "y": (np.full(4, 2.0),)}
    device = runnel.to_device(batch, stream=stream)
    assert runnel.to_device({**batch, "y": (np.full(4, 5.0),)}, out=device, stream=stream) is device
    host = {"x": [np.zeros(3), np.zeros((0, 2))], "n": 3, "y": (np.zeros(4),)}
    assert runnel.to_host(device, host, stream, non_blocking=False) is host and (host["y"][0] == 5).all() and (host["x"][0] == 1).all()
    with pytest.raises(TypeError, match="another form"):
        runnel.to_host(device, {"x": []}, stream)


def test_types_that_numpy_lacks(stream: runnel.Stream) -> None:
    pinned = runnel.pinned_empty((3, 4), "bfloat16")
    assert pinned.dtype == np.uint16 and pinned.shape == (3, 4)
    runnel.copy(runnel.empty((3, 4), "bfloat16", stream), pinned, stream).wait()
    torch = pytest.importorskip("torch")
    assert runnel.pinned_empty(3, torch.bfloat16).dtype == np.uint16 and runnel.pinned_empty(3, torch.float32).dtype == np.float32
    batch = {"x": torch.arange(6).reshape(2, 3).to(torch.bfloat16), "y": torch.ones(2, 0)}
    for pinned_too in (False, True):
        back = runnel.to_host(runnel.to_device(batch, stream=stream), stream=stream, like=torch, pinned=pinned_too, non_blocking=False)
        assert back["x"].dtype == torch.bfloat16 and torch.equal(back["x"], batch["x"]) and back["y"].shape == (2, 0)
    with pytest.raises(TypeError, match="torch has no type datetime64"):
        runnel.to_device(np.zeros(3, "datetime64[ns]"), torch)


def test_a_mapped_file_is_written(tmp_path: Path, stream: runnel.Stream) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    runnel.copy(runnel.map_file(path, 5000, 100, writable=True), runnel.to_device(b"x" * 100, stream=stream), stream).wait()
    assert path.read_bytes() == bytes(5000) + b"x" * 100 + bytes(4900)
