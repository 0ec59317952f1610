# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="arg-type,no-untyped-call"
"""Wrong arguments of every public function: an exception in words, and never a crash. Each sweep runs in a process of its own, so that a
crash is seen as one. Each call either works or raises; what it raises has a text.
"""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

import numpy as np
import pytest

import runnel
from conftest import ON_HOST, check_python

# What a caller may pass instead of what is asked for.
SWEEP = """
    import gc, inspect, sys, warnings, runnel, numpy as np
    warnings.simplefilter("ignore")
    s = runnel.Stream()

    class Hostile:  # answers to every name, with itself
        def __getattr__(self, name): return self
        def __call__(self, *a, **k): return self
        def __getitem__(self, i):
            if i == 2: raise IndexError("the end")
            return self

    class Raises:
        def __getattr__(self, name): raise RuntimeError("an attribute that raises: " + name)

    class Foreign:
        cuda_stream = s.handle

    class Derived(runnel.Stream):
        def __init__(self): pass  # forgets super().__init__()

    ended = []
    runnel.overlap(bytes(8), None, lambda chunk, x: ended.append(x))
    released = memoryview(bytearray(8)); released.release()
    registered = runnel.register(bytearray(8192)); registered.close()
    closed = open(sys.executable, "rb"); closed.close()
    wrong = [None, True, 0, -1, 1, 3, 2**62, 2**63, 2**64, -2**64, 1.5, float("nan"), float("-inf"), "x", "\\ud800", "a\\0b", b"", b"abc", bytearray(), (), [], {},
             object(), type, len, Hostile(), Raises(), Hostile, ended[0], released, registered, closed, runnel.Event(), runnel.Event(timing=True),
             runnel.Device(99), runnel.Device(-1), runnel.empty(0), runnel.empty(8), s, Derived.__new__(Derived), Derived(),
             runnel.Stream.__new__(runnel.Stream), runnel.Event.__new__(runnel.Event), runnel.PinnedMemory.__new__(runnel.PinnedMemory),
             runnel.Block.__new__(runnel.Block), runnel.Device.__new__(runnel.Device), runnel.StreamPool.__new__(runnel.StreamPool),
             np.zeros(()), np.zeros(0), np.zeros(3), np.zeros(3)[::-1], np.zeros((3, 3)).T, np.array([{}]), np.zeros(2, "V0"), np.zeros(2, "S0"),
             np.ma.masked, np.float32(1), np.int64(-1), slice(3), Ellipsis, range(3), iter([1]), (x for x in [1]), 1j]

    wordless = []

    def attempt(text, call):
        print(text, flush=True)  # the last line names a crash
        try:
            result = call()
        except Exception as error:
            bare = "std::" in str(error) or "incompatible function arg" in str(error) and "(self" not in str(error)
            if not str(error) or bare or isinstance(error, SystemError): wordless.append(f"{text}: {str(error)[:150]!r}")
        else:
            repr(result)
            if hasattr(result, "close") and result is not registered and result is not closed: result.close()
"""

