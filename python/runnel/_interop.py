# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries: their types, shapes and current streams."""
from __future__ import annotations

import contextlib
import functools
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from runnel import _core, _errors

if TYPE_CHECKING:
    from runnel._host import Device, Stream

ON_HOST: bool = _core.backend == "host"


def _bytes_of(memory: Any) -> int:
    try:
        return memoryview(memory).nbytes
    except TypeError:
        refuse_columns(memory)
        raise TypeError(f"an object of type {type(memory)} has no memory that runnel can copy: it wants an array with the buffer protocol "
                        "(NumPy, mmap, bytes), a torch tensor, __cuda_array_interface__ or __dlpack__") from None


def refuse_columns(memory: Any) -> None:
    """A column or a table of pandas, polars or pyarrow has no memory of its own form: says what to write."""
    if hasattr(memory, "to_numpy") and not hasattr(memory, "__cuda_array_interface__"):
        raise TypeError(f"an object of type {type(memory)} is no array: write x.to_numpy(), which has its numbers")


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape of an array; of other memory its size in bytes."""
    refuse_columns(array)
    shape = getattr(_with_type(array), "shape", None)
    if shape is None and hasattr(array, "__dlpack__"):
        raise TypeError(f"an object of type {type(array)} has __dlpack__, but neither shape nor dtype: runnel.copy() takes it beside memory of as many bytes")
    return tuple(int(size) for size in shape) if shape is not None else (_bytes_of(array),)


_KINDS = {"?": "bool", "e": "float", "f": "float", "d": "float"} | dict.fromkeys("bhilqn", "int") | dict.fromkeys("BHILQN", "uint")


def _letter_of(view: memoryview) -> str:
    return view.format.lstrip("@=" + ("<" if sys.byteorder == "little" else ">"))


def _with_type(array: Any) -> Any:
    """A memoryview of what has elements of a type and says so by the buffer protocol only, as array.array and ctypes; else the array itself."""
    if hasattr(array, "shape") or hasattr(array, "dtype"):
        return array
    try:
        view = memoryview(array)
    except TypeError:
        return array
    return view if _letter_of(view) in _KINDS else array


def _dtype_of_view(view: memoryview) -> str:
    letter = _letter_of(view)
    if letter == "c":
        return "uint8"
    if letter not in _KINDS:
        raise ValueError(f"a memoryview of elements of the format {view.format!r} has no element type here: view.cast('B') has bytes")
    return "bool" if letter == "?" else f"{_KINDS[letter]}{8 * view.itemsize}"


def dtype_of(array: Any) -> str:
    """The element type, as 'float32'."""
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        view = _with_type(array)
        return _dtype_of_view(view) if isinstance(view, memoryview) else "uint8"
    if getattr(dtype, "isnative", True) is False:
        raise ValueError("the array has the other order of bytes, and nothing is converted: x.astype(x.dtype.newbyteorder('=')) has this machine's")
    name = getattr(dtype, "name", None) or str(dtype)
    return str(name).removeprefix("torch.")


def nbytes_of(array: Any) -> int:
    """The size in bytes."""
    nbytes = getattr(array, "nbytes", None)
    if nbytes is None and hasattr(array, "element_size"):  # torch before 2.1
        nbytes = array.numel() * array.element_size()
    return int(nbytes) if nbytes is not None else _bytes_of(array)


def item_size_of(array: Any) -> int:
    """The bytes of an element."""
    size = getattr(_with_type(array), "itemsize", None)
    return int(size) if size is not None else array.element_size() if hasattr(array, "element_size") else 1


def name_of(like: Any) -> str:
    """The name of a module, or of the module of an array: 'torch', 'cupy', 'numpy', 'jax'."""
    name = like.__name__ if isinstance(like, ModuleType) else str(like) if isinstance(like, str) else type(like).__module__
    return name.split(".")[0]


def module_of(like: Any) -> ModuleType:
    """torch, cupy or numpy."""
    name = name_of(like)
    if name not in ("torch", "cupy", "numpy"):
        raise TypeError(f"like={like!r}: it is torch, cupy or numpy, or an array of theirs")
    if name == "numpy" and not ON_HOST:
        raise TypeError("like=numpy: NumPy has no arrays in a device's memory; write torch or cupy")
    if name == "cupy" and ON_HOST:
        raise TypeError("like=cupy: the host backend has no memory that CuPy could use; write numpy or torch")
    return __import__(name)


def from_block(block: Any, like: Any) -> Any:
    """A block as an array of that library, without a copy. Nothing waits: the caller is in the order of the block's stream."""
    module = module_of(like)
    if module.__name__ == "numpy":  # its arrays by DLPack were read-only before NumPy 2.1
        return module.asarray(_core._view(block)).view(in_numpy(block.dtype)).reshape(block.shape)
    return module.from_dlpack(block)


