# SPDX-License-Identifier: Apache-2.0
"""Streams, events, devices, pools, the current stream."""
from __future__ import annotations

import contextvars
import gc
import threading
from typing import Any

import pytest

import runnel
from conftest import ON_HOST, Gate


def test_there_is_a_device_or_a_reason() -> None:
    assert runnel.device_count() > 0
    assert (runnel.why_no_device() == "") == (not ON_HOST)
    assert runnel.backend in ("host", "cuda", "hip")


def test_a_stream_has_what_torch_and_cupy_call_it() -> None:
    s = runnel.Stream(0, priority=-100, name="copies")
    assert s.handle == s.cuda_stream == s.ptr != 0
    assert s.__cuda_stream__() == (0, s.handle)
    assert s.device == runnel.Device(0) and s.device.index == 0 and int(s.device) == 0
    assert s.priority == s.device.priority_range[1]
    assert s.name == "copies" and not s.blocking
    assert s.done and s.query()
    assert "copies" in repr(s) and "device 0" in repr(s)
    assert runnel.Stream().id != s.id


def test_streams_are_equal_by_what_they_are() -> None:
    s, t = runnel.Stream(), runnel.Stream()
    assert s == s and s != t and s != 1 and len({s, t, s}) == 2
    assert runnel.Stream.wrap(s.handle) == s
    assert runnel.Stream.null == runnel.default_stream() == runnel.default_stream(runnel.Device(0))


class OfTorch:
    def __init__(self, stream: runnel.Stream) -> None:
        self.cuda_stream, self.device_index = stream.handle, 0


class OfCupy:
    def __init__(self, stream: runnel.Stream) -> None:
        self.ptr, self.device_id = stream.handle, 0


