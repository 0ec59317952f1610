# SPDX-License-Identifier: Apache-2.0
"""The functions of the backend's module, with signatures and types that Python's own tools read."""
from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Union, overload, runtime_checkable

from runnel import _core

if TYPE_CHECKING:
    from typing_extensions import Buffer  # a type checker has it always; nothing is imported when the program runs

    from runnel._host import Block, Copy, Device, Stream

Pageable = Literal["stage", "block", "refuse"]


@runtime_checkable
class HasCudaArrayInterface(Protocol):
    """As CuPy's and Numba's arrays."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


@runtime_checkable
class HasDLPack(Protocol):
    """As the arrays of torch, JAX and others."""

    def __dlpack__(self, *arguments: Any, **keywords: Any) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


#: What has memory: the buffer protocol (NumPy, mmap, bytes), torch's tensors, CuPy's arrays, a Block.
Array = Union["Buffer", HasDLPack, HasCudaArrayInterface]


def copy(dst: Array, src: Array, stream: Stream | None = None, *, pageable: Pageable | None = None, any_time: bool | None = None,
         unsafe: bool = False, non_blocking: bool = True) -> Copy:
    """Copies the bytes of ``src`` to ``dst``, in any memory, in the order of ``stream`` (default: the current stream; if none
    is set, the stream of the arrays' framework). Returns at once, also for memory that is not pinned. The result is a
    handle. Its ``kind`` is the word for what was done: ``'direct'`` and ``'staged'``: enqueued; ``'inlined'``: small, and
    done; ``'blocked'``: the caller was held; ``'nothing'``: nothing to do.

    The copy keeps both arrays until it is complete. ``src`` must not be written until then, nor ``dst`` be read: wait for
    the handle or the stream. What torch moves meanwhile is not kept: no ``share_memory_()``, ``resize_()``, nor a queue of
    torch.multiprocessing, for a tensor whose copy is pending.

    Nothing is converted: both have one type and one shape, or one of them is bytes (one dimension of uint8), or
    ``unsafe=True`` says that the bytes go as they are. Arrays that are not contiguous go as rows and slices.

    ``pageable``: ``'stage'`` (default) goes through pinned memory; ``'block'`` holds the caller; ``'refuse'`` raises.
    ``non_blocking=False`` waits for the copy.

    ``any_time``: None (default) reads a pageable ``src`` in the order of the stream while work that runnel knows of may
    write it, and else at once. True reads it at once: nothing that is enqueued writes it. False reads it in the order of
    the stream, as is needed where a host function that other code enqueued by itself, as CuPy's, writes it.

    Raises ValueError (sizes, types, shapes), BufferError (``dst`` is read-only), TypeError (no array), InvalidArgument,
    Error.
    """
    handle = _core.copy(dst, src, stream, pageable, any_time, unsafe)
    if not non_blocking:
        handle.wait()
    return handle


class Copies:
    """What ``copy_many()`` returns: a handle of all its copies, as ``Copy`` is of one. ``await`` returns when all are complete."""

    __slots__ = {"counts": "How many copies went which way, by the words of ``Copy.kind``.", "_handle": "Of all copies.", "__weakref__": ""}

    def __init__(self, counts: dict[str, int], handle: Copy) -> None:
        self.counts = counts
        self._handle = handle

    def done(self) -> bool:
        """Whether all copies are complete. Never waits. Raises what failed."""
        return self._handle.done()

    def source_done(self) -> bool:
        """Whether all sources may be written again. Never waits."""
        return self._handle.source_done()

    def wait(self, timeout: float | None = None) -> None:
        """Waits until all copies are complete, as ``Copy.wait()``."""
        self._handle.wait(timeout)

    def on_done(self, function: Callable[[BaseException | None], object]) -> None:
        """Calls ``function(error)`` when all copies are complete, as ``Copy.on_done()``."""
        self._handle.on_done(function)

    def __await__(self) -> Generator[object, None, None]:
        return self._handle.__await__()

    def __repr__(self) -> str:
        return f"<runnel.Copies {({kind: count for kind, count in self.counts.items() if count})}>"


def copy_many(copies: Iterable[tuple[Array, Array]], stream: Stream | None = None, *, pageable: Pageable | None = None, any_time: bool | None = None,
              unsafe: bool = False) -> Copies:
    """All copies of a list of pairs ``(dst, src)``, as one job, in no order among themselves: none may write what another
    uses. The result is a handle, whose ``counts`` say how many went which way, by the words of ``copy()``. Arrays that are
    not contiguous go one by one after the others. Raises as ``copy()``, and the text names the pair: before anything is
    enqueued, but for two arrays that are not contiguous and overlap.
    """
    return Copies(*_core.copy_many(copies, stream, pageable, any_time, unsafe))


def fill(array: Array, value: int, stream: Stream | None = None) -> None:
    """Sets every byte of an array to ``value`` (0 to 255), in the order of ``stream``. Keeps the array until then."""
    _core.fill(array, value, stream)


@overload
def empty(shape: int | Sequence[int], dtype: Stream | None = None) -> Block: ...
@overload
def empty(shape: int | Sequence[int], dtype: object = "uint8", stream: Stream | None = None) -> Block: ...
def empty(shape: int | Sequence[int], dtype: object = "uint8", stream: Stream | None = None) -> Block:
    """Device memory for an array, uninitialised, on the device of ``stream`` (default: the current stream): ``empty(nbytes)``,
    ``empty((3, 4), 'float32')``, ``empty(nbytes, stream)``. ``dtype`` is a name, as ``'bfloat16'`` and ``'float8_e4m3fn'``,
    or a type of NumPy's or torch's. The memory is allocated and freed in the order of that stream; nothing waits. Raises
    OutOfMemoryError, ValueError (a type that a Block does not have).
    """
    if dtype is None or isinstance(dtype, _core.Stream):
        return _core.empty(shape, "uint8", stream if dtype is None else dtype)
    return _core.empty(shape, dtype, stream)


def current_stream(device: Device | int | str | None = None) -> Stream:
    """The stream that ``with stream:`` or ``stream.use()`` made current in this context (a thread, or a task of asyncio), for
    ``device`` or for any; else the default stream of that device, or of device 0.
    """
    return _core.current_stream(device)


def default_stream(device: Device | int | str | None = None) -> Stream:
    """The default stream of a device (default: device 0), which CuPy calls ``Stream.null``."""
    return _core.default_stream(device)


def device_count() -> int:
    """The number of devices; 0 if there is none or no driver."""
    return _core.device_count()


def runtime_version() -> tuple[int, int]:
    """The numbers of the runtime and of the driver, as ``(13000, 13000)``; 0: none."""
    return _core.runtime_version()
