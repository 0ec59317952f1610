# SPDX-License-Identifier: Apache-2.0
"""Where runnel meets what else Python has: generators, threads, pickle, garbage collection, buffers that others hold, loops that end."""
from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import mmap
import pickle
import random
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import runnel
from conftest import ON_HOST, Gate, check_python, eventually, on_threads
from test_lifetimes import Tracked, tracked

# ---- generators, context managers, threads


def entered(stream: runnel.Stream) -> Iterator[runnel.Stream]:
    with stream:
        yield runnel.current_stream()


def test_a_context_manager_made_of_a_generator() -> None:
    s = runnel.Stream()
    with contextlib.contextmanager(entered)(s) as inner:
        assert inner is s and runnel.current_stream() is s
    assert runnel.current_stream() == runnel.Stream.null
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(runnel.Stream())
        stack.enter_context(s)
        assert runnel.current_stream() is s
    assert runnel.current_stream() == runnel.Stream.null


def test_a_generator_that_ends_within_another_with_leaves_it_current() -> None:
    s, t, u = runnel.Stream(), runnel.Stream(), runnel.Stream()
    generator = entered(s)
    assert next(generator) is s
    with t:
        generator.close()
        assert runnel.current_stream() is t
        generator = entered(s)
        next(generator)
        with u:
            with t:
                generator.close()
                assert runnel.current_stream() is t
            assert runnel.current_stream() is u
        assert runnel.current_stream() is t
    assert runnel.current_stream() == runnel.Stream.null


def test_a_generator_that_is_dropped_leaves_its_stream() -> None:
    s = runnel.Stream()
    generator = entered(s)
    next(generator)
    del generator
    gc.collect()
    assert runnel.current_stream() == runnel.Stream.null


def test_a_thread_that_ends_with_a_current_stream_keeps_nothing() -> None:
    gone: list[Any] = []

    def run() -> None:
        s = runnel.Stream()
        gone.append(weakref.ref(s))
        s.use()
        runnel.Stream().__enter__()
        runnel.copy(bytearray(100_000), bytes(100_000))

    for _ in range(3):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    del thread
    assert eventually(lambda: all(each() is None for each in gone))
    assert runnel.current_stream() == runnel.Stream.null


def test_leaving_twice_or_elsewhere_does_nothing() -> None:
    s, t = runnel.Stream(), runnel.Stream()
    with t:
        s.__exit__(None, None, None)
        assert runnel.current_stream() is t
        thread = threading.Thread(target=lambda: t.__exit__(None, None, None))
        thread.start()
        thread.join()
        assert runnel.current_stream() is t


# ---- pickle and copy


@pytest.mark.parametrize("name", ["Stream", "Event", "Block", "StreamPool", "PinnedMemory", "Registration", "lease"])
@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_owns_something_is_not_pickled(name: str, attempt: Callable[[Any], Any]) -> None:
    made: dict[str, Callable[[], Any]] = {
        "Stream": runnel.Stream, "Event": runnel.Event, "Block": lambda: runnel.empty(10), "StreamPool": lambda: runnel.StreamPool(size=1),
        "PinnedMemory": lambda: runnel.PinnedMemory(10), "Registration": lambda: runnel.register(bytearray(4096)),
        "lease": lambda: runnel.StreamPool(size=1).acquire(),
    }
    with pytest.raises(TypeError, match="cannot pickle"):
        attempt(made[name]())


def test_errors_are_pickled() -> None:
    with pytest.raises(runnel.Error) as raised:
        runnel.Stream(99)
    back = pickle.loads(pickle.dumps(raised.value))
    assert type(back) is type(raised.value) and str(back) == str(raised.value) and back.code == "invalid_device"


# ---- buffers that others hold


def test_a_mapping_is_not_closed_while_a_copy_runs(tmp_path: Path, stream: runnel.Stream, gate: Gate) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1_000_000)
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    block = runnel.empty(1_000_000, stream)
    target = bytearray(1_000_000)
    gate.close(stream)
    runnel.copy(block, mapped, stream)
    runnel.copy(target, block, stream)
    with pytest.raises(BufferError):
        mapped.close()
    with pytest.raises(BufferError):
        target.clear()
    gate.open()
    stream.synchronize()
    assert bytes(target) == b"x" * 1_000_000

    def closes() -> bool:
        try:
            mapped.close()
        except BufferError:
            return False
        return True

    assert eventually(closes)
    with pytest.raises(ValueError):
        runnel.copy(bytearray(1_000_000), mapped, stream)


def test_a_view_that_was_released_is_refused(stream: runnel.Stream) -> None:
    view = memoryview(bytearray(10))
    view.release()
    with pytest.raises(ValueError, match="released"):
        runnel.copy(view, bytes(10), stream)


