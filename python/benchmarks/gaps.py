# SPDX-License-Identifier: Apache-2.0
"""Where the time goes in what table.py shows below its goals: how long a call is held, fresh arrays, overlap() from Python. Below two minutes
on a GPU with 64 GiB of host memory to spare.

    python gaps.py [held] [fresh] [overlap]       default: all three
    RUNNEL_GIB=8 python gaps.py overlap           GiB of the large arrays (default: 16 for overlap(), a quarter of it elsewhere)
"""
from __future__ import annotations

import mmap
import os
import sys
import time
from typing import Any, Callable

import numpy as np

import runnel

ON_HOST = runnel.backend == "host"
GIB = float(os.environ.get("RUNNEL_GIB", "0.25" if ON_HOST else "16"))
LARGE = int(GIB * (1 << 30)) >> 22 << 22
stream = runnel.Stream()


def say(name: str, text: str) -> None:
    print(f"  {name:70} {text}", flush=True)


def clock(run: Callable[[], object], wait: Callable[[], object] = lambda: None, times: int = 3) -> tuple[float, float]:
    """Seconds until it is done, and seconds that the call was held: the least of several."""
    done, held = float("inf"), float("inf")
    for _ in range(times):
        wait()
        start = time.perf_counter()
        made = run()  # kept, so that freeing it is not measured
        called = time.perf_counter() - start
        wait()
        done, held = min(done, time.perf_counter() - start), min(held, called)
        del made
    return done, held


def torch_or_none() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if ON_HOST or torch.cuda.is_available() else None


