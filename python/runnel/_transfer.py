# SPDX-License-Identifier: Apache-2.0
"""Arrays to the device and back, pinned arrays, files."""
from __future__ import annotations

import dataclasses
import math
import mmap
import operator
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from runnel import _calls, _core, _interop

if TYPE_CHECKING:
    import numpy
    from runnel._host import Block, Device, Registration, Stream

    _Name = Literal["torch", "cupy", "numpy"]

T = TypeVar("T")


def _is_batch(x: Any) -> bool:
    return isinstance(x, (Mapping, list, tuple)) or (dataclasses.is_dataclass(x) and not isinstance(x, type))


def _map(move: Callable[[Any], Any], batch: Any) -> Any:
    """A batch of the same form, with what `move` makes of each array. Numbers, texts and None stay."""
    if isinstance(batch, Mapping):
        made = {key: _map(move, value) for key, value in batch.items()}
        return made if type(batch) is dict else type(batch)(made)  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_map(move, each) for each in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(_map(move, each) for each in batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return dataclasses.replace(batch, **{field.name: _map(move, getattr(batch, field.name)) for field in dataclasses.fields(batch) if field.init})
    return batch if batch is None or isinstance(batch, (str, int, float, complex)) and not hasattr(batch, "dtype") else move(batch)


def _move(x: Any, make: Callable[[Any], Any], stream: Stream | None, non_blocking: bool, handle: bool) -> Any:
    """What `make` allocates for an array, or for each of a batch, with its copy enqueued."""
    pairs: list[tuple[Any, Any]] = []

    def move(array: Any) -> Any:
        made = make(array)
        pairs.append((made, array))
        return made

    batch = _is_batch(x)
    result = _map(move, x) if batch else move(x)
    if batch and not pairs:
        raise TypeError(f"an object of type {type(x)} has no memory that runnel can copy: a batch has arrays in it")
    copied = _calls.copy_many(pairs, stream) if batch else _calls.copy(*pairs[0], stream)
    if not non_blocking:
        copied.wait()
    return (result, copied) if handle else result


@overload
def to_device(x: Any, like: None = None, stream: Stream | None = None, *, device: Any = None, non_blocking: bool = True,
              handle: Literal[False] = False) -> Block: ...
@overload
def to_device(x: Any, like: Any, stream: Stream | None = None, *, device: Any = None, non_blocking: bool = True, handle: bool = False) -> Any: ...
@overload
def to_device(x: Any, like: Any = None, stream: Stream | None = None, *, device: Any = None, non_blocking: bool = True, handle: bool) -> Any: ...
def to_device(x: Any, like: Any = None, stream: Stream | None = None, *, device: Any = None, non_blocking: bool = True, handle: bool = False) -> Any:
    """A copy of ``x`` on the device, enqueued in ``stream`` (default: the current stream of ``device``, or of any). ``x`` may be
    a batch: a dict, list, tuple, NamedTuple or dataclass of arrays, also nested. The result has its form, and one job
    makes the copies.

    ``like`` is what an array becomes: ``torch``, ``cupy`` (or an array of theirs), or None for a ``runnel.Block`` of its
    shape, type and order (Fortran's, torch's channels-last). On the host backend, ``numpy``, too. Returns at once; ``x``
    must not be written until the stream has passed. ``non_blocking=False`` waits for the copy. ``handle=True`` returns
    the result and the handle of the copy. Raises OutOfMemoryError, and what ``copy()`` raises.
    """
    to = _interop.stream_or_current(stream, device)

    def make(array: Any) -> Any:
        shape, dtype, order = _interop.shape_of(array), _interop.dtype_of(array), _interop.order_of(array)
        if like is not None:
            return _interop.new_array(like, shape, dtype, to.device, order)
        made = _core.empty(_interop.nbytes_of(array), "uint8", to)
        _core._shape(made, dtype, list(shape), False, False, order)
        return made

    # With no stream named, copy() knows the current stream of an array's framework.
    return _move(x, make, to if like is None or device is not None else stream, non_blocking, handle)


@overload
def to_host(x: Any, out: T, stream: Stream | None = None, *, pinned: bool = False, non_blocking: bool = True, handle: Literal[False] = False) -> T: ...
@overload
def to_host(x: Any, out: Any = None, stream: Stream | None = None, *, pinned: bool = False, non_blocking: bool = True, handle: bool = False) -> Any: ...
def to_host(x: Any, out: Any = None, stream: Stream | None = None, *, pinned: bool = False, non_blocking: bool = True, handle: bool = False) -> Any:
    """A copy of the array ``x``, or of each array of a batch (as in ``to_device()``), in host memory: a new NumPy array in
    the order of ``x``, or ``out``. Enqueued in ``stream`` (default: the current stream; if none is set, that of ``x``'s
    framework).

    Returns at once: read the result after ``synchronize()``, or write ``non_blocking=False``. A new array is bound by the
    system, which has to find its pages: one that was used before (``out``) is filled several times as fast, and so is
    pinned memory of the pool (``pinned=True``). What NumPy has no type for comes back as a number of its size: bfloat16
    as uint16, float8 as uint8. ``handle=True`` returns the result and the handle of the copy. Raises what ``copy()``
    raises.
    """
    if out is not None:
        if _is_batch(x):
            raise TypeError("out= is for one array: write runnel.copy_many([(dst, src), ...]) for a batch")
        return _move(x, lambda _: out, stream, non_blocking, handle)
    import numpy

    def make(array: Any) -> Any:
        if isinstance(array, numpy.ndarray):
            dtype = array.dtype
        else:
            dtype = numpy.dtype(_interop.in_numpy(_interop.dtype_of(array)))
        empty = pinned_empty if pinned else numpy.empty
        return _interop.ordered(lambda shape: empty(shape, dtype), _interop.shape_of(array), _interop.order_of(array))

    return _move(x, make, stream, non_blocking, handle)


def pinned_empty(shape: int | tuple[int, ...], dtype: Any = "uint8") -> numpy.ndarray[Any, Any]:
    """A NumPy array in pinned memory from the pool, uninitialised. Copies from and to it are direct. Its memory goes back to
    the pool when nothing refers to it and every copy of it is complete. Raises OutOfMemoryError.
    """
    import numpy

    sizes = tuple(operator.index(size) for size in (shape if isinstance(shape, Iterable) else (shape,)))
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape={shape!r} has a negative size")
    kind = numpy.dtype(dtype)
    count = math.prod(sizes)
    memory: Any = _core.PinnedMemory(count * kind.itemsize)  # has the buffer protocol, which Python 3.11 has no type for
    return numpy.frombuffer(memory, dtype=kind, count=count).reshape(sizes) if count else numpy.empty(sizes, dtype=kind)


def register(array: Any) -> Registration:
    """Pins the memory of ``array`` where it lies, until the result is closed: ``with runnel.register(array): ...``. Raises
    InvalidArgument for memory of a device, NotSupported for read-only pages that the device cannot pin.
    """
    return _core.Registration(array)


def map_file(path: str | os.PathLike[str], offset: int = 0, nbytes: int | None = None) -> memoryview:
    """The bytes of a file as read-only memory, without reading it: ``nbytes`` bytes (None: to the end) from ``offset`` on,
    which may be any number. A copy reads the file as it goes, on the library's threads. The file stays mapped while
    anything refers to the result. Raises OSError, and ValueError for a part beyond the end and for what is no regular
    file. A file must not become shorter meanwhile: on a GPU with Linux 6.11 or newer that is an error of the copy, on the
    host backend and with an older kernel the system ends the process (SIGBUS).
    """
    with open(os.fspath(path), "rb") as file:  # not a number: open() would close that file of the process
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{os.fspath(path)!r} is no regular file, and only those have a size: read it instead")
        size = status.st_size
        count = size - offset if nbytes is None else nbytes
        if offset < 0 or count < 0 or offset + count > size:
            asked = "the rest" if nbytes is None else f"{nbytes} bytes"
            raise ValueError(f"{os.fspath(path)!r} has {size} bytes: there is no place for {asked} from byte {offset} on")
        if count == 0:
            return memoryview(b"")
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(file.fileno(), offset + count - start, access=mmap.ACCESS_READ, offset=start)
    return memoryview(mapped)[offset - start :]
