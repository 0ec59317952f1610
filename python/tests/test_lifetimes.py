# SPDX-License-Identifier: Apache-2.0
"""Nothing is freed before its copy is complete, and everything is freed afterwards."""
from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import sys
import threading
import types
import weakref
from typing import Any

import numpy as np
import pytest

import runnel
from conftest import ON_HOST, Gate, eventually, on_threads


class Tracked(np.ndarray):  # type: ignore[type-arg]
    """An array that can be referred to weakly, as any array can, and is told apart."""


def tracked(size: int, value: int = 0) -> Tracked:
    return np.full(size, value, np.uint8).view(Tracked)


@pytest.mark.parametrize("size", [64, 1 << 20])
def test_a_copy_keeps_both_arrays_until_it_is_complete(size: int, stream: runnel.Stream, gate: Gate) -> None:
    source, target = tracked(size, 5), tracked(size)
    block = runnel.empty(size, stream)
    gate.close(stream)
    assert runnel.copy(block, source, stream).kind in ("direct", "staged")
    assert runnel.copy(target, block, stream).kind in ("direct", "staged")
    kept = [weakref.ref(source), weakref.ref(target), weakref.ref(block)]
    del source, target, block
    gc.collect()
    assert all(each() is not None for each in kept)
    gate.open()
    assert eventually(lambda: all(each() is None for each in kept))


def test_copy_many_keeps_all(stream: runnel.Stream, gate: Gate) -> None:
    pairs: list[Any] = [(tracked(100_000), tracked(100_000, i)) for i in range(10)]
    kept = [weakref.ref(array) for pair in pairs for array in pair]
    gate.close(stream)
    runnel.copy_many(pairs, stream)
    pairs.clear()
    gc.collect()
    assert all(each() is not None for each in kept)
    gate.open()
    assert eventually(lambda: all(each() is None for each in kept))


@pytest.mark.parametrize("many", [False, True])
def test_a_small_copy_keeps_a_block_that_another_stream_frees(many: bool, stream: runnel.Stream) -> None:
    opened, owner = threading.Event(), runnel.Stream()
    block = runnel.empty(64, owner)
    kept = weakref.ref(block)
    stream.launch_host_func(opened.wait, writes_host_memory=False)
    try:
        copied: Any = runnel.copy_many([(block, bytes(64))], stream) if many else runnel.copy(block, bytes(64), stream)
        if runnel.backend == "cuda":
            assert copied.source_done() and (copied.counts["inlined"] == 1 if many else copied.kind == "inlined")
        del block
        gc.collect()
        owner.synchronize()
        assert kept() is not None
    finally:
        opened.set()
    assert eventually(lambda: kept() is None)


def test_a_block_that_is_closed_lives_until_its_copies_are_complete(stream: runnel.Stream, gate: Gate) -> None:
    owner, target = runnel.Stream(), bytearray(1 << 20)
    block = runnel.empty(len(target), owner)
    runnel.fill(block, 5, owner)
    owner.synchronize()
    gate.close(stream)
    copied = runnel.copy(target, block, stream)
    block.close()
    owner.synchronize()
    gate.open()
    copied.wait(60)
    assert target == b"\5" * len(target)


@pytest.mark.skipif(ON_HOST, reason="an exported block waits there")
def test_memory_lives_until_a_consumer_of_dlpack_has_used_it(stream: runnel.Stream, gate: Gate) -> None:
    owner, target = runnel.Stream(), bytearray(1000)
    block = runnel.empty(len(target), owner)
    runnel.fill(block, 5, owner)
    owner.synchronize()
    capsule = block.__dlpack__(stream=stream.handle)

    class Theirs:  # what the consumer enqueues keeps nothing
        __cuda_array_interface__ = {"shape": (1000,), "typestr": "|u1", "data": (block.ptr, False), "version": 3}

    gate.close(stream)
    copied = runnel.copy(target, Theirs(), stream)
    del capsule, block
    gc.collect()
    owner.synchronize()
    gate.open()
    copied.wait(60)
    assert target == b"\5" * len(target)