@pytest.mark.parametrize("target", [b"abc", memoryview(b"abc"), np.frombuffer(b"abc", np.uint8), "abc"])
def test_read_only_targets(target: Any, tmp_path: Path, stream: runnel.Stream) -> None:
    with pytest.raises(TypeError if isinstance(target, str) else BufferError):
        runnel.copy(target, b"abc", stream)
    (tmp_path / "file").write_bytes(b"abc")
    for write in (lambda to: runnel.copy_many([(to, b"abc")], stream), lambda to: runnel.fill(to, 1, stream)):
        with pytest.raises(BufferError, match="read-only"):
            write(runnel.map_file(tmp_path / "file"))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_zero_elements(shape: tuple[int, ...], stream: runnel.Stream) -> None:
    x = np.zeros(shape, np.float32)
    block = runnel.to_device(x, stream=stream)
    assert block.shape == shape and block.nbytes == 0
    assert runnel.to_host(block, stream=stream).shape == shape
    assert runnel.copy(x, x[..., ::2] if shape[-1] == 0 else x, stream).kind == "nothing"
    assert runnel.copy_many([(x, x)], stream).counts["nothing"] == 1
    runnel.fill(x, 1, stream)
    assert runnel.pinned_empty(shape).shape == shape
    result = runnel.overlap(x, np.zeros_like(x), lambda *a: pytest.fail("there is no chunk"))
    assert (result.chunks, result.items, result.written) == (0, 0, 0)


def test_a_capsule_that_was_consumed_is_refused(stream: runnel.Stream) -> None:
    class Once:
        """Gives the same capsule each time."""

        def __init__(self, array: Any) -> None:
            self.array, self.capsule = array, array.__dlpack__()

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.capsule

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    source = Once(np.arange(5, dtype=np.uint8))
    for _ in range(2):  # a copy borrows
        out = np.zeros(5, np.uint8)
        runnel.copy(out, source, stream)
        stream.synchronize()
        assert out.tolist() == [0, 1, 2, 3, 4]
    np.from_dlpack(source)
    with pytest.raises(BufferError, match="used by another library"):
        runnel.copy(out, source, stream)
    source.capsule = None
    with pytest.raises(BufferError, match="none of DLPack's"):
        runnel.copy(out, source, stream)


# ---- destructors and the collector


def test_a_destructor_may_use_streams(stream: runnel.Stream, gate: Gate) -> None:
    done: list[Any] = []

    class Last(np.ndarray):  # type: ignore[type-arg]
        def __del__(self) -> None:
            s = runnel.Stream()
            target = bytearray(100_000)
            runnel.copy(target, bytes(100_000), s)
            s.synchronize()
            done.append(len(target))

    gate.close(stream)
    runnel.copy(runnel.empty(100_000, stream), np.zeros(100_000, np.uint8).view(Last), stream)
    gc.collect()
    assert not done
    gate.open()
    assert eventually(lambda: done == [100_000])


def test_a_stream_in_its_own_host_function_goes() -> None:
    s = runnel.Stream()
    gone = weakref.ref(s)
    cycle: list[Any] = [s]
    s.launch_host_func(lambda: cycle)
    s.on_done(lambda error, s=s: s.id)
    s.synchronize()
    del s
    cycle.clear()
    assert eventually(lambda: gone() is None)


def test_an_exception_of_on_done_arrives(monkeypatch: pytest.MonkeyPatch, stream: runnel.Stream) -> None:
    told: list[Any] = []
    called = threading.Event()

    def tell(arguments: Any) -> None:
        told.append(arguments.exc_type)
        called.set()

    monkeypatch.setattr(sys, "unraisablehook", tell)
    stream.record_event().on_done(lambda error: 1 / 0)
    assert called.wait(20)
    assert told == [ZeroDivisionError]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration])
def test_every_exception_of_a_host_function_arrives_as_it_is(kind: type[BaseException], stream: runnel.Stream) -> None:
    def fail() -> None:
        raise kind("mine")

    stream.launch_host_func(fail)
    with pytest.raises(kind, match="mine"):
        stream.synchronize()


# ---- event loops


def test_a_loop_that_is_closed_before_the_work_is_done(stream: runnel.Stream, gate: Gate) -> None:
    async def wait() -> None:
        await stream

    gate.close(stream)
    loop = asyncio.new_event_loop()
    task = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    gone = weakref.ref(loop)
    del loop, task
    gc.collect()
    assert gone() is None
    gate.open()
    asyncio.run(wait())


def test_many_tasks_some_of_which_are_cancelled(stream: runnel.Stream, gate: Gate) -> None:
    async def wait() -> int:
        await stream
        return 1

    async def main() -> None:
        gate.close(stream)
        tasks = [asyncio.ensure_future(wait()) for _ in range(40)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        gate.open()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(each, asyncio.CancelledError) for each in done] == [True, False] * 20

    asyncio.run(main())


