# SPDX-License-Identifier: Apache-2.0
"""``overlap()``: data larger than the device, in chunks, with transfers and computing at the same time."""
from __future__ import annotations

import gc
import io
import math
import operator
import select
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Literal, Sequence

from runnel import _calls, _core, _interop

if TYPE_CHECKING:
    from runnel._host import Block, Chunk, Device, OverlapResult

_STRATEGIES = ("automatic", "A", "B")  # as the library counts them
_Progress = Callable[[int, "int | None"], object]


class Output:
    """The result of ``per_chunk()`` or ``filtered()``: an output of ``overlap()``."""

    def __init__(self, dst: Any, rows: int, amount: int) -> None:
        if dst is None:
            raise TypeError("an output that gets nothing is None itself")
        if not 1 <= operator.index(rows) < 1 << 31:
            raise ValueError(f"an output has 1 or more results for each, and a number of 31 bits, not {rows}: where there are none, write None as the output")
        self.dst, self.rows, self.amount = dst, rows, amount

    def __repr__(self) -> str:
        return f"<runnel.{('', 'per_chunk', 'filtered')[self.amount]}() of {type(self.dst).__name__}, {self.rows} for each>"


def per_chunk(dst: Any, rows: int = 1) -> Output:
    """An output of ``overlap()`` that gets ``rows`` results for every chunk, however many items it has: sums, maxima. ``dst`` is
    an array, whose rows along the first axis are the results, or a function (then write ``out_item=``, the bytes of one).
    """
    return Output(dst, rows, 1)


def filtered(dst: Any, per_item: int = 1) -> Output:
    """An output of ``overlap()`` that gets as many results as ``fn`` says, at most ``per_item`` for every item; they are
    stored one after the other, and ``OverlapResult.written`` says how many bytes. ``fn(chunk, x, y, count)`` returns them
    as an array, as in ``x[x > 0]``. Or it writes them to ``y``, and their **bytes** to ``count``, one number of 64 bits on
    the device. ``dst`` is an array, whose rows along the first axis are the results, or a function (then write
    ``out_item=``, the bytes of one).
    """
    return Output(dst, per_item, 2)