FUNCTIONS: dict[str, str] = {
    "wrap": "runnel.Stream.wrap(w)",
    "wrap on a device": "runnel.Stream.wrap(Foreign(), w)",
    "Stream": "runnel.Stream(w)",
    "priority": "runnel.Stream(priority=w)",
    "name": "runnel.Stream(name=w)",
    "blocking": "runnel.Stream(blocking=w)",
    "use": "runnel.Stream.use(w)",
    "enter": "runnel.Stream.__enter__(w)",
    "exit": "runnel.Stream.__exit__(w)",
    "with": "w.__enter__()",
    "eq": "s == w",
    "wait_stream": "s.wait_stream(w)",
    "wait_event": "s.wait_event(w)",
    "record_event": "s.record_event(w)",
    "record": "s.record(w)",
    "synchronize": "s.synchronize(w)",
    "unbound": "runnel.Stream.synchronize(w)",
    "launch_host_func": "s.launch_host_func(w)",
    "on_done": "s.on_done(w)",
    "await": "runnel.Stream.__await__(w)",
    "handle": "w.handle",
    "describe": "repr(w)",
    "Event": "runnel.Event(w)",
    "event.record": "runnel.Event().record(w)",
    "event.wait": "runnel.Event().wait(w)",
    "event.synchronize": "runnel.Event().synchronize(w)",
    "elapsed_time": "runnel.Event(True).elapsed_time(w)",
    "Device": "runnel.Device(w).name",
    "can_access_peer": "runnel.Device(0).can_access_peer(w)",
    "device.synchronize": "runnel.Device(0).synchronize(w)",
    "current_stream": "runnel.current_stream(w)",
    "default_stream": "runnel.default_stream(w)",
    "StreamPool": "runnel.StreamPool(w, size=1)",
    "pool size": "runnel.StreamPool(size=w) if not (isinstance(w, int) and w > 100) else None",
    "pool max": "runnel.StreamPool(size=1, max=w)",
    "acquire": "runnel.StreamPool(size=1).acquire(w)",
    "copy to": "runnel.copy(w, bytes(8), s)",
    "copy from": "runnel.copy(bytearray(8), w, s)",
    "copy both": "runnel.copy(w, w, s)",
    "copy in": "runnel.copy(bytearray(8), bytes(8), w)",
    "pageable": "runnel.copy(bytearray(8), bytes(8), s, pageable=w)",
    "any_time": "runnel.copy(bytearray(8), bytes(8), s, any_time=w)",
    "copy_many": "runnel.copy_many(w, s)",
    "copy_many of": "runnel.copy_many([w], s)",
    "copy_many to": "runnel.copy_many([(w, bytes(8))], s)",
    "copy_many from": "runnel.copy_many([(bytearray(8), w)], s)",
    "copy_many in": "runnel.copy_many([(bytearray(8), bytes(8))], w)",
    "fill": "runnel.fill(w, 1, s)",
    "fill value": "runnel.fill(bytearray(8), w, s)",
    "fill in": "runnel.fill(bytearray(8), 1, w)",
    "empty": "runnel.empty(w, s)",
    "empty in": "runnel.empty(8, w)",
    "view": "runnel.empty(8, s).view(w)",
    "view shape": "runnel.empty(8, s).view('uint8', w)",
    "view shape of": "runnel.empty(8, s).view('uint8', (w, w))",
    "view offset": "runnel.empty(8, s).view('uint8', None, w)",
    "record_stream": "runnel.empty(8, s).record_stream(w)",
    "dlpack": "runnel.Block.__dlpack__(w)",
    "dlpack version": "runnel.empty(8, s).__dlpack__(max_version=w)",
    "dlpack device": "runnel.empty(8, s).__dlpack__(dl_device=w)",
    "dlpack copy": "runnel.empty(8, s).__dlpack__(copy=w)",
    "block": "runnel.Block(w)",
    "register": "runnel.register(w)",
    "PinnedMemory": "runnel.PinnedMemory(w)",
    "memoryview": "memoryview(w).tolist()",
    "pinned_empty": "runnel.pinned_empty(w)",
    "pinned_empty of": "runnel.pinned_empty((w, w))",
    "pinned_empty type": "runnel.pinned_empty(3, w)",
    "set_limit": "(runnel.PinnedPool.set_limit(w), runnel.PinnedPool.set_limit(None))",
    "to_device": "runnel.to_device(w, stream=s)",
    "to_device like": "runnel.to_device(bytes(8), like=w, stream=s)",
    "to_device in": "runnel.to_device(bytes(8), stream=w)",
    "to_device like numpy in": "runnel.to_device(bytes(8), like='numpy', stream=w)",
    "to_host": "runnel.to_host(w, stream=s)",
    "to_host out": "runnel.to_host(bytes(8), w, s)",
    "to_host in": "runnel.to_host(bytes(8), None, w)",
    "map_file": "runnel.map_file(w)",
    "map_file offset": "runnel.map_file(sys.executable, w)",
    "map_file nbytes": "runnel.map_file(sys.executable, 0, w)",
    "overlap from": "runnel.overlap(w, None, lambda *a: None)",
    "overlap from two": "runnel.overlap((bytes(8), w), None, lambda *a: None)",
    "overlap to": "runnel.overlap(bytes(8), w, lambda *a: None)",
    "overlap fn": "runnel.overlap(bytes(8), bytearray(8), w)",
    "overlap returns": "runnel.overlap(bytes(8), bytearray(8), lambda *a: w)",
    "overlap item": "runnel.overlap(bytes(8), None, lambda *a: None, item=w)",
    "overlap item of": "runnel.overlap(lambda view: 0, None, lambda *a: None, item=w) if not (isinstance(w, int) and w > 100) else None",
    "overlap source returns": "runnel.overlap(lambda view: w, None, lambda *a: None, item=8) if not (isinstance(w, int) and 0 < w < 8) else None",
    "overlap out_item": "runnel.overlap(bytes(8), lambda view: None, lambda *a: None, out_item=w) if not (isinstance(w, int) and w > 100) else None",
    "overlap chunk": "runnel.overlap(bytes(8), None, lambda *a: None, chunk=w)",
    "overlap in_flight": "runnel.overlap(bytes(8), None, lambda *a: None, in_flight=w)",
    "overlap halo": "runnel.overlap(bytes(8), None, lambda *a: None, halo=w)",
    "overlap strategy": "runnel.overlap(bytes(8), None, lambda *a: None, strategy=w)",
    "overlap like": "runnel.overlap(bytes(8), None, lambda *a: None, like=w)",
    "overlap progress": "runnel.overlap(bytes(8), None, lambda *a: None, progress=w)",
    "overlap devices": "runnel.overlap(bytes(8), None, lambda *a: None, devices=w)",
    "overlap device": "runnel.overlap(bytes(8), None, lambda *a: None, devices=[w])",
    "overlap times": "runnel.overlap(bytes(8), None, lambda *a: None, record_times=w)",
    "per_chunk": "runnel.overlap(bytes(8), runnel.per_chunk(w), lambda *a: None)",
    "per_chunk rows": "runnel.overlap(bytes(8), runnel.per_chunk(bytearray(8), w), lambda *a: None)",
    "filtered": "runnel.overlap(bytes(8), runnel.filtered(w), lambda *a: None)",
    "filtered returns": "runnel.overlap(bytes(8), runnel.filtered(bytearray(8)), lambda *a: w, like='numpy')",
}


