# SPDX-License-Identifier: Apache-2.0
"""The costs of calls, and rates of copies beside torch and CuPy where they are there and see a GPU.

    python table.py [--size GIB] [--json FILE]       sizes of the large copies (default: 4 on a GPU, 0.25 on the host backend)
"""
from __future__ import annotations

import argparse
import importlib
import json
import os
import struct
import sys
import tempfile
import time
import timeit
from typing import Any, Callable

import numpy as np

import runnel

ON_HOST = runnel.backend == "host"
results: dict[str, float] = {}


def report(name: str, value: float, unit: str, goal: str = "") -> None:
    results[f"{name} [{unit}]"] = value
    print(f"{name:58} {value:10.1f} {unit:5} {goal}", flush=True)


def module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def cost(name: str, statement: str, goal: str = "", number: int = 50_000, **names: Any) -> None:
    """The least time of a call, in ns, without the loop."""
    empty = min(timeit.repeat("pass", number=number, repeat=5)) / number
    best = min(timeit.repeat(statement, number=number, repeat=7, globals=names)) / number
    report(name, (best - empty) * 1e9, "ns", goal)


def cost_of_copies(size: int, goal: str = "") -> None:
    """Calls of copy(), in bursts that the stream's queue takes."""
    stream = runnel.Stream()
    source, target = np.zeros(size, np.uint8), runnel.empty(size, stream)
    best = float("inf")
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(100):
            runnel.copy(target, source, stream)
        best = min(best, (time.perf_counter() - start) / 100)
        stream.synchronize()
    report(f"copy of {size} B, call", best * 1e9, "ns", goal)
    torch = module("torch")
    if torch is not None and not ON_HOST and torch.cuda.is_available():
        theirs = torch.empty(size, dtype=torch.uint8, device="cuda")
        ours = torch.from_numpy(source)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(1000):
            theirs.copy_(ours, non_blocking=True)
        report(f"copy of {size} B, torch", (time.perf_counter() - start) * 1e6, "ns")
        torch.cuda.synchronize()


def rate(name: str, nbytes: int, run: Callable[[], object], wait: Callable[[], object], goal: str = "") -> None:
    """GB/s of the best of 3, and how long the call held its caller."""
    best, held = float("inf"), float("inf")
    for _ in range(3):
        wait()
        start = time.perf_counter()
        made = run()  # kept, so that freeing it is not measured
        called = time.perf_counter() - start
        wait()
        best, held = min(best, time.perf_counter() - start), min(held, called)
        del made
    report(name, nbytes / best / 1e9, "GB/s", goal)
    report(name + ", held", held * 1e3, "ms")