def held() -> None:
    """If it grows with the size, the call does work for each byte or page; if not, it is what a job costs to set up."""
    print("held: the call of copy(), ms, the least of 7, and of the first one")
    for size in (1 << 20, 16 << 20, 256 << 20, LARGE // 4):
        source, target, block = np.ones(size, np.uint8), np.ones(size, np.uint8), runnel.empty(size, stream)
        stream.synchronize()
        rows: dict[str, Callable[[], object]] = {
            "up": lambda: runnel.copy(block, source, stream),
            "up, any_time": lambda: runnel.copy(block, source, stream, any_time=True),
            "down": lambda: runnel.copy(target, block, stream),
        }
        for name, run in rows.items():
            start = time.perf_counter()
            run()
            first = time.perf_counter() - start
            say(f"{name}, {size >> 20} MiB", f"{clock(run, stream.synchronize, 7)[1] * 1e3:8.3f}   {first * 1e3:8.3f}")
        other = runnel.Stream()
        runnel.copy(block, source, other)
        say(f"up, {size >> 20} MiB, behind another copy", f"{clock(rows['up'], lambda: None, 1)[1] * 1e3:8.3f}")
        other.synchronize()
        stream.synchronize()


def fresh() -> None:
    """The system's page faults bound the rate: which way of getting memory costs least?"""
    size = LARGE // 4
    print(f"fresh: a copy of {size >> 20} MiB down, GB/s")
    block = runnel.empty(size, stream)
    runnel.fill(block, 1, stream)

    def mapped(advice: int | None) -> Any:
        memory = mmap.mmap(-1, size)
        if advice is not None:
            memory.madvise(advice)
        return memory

    used = np.ones(size, np.uint8)
    populate_write = 23  # MADV_POPULATE_WRITE, since Linux 5.14
    kinds: dict[str, Callable[[], Any]] = {
        "an array that was used": lambda: used,
        "numpy.empty": lambda: np.empty(size, np.uint8),
        "numpy.zeros": lambda: np.zeros(size, np.uint8),
        "mmap": lambda: mapped(None),
        "mmap, huge pages": lambda: mapped(mmap.MADV_HUGEPAGE),
        "mmap, no huge pages": lambda: mapped(mmap.MADV_NOHUGEPAGE),
        "mmap, populated by the caller": lambda: mapped(populate_write),
        "pinned_empty (from the pool after the first)": lambda: runnel.pinned_empty(size),
    }
    for name, make in kinds.items():
        def run() -> Any:
            array = make()
            runnel.copy(array, block, stream)
            return array

        try:
            done, call = clock(run, stream.synchronize)
        except OSError as error:
            say(name, str(error))
            continue
        say(name, f"{size / done / 1e9:8.1f}   held {call * 1e3:.2f} ms")
    for setting in ("enabled", "defrag", "shmem_enabled"):
        path = f"/sys/kernel/mm/transparent_hugepage/{setting}"
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                say(path, file.read().strip())


def one_overlap(name: str, source: Any, target: Any, fn: Callable[..., Any], **options: Any) -> None:
    inside = [0.0]

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        made = fn(*arguments)
        inside[0] += time.perf_counter() - start
        return made

    best = None
    for _ in range(2):
        inside[0] = 0
        result = runnel.overlap(source, target, timed, **options)
        if best is None or result.seconds < best.seconds:
            best = result
            spent = inside[0]
    assert best is not None
    say(name, f"{source.nbytes / best.seconds / 1e9:8.1f} GB/s   {best.chunks} chunks of {best.chunk * source.nbytes / len(source) / (1 << 20):.0f} MiB, "
              f"{best.in_flight} in flight, {best.strategy}; fn {spent / best.chunks * 1e6:.0f} us a chunk")


def through_functions() -> None:
    """Which of size, strategy, chunk, the function and Python itself costs what."""
    print("overlap: of the input")
    torch = torch_or_none()
    source, target = np.ones((LARGE // 4096, 1024), np.float32), np.ones((LARGE // 4096, 1024), np.float32)
    quarter = len(source) // 4
    like = torch if torch is not None else np if ON_HOST else None

    def double(chunk: Any, x: Any, y: Any) -> Any:
        if like is None:
            return x
        (torch.mul if torch is not None else np.multiply)(x, 2, out=y)

    one_overlap(f"a quarter ({quarter * 4096 >> 20} MiB), automatic", source[:quarter], target[:quarter], double, like=like)
    one_overlap(f"all ({LARGE >> 20} MiB), automatic", source, target, double, like=like)
    one_overlap("all, no arrays of torch's: the function returns x", source, target, lambda chunk, x, y: x)
    one_overlap("all, in only", source, None, lambda chunk, x: None)
    half = len(source) // 2
    for strategy in ("A", "B"):
        one_overlap(f"half, strategy {strategy}", source[:half], target[:half], double, like=like, strategy=strategy)
    for mebibytes in (8, 16, 32, 64, 128):
        one_overlap(f"half, chunks of {mebibytes} MiB", source[:half], target[:half], double, like=like, chunk=(mebibytes << 20) // 4096)
    for in_flight in (2, 3, 4, 6):
        one_overlap(f"half, {in_flight} in flight", source[:half], target[:half], double, like=like, in_flight=in_flight)
    copies_alone(source[:half], target[:half])


def copies_alone(source: Any, target: Any) -> None:
    """What the copies reach without chunks: each way alone, and both at once."""
    up, down = runnel.empty(source.nbytes, stream), runnel.empty(source.nbytes, stream)
    runnel.fill(down, 1, stream)
    other = runnel.Stream()

    def both() -> None:
        runnel.copy(up, source, stream)
        runnel.copy(target, down, other)

    def wait() -> None:
        stream.synchronize()
        other.synchronize()

    for name, run in (("up alone", lambda: runnel.copy(up, source, stream)), ("down alone", lambda: runnel.copy(target, down, other)), ("both at once, each", both)):
        say(f"half, copies without overlap(): {name}", f"{source.nbytes / clock(run, wait, 2)[0] / 1e9:8.1f} GB/s")


def main() -> None:
    parts = {"held": held, "fresh": fresh, "overlap": through_functions}
    wanted = sys.argv[1:] or list(parts)
    if set(wanted) - set(parts):
        sys.exit(__doc__)
    print(f"runnel {runnel.__version__}, {runnel.backend}, {runnel.Device(0).name}, {os.cpu_count()} cores")
    for name in wanted:
        start = time.perf_counter()
        parts[name]()
        print(f"  ({time.perf_counter() - start:.0f} s)")


main()
