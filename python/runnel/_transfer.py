# SPDX-License-Identifier: Apache-2.0
"""Arrays to the device and back, pinned arrays, files."""
from __future__ import annotations

import copy
import dataclasses
import math
import mmap
import operator
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from runnel import _calls, _core, _interop

if TYPE_CHECKING:
    import numpy
    from runnel._host import Block, Device, Registration, Stream

    _Name = Literal["torch", "cupy", "numpy"]

T = TypeVar("T")
Batch = TypeVar("Batch", bound="Mapping[Any, Any] | list[Any] | tuple[Any, ...]")


def _is_dataclass(x: Any) -> bool:
    return dataclasses.is_dataclass(x) and not isinstance(x, type)


def _is_batch(x: Any) -> bool:
    return isinstance(x, (Mapping, list, tuple)) or _is_dataclass(x)


def _is_array(x: Any) -> bool:
    """Numbers, texts and None in a batch are none."""
    return not (x is None or isinstance(x, (str, int, float, complex)) and not hasattr(x, "dtype"))


def _parts(batch: Any) -> dict[Any, Any]:
    """What is in a batch, by key, number or field."""
    if isinstance(batch, Mapping):
        return dict(batch)
    return {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)} if _is_dataclass(batch) else dict(enumerate(batch))


def _arrays(batch: Any) -> Iterator[Any]:
    if _is_batch(batch):
        for part in _parts(batch).values():
            yield from _arrays(part)
    elif _is_array(batch):
        yield batch