def large_copies(nbytes: int) -> None:
    stream = runnel.Stream()
    source, target = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    block = runnel.empty(nbytes, stream)
    rate("up", nbytes, lambda: runnel.copy(block, source, stream), stream.synchronize, ">= 45 on a GPU, call <= 1 ms")
    rate("down, into an array that was used", nbytes, lambda: runnel.copy(target, block, stream), stream.synchronize, ">= 45 on a GPU")
    rate("down, into a fresh array", nbytes, lambda: runnel.to_host(block, stream=stream), stream.synchronize, ">= 18 on a GPU")
    parts = [(block.view("uint8", (nbytes // 256,), i * (nbytes // 256)), source[i * (nbytes // 256) : (i + 1) * (nbytes // 256)]) for i in range(256)]
    rate("up, 256 copies as a list", nbytes, lambda: runnel.copy_many(parts, stream), stream.synchronize, ">= 45 on a GPU")
    beside_others(source, target)


def beside_others(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> None:
    torch, cupy = module("torch"), module("cupy")
    if torch is not None and not ON_HOST and torch.cuda.is_available():
        tensor = torch.empty(source.nbytes, dtype=torch.uint8, device="cuda")
        up, down = torch.from_numpy(source), torch.from_numpy(target)
        rate("up, torch", source.nbytes, lambda: tensor.copy_(up, non_blocking=True), torch.cuda.synchronize)
        rate("down, torch", source.nbytes, lambda: down.copy_(tensor, non_blocking=True), torch.cuda.synchronize)
        rate("down, torch, fresh", source.nbytes, lambda: tensor.to("cpu", non_blocking=True), torch.cuda.synchronize)
    if cupy is not None and not ON_HOST:
        array = cupy.empty(source.nbytes, cupy.uint8)
        wait = cupy.cuda.Device().synchronize
        rate("up, CuPy", source.nbytes, lambda: array.set(source), wait)
        rate("down, CuPy, fresh", source.nbytes, lambda: array.get(), wait)


def through_a_function(nbytes: int) -> None:
    """NumPy to torch to NumPy, by overlap() and by a plain loop."""
    torch = module("torch")
    source = np.ones((nbytes // 4096, 1024), np.float32)
    target = np.ones_like(source)
    use_torch = torch is not None and (ON_HOST or torch.cuda.is_available())
    like = torch if use_torch else np if ON_HOST else None
    function = (lambda chunk, x, y: torch.mul(x, 2, out=y)) if use_torch else (lambda chunk, x, y: np.multiply(x, 2, out=y)) if ON_HOST else None
    function = function or (lambda chunk, x, y: x)
    rate("NumPy, function, NumPy: overlap()", nbytes, lambda: runnel.overlap(source, target, function, like=like), lambda: None,
         ">= 35 on a GPU, >= 6 x torch")
    if use_torch and not ON_HOST:
        def loop() -> None:
            rows = 16_384
            for i in range(0, len(source), rows):
                x = torch.from_numpy(source[i : i + rows]).to("cuda", non_blocking=True)
                target[i : i + rows] = x.mul_(2).to("cpu").numpy()

        rate("NumPy, function, NumPy: torch's loop", nbytes, loop, torch.cuda.synchronize)


def safetensors(nbytes: int) -> None:
    """A file of 256 tensors, in the page cache, to the device: by the example, one by one, and by the library of that name."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
    import safetensors_load  # type: ignore[import-not-found]

    stream = runnel.Stream()
    size = nbytes // 256
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        header = json.dumps({f"layer{i}": {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]} for i in range(256)}).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            part = np.ones(size, np.uint8)
            for _ in range(256):
                file.write(part)
        kept: list[Any] = []

        def load() -> None:
            kept[:] = [safetensors_load.load(path, stream)]

        def one_by_one() -> None:
            data = runnel.map_file(path, 8 + len(header))
            kept[:] = [runnel.to_device(data[i * size : (i + 1) * size], stream=stream) for i in range(256)]

        rate("safetensors, 256 tensors, map_file() and copy_many()", nbytes, load, stream.synchronize, ">= 45 on a GPU")
        rate("safetensors, 256 tensors, one by one", nbytes, one_by_one, stream.synchronize)
        kept.clear()
        torch, theirs = module("torch"), module("safetensors.torch")
        if theirs is not None and torch is not None and not ON_HOST and torch.cuda.is_available():
            rate("safetensors, load_file(device='cuda')", nbytes, lambda: kept.__setitem__(slice(None), [theirs.load_file(path, device="cuda")]),
                 torch.cuda.synchronize)


def beside_products(nbytes: int) -> None:
    torch = module("torch")
    if torch is None or ON_HOST or not torch.cuda.is_available():
        return
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    source, tensor = np.ones(nbytes, np.uint8), torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    stream, side = runnel.Stream(), torch.cuda.Stream()

    def products() -> None:
        for _ in range(50):
            matrix @ matrix

    def torch_beside() -> None:
        products_after = torch.from_numpy(source)
        with torch.cuda.stream(side):
            tensor.copy_(products_after, non_blocking=True)
        products()

    def ours_beside() -> None:
        runnel.copy(tensor, source, stream)
        products()

    for name, run in (("alone", products), ("beside runnel's copy", ours_beside), ("beside torch's copy", torch_beside)):
        best = float("inf")
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            stream.synchronize()
            torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
        report(f"matrix products {name}", best * 1e3, "ms", "<= 1.06 x alone with runnel's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=float, default=0.25 if ON_HOST else 4, help="GiB of the large copies; overlap() gets 4 times as much on a GPU, safetensors twice")
    parser.add_argument("--json", help="also writes the numbers to this file")
    options = parser.parse_args()
    stream = runnel.Stream()
    print(f"runnel {runnel.__version__}, {runnel.backend}, {runnel.Device(0).name}")
    cost("an empty call: stream.id", "s.id", "<= 60", s=stream)
    cost("stream.query()", "s.query()", s=stream)
    cost("with stream: pass", "with s: pass", "<= 300", s=stream)
    cost("event.record(stream)", "e.record(s)", number=5000, s=stream, e=runnel.Event())
    for size in (64, 4096, 65_536, 262_144):
        cost_of_copies(size, "<= 600 on the host backend" if size == 64 else "")
    nbytes = int(options.size * (1 << 30)) // (256 * 4096) * (256 * 4096)
    large_copies(nbytes)
    through_a_function(nbytes if ON_HOST else 4 * nbytes)
    safetensors(2 * nbytes)
    beside_products(min(nbytes, 2 << 30))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


main()
