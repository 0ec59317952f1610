# SPDX-License-Identifier: Apache-2.0
"""Copies from and to every kind of memory."""
from __future__ import annotations

import array
import ctypes
import mmap
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runnel
from conftest import ON_HOST, Gate, on_host

SIZES = [0, 1, 64, 4096, 32769, 300_000, 5_000_001]
RESULTS = {"nothing", "direct", "staged", "inlined", "blocked"}


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_bytes_go_to_the_device_and_back(size: int, stream: runnel.Stream) -> None:
    block = runnel.empty(size, stream)
    back = bytearray(size)
    assert runnel.copy(block, content(size), stream).kind in RESULTS
    assert (runnel.copy(back, block, stream).kind == "nothing") == (size == 0)
    stream.synchronize()
    assert back == content(size)
    assert block.nbytes == size and len(block) == size and repr(size) in repr(block)


def memories(size: int, folder: Path) -> dict[str, Any]:
    data = content(size)
    path = folder / "file"
    path.write_bytes(data)
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    made: dict[str, Any] = {
        "bytes": data, "bytearray": bytearray(data), "memoryview": memoryview(data), "array": array.array("B", data), "mmap": mapped,
        "numpy": np.frombuffer(data, np.uint8), "map_file": runnel.map_file(path), "pinned": runnel.pinned_empty(size),
    }
    made["pinned"][:] = made["numpy"]
    return made


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview", "array", "mmap", "numpy", "map_file", "pinned"])
def test_every_kind_of_memory_is_a_source(kind: str, tmp_path: Path, stream: runnel.Stream) -> None:
    size = 700_001
    with stream:
        block = runnel.to_device(memories(size, tmp_path)[kind])
    assert on_host(block, stream).tobytes() == content(size)


@pytest.mark.skipif(not runnel.backend.startswith("cuda"), reason="only CUDA reads a busy stream's small source at the call")
def test_a_host_function_that_writes_nothing_delays_no_copy(stream: runnel.Stream, gate: Gate) -> None:
    block = runnel.empty(64, stream)
    gate.close(stream)
    assert runnel.copy(block, bytes(64), stream).kind == "staged"
    gate.open()
    stream.synchronize()
    other = threading.Event()
    stream.launch_host_func(other.wait, writes_host_memory=False)
    try:
        assert runnel.copy(block, bytes(64), stream).kind == "inlined"
    finally:
        other.set()
    stream.synchronize()


def test_a_copy_returns_before_the_work_is_done(stream: runnel.Stream, gate: Gate) -> None:
    source, target = np.full(1 << 20, 7, np.uint8), np.zeros(1 << 20, np.uint8)
    gate.close(stream)
    block = runnel.empty(source.nbytes, stream)
    assert runnel.copy(block, source, stream).kind in ("direct", "staged")
    runnel.copy(target, block, stream)
    assert not stream.query() and not target.any()
    gate.open()
    stream.synchronize()
    assert (target == 7).all()


@pytest.mark.parametrize("any_time", [False, True])
def test_options_reach_the_library(any_time: bool, stream: runnel.Stream) -> None:
    source = np.arange(1 << 18)
    block = runnel.empty(source.nbytes, stream)
    assert runnel.copy(block, source, stream, pageable="block", any_time=any_time).kind == "blocked"
    if not ON_HOST:
        with pytest.raises(runnel.Error) as raised:
            runnel.copy(block, source, stream, pageable="refuse")
        assert raised.value.code == "not_permitted" and "'stage'" in str(raised.value) and "::" not in str(raised.value)
    with pytest.raises(ValueError, match="'stage', 'block' or 'refuse'"):
        runnel.copy(block, source, stream, pageable="other")  # type: ignore[arg-type]
    stream.synchronize()