@pytest.mark.skipif(ON_HOST, reason="the host backend has no memory for CuPy")
@pytest.mark.parametrize("how", ["argument", "current"])
def test_memory_of_a_framework_is_written_after_what_used_it_there(how: str, stream: runnel.Stream, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, target = runnel.Stream(), bytearray(1000)
    memory = runnel.empty(len(target), theirs)
    runnel.fill(memory, 5, theirs)

    def empty(shape: Any, dtype: Any) -> Any:  # CuPy gives memory out again that its current stream may still use
        interface = {"shape": shape, "typestr": "|u1", "data": (memory.ptr, False), "version": 3}
        return type("ndarray", (), {"__module__": "cupy", "__cuda_array_interface__": interface})()

    cuda = types.SimpleNamespace(Device=lambda index: contextlib.nullcontext(), get_current_stream=lambda: types.SimpleNamespace(ptr=theirs.handle))
    cupy: Any = types.ModuleType("cupy")
    cupy.cuda, cupy.empty = cuda, empty
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    gate.close(theirs)
    runnel.copy(target, empty((1000,), "uint8"), theirs)  # stands for their kernel
    with stream if how == "current" else contextlib.nullcontext():
        made, copied = runnel.to_device(np.full(1000, 9, np.uint8), cupy, stream if how == "argument" else None, handle=True)
    assert not copied.done()
    gate.open()
    copied.wait(60)
    theirs.synchronize()
    assert target == b"\5" * len(target)


@pytest.mark.skipif(runnel.backend != "cuda", reason="the runtime's own calls capture the stream")
def test_a_graph_keeps_the_arrays_of_a_copy_that_blocks(stream: runnel.Stream) -> None:
    runtime, graph = ctypes.CDLL(f"libcudart.so.{runnel._core.__name__[-2:]}"), ctypes.c_void_p()
    handle = ctypes.c_void_p(stream.handle)
    source, block = tracked(1000, 5), runnel.empty(1000, stream)
    kept = [weakref.ref(source), weakref.ref(block)]
    relaxed = 2
    assert runtime.cudaStreamBeginCapture(handle, relaxed) == 0
    assert runnel.copy(block, source, stream, pageable="block").kind == "blocked"
    assert runtime.cudaStreamEndCapture(handle, ctypes.byref(graph)) == 0
    del source, block
    gc.collect()
    assert stream.query() and all(each() is not None for each in kept)
    assert runtime.cudaGraphDestroy(graph) == 0
    assert eventually(lambda: all(each() is None for each in kept))


def test_what_is_refused_keeps_nothing(stream: runnel.Stream) -> None:
    array = tracked(10)
    before = sys.getrefcount(array)
    for _ in range(10):
        with pytest.raises(ValueError):
            runnel.copy(array, b"abc", stream)
        with pytest.raises(TypeError):
            runnel.copy(array, array, 3)  # type: ignore[arg-type]
    assert sys.getrefcount(array) == before


def test_buffers_are_given_back(stream: runnel.Stream) -> None:
    growing = bytearray(1 << 16)
    runnel.copy(growing, bytes(1 << 16), stream)
    stream.synchronize()

    def resizes() -> bool:
        try:
            growing.append(1)  # BufferError while a copy holds it
        except BufferError:
            return False
        return True

    assert eventually(resizes)


def test_a_wrapped_stream_keeps_its_owner() -> None:
    class Owner:
        def __init__(self) -> None:
            self.stream = runnel.Stream()
            self.cuda_stream, self.device = self.stream.handle, 0

    owner = Owner()
    gone = weakref.ref(owner)
    wrapped = runnel.Stream.wrap(owner)
    del owner
    gc.collect()
    assert gone() is not None and wrapped.query()
    del wrapped
    assert eventually(lambda: gone() is None)


def test_host_functions_are_dropped_when_they_have_run(stream: runnel.Stream) -> None:
    argument = tracked(10)
    gone = weakref.ref(argument)
    stream.launch_host_func(lambda x: None, argument)
    del argument
    stream.synchronize()
    assert eventually(lambda: gone() is None)


def test_an_exception_that_nobody_sees_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)  # pytest's keeps it

    class Mine(Exception):
        pass

    made: list[Any] = []

    def fail() -> None:
        error = Mine()
        made.append(weakref.ref(error))
        raise error

    stream = runnel.Stream()
    stream.launch_host_func(fail)
    event = stream.record_event()
    event.synchronize()
    del stream
    assert eventually(lambda: bool(made) and made[0]() is None)


def test_a_block_is_kept_by_what_was_made_of_it(stream: runnel.Stream) -> None:
    block = runnel.empty(100, stream)
    gone = weakref.ref(block)
    capsule = block.__dlpack__(stream=None if runnel.backend == "host" else -1)
    view = block.view("float32")
    del block
    gc.collect()
    assert gone() is not None
    del capsule
    assert eventually(lambda: gone() is None)
    runnel.fill(view, 1, stream)
    stream.synchronize()


def test_pinned_memory_is_kept_by_its_arrays() -> None:
    before = runnel.PinnedPool.statistics()["in_use"]
    row = runnel.pinned_empty((100, 1000))[3]
    gc.collect()
    assert runnel.PinnedPool.statistics()["in_use"] > before
    del row
    assert eventually(lambda: runnel.PinnedPool.statistics()["in_use"] <= before)