def test_no_wrong_argument_ends_the_process() -> None:
    # On a device any number may be a handle, which is the caller's promise.
    program = SWEEP + f"""
    for name, text in {FUNCTIONS!r}.items():
        for at, w in enumerate(wrong):
            if name == "wrap" and isinstance(w, int) and w > 2 and not {ON_HOST}: continue
            attempt(f"{{name}} of wrong[{{at}}]", lambda: eval(text, {{**globals(), "w": w}}))
    gc.collect()
    print("survived", wordless)
    """
    assert check_python(program).endswith("survived []\n")


# Each parameter of all that is public: what it takes, where the wrong thing is another one's.
PARAMETERS = """
    import inspect, sys, warnings, runnel
    warnings.simplefilter("ignore")
    s, chunks = runnel.Stream(), []
    result = runnel.overlap(bytes(8), None, lambda chunk, x: chunks.append(chunk))
    right = {"array": bytearray(8192), "batches": [bytes(8)], "copies": [], "dst": bytearray(8), "dtype": "uint8", "end": runnel.Event(True), "event": runnel.Event(),
             "fn": lambda *a: None, "function": lambda *a: None, "index": 0, "max_version": (1, 0), "modules": [], "nbytes": 8, "path": sys.executable, "peer": 0,
             "shape": 8, "spec": "", "src": bytes(8), "stream": s, "value": 0, "x": bytes(8)}
    objects = [s, runnel.Event(), runnel.Event(True), runnel.empty(8), runnel.copy(bytearray(8), bytes(8), s), runnel.copy_many([]), runnel.Device(0),
               runnel.StreamPool(size=1), runnel.PinnedMemory(8), runnel.register(bytearray(8192)), result, chunks[0], runnel.PinnedPool]
    things = {name: getattr(runnel, name) for name in runnel.__all__}
    things |= {f"{type(each).__name__}.{name}": getattr(each, name) for each in objects for name in dir(each)
               if not name.startswith("_") and name != "close" or name in ("__getitem__", "__dlpack__", "__eq__", "__enter__", "__exit__", "__format__")}
    tried, wordless = 0, []
    for name, thing in things.items():
        if not callable(thing) or inspect.isclass(thing) and issubclass(thing, Exception): continue
        try: all = inspect.signature(thing).parameters.values()
        except (ValueError, TypeError): continue
        needed = {p.name: right.get(p.name) for p in all if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}
        for p in all:
            for w in (None, 1.5, 2**31, -1, "x", object()):
                is_handle = name.endswith("wrap") or p.name in ("stream", "event", "handle") and runnel.backend != "host"  # the caller's promise
                if w == 2**31 and (is_handle or p.name in ("size", "nbytes", "shape")): continue
                tried += 1
                try:
                    if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY): thing(*needed.values(), w)
                    elif p.kind is not p.VAR_KEYWORD: thing(**needed | {p.name: w})
                except Exception as error:
                    if not str(error) or "incompatible function arg" in str(error): wordless.append((name, p.name, w, str(error)[:150]))
    runnel.PinnedPool.set_limit(None)
    print(tried > 500, *wordless, sep="\\n")
"""


