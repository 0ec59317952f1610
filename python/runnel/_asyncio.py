# SPDX-License-Identifier: Apache-2.0
"""``await`` of a stream, an event or a copy: one queue and one file for each event loop."""
from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import TYPE_CHECKING, Any

from runnel import _core

if TYPE_CHECKING:
    from runnel._host import Copy, Event, Stream


class _Waiting:
    """What a loop waits for. The library's threads fill the queue; the loop wakes by its file."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.queue: Any = _core._Completions()
        self.futures: dict[int, asyncio.Future[None]] = {}
        self.numbers = itertools.count()
        loop.add_reader(self.queue.file, self.deliver)

    def deliver(self) -> None:
        for number, error in self.queue.take():
            future = self.futures.pop(number, None)
            if future is None or future.done():
                continue
            try:
                if isinstance(error, StopIteration):  # which would end the coroutine that awaits, as if nothing had failed
                    raise RuntimeError("a host function raised StopIteration") from error
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
            except Exception as failure:  # the others must be delivered
                if not future.done():
                    future.set_exception(failure)


# The loop keeps what it waits for, as its reader: a strong reference here would keep a loop that was closed before the work was done.
_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Waiting]] = weakref.WeakKeyDictionary()


def completion(source: Stream | Event | Copy) -> asyncio.Future[None]:
    """A future of everything that ``source`` was given so far."""
    loop = asyncio.get_running_loop()
    known = _loops.get(loop)
    waiting = known() if known is not None else None
    if waiting is None:
        waiting = _Waiting(loop)
        _loops[loop] = weakref.ref(waiting)
    future = loop.create_future()
    number = next(waiting.numbers)
    waiting.futures[number] = future
    try:
        waiting.queue.submit(source, number)
    except BaseException:
        del waiting.futures[number]
        raise
    return future
