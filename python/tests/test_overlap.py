# SPDX-License-Identifier: Apache-2.0
"""overlap() with Python's arrays, functions and files."""
from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runnel
from conftest import ON_HOST

host_only = pytest.mark.skipif(not ON_HOST, reason="NumPy computes on the host backend only")


def same(chunk: runnel.Chunk, x: Any, y: Any) -> None:
    """The result is the input, on any backend."""
    runnel.copy(y, x, chunk.stream)


@pytest.mark.parametrize("strategy", ["automatic", "A", "B"])
@pytest.mark.parametrize("chunk", [0, 1, 1000, 99_999])
def test_every_chunk_comes_back(strategy: Any, chunk: int) -> None:
    rows = 300 if chunk == 1 else 100_000
    source = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    target = np.zeros_like(source)
    result = runnel.overlap(source, target, same, chunk=chunk, strategy=strategy, in_flight=3)
    assert (target == source).all()
    assert result.items == rows and result.written == source.nbytes and result.seconds > 0
    assert result.strategy in ("A", "B") and str(rows) in repr(result)


def test_the_function_sees_its_chunk() -> None:
    source = np.zeros((1000, 2), np.int32)
    seen: list[Any] = []

    def look(chunk: runnel.Chunk, x: Any) -> None:
        assert runnel.current_stream() == chunk.stream
        assert x.shape == (chunk.before + chunk.count + chunk.after, 2) and x.dtype == "int32"
        seen.append((chunk.index, chunk.first, chunk.count, chunk.before, chunk.after))
        assert f"{chunk.first}" in repr(chunk)

    runnel.overlap(source, None, look, chunk=400, halo=1)
    assert seen == [(0, 0, 400, 0, 1), (1, 400, 400, 1, 1), (2, 800, 200, 1, 0)]


def test_several_inputs_and_results_that_are_returned(stream: runnel.Stream) -> None:
    first, second = np.arange(1000.0), np.arange(1000, dtype=np.int16)
    target = np.zeros(1000)
    runnel.overlap((first, second), target, lambda chunk, x, y, z: x, chunk=300)
    assert (target == first).all()


def test_files_are_sources_and_sinks(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"abc" * 10_000)
    with open(tmp_path / "in", "rb") as source, open(tmp_path / "out", "wb") as target:
        result = runnel.overlap(source.readinto, target.write, same, item=3, chunk=999)
    assert (tmp_path / "out").read_bytes() == b"abc" * 10_000
    assert result.items == 10_000


def test_a_mapped_file_is_a_source(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(bytes(range(256)) * 100)
    target = np.zeros(25_600, np.uint8)
    runnel.overlap(runnel.map_file(path), target, same, chunk=1000)
    assert target.tobytes() == path.read_bytes()


def test_progress_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Any] = []
    source = np.zeros(1000)
    runnel.overlap(source, None, lambda chunk, x: None, chunk=400, progress=lambda items, total: told.append((items, total)))
    assert told == [(400, 1000), (800, 1000), (1000, 1000)]
    runnel.overlap(source, None, lambda chunk, x: None, chunk=400, progress=True)


def test_errors_name_the_chunk_and_keep_their_cause() -> None:
    def fail(chunk: runnel.Chunk, x: Any) -> None:
        if chunk.index == 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(runnel.OverlapError, match="chunk 2") as raised:
        runnel.overlap(np.zeros(1000), None, fail, chunk=100)
    assert raised.value.chunk == 2 and isinstance(raised.value.__cause__, ZeroDivisionError)


def test_sources_and_sinks_that_fail() -> None:
    def fail(view: memoryview) -> int:
        raise KeyError("source")

    with pytest.raises(runnel.OverlapError) as raised:
        runnel.overlap(fail, None, lambda chunk, x: None, item=1)
    assert isinstance(raised.value.__cause__, KeyError)

    kept: list[memoryview] = []
    runnel.overlap(np.zeros(1000, np.uint8), kept.append, same, item=1)
    with pytest.raises(ValueError, match="released"):
        kept[0][0]

    with pytest.raises(runnel.OverlapError) as raised:
        runnel.overlap(lambda view: len(view) + 1, None, lambda chunk, x: None, item=1)
    assert isinstance(raised.value.__cause__, ValueError)


def test_interrupts_are_not_hidden() -> None:
    def interrupt(chunk: runnel.Chunk, x: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runnel.overlap(np.zeros(1000), None, interrupt)


def test_blocks_end_with_the_call() -> None:
    kept: list[Any] = []
    runnel.overlap(np.zeros(1000), None, lambda chunk, x: kept.append(x), chunk=100)
    with pytest.raises(ValueError, match="ended with its call"):
        runnel.copy(bytearray(800), kept[0])
    assert "ended" in repr(kept[0])


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="item="):
        runnel.overlap(io.BytesIO(b"abc").readinto, None, same)
    with pytest.raises(ValueError, match="does not divide"):
        runnel.overlap(np.zeros(1000), np.zeros(999), same)
    with pytest.raises(ValueError, match="strategy"):
        runnel.overlap(np.zeros(1000), None, same, strategy="C")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fn is the function"):
        runnel.overlap(np.zeros(1000), None, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="torch, cupy or numpy"):
        runnel.overlap(np.zeros(1000), None, same, like="pandas")
    with pytest.raises(BufferError, match="read-only"):
        runnel.overlap(np.zeros(10, np.uint8), bytes(10), same)
    with pytest.raises(runnel.OverlapError) as raised:
        runnel.overlap(np.zeros(1000), None, lambda chunk, x: 1)
    assert isinstance(raised.value.__cause__, TypeError)


@host_only
@pytest.mark.parametrize("strategy", ["A", "B"])
def test_numpy_computes_in_stream_order(strategy: Any) -> None:
    source = np.arange(400_000, dtype=np.float32).reshape(-1, 4)
    target = np.zeros(len(source))
    runnel.overlap(source, target, lambda chunk, x, y: np.sum(x, axis=1, out=y, dtype=float), like=np, chunk=7000, strategy=strategy)
    assert (target == source.sum(axis=1, dtype=float)).all()
    doubled = np.zeros_like(source)
    runnel.overlap(source, doubled, lambda chunk, x, y: x * 2, like=np, chunk=7000, strategy=strategy, record_times=True)
    assert (doubled == source * 2).all()
    with pytest.raises(runnel.OverlapError) as raised:
        runnel.overlap(source, None, lambda chunk, x: 1 / 0, like=np)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_torch_computes() -> None:
    torch = pytest.importorskip("torch")
    if not ON_HOST and not torch.cuda.is_available():
        pytest.skip("torch sees no device")
    source = np.arange(400_000, dtype=np.float32).reshape(-1, 4)
    target = np.zeros_like(source)
    runnel.overlap(source, target, lambda chunk, x, y: torch.mul(x, 2, out=y), like=torch, chunk=7000)
    assert (target == source * 2).all()
    runnel.overlap(source, torch.from_numpy(target), lambda chunk, x, y: x + 1, like=torch, chunk=7000)
    assert (target == source + 1).all()
