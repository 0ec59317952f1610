# SPDX-License-Identifier: Apache-2.0
"""Streams for copies that do not block.

``copy(dst, src)`` returns at once, from any memory to any memory: NumPy arrays, files, torch tensors, CuPy arrays, pinned or not. The work
goes to a ``Stream``; ``with stream:`` makes one current; ``synchronize()`` or ``await stream`` waits. ``overlap()`` streams data larger than
the device through it. Without a GPU the host backend does the same on threads.

    import numpy as np, runnel

    x = np.arange(1 << 20, dtype=np.float32)
    stream = runnel.Stream()
    with stream:
        on_device = runnel.to_device(x)      # returns at once
        back = runnel.to_host(on_device)     # so does this
    stream.synchronize()
    assert (back == x).all()

The environment variable RUNNEL_BACKEND chooses: host, cuda12, cuda13, hip.
"""
from __future__ import annotations

import atexit as _atexit
import math as _math
import os as _os
import signal as _signal
import time as _time
import typing as _typing

from runnel import _backend, _signatures
from runnel._errors import Error, InvalidArgument, NoDevice, NotReady, NotSupported, OutOfMemoryError, OverlapError

if _typing.TYPE_CHECKING:
    from runnel import _host as _core
    from runnel._host import (
        Block, Chunk, Copy, Device, Event, OverlapResult, PinnedMemory, PinnedPool, Registration, Stream, StreamPool,
    )
else:
    _core = _backend.choose()
    _signatures.show(_core)
    for _name in (
        "Block", "Chunk", "Copy", "Device", "Event", "OverlapResult", "PinnedMemory", "PinnedPool", "Registration", "Stream", "StreamPool",
    ):
        globals()[_name] = getattr(_core, _name)
        globals()[_name].__module__ = "runnel"
    del _name

from runnel._calls import Copies, copy, copy_many, current_stream, default_stream, device_count, empty, fill, runtime_version
from runnel._offload import offload
from runnel._overlap import filtered, overlap, per_chunk
from runnel._prefetch import prefetch
from runnel._transfer import map_file, pinned_empty, register, to_device, to_host

#: The backend in use: 'host', 'cuda' or 'hip'.
backend: str = _core.backend
__version__: str = _core.version


def why_no_device() -> str:
    """Why ``device_count()`` is 0, or why no GPU is used, and what to do about it, a line for each backend; ``''`` if a GPU is used."""
    lines = list(_backend.reasons)
    if backend != "host":
        return _backend.reason(_core)
    if not lines:
        built = [name for name in _backend._built() if name != "host"]
        lines = ["the host backend was asked for by RUNNEL_BACKEND" if built else "this runnel was built for the host backend only"]
    return "\n".join(lines)


def synchronize(timeout: float | None = None) -> None:
    """Waits for the current stream, as ``Stream.synchronize()`` does."""
    current_stream().synchronize(timeout)


class _Exit:
    """The end of the process. Functions of the program that runnel calls still need the interpreter: atexit calls this for those that are
    enqueued then. What they enqueue themselves at that time is called for at most a second.
    """

    is_given_up = False

    def __call__(self) -> None:
        end = _math.inf
        try:
            while not self.is_given_up and _core._begin_round() and _time.monotonic() < end:
                while not _core._wait_for_round(0.02):
                    pass
                end = min(end, _time.monotonic() + 1)
        except KeyboardInterrupt:  # gives up those that have not begun
            self.is_given_up = True
            _core._close()

    def __del__(self) -> None:
        """Atexit drops its functions when all of them have run: from now on no Python code of the program runs but what is called here."""
        _core._park()
        self()
        _core._show_exceptions()
        _core._close()
        try:
            while not _core._wait_until_left(0.02):
                pass
        except KeyboardInterrupt:
            # A thread that came back to an interpreter that has ended would end the process in a worse way than the signal does.
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
            _signal.raise_signal(_signal.SIGINT)


_atexit.register(_Exit())
_os.register_at_fork(before=_core._before_fork, after_in_parent=lambda: _core._after_fork(False), after_in_child=lambda: _core._after_fork(True))
for _each in (Copies, copy, copy_many, current_stream, default_stream, device_count, empty, fill, runtime_version):
    _each.__module__ = "runnel"
del annotations, _each

__all__ = [
    "Block", "Chunk", "Copies", "Copy", "Device", "Error", "Event", "InvalidArgument", "NoDevice", "NotReady", "NotSupported", "OutOfMemoryError",
    "OverlapError", "OverlapResult", "PinnedMemory", "PinnedPool", "Registration", "Stream", "StreamPool", "backend", "copy", "copy_many",
    "current_stream", "default_stream", "device_count", "empty", "fill", "filtered", "map_file", "offload", "overlap", "per_chunk", "pinned_empty", "prefetch", "register",
    "runtime_version", "synchronize", "to_device", "to_host", "why_no_device",
]