def test_wrong_arguments_say_what_is_wrong(stream: runnel.Stream) -> None:
    zeros = np.zeros(3, np.uint8)
    with pytest.raises(BufferError, match="read-only.*order is copy"):
        runnel.copy(b"abc", zeros, stream)
    with pytest.raises(ValueError, match="3 bytes and the source has 4"):
        runnel.copy(zeros, b"abcd", stream)
    for call in (lambda: runnel.copy(zeros, [1, 2, 3], stream), lambda: runnel.to_device([1]), lambda: runnel.to_host([1])):
        with pytest.raises(TypeError, match="class 'list'.*no memory"):
            call()
    objects = np.array([[], {}], object)
    for call in (lambda: runnel.copy(objects, objects, stream), lambda: runnel.copy_many([(objects, objects)], stream)):
        with pytest.raises(TypeError, match="array of Python objects"):
            call()
    with pytest.raises(TypeError, match="no runnel.Stream.*wrap"):
        runnel.copy(zeros, b"abc", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        runnel.empty(-1)
    with pytest.raises(runnel.OutOfMemoryError) as raised:
        runnel.empty(1 << 60, stream)
    assert isinstance(raised.value, MemoryError)


def strided(shape: tuple[int, ...], pads: tuple[int, ...]) -> np.ndarray[Any, Any]:
    whole = np.random.default_rng(1).integers(0, 255, [n + pad for n, pad in zip(shape, pads)], np.uint8)
    return whole[tuple(slice(0, n) for n in shape)]


@pytest.mark.parametrize("shape", [(5,), (4, 6), (3, 4, 5), (1, 4, 1, 6), (2, 1, 3), (2, 3, 4, 5), (2, 2, 2, 2, 2)])
def test_arrays_with_gaps_go_as_rows_and_slices(shape: tuple[int, ...], stream: runnel.Stream) -> None:
    source = strided(shape, (1,) * len(shape))
    target = np.zeros([n + 2 for n in shape], np.uint8)[tuple(slice(1, n + 1) for n in shape)]
    runnel.copy(target, source, stream)
    stream.synchronize()
    assert (target == source).all()
    packed = np.zeros(shape, np.uint8)
    runnel.copy(packed, source, stream)
    stream.synchronize()
    assert (packed == source).all()


def test_columns_of_numbers_and_transposed_arrays(stream: runnel.Stream) -> None:
    source = np.arange(24.0).reshape(4, 6)
    target = np.zeros((4, 6))
    runnel.copy(target[:, ::2], source[:, 1::2], stream)
    stream.synchronize()
    assert (target[:, ::2] == source[:, 1::2]).all() and not target[:, 1::2].any()
    fortran = np.zeros((4, 6), order="F")
    runnel.copy(fortran, np.asfortranarray(source), stream)
    stream.synchronize()
    assert (fortran == source).all()


def test_what_rows_cannot_do_is_refused(stream: runnel.Stream) -> None:
    with pytest.raises(ValueError, match="backwards"):
        runnel.copy(np.zeros(4), np.zeros(4)[::-1], stream)
    with pytest.raises(ValueError, match="one shape"):
        runnel.copy(np.zeros((2, 4))[:, :3], np.zeros((3, 4))[:, :2], stream)
    with pytest.raises(ValueError, match="different orders.*ascontiguousarray"):
        runnel.copy(np.zeros((3, 4)), np.asfortranarray(np.ones((3, 4))), stream)


def test_types_and_shapes_that_differ_are_refused(stream: runnel.Stream) -> None:
    zeros = np.zeros((2, 6), np.float32)
    block = runnel.to_device(zeros, stream=stream)
    wrong: list[tuple[Any, str]] = [(np.ones((2, 6), np.int32), "type"), (np.ones((6, 2), np.float32), "shape"), (np.ones((2, 12), np.uint16), "type"),
                                    (memoryview(np.ones((2, 6), np.int32)), "type"), (array.array("i", range(12)), "type"), (zeros.astype(">f4"), "type"),
                                    (np.ones((3, 16), np.uint8), "type")]
    for source, what in wrong:
        for target in (zeros, block, OnlyDlpack(zeros, True), np.zeros((2, 12), np.float32)[:, ::2]):
            with pytest.raises(ValueError, match=rf"destination is float32 \(2, 6\).*one {what}, or write unsafe=True"):
                runnel.copy(target, source, stream)
        with pytest.raises(ValueError, match=r"copies\[1\]: the destination is float32"):
            runnel.copy_many([(zeros, zeros), (zeros, source)], stream)
    runnel.copy(zeros, np.arange(12, dtype=np.int32), stream, unsafe=True)
    stream.synchronize()
    assert (zeros.view(np.int32).ravel() == np.arange(12)).all()
    # Bytes are of any type; dimensions of one element do not count.
    source = np.arange(12, dtype=np.float32).reshape(2, 1, 6)
    for other in (source, source.tobytes(), source.ravel().view(np.uint8), runnel.to_device(source.tobytes(), stream=stream)):
        zeros[:] = 0
        runnel.copy(zeros, other, stream)
        stream.synchronize()
        assert (zeros == source[:, 0]).all()
    with pytest.raises(ValueError, match="datetime64.*timedelta64"):
        runnel.copy(np.zeros(3, "M8[s]"), np.zeros(3, "m8[s]"), stream)


def test_copy_many_is_one_job(stream: runnel.Stream) -> None:
    sources = [content(1000 * i) for i in range(40)]
    targets = [bytearray(len(source)) for source in sources]
    blocks = [runnel.empty(len(source), stream) for source in sources]
    up = runnel.copy_many(zip(blocks, sources), stream)
    down = runnel.copy_many(list(zip(targets, blocks)), stream, any_time=True)
    stream.synchronize()
    assert targets == sources
    assert sum(up.counts.values()) == sum(down.counts.values()) == 40 and up.counts["nothing"] == 1 and set(up.counts) == RESULTS
    assert sum(runnel.copy_many([], stream).counts.values()) == 0


def test_copy_many_names_the_pair(stream: runnel.Stream) -> None:
    good = (bytearray(3), b"abc")
    with pytest.raises(TypeError, match=r"copies\[1\].* no pair"):
        runnel.copy_many([good, 3], stream)  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"copies\[1\].*3 bytes.*4"):
        runnel.copy_many([good, (bytearray(3), b"abcd")], stream)
    with pytest.raises(BufferError, match=r"copies\[1\].*read-only"):
        runnel.copy_many([good, (b"abc", b"abc")], stream)
    with pytest.raises(TypeError, match=r"copies\[1\].*no memory"):
        runnel.copy_many([good, (bytearray(3), [1, 2, 3])], stream)
    numbers = np.arange(3)
    with pytest.raises(ValueError, match=r"copies\[1\].*backwards"):
        runnel.copy_many([good, (np.zeros_like(numbers), numbers[::-1])], stream)
    stream.synchronize()
    assert good[0] == bytearray(3)


