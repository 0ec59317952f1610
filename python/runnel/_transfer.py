# SPDX-License-Identifier: Apache-2.0
"""Arrays to the device and back, pinned arrays, files."""
from __future__ import annotations

import math
import mmap
import operator
import os
import stat
from typing import TYPE_CHECKING, Any, Iterable

from runnel import _core, _interop

if TYPE_CHECKING:
    import numpy
    from runnel._host import Registration, Stream


def to_device(x: Any, like: Any = None, stream: Stream | None = None) -> Any:
    """A copy of ``x`` on the device, enqueued in ``stream`` (default: the current stream).

    ``like`` is what the result is: ``torch``, ``cupy`` (or an array of theirs), or None for a ``runnel.Block`` of ``x``'s
    shape and type. On the host backend, ``numpy``, too. Returns at once; ``x`` must not be written until the stream
    has passed. Raises OutOfMemoryError, and what ``copy()`` raises.
    """
    shape, dtype = _interop.shape_of(x), _interop.dtype_of(x)
    to = _interop.stream_or_current(stream)
    if like is None:
        made = _core.empty(_interop.nbytes_of(x), to)
        _core._shape(made, dtype, list(shape))
        _core.copy(made, x, to)
        return made
    array = _interop.new_array(like, shape, dtype, to.device)
    _core.copy(array, x, stream)
    return array


def to_host(x: Any, out: Any = None, stream: Stream | None = None) -> Any:
    """A copy of the array ``x`` in host memory: a new NumPy array, or ``out``, which has as many bytes. Enqueued in
    ``stream`` (default: the current stream; if none is set, that of ``x``'s framework).

    Returns at once: read the result after ``synchronize()``. An array that was used before is filled several times as
    fast as a new one, whose pages the system has to find first. bfloat16 comes back as uint16. Raises what ``copy()``
    raises.
    """
    if out is None:
        import numpy

        if isinstance(x, numpy.ndarray):
            dtype = x.dtype
        else:
            name = _interop.dtype_of(x)
            dtype = numpy.dtype("uint16" if name == "bfloat16" else name)
        out = numpy.empty(_interop.shape_of(x), dtype)
    _core.copy(out, x, stream)
    return out


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
