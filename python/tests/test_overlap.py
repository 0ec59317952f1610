# SPDX-License-Identifier: Apache-2.0
"""overlap() with Python's arrays, functions and files."""
from __future__ import annotations

import contextvars
import io
import os
import sys
import threading
import types
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


def test_progress_is_shown_by_tqdm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bars: list[Any] = []

    class Bar:
        def __init__(self, total: int | None, **keywords: Any) -> None:
            self.total, self.n, self.closed = total, 0, False
            bars.append(self)

        def update(self, count: int) -> None:
            self.n += count

        def close(self) -> None:
            self.closed = True

    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = Bar  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    runnel.overlap(np.zeros(1000), None, lambda chunk, x: None, chunk=400, progress=True)
    with pytest.raises(runnel.OverlapError):
        runnel.overlap(np.zeros(1000), None, lambda chunk, x: 1 / 0, chunk=400, progress=True)
    assert [(bar.total, bar.n, bar.closed) for bar in bars] == [(1000, 1000, True), (1000, 0, True)]
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as if it were not installed
    runnel.overlap(np.zeros(1000), None, lambda chunk, x: None, chunk=400, progress=True)
    assert capsys.readouterr().err.endswith("overlap: 1000 items of 1000, 100 %\n")


@pytest.mark.parametrize("chunk", [1, 300, 999])
def test_one_result_for_each_chunk(chunk: int) -> None:
    source = np.arange(1000, dtype=np.float32)
    sums = np.zeros(1000, np.float32)

    def first(c: runnel.Chunk, x: Any, y: Any) -> None:
        assert y.shape == (1,) and y.dtype == "float32"
        runnel.copy(y, x.view("float32", (1,)), c.stream)

    result = runnel.overlap(source, runnel.per_chunk(sums), first, chunk=chunk)
    assert result.written == 4 * result.chunks
    assert (sums[: result.chunks] == source[::chunk]).all() and not sums[result.chunks :].any()
    told: list[bytes] = []
    runnel.overlap(source, runnel.per_chunk(lambda view: told.append(bytes(view)), 2), lambda c, x, y: x.view("uint8", (8,)), out_item=4, chunk=100)
    assert b"".join(told) == source.reshape(10, 100)[:, :2].tobytes()


def test_as_many_results_as_the_function_says(tmp_path: Path) -> None:
    source = np.arange(1000, dtype=np.int32).reshape(500, 2)
    kept = np.zeros_like(source)

    def some(chunk: runnel.Chunk, x: Any, y: Any, count: Any) -> Any:
        assert y.shape == x.shape and count.nbytes == 8
        return x.view("int32", (chunk.index % 3, 2))

    result = runnel.overlap(source, runnel.filtered(kept), some, chunk=100)
    assert result.written == 8 * (0 + 1 + 2 + 0 + 1)
    assert kept[:5].tolist() == [[200, 201], [400, 401], [402, 403], [800, 801], [0, 0]]

    def write(chunk: runnel.Chunk, x: Any, y: Any, count: Any) -> None:
        runnel.copy(y, x, chunk.stream)
        runnel.copy(count, (4 * chunk.index).to_bytes(8, sys.byteorder), chunk.stream)

    with open(tmp_path / "out", "wb") as file:
        result = runnel.overlap(source, runnel.filtered(file.write), write, out_item=8, chunk=100)
    assert result.written == 40
    assert (tmp_path / "out").read_bytes() == b"".join(source[100 * i :].tobytes()[: 4 * i] for i in range(5))


