# SPDX-License-Identifier: Apache-2.0
"""What the tests share. They run on every backend: the host's, and a device or a stand-in for one."""
from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any, Callable, Iterator

import pytest

import runnel

# A shell without a terminal starts its background jobs with Ctrl-C ignored, and their children inherit that.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

ON_HOST = runnel.backend == "host"
# Ends a process that hangs. CPython 3.13t yields the processor 10,000 times while it starts, because it spins for locks that it holds itself
# (gh-114203). On a busy machine a start takes up to a minute.
LIMIT = 240


@pytest.fixture
def stream() -> runnel.Stream:
    return runnel.Stream()


class Gate:
    """A host function that holds a stream until it is opened."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def close(self, stream: runnel.Stream) -> None:
        stream.launch_host_func(self.event.wait)

    def open(self) -> None:
        self.event.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


def eventually(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether it holds before the time runs out. A call of runnel's drops what copies no longer need."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        runnel.Stream.null.synchronize()
        gc.collect()
        if condition():
            return True
        time.sleep(0.002)
    return False


def on_threads(run: Callable[[int], None], count: int) -> None:
    """Calls run(0), run(1), ... on a thread each. No call may fail."""
    failures: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            run(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **environment}
    )


def check_python(program: str, **environment: str) -> str:
    done = run_python(program, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def on_host(array: Any, stream: runnel.Stream) -> Any:
    """A device's bytes as a NumPy array."""
    made = runnel.to_host(array, stream=stream)
    stream.synchronize()
    return made