def _map(move: Callable[[Any], Any], batch: Any) -> Any:
    """A batch of the same form, with what `move` makes of each array."""
    if not _is_batch(batch):
        return move(batch) if _is_array(batch) else batch
    made = {key: _map(move, part) for key, part in _parts(batch).items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(*made.values()) if hasattr(batch, "_fields") else type(batch)(list(made.values()))
    if isinstance(batch, Mapping) and not isinstance(batch, MutableMapping):
        return type(batch)(made)  # type: ignore[call-arg]
    result = copy.copy(batch)  # a dataclass is not made anew, which might compute with its fields; a defaultdict keeps its function
    for key, part in made.items():
        result.__setitem__(key, part) if isinstance(batch, Mapping) else object.__setattr__(result, key, part)
    return result


def _places(x: Any, out: Any) -> Iterator[Any]:
    """The arrays of `out`, which has the form of the batch `x`, in the order of x's."""
    if not _is_batch(x):
        yield from [out] if _is_array(x) else []
        return
    parts = _parts(out) if _is_batch(out) else {}
    if parts.keys() != _parts(x).keys():
        raise TypeError(f"out= has another form than the batch, which has {list(_parts(x))}: runnel.copy_many([(dst, src), ...]) takes any pairs")
    for key, part in _parts(x).items():
        yield from _places(part, parts[key])


def _move(x: Any, make: Callable[[Any], Any], out: Any, stream: Stream | None, non_blocking: bool, handle: bool) -> Any:
    """What `make` allocates for an array, or for each of a batch, or `out`, with its copy enqueued."""
    arrays, places = list(_arrays(x)) if _is_batch(x) else [x], []
    if not arrays:
        raise TypeError(f"an object of type {type(x)} has no memory that runnel can copy: a batch has arrays in it")
    if out is not None:
        places = list(_places(x, out))
        result = out
    else:
        def move(array: Any) -> Any:
            places.append(make(array))
            return places[-1]

        result = _map(move, x) if _is_batch(x) else move(x)
    copied = _calls.copy_many(zip(places, arrays), stream) if _is_batch(x) else _calls.copy(places[0], x, stream)
    if not non_blocking:
        copied.wait()
    return (result, copied) if handle else result


@overload
def to_device(x: Batch, like: Any = None, stream: Stream | None = None, *, device: Any = None, out: Batch | None = None, non_blocking: bool = True,
              handle: Literal[False] = False) -> Batch: ...
@overload
def to_device(x: Batch, like: Any = None, stream: Stream | None = None, *, device: Any = None, out: Batch | None = None, non_blocking: bool = True,
              handle: Literal[True]) -> tuple[Batch, _calls.Copies]: ...
@overload
def to_device(x: Any, like: None = None, stream: Stream | None = None, *, device: Any = None, out: None = None, non_blocking: bool = True,
              handle: Literal[False] = False) -> Block: ...
@overload
def to_device(x: Any, like: Any = None, stream: Stream | None = None, *, device: Any = None, out: Any = None, non_blocking: bool = True,
              handle: bool = False) -> Any: ...
def to_device(x: Any, like: Any = None, stream: Stream | None = None, *, device: Any = None, out: Any = None, non_blocking: bool = True,
              handle: bool = False) -> Any:
    """A copy of ``x`` on the device, enqueued in ``stream`` (default: the current stream of ``device``, or of any). ``x`` may be
    a batch: a dict, list, tuple, NamedTuple or dataclass of arrays, also nested. The result has its form, and one job
    makes the copies.

    ``like`` is what an array becomes: ``torch``, ``cupy`` (or an array of theirs), or None for a ``runnel.Block`` of its
    shape, type and order (Fortran's, torch's channels-last). On the host backend, ``numpy``, too. A stream that is not
    the current one of that library waits for that one, whose work may still use the memory. Returns at once; ``x``
    must not be written until the stream has passed. ``out``: an array, or a batch of the form of ``x``, that is filled
    and returned. ``non_blocking=False`` waits for the copy. ``handle=True`` returns the result and the handle of the
    copy. Raises OutOfMemoryError, and what ``copy()`` raises.
    """
    to = _interop.stream_or_current(stream, device)
    # With no stream named, copy() knows the current stream of an array's framework.
    named = to if (like is None and out is None) or device is not None else stream

    def make(array: Any) -> Any:
        if like is not None:
            made = _interop.new_array(like, array, to.device)
            if not _interop.ON_HOST and (named is not None or to != _core.default_stream(to.device)):
                to.wait_stream(_interop.current_of(like, to.device)[0])  # which may still use the memory
            return made
        shape, dtype = _interop.shape_of(array), _interop.dtype_of(array)
        _interop.refuse_type(array, dtype)
        made = _core.empty(_interop.nbytes_of(array), "uint8", to)
        _core._shape(made, dtype, list(shape), False, _interop.order_of(array))
        return made

    return _move(x, make, out, named, non_blocking, handle)


@overload
def to_host(x: Batch, out: Batch | None = None, stream: Stream | None = None, *, like: Any = None, pinned: bool = False, non_blocking: bool = True,
            handle: Literal[False] = False) -> Batch: ...
@overload
def to_host(x: Any, out: T, stream: Stream | None = None, *, like: Any = None, pinned: bool = False, non_blocking: bool = True,
            handle: Literal[False] = False) -> T: ...
@overload
def to_host(x: Any, out: Any = None, stream: Stream | None = None, *, like: Any = None, pinned: bool = False, non_blocking: bool = True,
            handle: bool = False) -> Any: ...
def to_host(x: Any, out: Any = None, stream: Stream | None = None, *, like: Any = None, pinned: bool = False, non_blocking: bool = True,
            handle: bool = False) -> Any:
    """A copy of the array ``x``, or of each array of a batch (as in ``to_device()``), in host memory: a new array in the order
    of ``x``, or ``out``, which has the form of ``x``. ``like``: ``numpy`` (default) or ``torch``. Enqueued in ``stream``
    (default: the current stream; if none is set, that of ``x``'s framework).

    Returns at once: read the result after ``synchronize()``, or write ``non_blocking=False``. A new array is bound by the
    system, which has to find its pages: one that was used before (``out``) is filled several times as fast, and so is
    pinned memory of the pool (``pinned=True``). What NumPy has no type for comes back as a number of its size: bfloat16
    as uint16, float8 as uint8; ``like=torch`` keeps it. ``handle=True`` returns the result and the handle of the copy.
    Raises what ``copy()`` raises.
    """
    library = "numpy" if like is None else _interop.name_of(like)
    if library not in ("numpy", "torch"):
        raise TypeError(f"like={like!r}: an array on the host is one of numpy or torch")

    def make(array: Any) -> Any:
        import numpy

        shape, order = _interop.shape_of(array), _interop.order_of(array)
        if library == "torch":
            wanted = _interop.torch_type(array, _interop.dtype_of(array))
            import torch  # type: ignore[import-not-found, unused-ignore]

            if not pinned or 0 in shape:
                return _interop.ordered(lambda sizes: torch.empty(sizes, dtype=wanted), shape, order)
            return _interop.ordered(lambda sizes: torch.from_numpy(pinned_empty(_interop.nbytes_of(array))).view(wanted).reshape(sizes), shape, order)
        kind = array.dtype if isinstance(array, numpy.ndarray) else numpy.dtype(_interop.in_numpy(_interop.dtype_of(array)))
        empty = pinned_empty if pinned else numpy.empty
        return _interop.ordered(lambda sizes: empty(sizes, kind), shape, order)

    return _move(x, make, out, stream, non_blocking, handle)


def pinned_empty(shape: int | tuple[int, ...], dtype: Any = "uint8") -> numpy.ndarray[Any, Any]:
    """A NumPy array in pinned memory from the pool, uninitialised. Copies from and to it are direct. ``dtype`` is a type of
    NumPy's or torch's, or a name; what NumPy lacks is a number of its size, as uint16 for ``'bfloat16'``. Its memory goes
    back to the pool when nothing refers to it and every copy of it is complete. Raises OutOfMemoryError.
    """
    import numpy

    sizes = tuple(operator.index(size) for size in (shape if isinstance(shape, Iterable) else (shape,)))
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape={shape!r} has a negative size")
    if isinstance(dtype, str) or _interop.name_of(dtype) == "torch":
        dtype = _interop.in_numpy(str(dtype).removeprefix("torch."))
    kind = numpy.dtype(dtype)
    count = math.prod(sizes)
    memory: Any = _core.PinnedMemory(count * kind.itemsize)  # has the buffer protocol, which Python 3.11 has no type for
    return numpy.frombuffer(memory, dtype=kind, count=count).reshape(sizes) if count else numpy.empty(sizes, dtype=kind)


def register(array: Any) -> Registration:
    """Pins the memory of ``array`` where it lies, until the result is closed: ``with runnel.register(array): ...``. Raises
    InvalidArgument for memory of a device, NotSupported for read-only pages that the device cannot pin.
    """
    return _core.Registration(array)


def map_file(path: str | os.PathLike[str], offset: int = 0, nbytes: int | None = None, *, writable: bool = False) -> memoryview:
    """The bytes of a file as memory, without reading it: ``nbytes`` bytes (None: to the end) from ``offset`` on,
    which may be any number. A copy reads the file as it goes, on the library's threads. The file stays mapped while
    anything refers to the result. ``writable=True``: what is copied into it is written to the file, whose size stays;
    otherwise the memory is read-only. Raises OSError, and ValueError for a part beyond the end and for what is no regular
    file. A file must not become shorter meanwhile: on a GPU with Linux 6.11 or newer that is an error of the copy; with an
    older kernel, on the host backend and in a copy of at most 32 KiB to the device the system ends the process (SIGBUS).
    """
    with open(os.fspath(path), "r+b" if writable else "rb") as file:  # not a number: open() would close that file of the process
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{os.fspath(path)!r} is no regular file, and only those have a size: read it instead")
        size = status.st_size
        count = size - offset if nbytes is None else nbytes
        if offset < 0 or count < 0 or offset + count > size:
            asked = "the rest" if nbytes is None else f"{nbytes} bytes"
            raise ValueError(f"{os.fspath(path)!r} has {size} bytes: there is no place for {asked} from byte {offset} on")
        if count == 0:
            return memoryview(bytearray() if writable else b"")
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(file.fileno(), offset + count - start, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ, offset=start)
    return memoryview(mapped)[offset - start :]
