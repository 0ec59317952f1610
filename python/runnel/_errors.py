# SPDX-License-Identifier: Apache-2.0
"""The exceptions of runnel."""
from __future__ import annotations


class Error(RuntimeError):
    """An operation failed, or was refused. Its text names the operation and the reason.

    ``code`` is the portable code, as ``"out_of_memory"``. ``native_code`` and ``native_name`` are the runtime's own
    number and name (0 and ``""`` where runnel refused before it called the runtime). ``operation`` is what failed, as
    ``"create a stream"``.
    """

    code: str = "unknown"
    native_code: int = 0
    native_name: str = ""
    operation: str = ""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)


class InvalidArgument(Error, ValueError):
    """Refused before anything was enqueued: a wrong argument, a device that is not there, or an object that has ended."""

    code = "invalid_argument"


class NoDevice(Error):
    """There is no device, or no driver for it: ``why_no_device()`` says why."""

    code = "no_device"


class NotReady(Error):
    """The result is not there yet."""

    code = "not_ready"


class NotSupported(Error):
    """This device, runtime or backend cannot do it."""

    code = "not_supported"


class OutOfMemoryError(Error, MemoryError):
    """There is not enough memory of the kind that was asked for."""

    code = "out_of_memory"


class OverlapError(Error):
    """A chunk of ``overlap()`` failed. ``chunk`` is its index; ``__cause__`` is what the function, the source or the sink
    raised.
    """

    chunk: int = 0


for _each in (Error, InvalidArgument, NoDevice, NotReady, NotSupported, OutOfMemoryError, OverlapError):
    _each.__module__ = "runnel"  # as people write it
del _each
