# SPDX-License-Identifier: Apache-2.0
"""What copy() returns: how far a copy is."""
from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import runnel
from conftest import Gate, check_python, eventually, on_host, on_threads
from test_lifetimes import tracked

# The host backend's copies are direct, and HIP's streams cannot wait for a number that threads write: both read in the order of the stream.
READS_AHEAD = runnel.backend == "cuda"


def up(stream: runnel.Stream, size: int = 1 << 20) -> runnel.Copy:
    return runnel.copy(runnel.empty(size, stream), np.ones(size, np.uint8), stream)


def test_a_handle_is_itself_and_has_the_word_for_what_was_done(stream: runnel.Stream) -> None:
    handle, other = up(stream), up(stream)
    many = runnel.copy_many([(bytearray(10), bytes(10))], stream)
    assert handle.kind in ("direct", "staged") and str(handle) == handle.kind and repr(handle) == repr(handle.kind) and f"{handle:>10}" == f"{handle.kind:>10}"
    assert handle == handle and handle != other and handle != handle.kind and len({handle, other, many, handle}) == 3 and [other, handle].index(handle) == 1
    assert runnel.copy(bytearray(), b"", stream).kind == "nothing" and sum(many.counts.values()) == 1
    stream.synchronize()


def test_a_handle_waits_for_its_copy_alone(stream: runnel.Stream, gate: Gate) -> None:
    first = threading.Event()
    stream.launch_host_func(first.wait)
    handle = up(stream)
    gate.close(stream)  # later work
    assert not handle.done() and not handle.source_done()
    with pytest.raises(TimeoutError, match="not complete"):
        handle.wait(0.01)
    told: list[Any] = []
    handle.on_done(told.append)
    first.set()
    handle.wait(60)
    assert handle.done() and handle.source_done() and not stream.query()
    assert eventually(lambda: told == [None])
    gate.open()


@pytest.mark.parametrize("size", [0, 64, 5000, 1 << 20])
def test_what_is_done_at_once_says_so(size: int, stream: runnel.Stream) -> None:
    for pageable in ("stage", "block"):
        source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        block = runnel.empty(size, stream)
        handle = runnel.copy(block, source, stream, pageable=pageable)  # type: ignore[arg-type]
        assert handle.source_done() or handle.kind in ("direct", "staged")
        handle.wait()
        assert handle.done() and handle.source_done()
        runnel.copy(target, block, stream).wait()
        assert (target == 1).all()


@pytest.mark.parametrize("how", ["copy", "rows", "copy_many"])
def test_a_staged_source_is_free_before_its_copy_is_complete(how: str, stream: runnel.Stream, gate: Gate) -> None:
    source = np.ones((1024, 1024 if how == "rows" else 1000), np.uint8)[:, :1000]
    block = runnel.empty((1024, 1000), "uint8", stream)
    gate.close(stream)
    early: runnel.Copy | runnel.Copies
    if how == "copy_many":
        early = runnel.copy_many([(block[:512], source[:512]), (block[512:], source[512:])], stream, any_time=True)
    else:
        early = runnel.copy(block, source, stream, any_time=True)
    if READS_AHEAD:
        assert eventually(early.source_done)
        source[:] = 2
    else:
        assert not early.source_done()
    second, in_order = runnel.to_device([source, source], stream=stream, handle=True)
    assert not early.done() and not in_order.source_done()
    gate.open()
    in_order.wait(60)
    assert early.done() and early.source_done() and in_order.source_done()
    assert (on_host(block, stream) == 1).all() and (on_host(second[1], stream) == source[0, 0]).all()


@pytest.mark.parametrize("other", ["direct", "down", "on the host"])
def test_a_source_is_free_when_all_of_a_list_are(other: str, stream: runnel.Stream, gate: Gate) -> None:
    """Of a copy that is direct, goes down, or stays on the host nothing tells but the stream."""
    source, target, block = np.ones(1 << 20, np.uint8), np.zeros(1 << 20, np.uint8), runnel.empty(1 << 20, stream)
    more = {"direct": (block, runnel.pinned_empty(1 << 20)), "down": (target, block), "on the host": (target, bytes(1 << 20))}[other]
    up = (runnel.empty(1 << 20, stream), source)
    gate.close(stream)
    alone = runnel.copy(*up, stream, any_time=True)
    list_of_both = runnel.copy_many([up, more], stream, any_time=True)
    assert not READS_AHEAD or eventually(alone.source_done)
    assert not list_of_both.source_done() and not runnel.copy(*more, stream).source_done()
    gate.open()
    stream.synchronize()
    list_of_both.wait(60)
    assert list_of_both.source_done()


def test_await_of_a_copy(stream: runnel.Stream, gate: Gate) -> None:
    async def main() -> None:
        gate.close(stream)
        handle = up(stream)
        many = runnel.copy_many([(bytearray(100_000), bytes(100_000)) for _ in range(3)], stream)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(_wait(handle)), 0.02)
        gate.open()
        await handle
        await many
        await runnel.copy(runnel.empty(64, stream), bytes(64), stream)
        assert handle.done() and many.done() and many.source_done()
        many.wait()

    asyncio.run(main())


async def _wait(handle: Any) -> None:
    await handle


def test_a_handle_keeps_no_array_and_no_stream(gate: Gate) -> None:
    stream, source = runnel.Stream(), tracked(1 << 20)
    gate.close(stream)
    handle = runnel.copy(runnel.empty(1 << 20, stream), source, stream)
    gone = weakref.ref(source)
    del source, stream
    gc.collect()
    assert gone() is not None and not handle.done()
    gate.open()
    handle.wait(60)
    assert eventually(lambda: gone() is None)