class OfProtocol:
    def __init__(self, stream: runnel.Stream) -> None:
        self.made = (0, stream.handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.made


@pytest.mark.parametrize("kind", [OfTorch, OfCupy, OfProtocol])
def test_wraps_streams_of_other_libraries(kind: Any) -> None:
    s = runnel.Stream()
    wrapped = runnel.Stream.wrap(kind(s))
    assert wrapped == s
    assert "another library" in repr(wrapped)


@pytest.mark.parametrize("wrong", ["stream", None, 1.5, object()])
def test_refuses_to_wrap_what_is_no_stream(wrong: Any) -> None:
    with pytest.raises(TypeError, match="no stream"):
        runnel.Stream.wrap(wrong)


def test_an_unknown_device_is_refused_by_name() -> None:
    with pytest.raises(runnel.InvalidArgument, match="no device 99") as raised:
        runnel.Stream(99)
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, runnel.Error)
    assert raised.value.code == "invalid_device" and raised.value.operation == "create a stream"
    with pytest.raises(TypeError, match="no device"):
        runnel.Stream(1.5)  # type: ignore[arg-type]
    with pytest.raises(runnel.InvalidArgument):
        runnel.Stream(1 << 32)
    with pytest.raises(TypeError, match="no runnel.Event"):
        runnel.Stream().record_event(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stream: -1 is no handle"):
        runnel.Stream.wrap(-1)


def test_host_functions_run_in_order_with_arguments(stream: runnel.Stream) -> None:
    seen: list[int] = []
    for i in range(10):
        stream.launch_host_func(seen.append, i)
    stream.synchronize()
    assert seen == list(range(10))


def test_an_exception_of_a_host_function_arrives_once(stream: runnel.Stream) -> None:
    def fail() -> None:
        raise KeyError("mine")

    stream.launch_host_func(fail)
    with pytest.raises(KeyError, match="mine") as raised:
        stream.synchronize()
    assert any(entry.name == "fail" for entry in raised.traceback)
    stream.synchronize()


def test_a_wait_ends_when_its_time_has_run_out(stream: runnel.Stream, gate: Gate) -> None:
    gate.close(stream)
    assert not stream.query()
    with pytest.raises(TimeoutError):
        stream.synchronize(timeout=0.03)
    with pytest.raises(TimeoutError):
        stream.record_event().synchronize(0)
    gate.open()
    stream.synchronize(timeout=60)
    assert stream.query()


def test_wait_stream_orders(gate: Gate) -> None:
    first, second = runnel.Stream(), runnel.Stream()
    seen: list[str] = []
    gate.close(first)
    first.launch_host_func(seen.append, "first")
    second.wait_stream(first)
    second.launch_host_func(seen.append, "second")
    assert not second.query()
    gate.open()
    second.synchronize()
    assert seen == ["first", "second"]


def test_events_order_and_tell(gate: Gate) -> None:
    first, second = runnel.Stream(), runnel.Stream()
    event = runnel.Event()
    assert event.query() and event.done and "never recorded" in repr(event)
    gate.close(first)
    assert first.record_event(event) is event
    second.wait_event(event)
    assert not event.query() and not second.query()
    gate.open()
    event.synchronize()
    second.synchronize()
    event.record(second)
    with second:
        event.record()
        event.wait()
    assert first.record_event() is not event
    first.record(event)


def test_timed_events_take_the_time(stream: runnel.Stream, gate: Gate) -> None:
    start, end = runnel.Event(timing=True), runnel.Event(timing=True)
    start.record(stream)
    gate.close(stream)
    end.record(stream)
    with pytest.raises(runnel.NotReady):
        start.elapsed_time(end)
    gate.open()
    stream.synchronize()
    assert start.elapsed_time(end) > 0 > end.elapsed_time(start)
    assert start.timing
    with pytest.raises(ValueError, match="timing=True"):
        start.elapsed_time(runnel.Event())


def test_with_and_use_nest() -> None:
    s, t, u = runnel.Stream(), runnel.Stream(), runnel.Stream()
    assert runnel.current_stream() == runnel.Stream.null
    with s as entered:
        assert entered is s and runnel.current_stream() is s
        with t:
            u.use()
            assert runnel.current_stream() is u and runnel.current_stream(0) is u
        assert runnel.current_stream() is s
        with s:
            pass
        assert runnel.current_stream() is s
    assert runnel.current_stream() == runnel.Stream.null
    s.use()
    t.use()
    assert runnel.current_stream() is t
    runnel.Stream.null.use()
    assert runnel.current_stream() == runnel.Stream.null


def test_an_exception_leaves_the_stream() -> None:
    with pytest.raises(ZeroDivisionError):
        with runnel.Stream():
            1 / 0
    assert runnel.current_stream() == runnel.Stream.null


def test_threads_and_contexts_have_their_own() -> None:
    s = runnel.Stream()
    found: list[bool] = []
    with s:
        thread = threading.Thread(target=lambda: found.append(runnel.current_stream() == runnel.Stream.null))
        thread.start()
        thread.join()
        copied = contextvars.copy_context()
    assert found == [True] or found == [False]  # Python 3.14 may give a thread a copy of the context
    assert copied.run(runnel.current_stream) is s
    assert runnel.current_stream() == runnel.Stream.null


def test_a_stream_that_has_ended_is_not_current() -> None:
    pool = runnel.StreamPool(size=1)
    assert (pool.size, pool.leased) == (1, 0) and "1 streams" in repr(pool)
    lease = pool.acquire()
    with lease:
        assert runnel.current_stream() is lease and pool.leased == 1


def test_a_pool_gives_streams_back_and_has_an_end() -> None:
    pool = runnel.StreamPool(0, size=1, max=2)
    first, second = pool.acquire(), pool.acquire(timeout=1)
    with pytest.raises(runnel.Error) as raised:
        pool.acquire()
    assert raised.value.code == "pool_exhausted"
    with pytest.raises(TimeoutError):
        pool.acquire(timeout=0.03)
    number = first.id
    del first
    assert pool.acquire().id == number
    assert second.device == pool.device


def test_a_pool_is_closed() -> None:
    pool = runnel.StreamPool(size=1, max=1)
    lease = pool.acquire()
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            pool.acquire(timeout=0.2)
        except TimeoutError as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    pool.close()
    pool.close()
    for call in (pool.acquire, lambda: pool.size, lambda: pool.leased, lambda: pool.device):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert "closed" in repr(pool)
    lease.synchronize()
    thread.join()
    del lease, pool
    gc.collect()


def test_devices_say_what_they_are() -> None:
    device = runnel.Device(0)
    free, total = device.memory_info()
    assert 0 <= free <= total
    assert device.name and device.uuid and len(device.compute_capability) == 2
    assert device.multiprocessor_count > 0 and device.async_engine_count >= 0
    assert device.can_access_peer(device) in (True, False)
    assert repr(device) == "runnel.Device(0)" and hash(device) == hash(runnel.Device(0)) and device != 0
    device.synchronize()
    device.synchronize(timeout=10)
    assert all(isinstance(number, int) for number in runnel.runtime_version())


def test_a_dropped_stream_completes_its_work() -> None:
    seen = threading.Event()
    runnel.Stream().launch_host_func(seen.set)
    assert seen.wait(20)


def test_on_done_is_called_once_with_the_error(stream: runnel.Stream) -> None:
    calls: list[Any] = []
    called = threading.Semaphore(0)

    def done(error: BaseException | None) -> None:
        calls.append(error)
        called.release()

    stream.on_done(done)
    assert called.acquire(timeout=20)
    stream.launch_host_func(lambda: 1 / 0)
    stream.on_done(done)
    assert called.acquire(timeout=20)
    stream.record_event().on_done(done)
    assert called.acquire(timeout=20)
    assert calls[0] is None and isinstance(calls[1], ZeroDivisionError) and calls[2] is None
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()


def test_many_threads_use_one_stream(stream: runnel.Stream) -> None:
    seen: list[int] = []

    def work() -> None:
        for i in range(100):
            stream.launch_host_func(seen.append, i)
            stream.query()
            with stream:
                runnel.current_stream().record_event()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.synchronize()
    assert len(seen) == 400


def test_devices_as_torchs_users_write_them(stream: runnel.Stream) -> None:
    class Device:
        def __init__(self, type: str, index: int | None = None) -> None:
            self.type, self.index = type, index

    for name in ("cuda", Device("cuda"), Device("cuda", 0), *((Device("cpu"),) if ON_HOST else ())):
        assert runnel.Stream(name).device == runnel.Device(0)  # type: ignore[arg-type]
    for wrong in ("cuda:9999999999", "cuda:99999999999999999999", "cuda:", "cuda:1x", "xpu", Device("meta"), "cpu", *(() if ON_HOST else (Device("cpu", 0),))):
        with pytest.raises(ValueError):
            runnel.Stream(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        runnel.to_device(b"abc", stream=stream, device=5)


def test_a_name_is_cut_at_a_character() -> None:
    for name in ("données du préchargement été", "é" * 40, "x" * 40, "\U0001f600" * 9):
        stream = runnel.Stream(name=name)
        assert name.startswith(stream.name) and 27 < len(stream.name.encode()) <= 31 and stream.name in repr(stream)


def test_events_of_other_libraries(stream: runnel.Stream) -> None:
    class Theirs:
        cuda_event, device = 0, 0

    stream.wait_event(Theirs())  # torch makes its event when it is recorded
    with pytest.raises(runnel.InvalidArgument):
        runnel.Event.wrap(Theirs())
    with pytest.raises(TypeError, match="no runnel.Event, and no event with"):
        stream.wait_event(3.5)
    assert not stream.is_capturing


def test_wrong_arguments_are_refused_in_words(stream: runnel.Stream) -> None:
    event, block = runnel.Event(), runnel.empty(8, stream)
    for wrong in (None, 1.5, 2**31, "x"):
        for call in (lambda w: stream.wait_stream(w), lambda w: stream.record(w), lambda w: stream.wait_event(w), lambda w: event.elapsed_time(w),
                     lambda w: stream.launch_host_func(w), lambda w: stream.on_done(w), lambda w: runnel.Stream(priority=w), lambda w: block.record_stream(w)):
            with pytest.raises((TypeError, ValueError)) as raised:
                call(wrong)
            assert "incompatible" not in str(raised.value), str(raised.value)
    for call in (lambda: stream.synchronize("x"), lambda: runnel.Stream(name=3), lambda: runnel.Stream(blocking=1.5), lambda: runnel.fill(bytearray(3), 1.5),
                 lambda: runnel.fill(bytearray(3), None), lambda: runnel.PinnedMemory(-1), lambda: runnel.copy(bytearray(3), b"abc", any_time=1.5),
                 lambda: runnel.StreamPool(size=None), lambda: runnel.copy(bytearray(3), b"abc", stream).wait("x"), lambda: block.view(offset=1.5),
                 lambda: runnel.Device(1.5), lambda: runnel.Event(timing=3.5)):
        with pytest.raises((TypeError, ValueError)) as raised:
            call()  # type: ignore[no-untyped-call]
        assert "incompatible" not in str(raised.value), str(raised.value)