class Program:
    """Random copies between arrays, checked against what they would do one after the other; references are dropped at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.streams = [runnel.Stream() for _ in range(3)]
        self.kept: list[Any] = []
        self.checks: list[tuple[Any, int]] = []

    def array(self, size: int, value: int) -> Any:
        kind = self.random.randrange(3)
        if kind == 0:
            made = runnel.pinned_empty(size).view(Tracked)
            made[:] = value
        else:
            made = tracked(size, value)
        self.kept.append(weakref.ref(made))
        return made

    def step(self) -> None:
        stream = self.random.choice(self.streams)
        size = self.random.choice([1, 64, 5000, 70_000, 400_000])
        value = self.random.randrange(256)
        source, target = self.array(size, value), self.array(size, 0)
        block = runnel.empty(size, stream)
        self.kept.append(weakref.ref(block))
        if self.random.random() < 0.3:
            runnel.copy_many([(block, source)], stream)
        else:
            runnel.copy(block, source, stream)
        if self.random.random() < 0.5:
            other = self.random.choice(self.streams)
            other.wait_stream(stream)
            block.record_stream(other)
            stream = other
        runnel.copy(target, block, stream)
        self.checks.append((target, value))
        if self.random.random() < 0.3:
            runnel.Stream(priority=-1).wait_stream(stream)
        if self.random.random() < 0.2:
            self.check(stream)

    def check(self, stream: runnel.Stream) -> None:
        for each in self.streams:
            stream.wait_stream(each)
        stream.synchronize()
        for target, value in self.checks:
            assert (np.asarray(target) == value).all()
        self.checks.clear()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.check(self.streams[0])
        assert eventually(lambda: all(each() is None for each in self.kept))


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_free_nothing_early_and_leak_nothing(seed: int) -> None:
    Program(seed).run(40)


def test_random_programs_on_threads() -> None:
    on_threads(lambda i: Program(100 + i).run(15), 3)


def test_cycles_through_what_keeps_an_object_are_collected(stream: runnel.Stream) -> None:
    class Owner:
        def __init__(self) -> None:
            self.cuda_stream, self.device = stream.handle, 0

    array, owner = tracked(10_000), Owner()
    array.mine = runnel.register(array)  # type: ignore[attr-defined]
    owner.mine = runnel.Stream.wrap(owner)  # type: ignore[attr-defined]
    kept = [weakref.ref(array), weakref.ref(owner)]
    gc.collect()
    assert owner.mine.query() and repr(array.mine).endswith("bytes>")  # type: ignore[attr-defined]
    del array, owner
    assert eventually(lambda: all(each() is None for each in kept))


def test_what_owns_something_is_closed() -> None:
    stream, event = runnel.Stream(), runnel.Event()
    block, memory = runnel.empty(1000, stream), runnel.PinnedMemory(1000)
    part, array, gone = block[:10], np.frombuffer(memory, np.uint8), weakref.ref(stream)
    with pytest.raises(BufferError, match="still show"):
        memory.close()
    if ON_HOST:
        shown = np.from_dlpack(block)
        with pytest.raises(BufferError, match="show the block"):
            block.close()
        del shown
    del array
    handle = runnel.copy(block, np.ones(1000, np.uint8), stream)
    for each in (memory, block, event, stream):
        for _ in range(2):
            each.close()
    handle.wait(60)
    for call in (stream.query, event.query, lambda: runnel.copy(bytearray(10), part), lambda: part.record_stream(runnel.Stream()), lambda: stream.record_event()):
        with pytest.raises((runnel.Error, ValueError)):
            call()
    assert "ended" in repr(stream) and "ended" in repr(block) and gone() is stream
    runnel.Stream.null.close()
    assert runnel.Stream.null.query()


@pytest.mark.parametrize("closes", (False, True))
def test_a_block_is_shown_when_its_stream_has_ended(gate: Gate, closes: bool) -> None:
    maker, other = runnel.Stream(), runnel.Stream()
    block, target = runnel.empty(1000, maker), bytearray(1000)
    gate.close(maker)
    runnel.fill(block, 7, maker)
    if closes:
        maker.close()
    del maker
    threading.Timer(0.1, gate.open).start()
    if ON_HOST:
        assert (np.from_dlpack(block[10:20]) == 7).all()
    else:
        block.__dlpack__(stream=other.handle)
        runnel.copy(target, block, other)
        assert runnel.Stream.wrap(block.__cuda_array_interface__["stream"]) == runnel.Stream.null
        other.synchronize()
        assert target == b"\7" * 1000


def test_arrays_are_kept_while_other_threads_give_back(stream: runnel.Stream, gate: Gate) -> None:
    gate.close(stream)
    held, block, kept = stream.record_event(), runnel.empty(64), []
    is_over = threading.Event()

    def copy() -> None:
        for _ in range(200):  # a few in each, since only the oldest of a stream are asked
            each = runnel.Stream()
            each.wait_event(held)
            for _ in range(5):
                kept.append(bytearray(64))
                runnel.copy(block, kept[-1], each)
        is_over.set()

    def give_back() -> None:
        while not is_over.is_set():
            stream.query()

    on_threads(lambda i: (copy, give_back)[i](), 2)
    for source in kept:
        with pytest.raises(BufferError):
            source.append(1)
    gate.open()
    runnel.Device(0).synchronize()
    kept[-1].append(1)