def test_a_task_group_that_fails_cancels_a_wait(stream: runnel.Stream, gate: Gate) -> None:
    async def wait() -> None:
        with stream:
            await stream

    async def main() -> None:
        gate.close(stream)
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(wait())
                await asyncio.sleep(0)
                raise ValueError("mine")
        assert runnel.current_stream() == runnel.Stream.null
        gate.open()
        await stream

    asyncio.run(main())


def test_ctrl_c_ends_an_await() -> None:
    out = check_python("""
        import asyncio, os, signal, threading, runnel
        s = runnel.Stream(); gate = threading.Event(); s.launch_host_func(gate.wait)
        async def main():
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
            await s
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
        gate.set()
    """)
    assert out == "interrupted\n"


# ---- random programs of everything at once


class Program:
    """Random calls of everything that keeps an object. Each object can be referred to weakly, and is dropped at once or later."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.streams = [runnel.Stream() for _ in range(3)]
        self.alive: list[Any] = []
        self.kept: list[weakref.ref[Any]] = []
        self.ran: list[int] = []
        self.expected: list[int] = []
        self.failures = 0

    def made(self, thing: Any) -> Any:
        self.kept.append(weakref.ref(thing))
        if self.random.random() < 0.3:
            self.alive.append(thing)
        return thing

    def stream(self) -> runnel.Stream:
        if self.random.random() < 0.2:
            self.streams[self.random.randrange(3)] = self.made(runnel.Stream())
        return self.random.choice(self.streams)

    def array(self) -> Tracked:
        size = self.random.choice([0, 1, 100, 40_000, 300_000])
        return self.made(tracked(size, self.random.randrange(256)))

    def copies(self, s: runnel.Stream) -> None:
        source = self.array()
        block = self.made(runnel.to_device(source, stream=s))
        target = self.made(tracked(source.nbytes))
        runnel.copy(target, block.view("uint8") if self.random.random() < 0.5 else block, s)

    def rows(self, s: runnel.Stream) -> None:
        source = self.made(np.ones((20, 30, 4, 5), np.uint8).view(Tracked))
        runnel.copy(self.made(tracked(20 * 15 * 2 * 5)).reshape(20, 15, 2, 5), source[:, ::2, 1:3], s)

    def host_function(self, s: runnel.Stream) -> None:
        number = len(self.expected)
        self.expected.append(number)
        array = self.array()
        s.launch_host_func(lambda a: self.ran.append(number), array)

    def failing(self, s: runnel.Stream) -> None:
        def fail(a: Any) -> None:
            raise KeyError(a.nbytes)

        s.launch_host_func(fail, self.array())
        with contextlib.suppress(KeyError):
            s.synchronize()
        self.failures += 1

    def completion(self, s: runnel.Stream) -> None:
        array = self.array()
        s.on_done(lambda error: array.nbytes)
        self.made(s.record_event()).on_done(lambda error: array.nbytes)

    def wrapped(self, s: runnel.Stream) -> None:
        owner = self.made(Owner(s))
        other = self.made(runnel.Stream.wrap(owner))
        with other:
            runnel.fill(self.array(), 3)

    def refused(self, s: runnel.Stream) -> None:
        with contextlib.suppress(ValueError, BufferError):
            runnel.copy_many([(self.array(), self.array()), (b"abc", self.array())], s)

    def capsule(self, s: runnel.Stream) -> None:
        block = self.made(runnel.empty(1000, s))
        self.alive.append(block.__dlpack__(stream=None if ON_HOST else -1))

    def overlapped(self, s: runnel.Stream) -> None:
        source = self.made(tracked(10_000, 7))
        target = self.made(tracked(10_000))
        runnel.overlap(source, target, lambda chunk, x, y: x, chunk=4000)
        assert (target == 7).all()

    def waits(self, s: runnel.Stream) -> None:
        async def wait() -> None:
            await asyncio.gather(*(asyncio.wait_for(_await(each), 30) for each in self.streams))

        asyncio.run(wait())

    def run(self, steps: int) -> None:
        actions = [self.copies, self.rows, self.host_function, self.failing, self.completion, self.wrapped, self.refused, self.capsule,
                   self.overlapped, self.waits]
        for _ in range(steps):
            s = self.stream()
            self.random.choice(actions)(s)
            if self.random.random() < 0.2:
                self.random.shuffle(self.alive)
                del self.alive[: len(self.alive) // 2]
        runnel.Device(0).synchronize()
        del s
        self.streams.clear()
        self.alive.clear()
        assert eventually(lambda: sorted(self.ran) == self.expected)
        assert eventually(lambda: all(each() is None for each in self.kept)), [each() for each in self.kept if each() is not None]


class Owner:
    def __init__(self, stream: runnel.Stream) -> None:
        self.stream, self.cuda_stream, self.device = stream, stream.handle, 0


async def _await(stream: runnel.Stream) -> None:
    await stream


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_of_everything(seed: int) -> None:
    Program(seed).run(40)


def test_random_programs_of_everything_on_threads() -> None:
    on_threads(lambda i: Program(200 + i).run(15), 3)