def test_fill_sets_bytes(stream: runnel.Stream) -> None:
    block = runnel.empty(1000, stream)
    runnel.fill(block, 9, stream)
    assert (on_host(block, stream) == 9).all()
    with pytest.raises(ValueError, match="0 to 255"):
        runnel.fill(block, 256, stream)


def test_to_device_keeps_shape_and_type(stream: runnel.Stream) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    block = runnel.to_device(x, stream=stream)
    assert (block.shape, block.dtype, block.nbytes) == ((3, 4), "float32", 48)
    out = np.zeros_like(x)
    assert runnel.to_host(block, out, stream) is out
    stream.synchronize()
    assert (out == x).all() and (on_host(block, stream) == x).all()


def test_views_of_a_block(stream: runnel.Stream) -> None:
    block = runnel.to_device(np.arange(8, dtype=np.int32), stream=stream)
    part = block.view("int16", (2, 4), offset=16)
    assert on_host(part, stream).ravel().tolist() == [4, 0, 5, 0, 6, 0, 7, 0]
    assert part.ptr == block.ptr + 16 and block.view("float64").shape == (4,)
    assert block.view(np.float64).dtype == block.view(np.dtype("float64")).dtype == "float64"
    for arguments in [("float64", (5,)), ("uint8", None, 33), ("int32", (-1,)), ("float64", None, 4), ("quaternion",)]:
        with pytest.raises(ValueError):
            block.view(*arguments)


def test_pinned_arrays_are_arrays(stream: runnel.Stream) -> None:
    x = runnel.pinned_empty((3, 5), "float64")
    assert x.shape == (3, 5) and x.dtype == np.float64 and x.flags.writeable and x.flags.c_contiguous
    x[:] = 2
    block = runnel.to_device(x, stream=stream)
    assert runnel.copy(x, block, stream).kind == "direct"
    assert (on_host(block, stream) == 2).all()
    assert runnel.pinned_empty(0).size == 0 and runnel.pinned_empty(7).nbytes == 7
    statistics = runnel.PinnedPool.statistics()
    assert statistics["in_use"] >= x.nbytes
    runnel.PinnedPool.trim()
    runnel.PinnedPool.reset_peak()


def test_registered_arrays_are_copied_directly(stream: runnel.Stream) -> None:
    x = np.full(1 << 20, 3, np.uint8)
    block = runnel.empty(x.nbytes, stream)
    with runnel.register(x) as registered:
        assert runnel.copy(block, x, stream).kind == "direct"
        stream.synchronize()
        assert "1048576" in repr(registered)
    assert "closed" in repr(registered)
    with pytest.raises(ValueError, match="contiguous"):
        runnel.register(np.zeros((4, 4))[:, ::2])


def test_map_file_maps_any_part(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(100_000))
    assert runnel.map_file(path) == content(100_000)
    assert runnel.map_file(str(path), 5, 70_000) == content(100_000)[5:70_005]
    assert runnel.map_file(path, 100_000) == b""
    with pytest.raises(ValueError, match="100000 bytes"):
        runnel.map_file(path, 1, 100_000)
    with pytest.raises(ValueError, match="no place for the rest from byte 100001 on"):
        runnel.map_file(path, 100_001)
    with pytest.raises(ValueError, match="no regular file"):
        runnel.map_file("/dev/zero")
    with pytest.raises(FileNotFoundError):
        runnel.map_file(tmp_path / "none")