class _End:
    """An input or the output: what its items are."""

    def __init__(self, end: Any, item: int | None, items: int | None, output: bool = False) -> None:
        self.end = end
        self.dtype = "uint8"
        self.is_typed = False
        self.shape: tuple[int, ...] = (item or 0,)
        if callable(end):
            if item is None:
                raise ValueError("overlap() cannot know the items of a function: write item= (of a source) or out_item= (of a sink), the bytes of one")
            self.bytes = item
            self.end = _patient(end, output)
            return
        nbytes, shape = _interop.nbytes_of(end), _interop.shape_of(end)
        # Items are the rows along the first axis, unless the caller says their bytes.
        count = items if items is not None else nbytes // item if item else shape[0] if shape else 1
        if nbytes == 0 and (count == 0 or item is None):
            self.bytes = item or max(math.prod(shape[1:]), 1) * _interop.item_size_of(end)
        elif count == 0 or nbytes % count:
            raise ValueError(f"an array of {nbytes} bytes does not divide into {count} items")
        else:
            self.bytes = nbytes // count
        if shape and count == shape[0]:
            self.is_typed, self.dtype, self.shape = True, _interop.dtype_of(end), shape[1:]
        else:
            self.shape = (self.bytes,)

    def count(self) -> int | None:
        return None if callable(self.end) else _interop.nbytes_of(self.end) // self.bytes

    def shape_block(self, block: Block) -> None:
        """Makes the chunk's memory items."""
        _core._shape(block, self.dtype, [block.nbytes // self.bytes if self.bytes else 0, *self.shape], not self.is_typed)


def _patient(end: Any, output: bool) -> Any:
    """A file's, pipe's or socket's function, which takes or gives nothing where it has no data yet, or no room: waits for that."""
    file = getattr(end, "__self__", None)
    if not isinstance(file, (io.RawIOBase, io.BufferedIOBase)):
        return end

    def call(view: memoryview) -> Any:
        while True:
            try:
                count = end(view)
            except BlockingIOError as error:  # of a buffered writer, which has kept a part
                count = error.characters_written or None
            if count is not None:
                return count
            ready = select.poll()
            ready.register(file.fileno(), select.POLLOUT if output else select.POLLIN)
            ready.poll()

    return call


class _Line:
    """The progress on one line of the standard error, where there is no tqdm."""

    def __init__(self, total: int | None) -> None:
        self.total, self.n, self.shown = total, 0, 0.0

    def update(self, items: int) -> None:
        self.n += items
        if time.monotonic() - self.shown > 0.5:
            self.shown = time.monotonic()
            self.write("\r")

    def write(self, end: str) -> None:
        share = f" of {self.total}, {100 * self.n // self.total} %" if self.total else ""
        print(f"overlap: {self.n} items{share}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        self.write("\n")


def _bar(total: int | None) -> tuple[_Progress, Any]:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        line = _Line(total)
        return (lambda items, _total: line.update(items - line.n)), line
    bar = tqdm(total=total, unit="item", unit_scale=True)
    return (lambda items, _total: bar.update(items - bar.n)), bar


class _Results:
    """Where the function's results go."""

    def __init__(self, dst: Any, item: int | None, out_item: int | None, first: _End, unsafe: bool) -> None:
        marked = dst if isinstance(dst, Output) else Output(dst, 1, 0)
        self.amount, self.dst = marked.amount, marked.dst
        items = first.count()
        if out_item is None and (not self.amount or callable(self.dst)):
            if not self.amount and callable(self.dst):
                item = first.bytes
            out_item, items = item, None if self.amount else items
        else:
            items = None
        self.end = _End(self.dst, out_item, items, True)
        self.dst = self.end.end
        self.bytes = self.end.bytes * marked.rows
        self.unsafe = unsafe or not self.end.is_typed

    def store(self, result: Any, place: Block, count: Block, stream: Any) -> Any:
        """Copies what the function returned; the handle of that."""
        if self.amount == 2:
            kept = _interop.nbytes_of(result)
            rows = kept // self.end.bytes
            if rows * self.end.bytes != kept or rows > place.shape[0]:
                raise ValueError(f"the function returned {kept} bytes, and has place for {place.nbytes}, in results of {self.end.bytes}")
            place = place.view(place.dtype, (rows, *place.shape[1:]))
            _calls.copy(count, kept.to_bytes(8, sys.byteorder), stream)
        return _calls.copy(place, result, stream, unsafe=self.unsafe)


def _function(fn: Callable[..., Any], ends: list[_End], out: _Results | None, like: Any) -> Callable[..., None]:
    """What the library calls for each chunk, on the thread that called overlap()."""
    on_host = like is not None and _interop.ON_HOST

    def shape_blocks(blocks: tuple[Block, ...]) -> None:
        all_ends = ends + ([out.end] if out is not None else [])
        for end, block in zip(all_ends, blocks):
            end.shape_block(block)
        if len(blocks) > len(all_ends):  # the number of filtered()
            _core._shape(blocks[-1], "int64", [1])

    def compute(chunk: Chunk, blocks: tuple[Block, ...]) -> Any:
        result = fn(chunk, *(blocks if like is None else [_interop.from_block(block, like) for block in blocks]))
        if result is None or isinstance(result, (_core.Copy, _calls.Copies)):  # lambda chunk, x, y: runnel.copy(y, x)
            return result
        if out is None:
            raise TypeError("overlap()'s function returned something, and there is no output")
        return out.store(result, blocks[len(ends)], blocks[-1], chunk.stream)

    def is_shown(blocks: tuple[Block, ...]) -> bool:
        _core._drop()
        return any(_core._exports(block) for block in blocks)

    def call(chunk: Chunk, *blocks: Block) -> None:
        shape_blocks(blocks)
        if on_host:
            chunk.stream.synchronize()  # NumPy and torch's CPU tensors have no streams
        with _interop.current_in_frameworks(chunk.stream):
            copied = compute(chunk, blocks)
        if not is_shown(blocks):
            return
        if copied is not None:
            copied.wait()  # it keeps its arrays
        gc.collect()
        if is_shown(blocks):
            raise ValueError("the function keeps an array of its chunk, whose memory ends with the call: keep a copy of it")

    return call


def overlap(
    src: Any,
    dst: Any,
    fn: Callable[..., Any],
    *,
    item: int | None = None,
    out_item: int | None = None,
    chunk: int = 0,
    in_flight: int = 0,
    halo: int = 0,
    strategy: Literal["automatic", "A", "B"] = "automatic",
    like: Any = None,
    progress: bool | _Progress | None = None,
    devices: Sequence[Device] | None = None,
    record_times: bool = False,
    unsafe: bool = False,
) -> OverlapResult:
    """Streams data larger than the device through it in chunks, with copies in, computing and copies back at the same time.
    Returns when all results are in ``dst``. Its streams wait for no others: wait before the call for what still writes
    ``src`` or uses ``dst``.

    ``src`` is an array (any memory, not pinned: NumPy, ``map_file()``), a tuple of arrays with as many items each, or a
    function that fills a writable memoryview and returns how many bytes it wrote, as a file's ``readinto`` does: it
    is called again for the rest, 0 means the end, and None is an error. ``dst`` is an array, None (no output), or a
    function that takes a read-only memoryview of results, as a file's ``write`` does: it gets the rest again if it
    returns a smaller number, and None means all. The memoryviews end with the call: one, or an array of one, that is
    kept is an error.

    ``fn(chunk, x, y)`` is called for each chunk, in order: ``x`` are its items (more of them for a tuple), ``y`` the
    place for its results. It enqueues work in ``chunk.stream``, which is the current stream of runnel, torch and CuPy
    meanwhile, and must not wait. It writes ``y``, or returns an array of its type and shape, which is copied there;
    with ``unsafe=True`` any array of as many bytes. ``x`` and ``y`` end with the call: an array that fn keeps is an
    error. ``like``: ``torch``, ``cupy``, or None for ``runnel.Block``. On the host backend, with ``like=numpy`` or
    ``torch``, fn is called when its items are there, and computes at once.

    ``item``: bytes of an item of ``src`` (default: a row along the first axis); it is not split. ``out_item``: the same
    of a result (default: as of an item). ``chunk``: items of a chunk; ``in_flight``: chunks on the device at once (0:
    automatic). ``halo``: neighbouring items that fn sees on either side. ``strategy``: ``'A'`` a stream for each
    chunk in flight, ``'B'`` a stream for each of the three steps. ``progress(items, total)`` is called after each
    chunk, on a thread of the library; True: a bar of tqdm's if it is installed, else a line.

    Raises OverlapError (``.chunk``, ``__cause__``) if fn, a source, a sink or a chunk fails; ValueError, OutOfMemoryError
    before anything moves. Nothing is in flight when it raises.
    """
    if not callable(fn):
        raise TypeError("overlap(src, dst, fn): fn is the function that computes a chunk")
    sizes: dict[str, Any] = {"chunk": chunk, "in_flight": in_flight, "halo": halo, "item": item, "out_item": out_item}
    for name, value in sizes.items():
        least = 1 if "item" in name else 0
        if (value is not None or least == 0) and not least <= operator.index(value) < 1 << 63:
            raise ValueError(f"{name} is {least} or more, and a number of 63 bits, not {value}")
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy is 'A' (a stream for each chunk), 'B' (a stream for each step) or 'automatic', not {strategy!r}")
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress is a function of items and their total, or True for tqdm, not {progress!r}")
    sources = list(src) if isinstance(src, (tuple, list)) else [src]
    if not sources:
        raise ValueError("overlap() needs a source")
    if like is not None:
        _interop.module_of(like)
    first = _End(sources[0], item, None)
    ends = [first] + [_End(each, item if callable(each) else None, first.count()) for each in sources[1:]]
    out = None if dst is None else _Results(dst, item, out_item, first, unsafe)
    bar = None
    report: _Progress | None = None if isinstance(progress, bool) else progress
    if progress is True:
        report, bar = _bar(first.count())
    try:
        return _core._overlap(
            [end.end for end in ends], None if out is None else out.dst, [end.bytes for end in ends], 0 if out is None else out.bytes,
            0 if out is None else out.amount, _function(fn, ends, out, like), chunk, in_flight, halo, _STRATEGIES.index(strategy), devices, report, bool(record_times),
        )
    finally:
        if bar is not None:
            bar.close()