def test_no_wrong_argument_gets_the_text_of_the_binding() -> None:
    assert check_python(PARAMETERS) == "True\n"


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: runnel.Stream.wrap(-1), "stream"),
        (lambda: runnel.Stream.wrap(2**64), "stream"),
        (lambda: runnel.Stream.wrap(runnel.empty(8)), "no stream"),
        (lambda: runnel.to_device(b"abc", stream=5), "stream"),
        (lambda: runnel.to_device(b"abc", like="numpy", stream=5), "stream"),
        (lambda: runnel.pinned_empty((-1, 2)), "shape"),
        (lambda: runnel.empty("x"), "nbytes"),
        (lambda: runnel.Stream().synchronize(float("nan")), "timeout"),
        (lambda: runnel.Stream().synchronize("x"), "timeout"),
        (lambda: runnel.fill(bytearray(3), "x"), "value"),
        (lambda: runnel.map_file(0), "PathLike"),
        (lambda: runnel.overlap(b"abc", None, len, chunk=-1), "chunk"),
    ],
)
def test_errors_name_the_argument(call: Callable[[], Any], name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        call()


@pytest.mark.skipif(not ON_HOST, reason="a device's handle is the caller's promise")
@pytest.mark.parametrize("handle", [3, 12345, 2**63, 2**64 - 1])
def test_a_number_that_is_no_stream_is_refused(handle: int) -> None:
    with pytest.raises(runnel.InvalidArgument) as raised:
        runnel.Stream.wrap(handle)
    assert raised.value.code == "invalid_handle" and raised.value.operation == "wrap a native stream"


@pytest.mark.skipif(not ON_HOST, reason="a device's handle is the caller's promise")
def test_a_stream_that_was_destroyed_is_no_stream() -> None:
    stream = runnel.Stream()
    handle = stream.handle
    assert runnel.Stream.wrap(handle) == stream
    stream.synchronize()
    del stream
    with pytest.raises(runnel.InvalidArgument):
        runnel.Stream.wrap(handle)


def test_a_derived_class_that_forgot_to_make_the_stream() -> None:
    class Derived(runnel.Stream):
        def __init__(self) -> None:
            pass

    stream = Derived()
    for call in (stream.__enter__, stream.use, lambda: runnel.copy(bytearray(3), b"abc", stream)):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_a_number_is_no_file() -> None:
    read, write = os.pipe()
    with pytest.raises(TypeError):
        runnel.map_file(read)
    os.close(read)  # it is open still
    os.close(write)


# ---- what arrays say of themselves


class CudaArray:
    def __init__(self, **entries: Any) -> None:
        memory = np.zeros(16, np.uint8)
        self.memory = memory
        made = {"shape": (16,), "strides": None, "typestr": "|u1", "data": (memory.ctypes.data, False), "version": 3, **entries}
        self.__cuda_array_interface__ = {name: value for name, value in made.items() if value != "none"}


WRONG_ENTRIES: list[dict[str, Any]] = [
    {"data": ()}, {"data": (1,)}, {"data": None}, {"data": "none"}, {"data": (-1, False)}, {"data": (2**64, False)}, {"data": ("x", False)},
    {"data": (0, False)}, {"shape": "none"}, {"shape": 3}, {"shape": (-1,)}, {"shape": (-4, -4)}, {"shape": (2**32, 2**32)}, {"shape": (2**62, 4)},
    {"shape": ("x",)}, {"shape": (2**64,)}, {"shape": (1,) * 17}, {"shape": (16,), "strides": ()}, {"shape": (16,), "strides": (1, 1)},
    {"shape": (16,), "strides": ("x",)}, {"shape": (4,), "strides": (-1,)}, {"shape": (16,), "strides": 5}, {"typestr": "none"}, {"typestr": ""},
    {"typestr": "<f"}, {"typestr": "<fx"}, {"typestr": "<f-4"}, {"typestr": "<f99999999999999999999"}, {"typestr": 5}, {"typestr": "|O8", "shape": (2,)},
]


@pytest.mark.parametrize("entries", WRONG_ENTRIES, ids=str)
def test_a_cuda_array_that_says_wrong_things(entries: dict[str, Any], stream: runnel.Stream) -> None:
    for call in (lambda: runnel.copy(bytearray(16), CudaArray(**entries), stream), lambda: runnel.copy(CudaArray(**entries), bytes(16), stream)):
        with pytest.raises((TypeError, ValueError, OverflowError, IndexError, BufferError)) as raised:
            call()
        assert str(raised.value)


@pytest.mark.skipif(not ON_HOST, reason="a device's memory is what it wants")
def test_memory_of_a_gpu_is_refused_on_the_host(stream: runnel.Stream) -> None:
    class OnDevice:
        def __init__(self, kind: int) -> None:
            self.kind = kind

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.kind, 0

        def __dlpack__(self, **keywords: Any) -> Any:
            return np.zeros(3, np.uint8).__dlpack__()

    for array, text in [(CudaArray(), "GPU"), (OnDevice(2), "GPU"), (OnDevice(10), "GPU"), (OnDevice(8), "does not know"), (OnDevice(-1), "does not know")]:
        with pytest.raises(BufferError, match=text):
            runnel.copy(bytearray(3), array, stream)


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


class Capsule:
    """A DLPack array made by hand."""

    def __init__(self, *, shape: tuple[int, ...] = (16,), strides: tuple[int, ...] | None = None, null: bool = False, ndim: int | None = None,
                 bits: int = 8, major: int | None = None, flags: int = 0, name: bytes | None = None) -> None:
        self.memory = np.zeros(16, np.uint8)
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = (ctypes.c_int64 * len(strides))(*strides) if strides is not None else None
        tensor = _Tensor(None if null else self.memory.ctypes.data, 1, 0, len(shape) if ndim is None else ndim, 1, bits, 1, ctypes.addressof(self.shape),
                         ctypes.addressof(self.strides) if self.strides is not None else None, 0)
        self.made = _Managed(tensor, None, None) if major is None else _Versioned(major, 0, None, None, flags, tensor)
        self.name = name or (b"dltensor" if major is None else b"dltensor_versioned")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **keywords: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.made), self.name, None)