def test_a_small_copy_of_a_stream_that_has_ended() -> None:
    stream = runnel.Stream()
    block = runnel.empty(64, stream)
    handles = [runnel.copy(block, bytes(64), stream) for _ in range(2)]
    handles[0].done()
    del stream
    gc.collect()
    for handle in handles:
        handle.wait(60)
        assert handle.done()


def test_what_failed_before_is_raised(stream: runnel.Stream) -> None:
    stream.launch_host_func(lambda: 1 / 0)
    handle = up(stream)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            handle.wait()
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()


def test_gather_awaits_each_handle(stream: runnel.Stream, gate: Gate) -> None:
    async def main() -> None:
        gate.close(stream)
        first, second = up(runnel.Stream()), up(stream)
        many = runnel.copy_many([(bytearray(100_000), bytes(100_000))], stream)
        together = asyncio.gather(first, second, many)
        await first
        await asyncio.sleep(0.01)
        assert not together.done()
        gate.open()
        await together
        assert second.done() and many.done()

    asyncio.run(main())


def test_on_done_is_called_on_a_thread_of_the_library(stream: runnel.Stream) -> None:
    told: list[Any] = []
    handles: list[Any] = [runnel.copy(bytearray(), b"", stream), runnel.copy(runnel.empty(64, stream), bytes(64), stream), up(stream), runnel.copy_many([]),
                          runnel.copy_many([(bytearray(9), bytes(9))], stream), stream, stream.record_event()]
    stream.synchronize()
    lock = threading.Lock()

    def done(error: BaseException | None) -> None:
        with lock:
            told.append((threading.get_ident(), error))

    for handle in handles:
        with lock:
            handle.on_done(done)
    assert eventually(lambda: len(told) == len(handles))
    assert {error for _, error in told} == {None} and threading.get_ident() not in {thread for thread, _ in told}


def test_nothing_that_waits_needs_the_thread_of_on_done(stream: runnel.Stream, gate: Gate) -> None:
    source, target, told = np.ones(1 << 20, np.uint8), np.zeros(1 << 20, np.uint8), []

    def wait_for_all(error: BaseException | None) -> None:
        def copy() -> runnel.Copy:
            return runnel.copy(target, source, stream)

        copy().wait(60)
        runnel.copy(target, source, stream, non_blocking=False)
        asyncio.run(_wait(copy()))
        assert len(list(runnel.prefetch([source] * 3))) == 3 and eventually(copy().done)
        told.append(len(told))

    busy = threading.Event()
    stream.on_done(lambda error: busy.wait(60))
    handle = up(stream)
    stream.synchronize()
    assert handle.done()  # although that thread is busy
    handle.wait(60)
    busy.set()
    for each in (stream, stream.record_event(), up(stream)):
        each.on_done(wait_for_all)
    assert eventually(lambda: told == [0, 1, 2], 60)


WAITS: dict[str, Any] = {
    "handle": lambda handle, stream: handle.wait(),
    "done": lambda handle, stream: eventually(handle.done),
    "stream": lambda handle, stream: stream.synchronize(),
    "event": lambda handle, stream: stream.record_event().synchronize(),
    "device": lambda handle, stream: runnel.Device(0).synchronize(),
    "await": lambda handle, stream: asyncio.run(_wait(handle)),
    "await stream": lambda handle, stream: asyncio.run(_wait(stream)),
}


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("name", WAITS)
def test_arrays_are_given_back_when_a_wait_returns(name: str, in_thread: bool, stream: runnel.Stream) -> None:
    block, failures = runnel.empty(1 << 16, stream), []

    def run() -> None:
        for how in range(30):
            memory = bytearray(1 << 16)
            handle: Any = runnel.copy_many([(block, memory)], stream) if how % 2 else runnel.copy(block, memory, stream)
            WAITS[name](handle, stream)
            try:
                memory.append(1)
            except BufferError as error:
                failures.append(error)

    on_threads(lambda i: run(), 2) if in_thread else run()
    assert not failures
    given: list[Any] = []
    memory = bytearray(1 << 16)
    runnel.copy(block, memory, stream).on_done(lambda error: given.append(memory.append(1)))
    assert eventually(lambda: given == [None])


def test_a_forked_child_knows_nothing_of_a_copy() -> None:
    assert "forked" * 4 in check_python("""
        import os, threading, runnel
        s, gate = runnel.Stream(), threading.Event()
        s.launch_host_func(gate.wait)
        handle = runnel.copy(bytearray(1 << 20), bytes(1 << 20), s)
        if os.fork() == 0:
            import asyncio
            async def wait(): await handle
            for call in (handle.wait, handle.done, lambda: asyncio.run(wait()), lambda: handle.on_done(print)):
                try: call()
                except runnel.Error as error: os.write(1, error.code.encode())
            os._exit(0)
        os.wait()
        gate.set()
    """)


def test_the_functions_have_signatures() -> None:
    for name in runnel.__all__:
        thing = getattr(runnel, name)
        if inspect.isfunction(thing):
            assert "*args" not in str(inspect.signature(thing)), name
    assert str(inspect.signature(runnel.Stream.synchronize)).startswith("(self, timeout:") and "= None)" in str(inspect.signature(runnel.Stream().synchronize))
    assert list(inspect.signature(runnel.Stream).parameters) == ["device", "priority", "blocking", "name"] and not inspect.signature(runnel.Copy).parameters
    for cls in (getattr(runnel, name) for name in runnel.__all__ if inspect.isclass(getattr(runnel, name))):
        for thing in [cls, *(value for name, value in vars(cls).items() if callable(value) and (not name.startswith("_") or name == "__init__"))]:
            assert inspect.signature(thing) is not None
    assert list(inspect.signature(runnel.copy).parameters)[:3] == ["dst", "src", "stream"]
    assert not [name for name in vars(runnel) if not name.startswith("_") and name not in runnel.__all__]