class OnlyDlpack:
    """An array that has DLPack alone, of the version that the argument asks for or of an old library, which does not know the argument."""

    def __init__(self, array: Any, is_old: bool) -> None:
        self.array, self.is_old = array, is_old

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **keywords: Any) -> Any:
        if self.is_old and keywords:
            raise TypeError("an unknown argument")
        return self.array.__dlpack__(stream=stream, **keywords)


def test_dlpack_both_ways(stream: runnel.Stream) -> None:
    block = runnel.to_device(np.arange(6, dtype=np.int16).reshape(2, 3), stream=stream)
    kind, number = block.__dlpack_device__()
    assert number == 0 and kind in (1, 2, 10)
    assert "dltensor" in repr(block.__dlpack__(stream=None if ON_HOST else -1))
    assert "dltensor_versioned" in repr(block.__dlpack__(stream=None if ON_HOST else stream.handle, max_version=(1, 1)))
    with pytest.raises(BufferError):
        block.__dlpack__(dl_device=(kind, 5))
    with pytest.raises(BufferError):
        block.__dlpack__(copy=True)

    out = np.zeros((2, 3), np.int16)
    runnel.copy(out, OnlyDlpack(block, False), stream)
    stream.synchronize()
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]
    if ON_HOST:
        assert np.from_dlpack(block).tolist() == out.tolist()
        assert not hasattr(block, "__cuda_array_interface__")
    else:
        made = block.__cuda_array_interface__
        assert made["shape"] == (2, 3) and made["typestr"] == "<i2" and made["data"] == (block.ptr, False)


@pytest.mark.parametrize("is_old", [False, True])
def test_dlpack_of_old_and_new_libraries(is_old: bool, stream: runnel.Stream) -> None:
    source, target = np.arange(6.0), np.zeros(6)
    runnel.copy(OnlyDlpack(target, is_old), OnlyDlpack(source, is_old), stream)
    stream.synchronize()
    assert target.tolist() == source.tolist()


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="this NumPy has no read-only arrays by DLPack")
def test_a_read_only_array_by_dlpack_is_no_target(stream: runnel.Stream) -> None:
    target = np.zeros(6)
    target.flags.writeable = False
    with pytest.raises(BufferError, match="read-only.*order is copy"):
        runnel.copy(OnlyDlpack(target, False), np.ones(6), stream)
    runnel.copy(np.ones(6), OnlyDlpack(target, False), stream)
    stream.synchronize()


def test_dlpack_waits_for_the_block(stream: runnel.Stream, gate: Gate) -> None:
    if not ON_HOST:
        other = runnel.Stream()
        gate.close(stream)
        block = runnel.empty(10, stream)
        block.__dlpack__(stream=other.handle)
        assert not other.query()
        gate.open()
        other.synchronize()
        return
    block = runnel.empty(10, stream)
    seen: list[int] = []
    stream.launch_host_func(seen.append, 1)
    np.from_dlpack(block)
    assert seen == [1]


def test_times_and_records_are_copied_as_bytes(stream: runnel.Stream) -> None:
    for dtype in ("M8[s]", "m8[ns]", "S3", "U2", "c16", "f2", "V8", [("a", "i4"), ("b", "f8")]):
        source = np.frombuffer(content(240), np.uint8)[: 5 * np.dtype(dtype).itemsize].view(dtype)
        target = np.zeros(5, dtype)
        runnel.copy(target, source, stream)
        stream.synchronize()
        assert target.tobytes() == source.tobytes()


def test_the_other_order_of_bytes_is_not_converted(stream: runnel.Stream) -> None:
    big = np.arange(5, dtype=">f4")
    with pytest.raises(ValueError, match="other order of bytes"):
        runnel.to_device(big, stream=stream)
    back = runnel.to_host(big, stream=stream)
    stream.synchronize()
    assert back.dtype == big.dtype and (back == big).all()


def test_records_come_back_as_records(stream: runnel.Stream) -> None:
    records = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
    back = runnel.to_host(records, stream=stream)
    stream.synchronize()
    assert back.dtype == records.dtype and (back == records).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint32", "int64", "float16", "float32", "float64"])
