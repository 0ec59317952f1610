# SPDX-License-Identifier: Apache-2.0
"""``prefetch()``: batches that are on the device before the program wants them."""
from __future__ import annotations

import collections
import contextlib
import functools
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from runnel import _core, _interop, _transfer

if TYPE_CHECKING:
    from runnel._calls import Copies
    from runnel._host import Copy, Device, Event, Stream

T = TypeVar("T")


class Prefetch(Generic[T]):
    """The result of ``prefetch()``. Each ``for`` over it begins anew, and has a stream of its own."""

    def __init__(self, batches: Iterable[T], device: Any, depth: int, like: Any) -> None:
        self.batches, self.device, self.depth, self.like = batches, device, depth, like

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<runnel.prefetch() of {type(self.batches).__name__}, {self.depth} ahead>"

    def __iter__(self) -> Iterator[T]:
        idle = _idle.setdefault(_core.default_stream(self.device).device.index, [])
        stream = idle.pop() if idle else _core.Stream(self.device)
        try:
            yield from self._batches(stream)
        finally:
            idle.append(stream)

    def _batches(self, stream: Stream) -> Iterator[T]:
        ahead: collections.deque[Callable[[], T]] = collections.deque()
        source: Iterator[T] | None = iter(self.batches)
        last: Copy | Copies | None = None
        use = _Use(stream.device)
        while True:
            while len(ahead) < self.depth and source is not None:
                try:
                    while last is not None and not last.source_done():  # then the source may use its memory again
                        time.sleep(50e-6)
                    batch = next(source)
                    arrives, last = self._send(batch, stream, use)
                    ahead.append(arrives)
                except StopIteration:
                    source = None
                except Exception as error:  # comes after the batches that are there
                    ahead.append(functools.partial(_fail, error))
                    source = None
            if not ahead:
                return
            yield ahead.popleft()()

    def _send(self, batch: T, stream: Stream, use: _Use) -> tuple[Callable[[], T], Copy | Copies]:
        """Enqueues the copy of a batch: what hands it over, and the copy."""
        moved: T
        copied: Copy | Copies
        if self.like is not None and _interop.ON_HOST:
            moved, copied = _transfer.to_device(batch, self.like, stream, handle=True)

            def wait() -> T:
                copied.wait()  # the host's arrays have no stream
                return moved

            return wait, copied
        is_cupy = self.like is not None and _interop.name_of(self.like) == "cupy"
        with contextlib.nullcontext() if is_cupy or self.like is None else _interop.current_in_frameworks(stream):
            moved, copied = _transfer.to_device(batch, self.like, stream, handle=True)
        arrived = stream.record_event()

        def hand_over() -> T:
            current, theirs = _interop.current_of(self.like, stream.device)
            use.begin(current, sum(map(_interop.nbytes_of, _transfer._arrays(moved))))
            current.wait_event(arrived)
            if not is_cupy:  # the memory is free when that stream has passed
                for array in _transfer._arrays(moved):
                    array.record_stream(theirs)
            return moved

        return hand_over, copied


# Streams of loops that have ended, by their device: torch keeps memory for each stream that it has seen.
_idle: dict[int, list[Stream]] = {}


class _Use:
    """The batches that were handed over and that the consumer's stream still uses. They may have an eighth of the device's memory."""

    def __init__(self, device: Device) -> None:
        self.most, self.nbytes, self.last = device.memory_info()[1] // 8, 0, 0
        self.ends: collections.deque[tuple[Event, int]] = collections.deque()

    def begin(self, current: Stream, nbytes: int) -> None:
        """The work on the batch before is enqueued."""
        self.ends.append((current.record_event(), self.last))
        self.nbytes, self.last = self.nbytes + self.last, nbytes
        while self.ends and (self.nbytes > self.most or self.ends[0][0].done):
            end, bytes_before = self.ends.popleft()
            end.synchronize()
            self.nbytes -= bytes_before


def _fail(error: Exception) -> Any:
    raise error


def prefetch(batches: Iterable[T], device: Any = None, depth: int = 2, like: Any = None) -> Prefetch[T]:
    """Batches of any iterable, as a torch DataLoader with workers, on the device ahead of their use:

        for images, labels in runnel.prefetch(loader, "cuda:0", like=torch): ...

    A batch is what ``to_device()`` takes, pinned or not; ``like`` is what its arrays become: ``torch``, ``cupy``, or None
    for Blocks. ``depth`` batches are on the device or on their way, beside those in use. Their copies are on a stream
    of their own; the consumer's current stream (torch's, CuPy's or runnel's, as ``like`` says) waits for each batch, and
    the host does not. It waits only where batches that this stream has not finished with have an eighth of the device's
    memory; with CuPy, whose memory has no ``record_stream()``, copies begin after what that stream had been given when
    they were enqueued. Before the next batch is asked for, the last one's memory on the host has been read, so that a
    source may use it again. Exceptions of the source, and of a batch that cannot be copied, arrive in the loop after
    the batches before. A loop that ends early waits for nothing.
    """
    if operator.index(depth) < 1:
        raise ValueError(f"depth is 1 or more, not {depth}")
    if not isinstance(batches, Iterable):
        raise TypeError(f"an object of type {type(batches)} has no batches: it is not iterable")
    if like is not None:
        _interop.module_of(like)
    return Prefetch(batches, device, depth, like)
