# SPDX-License-Identifier: Apache-2.0
"""``prefetch()``: batches that are on the device before the program wants them."""
from __future__ import annotations

import collections
import operator
from collections.abc import Iterable, Iterator
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
        ahead: collections.deque[tuple[Any, Copy | Copies]] = collections.deque()
        source, last = iter(self.batches), None
        while True:
            while len(ahead) < self.depth and source is not None:
                if last is not None:
                    last.wait()  # the source may use the memory of its batches again
                try:
                    batch = next(source)
                except StopIteration:
                    source = None  # type: ignore[assignment]
                    break
                moved, last = self._send(batch, stream)
                ahead.append((moved, last))
            if not ahead:
                return
            yield self._hand_over(*ahead.popleft(), stream)

    def _send(self, batch: Any, stream: Stream) -> tuple[Any, Copy | Copies]:
        """A batch on the device, whose memory is the stream's."""
        if self.like is not None and _interop.name_of(self.like) == "cupy":
            # CuPy gives memory out again as soon as Python has dropped it.
            stream.wait_stream(_interop.current_of(self.like, stream.device)[0])
        with _interop.current_in_frameworks(stream):
            moved: tuple[Any, Copy | Copies] = _transfer.to_device(batch, self.like, stream, handle=True)
            return moved

    def _hand_over(self, batch: Any, handle: Copy | Copies, stream: Stream) -> Any:
        """Lets the consumer's current stream wait for the batch, and its memory for what the consumer does with it."""
        if self.like is not None and _interop.ON_HOST:
            handle.wait()  # the host's arrays have no stream
            return batch
        current, theirs = _interop.current_of(self.like, stream.device)
        current.wait_stream(stream)
        if self.like is None or _interop.name_of(self.like) == "torch":
            _transfer._map(lambda array: array.record_stream(theirs), batch)
        return batch


def prefetch(batches: Iterable[T], device: Any = None, depth: int = 2, like: Any = None) -> Prefetch[T]:
    """Batches of any iterable, as a torch DataLoader with workers, on the device ahead of their use:

        for images, labels in runnel.prefetch(loader, "cuda:0", like=torch): ...

    A batch is what ``to_device()`` takes, pinned or not; ``like`` is what its arrays become: ``torch``, ``cupy``, or None
    for Blocks. ``depth`` batches are on the device or on their way, beside the one in use. Their copies are on a stream
    of their own; the consumer's current stream (torch's, CuPy's or runnel's, as ``like`` says) waits for each, and the
    host does not. Before the next batch is asked for, the last one's memory on the host has been read, so that a source
    may use it again. Exceptions of the source arrive in the loop. A loop that ends early waits for nothing.
    """
    if operator.index(depth) < 1:
        raise ValueError(f"depth is 1 or more, not {depth}")
    if not isinstance(batches, Iterable):
        raise TypeError(f"an object of type {type(batches)} has no batches: it is not iterable")
    if like is not None:
        _interop.module_of(like)
    return Prefetch(batches, device, depth, like)