def test_a_memoryview_keeps_its_shape_and_type(dtype: str, stream: runnel.Stream) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    block = runnel.to_device(memoryview(x), stream=stream)
    assert (block.shape, block.dtype) == ((2, 3), dtype)
    assert (on_host(block, stream) == x).all()
    with pytest.raises(ValueError, match="no element type"):
        runnel.to_device(memoryview(np.zeros(2, [("a", "i4"), ("b", "f8")])), stream=stream)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (2, 3, 4)])
def test_blocks_and_bytes_go_to_rows_with_gaps(dtype: str, shape: tuple[int, ...], stream: runnel.Stream) -> None:
    x = (1.37 * (1 + np.arange(np.prod(shape)))).reshape(shape).astype(dtype)
    for source in (runnel.to_device(x, stream=stream), x.tobytes(), x):
        for axis in range(len(shape)):
            around = np.full([size * 2 if i == axis else size for i, size in enumerate(shape)], 99, dtype)
            every = tuple(slice(None, None, 2) if i == axis else slice(None) for i in range(len(shape)))
            between = tuple(slice(1, None, 2) if i == axis else slice(None) for i in range(len(shape)))
            runnel.copy(around[every], source, stream)
            stream.synchronize()
            assert (around[every] == x).all() and (around[between] == 99).all()


def test_what_has_a_type_by_the_buffer_protocol_only_keeps_it(stream: runnel.Stream) -> None:
    sums = array.array("d", [1.5, 2.5])
    grid = (ctypes.c_int32 * 3 * 2)((1, 2, 3), (4, 5, 6))
    cases: list[tuple[Any, str, tuple[int, ...]]] = [(sums, "float64", (2,)), (grid, "int32", (2, 3)), (array.array("d"), "float64", (0,)),
                                                     (b"abc", "uint8", (3,)), ((ctypes.c_char * 3)(), "uint8", (3,))]
    for source, dtype, shape in cases:
        block = runnel.to_device(source, stream=stream)
        assert (block.dtype, block.shape) == (dtype, shape)
        assert (on_host(block, stream) == np.asarray(source)).all() or dtype == "uint8"
    assert runnel.overlap(sums, None, lambda chunk, x: None, chunk=1).chunks == 2


def test_other_element_types_go_as_bytes(stream: runnel.Stream) -> None:
    for dtype in ("M8[s]", "g", "S5", [("a", "f4"), ("b", "i2")]):
        x = np.zeros(3, dtype)
        with pytest.raises(ValueError, match=r"no element type.*x\.view\('uint8'\)"):
            runnel.to_device(x, stream=stream)
        assert (on_host(runnel.to_device(x.view("uint8"), stream=stream), stream) == 0).all()


def test_an_array_with_dlpack_alone_goes_to_copy(stream: runnel.Stream) -> None:
    for call in (lambda: runnel.to_device(OnlyDlpack(np.zeros(3), True), stream=stream), lambda: runnel.to_host(OnlyDlpack(np.zeros(3), True), stream=stream)):
        with pytest.raises(TypeError, match=r"neither shape nor dtype: runnel.copy\(\) takes it"):
            call()


def test_numpy_makes_no_array_of_a_block(stream: runnel.Stream) -> None:
    block = runnel.to_device(np.ones(3), stream=stream)
    for make in (np.asarray, np.array, lambda b: np.ones(3) + b):
        with pytest.raises(TypeError, match="to_host"):
            make(block)


class CudaArray:
    """What CuPy's arrays show."""

    def __init__(self, memory: np.ndarray[Any, Any], read_only: bool = False) -> None:
        self.memory = memory
        self.__cuda_array_interface__ = {
            "shape": memory.shape, "strides": None if memory.flags.c_contiguous else memory.strides, "typestr": memory.dtype.str,
            "data": (memory.ctypes.data, read_only), "version": 3,
        }


@pytest.mark.skipif(ON_HOST, reason="there it is a GPU's memory, which is refused")
def test_cuda_array_interface(stream: runnel.Stream) -> None:
    source, target = np.arange(12.0).reshape(3, 4), np.zeros((3, 2))
    runnel.copy(CudaArray(target), CudaArray(source[:, 1:3]), stream)
    stream.synchronize()
    assert (target == source[:, 1:3]).all()
    with pytest.raises(BufferError, match="read-only"):
        runnel.copy(CudaArray(target, True), target, stream)


def test_the_current_stream_is_the_default(gate: Gate) -> None:
    s = runnel.Stream()
    gate.close(s)
    target = bytearray(1 << 20)
    with s:
        runnel.copy(runnel.empty(1 << 20), target)
        assert not s.query()
        gate.open()
        runnel.synchronize()
    runnel.copy(target, bytes(1 << 20))
    runnel.synchronize(timeout=60)