def stream_or_current(stream: Stream | None, device: Any = None) -> Stream:
    """The stream that a caller named, or the current one of a device."""
    if stream is None:
        return _core.current_stream(device)
    if isinstance(stream, _core.Stream) and device is not None and _core.default_stream(device).device != stream.device:
        raise _errors.InvalidArgument(f"stream={stream!r} is of another device than device={device!r}")
    if not isinstance(stream, _core.Stream):
        raise TypeError(f"stream={stream!r} is no runnel.Stream: runnel.Stream.wrap() makes one of another library's stream")
    return stream


def in_numpy(dtype: str) -> str:
    """The type that NumPy has for it: a number of its size where it has none."""
    return "uint16" if dtype == "bfloat16" else "uint8" if dtype.startswith("float8") else dtype


def order_of(array: Any) -> list[int]:
    """The dimensions of an array from the one with the largest step to the one with the smallest, as Fortran's order, torch's
    channels-last and a turned part of a picture have them; empty for C's order, and for an array that runs backwards or
    repeats itself."""
    shape = shape_of(array)
    if len(shape) < 2 or 0 in shape:
        return []
    steps = array.stride() if callable(getattr(array, "stride", None)) else getattr(_with_type(array), "strides", None)
    if steps is None or any(step <= 0 for size, step in zip(shape, steps) if size > 1):
        return []
    order = sorted(range(len(shape)), key=lambda i: (-steps[i], i))
    kept = [i for i in order if shape[i] > 1]
    return [] if kept == sorted(kept) else order


def ordered(empty: Any, shape: tuple[int, ...], order: list[int]) -> Any:
    """An array of that shape and order, where ``empty(shape)`` makes one of C's."""
    if not order:
        return empty(shape)
    made = empty(tuple(shape[i] for i in order))
    back = [order.index(i) for i in range(len(order))]
    return made.permute(back) if hasattr(made, "permute") else made.transpose(back)


def torch_type(array: Any, dtype: str) -> Any:
    """torch's type of that name."""
    import torch  # type: ignore[import-not-found, unused-ignore]

    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        refuse_objects(array)
        raise TypeError(f"torch has no type {dtype}: x.view('int64') has the numbers of dates, x.view('uint8') the bytes of other elements")
    return found


def refuse_objects(array: Any) -> None:
    if getattr(getattr(array, "dtype", None), "hasobject", False):
        raise TypeError("an array of Python objects has references, which cannot be copied: numpy.array(list, 'float32') makes one of numbers")


def refuse_type(array: Any, dtype: str) -> None:
    """Refuses elements that a Block has no type for."""
    refuse_objects(array)
    if not _core._is_type(dtype):
        as_bytes = "x.view(torch.uint8)" if name_of(array) == "torch" else "x.view('uint8')"
        raise ValueError(f"a block has no element type '{dtype}': it has those as 'float32', 'int64', 'uint8', 'bfloat16', 'bool'. "
                         f"Other elements go as their bytes: {as_bytes}")


def new_array(like: Any, array: Any, device: Device) -> Any:
    """An array of that library on the device, uninitialised, with the shape, type and order of another one."""
    module, shape, dtype, order = module_of(like), shape_of(array), dtype_of(array), order_of(array)
    if module.__name__ == "torch":
        place, wanted = "cpu" if ON_HOST else f"cuda:{device.index}", torch_type(array, dtype)
        return ordered(lambda sizes: module.empty(sizes, dtype=wanted, device=place), shape, order)
    refuse_objects(array)
    if module.__name__ == "cupy":
        with module.cuda.Device(device.index):
            return ordered(lambda sizes: module.empty(sizes, dtype=dtype), shape, order)
    return ordered(lambda sizes: module.empty(sizes, dtype=in_numpy(dtype)), shape, order)


# overlap() enters the same few streams for each chunk. These objects own nothing.
@functools.lru_cache(maxsize=64)
def _torch_stream(handle: int, index: int) -> Any:
    torch = sys.modules["torch"]
    return torch.cuda.ExternalStream(handle, device=index) if torch.cuda.is_available() else None


@functools.lru_cache(maxsize=64)
def _cupy_stream(handle: int, index: int) -> Any:
    return sys.modules["cupy"].cuda.ExternalStream(handle, index)


@contextlib.contextmanager
def current_in_frameworks(stream: Stream) -> Any:
    """Makes a stream current here, in torch, and in CuPy, where they are loaded."""
    with contextlib.ExitStack() as entered:
        entered.enter_context(stream)
        if not ON_HOST:
            torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
            handle, index = stream.handle, stream.device.index
            if torch is not None and _torch_stream(handle, index) is not None:
                entered.enter_context(torch.cuda.stream(_torch_stream(handle, index)))
            if cupy is not None:
                entered.enter_context(cupy.cuda.Device(index))
                entered.enter_context(_cupy_stream(handle, index))
        yield stream


def current_of(like: Any, device: Device) -> tuple[Stream, Any]:
    """The current stream of a framework, or of runnel: ours and theirs."""
    if like is None:
        current = _core.current_stream(device)
        return current, current
    module = module_of(like)
    if module.__name__ == "torch":
        theirs = module.cuda.current_stream(device.index)
    else:
        with module.cuda.Device(device.index):
            theirs = module.cuda.get_current_stream()
    return _core.Stream.wrap(theirs, device), theirs
