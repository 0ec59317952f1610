# SPDX-License-Identifier: Apache-2.0
"""``prefetch()``: batches that are on the device before the program wants them."""
from __future__ import annotations

import collections
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from runnel import _core, _interop, _transfer

if TYPE_CHECKING:
    from runnel._calls import Copies
    from runnel._host import Copy, Stream

T = TypeVar("T")


class Prefetch(Generic[T]):
    """The result of ``prefetch()``. Each ``for`` over it begins anew, and has a stream of its own."""

    def __init__(self, batches: Iterable[T], device: Any, depth: int, like: Any) -> None:
        self.batches, self.device, self.depth, self.like = batches, device, depth, like

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<runnel.prefetch() of {type(self.batches).__name__}, {self.depth} ahead>"

    def __iter__(self) -> Iterator[Any]:
        stream = _core.Stream(self.device)
        ahead: collections.deque[Callable[[], Any]] = collections.deque()
        source, last = iter(self.batches), None
        while True:
            while len(ahead) < self.depth and source is not None:
                while last is not None and not last.source_done():  # then the source may use its memory again
                    time.sleep(50e-6)
                try:
                    batch = next(source)
                except StopIteration:
                    source = None  # type: ignore[assignment]
                    break
                arrives, last = self._send(batch, stream)
                ahead.append(arrives)
            if not ahead:
                return
            yield ahead.popleft()()

    def _send(self, batch: Any, stream: Stream) -> tuple[Callable[[], Any], Copy | Copies]:
        """Enqueues the copy of a batch: what hands it over, and the copy."""
        if self.like is not None and _interop.ON_HOST:
            moved, copied = _transfer.to_device(batch, self.like, stream, handle=True)

            def wait() -> Any:
                copied.wait()  # the host's arrays have no stream
                return moved

            return wait, copied
        # The memory of torch and CuPy belongs to the consumer's stream, which gives it out again without waiting: so the copy waits for
        # what uses it there. This also keeps the copies from running further ahead than `depth`.
        current, allocated_in = _interop.current_of(self.like, stream.device)
        stream.wait_stream(current)
        moved, copied = _transfer.to_device(batch, self.like, stream, handle=True)
        arrived = stream.record_event()

        def hand_over() -> Any:
            current, theirs = _interop.current_of(self.like, stream.device)
            current.wait_event(arrived)
            if self.like is None or (theirs != allocated_in and _interop.name_of(self.like) == "torch"):
                _transfer._map(lambda array: array.record_stream(theirs), moved)
            return moved

        return hand_over, copied


def prefetch(batches: Iterable[T], device: Any = None, depth: int = 2, like: Any = None) -> Prefetch[T]:
    """Batches of any iterable, as a torch DataLoader with workers, on the device ahead of their use:

        for images, labels in runnel.prefetch(loader, "cuda:0", like=torch): ...

    A batch is what ``to_device()`` takes, pinned or not; ``like`` is what its arrays become: ``torch``, ``cupy``, or None
    for Blocks. ``depth`` batches are on the device or on their way, beside those in use. Their copies are on a stream
    of their own, and begin after what the consumer's current stream (torch's, CuPy's or runnel's, as ``like`` says) had
    been given when the copy was enqueued; that stream waits for each batch, and the host does not. Before the next batch
    is asked for, the last one's memory on the host has been read, so that a source may use it again. Exceptions of the
    source arrive in the loop. A loop that ends early waits for nothing.
    """
    if operator.index(depth) < 1:
        raise ValueError(f"depth is 1 or more, not {depth}")
    if not isinstance(batches, Iterable):
        raise TypeError(f"an object of type {type(batches)} has no batches: it is not iterable")
    if like is not None:
        _interop.module_of(like)
    return Prefetch(batches, device, depth, like)