WRONG_CAPSULES: list[dict[str, Any]] = [
    {"shape": (-16,)}, {"shape": (-4, -4)}, {"shape": (2**32, 2**32)}, {"shape": (2**62, 4)}, {"null": True}, {"ndim": -1}, {"ndim": 100}, {"bits": 4},
    {"major": 2}, {"major": 0}, {"name": b"used_dltensor"}, {"name": b"other"}, {"shape": (4, 4), "strides": (-4, 1)}, {"shape": (4, 4), "strides": (0, 0)},
]


@pytest.mark.parametrize("wrong", WRONG_CAPSULES, ids=str)
def test_a_capsule_that_says_wrong_things(wrong: dict[str, Any], stream: runnel.Stream) -> None:
    out = bytearray(16)
    runnel.copy(out, Capsule(), stream)
    runnel.copy(out, Capsule(major=1), stream)
    stream.synchronize()
    with pytest.raises((ValueError, BufferError)):
        runnel.copy(out, Capsule(**wrong), stream)


def test_a_read_only_capsule_is_no_target(stream: runnel.Stream) -> None:
    with pytest.raises(BufferError, match="read-only"):
        runnel.copy(Capsule(major=1, flags=1), bytes(16), stream)


def test_views_that_no_memory_has() -> None:
    block = runnel.empty(64)
    for shape in [(2**32, 2**32), (2**61, 8), (2**63 - 1, 2**63 - 1), (65,), (-1, -1)]:
        with pytest.raises(ValueError):
            block.view("uint8", shape)
    assert block.view("uint8", (0, 2**62, 2**62)).nbytes == 0


def test_objects_hide_in_records_and_views(stream: runnel.Stream) -> None:
    record = np.dtype([("flag", "i1"), ("value", "O")])  # 9 bytes
    named = np.zeros(2, [("O", "f8"), ("value", "f8")])
    for make in (lambda: np.zeros(2, record), lambda: memoryview(np.array([{}, {}])), lambda: memoryview(np.zeros(2, record)),
                 lambda: (ctypes.py_object * 2)()):
        with pytest.raises(TypeError, match="array of Python objects"):
            runnel.copy(make(), make(), stream)
    target = np.zeros_like(named)
    runnel.copy(memoryview(target), memoryview(named), stream)
    stream.synchronize()
