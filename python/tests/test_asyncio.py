# SPDX-License-Identifier: Apache-2.0
"""Streams and events in an event loop."""
from __future__ import annotations

import asyncio
import gc
import threading
import time
import traceback
import weakref

import numpy as np
import pytest

import runnel
from conftest import Gate, eventually


def test_await_returns_when_the_work_is_done(stream: runnel.Stream, gate: Gate) -> None:
    async def main() -> None:
        gate.close(stream)
        target = bytearray(1 << 20)
        block = runnel.to_device(np.ones(1 << 20, np.uint8), stream=stream)
        runnel.copy(target, block, stream)
        waiting = asyncio.ensure_future(_wait(stream))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        gate.open()
        await waiting
        assert target == b"\1" * (1 << 20)
        await stream.record_event()
        await asyncio.gather(*(_wait(stream) for _ in range(50)))

    asyncio.run(main())


async def _wait(stream: runnel.Stream) -> None:
    await stream


def test_await_raises_what_a_host_function_raised(stream: runnel.Stream) -> None:
    async def main() -> None:
        stream.launch_host_func(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await stream
        with pytest.raises(ZeroDivisionError):
            stream.synchronize()
        await stream

    asyncio.run(main())


def test_a_delivery_that_fails_loses_no_other(stream: runnel.Stream) -> None:
    async def main() -> None:
        other = runnel.Stream()
        stream.launch_host_func(next, iter(()))
        waits = [asyncio.ensure_future(_wait(each)) for each in (stream, other, stream)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        time.sleep(0.05)  # all complete before the loop looks
        results = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 60)
        assert [type(result) for result in results] == [RuntimeError, type(None), RuntimeError] and isinstance(results[0].__cause__, StopIteration)

    asyncio.run(main())
    with pytest.raises(StopIteration):
        stream.synchronize()


def test_an_exception_that_is_raised_again_keeps_its_traceback(stream: runnel.Stream) -> None:
    async def main() -> None:
        stream.launch_host_func(lambda: 1 / 0)
        lengths = []
        for _ in range(5):
            try:
                await stream
            except ZeroDivisionError as error:
                lengths.append(len(traceback.extract_tb(error.__traceback__)))
        assert lengths == [lengths[0]] * 5

    asyncio.run(main())
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()


def test_a_wait_can_be_cancelled(stream: runnel.Stream, gate: Gate) -> None:
    async def main() -> None:
        gate.close(stream)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_wait(stream), 0.02)
        gate.open()
        await stream

    asyncio.run(main())


def test_tasks_have_their_own_current_stream() -> None:
    async def task(stream: runnel.Stream) -> None:
        for _ in range(5):
            with stream:
                await asyncio.sleep(0.001)
                assert runnel.current_stream() is stream
                await runnel.current_stream()
                assert runnel.current_stream() is stream
            await asyncio.sleep(0)
            assert runnel.current_stream() == runnel.Stream.null

    async def main() -> None:
        await asyncio.gather(*(task(runnel.Stream()) for _ in range(5)))

    asyncio.run(main())


def test_loops_on_threads_and_one_after_the_other(stream: runnel.Stream) -> None:
    def run() -> None:
        asyncio.run(_wait(stream))

    for _ in range(3):
        run()
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_loop_that_has_ended_leaves_nothing(stream: runnel.Stream) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_wait(stream))
    loop.close()
    gone = weakref.ref(loop)
    del loop
    gc.collect()
    assert eventually(lambda: gone() is None)