@host_only
def test_numpy_reduces_and_filters() -> None:
    source = np.random.default_rng(1).standard_normal(10_000)
    sums = np.zeros(4)
    runnel.overlap(source, runnel.per_chunk(sums), lambda chunk, x, y: np.sum(x, keepdims=True), like=np, chunk=3000)
    assert np.allclose(sums, [source[i : i + 3000].sum() for i in range(0, 10_000, 3000)])
    kept = np.zeros(10_000)
    result = runnel.overlap(source, runnel.filtered(kept), lambda chunk, x, y, count: x[x > 0], like=np, chunk=3000)
    assert (kept[: result.written // 8] == source[source > 0]).all() and result.written == 8 * (source > 0).sum()
    for wrong in (lambda chunk, x, y, count: np.concatenate([x, x]), lambda chunk, x, y, count: x.view(np.uint8)[:3]):
        with pytest.raises(runnel.OverlapError) as raised:
            runnel.overlap(source, runnel.filtered(kept), wrong, like=np, chunk=3000)
        assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(runnel.OverlapError) as raised:
        runnel.overlap(source, kept, lambda chunk, x, y: x.astype(np.float32), like=np)
    assert "converts and broadcasts nothing" in str(raised.value.__cause__)


@host_only
def test_results_have_the_type_and_shape_of_the_output() -> None:
    source, target = np.arange(12, dtype=np.int32).reshape(4, 3), np.zeros((4, 3), np.float32)
    for result in (lambda chunk, x, y: x * 2, lambda chunk, x, y: (x * 2).astype(np.float32).T):
        with pytest.raises(runnel.OverlapError, match=r"float32 \(4, 3\).*unsafe=True"):
            runnel.overlap(source, target, result, like=np)
    runnel.overlap(source, target, lambda chunk, x, y: (x * 2).astype(np.float32)[:, None], like=np)
    assert (target == source * 2).all()
    runnel.overlap(source, target, lambda chunk, x, y: x, like=np, unsafe=True)
    assert (target.view(np.int32) == source).all()


@host_only
@pytest.mark.parametrize("keep", [lambda x: x, lambda x: x[1:]])
def test_an_array_that_the_function_keeps_is_an_error(keep: Any) -> None:
    kept: list[Any] = []
    for like in ["numpy"] + (["torch"] if "torch" in sys.modules else []):
        with pytest.raises(runnel.OverlapError, match="keep a copy"):
            runnel.overlap(np.zeros(1000), None, lambda chunk, x: kept.append(keep(x)), like=like)
    runnel.overlap(np.zeros(1000), None, lambda chunk, x: kept.append(x.copy()), like=np, chunk=100)


def test_memory_that_outlives_its_call_is_an_error() -> None:
    kept: list[Any] = []

    def source(view: memoryview) -> int:
        kept.append(np.frombuffer(view, np.uint8))
        return len(view)

    for sink in (lambda view: kept.append(np.frombuffer(view, np.uint8)), lambda view: kept.append(view[1:])):
        with pytest.raises(runnel.OverlapError, match="sink keeps"):
            runnel.overlap(np.zeros(1000), sink, same)
    with pytest.raises(runnel.OverlapError, match="source keeps"):
        runnel.overlap(source, None, lambda chunk, x: None, item=1)
    if ON_HOST:
        with pytest.raises(runnel.OverlapError, match="keep a copy"):
            runnel.overlap(np.zeros(1000), None, lambda chunk, x: kept.append(np.from_dlpack(x)))
    target = bytearray(8000)
    runnel.overlap(np.ones(1000), target, lambda chunk, x, y: (np.from_dlpack(x) if ON_HOST else x, runnel.copy(y, x))[1])
    runnel.overlap(np.ones(1000), lambda view: kept.append(bytes(view)), same)


@host_only
def test_the_function_runs_in_the_callers_context() -> None:
    variable, seen = contextvars.ContextVar[int]("variable", default=0), []
    variable.set(5)
    for like in (None, np):
        runnel.overlap(np.zeros(4), None, lambda chunk, x: seen.append((variable.get(), threading.get_ident())), like=like)
    assert seen == [(5, threading.get_ident())] * 2
    with np.errstate(divide="raise"), pytest.raises(runnel.OverlapError, match="divide by zero"):
        runnel.overlap(np.zeros(4), None, lambda chunk, x: (1 / x, None)[1], like=np)


def test_a_sink_gets_what_its_source_has() -> None:
    source, sink = np.arange(4096.0).reshape(-1, 4), io.BytesIO()
    runnel.overlap(source, sink.write, same)
    assert sink.getvalue() == source.tobytes()


def test_a_function_may_return_what_copy_returns() -> None:
    source, target = np.arange(1000.0), np.zeros(1000)
    runnel.overlap(source, target, lambda chunk, x, y: runnel.copy(y, x, chunk.stream), chunk=300)
    assert (target == source).all()


def in_parts(most: int) -> Any:
    """A sink that takes at most so many bytes of what it gets."""
    taken = bytearray()

    def write(view: memoryview) -> int:
        taken.extend(view[:most])
        return min(most, len(view))

    return taken, write


def test_a_sink_that_takes_a_part_gets_the_rest() -> None:
    source = np.arange(1000, dtype=np.int32)
    taken, write = in_parts(7)
    assert runnel.overlap(source, write, same, out_item=4, chunk=300).written == len(taken) == 4000
    assert taken == source.tobytes()
    sinks: list[tuple[Any, str]] = [(lambda view: 0, "took none"), (lambda view: True, "the sink returned True"),
                                    (lambda view: len(view) + 1, "took more"), (lambda view: -1, "the sink returned -1")]
    for sink, text in sinks:
        with pytest.raises(runnel.OverlapError, match=text):
            runnel.overlap(source, sink, same, out_item=4)


def test_a_source_that_gives_a_part_is_asked_again() -> None:
    left, target = bytearray(range(200)), np.zeros(200, np.uint8)

    def read(view: memoryview) -> int:
        part = left[: min(7, len(view))]
        view[: len(part)] = part
        del left[: len(part)]
        return len(part)

    assert runnel.overlap(read, target, same, item=1, chunk=64).items == 200
    assert target.tolist() == list(range(200))


@pytest.mark.parametrize("buffering", [0, 4096])
def test_pipes_that_do_not_block(buffering: int) -> None:
    source, (reader, writer) = np.arange(100_000.0), os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    target = np.zeros_like(source)

    def drain() -> None:
        with open(reader, "rb", buffering=buffering) as raw:
            runnel.overlap(raw.readinto, target, same, item=8, chunk=9999)

    thread = threading.Thread(target=drain)
    thread.start()
    with open(writer, "wb", buffering=buffering) as raw:
        assert runnel.overlap(source, raw.write, same, out_item=8, chunk=9999).written == source.nbytes
        os.set_blocking(writer, True)  # for the buffer's rest
    thread.join()
    assert (target == source).all()


def test_none_of_a_source_is_not_its_end() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with open(reader, "rb", buffering=0) as raw, open(writer, "wb"):
        with pytest.raises(runnel.OverlapError) as raised:
            runnel.overlap(lambda view: raw.readinto(view), None, lambda chunk, x: None, item=8)
    assert isinstance(raised.value.__cause__, TypeError) and "own readinto" in str(raised.value.__cause__)


def test_results_have_a_size() -> None:
    with pytest.raises(ValueError, match="write None"):
        runnel.per_chunk(bytearray(8), 0)
    with pytest.raises(TypeError, match="None itself"):
        runnel.filtered(None)
    with pytest.raises(ValueError, match="out_item="):
        runnel.overlap(np.zeros(10), runnel.filtered(print), same)
    with pytest.raises(ValueError, match="the output has 12 bytes, but 5 chunks of 4 each"):
        runnel.overlap(np.zeros(10), runnel.per_chunk(np.zeros(3, np.float32)), same, chunk=2)
    assert repr(runnel.per_chunk(bytearray(8))) == "<runnel.per_chunk() of bytearray, 1 for each>"


def test_the_view_of_a_function_that_fails_has_ended() -> None:
    def fail(view: memoryview) -> None:
        raise KeyError

    data: Any = np.zeros(1000, np.uint8)
    for source, target in ((data, fail), (fail, None)):
        with pytest.raises(runnel.OverlapError) as caught:
            runnel.overlap(source, target, lambda chunk, x, *y: None, item=1 if callable(source) else None)
        assert caught.value.__cause__ is not None
        trace = caught.value.__cause__.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        assert trace is not None
        with pytest.raises(ValueError, match="released"):
            len(trace.tb_frame.f_locals["view"])


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
    with pytest.raises(ValueError, match="strategy"):
        runnel.overlap(np.zeros(1000), None, same, strategy=3)  # type: ignore[arg-type]
    wrong: list[tuple[dict[str, Any], str]] = [({"chunk": -1}, "chunk is 0 or more"), ({"chunk": 2**64}, "chunk"), ({"in_flight": 2**63}, "in_flight"),
                                               ({"item": -8}, "item is 1 or more"), ({"out_item": 0}, "out_item is 1 or more")]
    for keywords, text in wrong:
        with pytest.raises(ValueError, match=text):
            runnel.overlap(np.zeros(1000), None, same, **keywords)
    with pytest.raises(TypeError, match="progress is a function"):
        runnel.overlap(np.zeros(1000), None, same, progress=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fn is the function"):
        runnel.overlap(np.zeros(1000), None, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="torch, cupy or numpy"):
        runnel.overlap(np.zeros(1000), None, same, like="pandas")
    with pytest.raises(BufferError, match=r"read-only.*overlap\(source, destination, function\)"):
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
