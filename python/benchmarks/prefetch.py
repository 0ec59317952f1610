# SPDX-License-Identifier: Apache-2.0
"""A loop of matrix products on batches of ordinary NumPy arrays: the products alone, with runnel.prefetch(), and with torch's DataLoader that
pins and copies with non_blocking=True. By hand: the same batch from memory that was pinned before, with a stream and events of torch, which
is the limit. Needs torch and a GPU.

    python prefetch.py [--batches 120] [MIB ...]       MiB of a batch (default: 1 4 16 64 256)
"""
from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

import runnel

SIDE = 4096


def seconds(make: Callable[[], Iterable[Any]], step: Callable[[Any], None]) -> float:
    """The least time of a loop over what `make` makes."""
    best = float("inf")
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for batch in make():
            step(batch)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def by_hand(count: int, pinned: torch.Tensor, step: Callable[[torch.Tensor], None]) -> None:
    """`count` batches from one pinned tensor through three tensors on the device, two copies ahead."""
    side, used = torch.cuda.Stream(), torch.cuda.current_stream()
    places = [torch.empty_like(pinned, device="cuda") for _ in range(3)]
    arrived: list[Any] = [None] * 3
    for i in range(-2, count):
        if i + 2 < count:
            side.wait_stream(used)
            with torch.cuda.stream(side):
                places[(i + 2) % 3].copy_(pinned, non_blocking=True)
                arrived[(i + 2) % 3] = side.record_event()
        if i >= 0:
            used.wait_event(arrived[i % 3])
            step(places[i % 3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=120)
    parser.add_argument("sizes", type=int, nargs="*", default=[1, 4, 16, 64, 256])
    options = parser.parse_args()
    weights = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    print(f"{torch.cuda.get_device_name()}: share of the products' own time, {options.batches} batches")
    for mib in options.sizes:
        arrays = [np.ones(mib << 18, np.float32) for _ in range(4)]
        on_device = torch.ones(mib << 18, device="cuda")
        # Products for about twice as long as a copy at 50 GB/s takes.
        state = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            torch.mm(state, weights)
        torch.cuda.synchronize()
        count = max(1, round(2 * mib * 2**20 / 50e9 / ((time.perf_counter() - start) / 20)))

        def step(batch: torch.Tensor) -> None:
            for _ in range(count):
                torch.mm(state, weights)
            batch.add_(1)

        alone = seconds(lambda: [on_device] * options.batches, step)
        source = [arrays[i % len(arrays)] for i in range(options.batches)]
        ours = seconds(lambda: runnel.prefetch(source, "cuda:0", depth=2, like=torch), step)
        pinned = torch.from_numpy(arrays[0]).pin_memory()
        hand = seconds(lambda: [None], lambda _: by_hand(options.batches, pinned, step))
        loader = torch.utils.data.DataLoader(source, batch_size=None, pin_memory=True)  # type: ignore[arg-type, var-annotated]
        theirs = seconds(lambda: (batch.cuda(non_blocking=True) for batch in loader), step)
        print(f"{mib:5} MiB, {count:4} products: alone {1e3 * alone / options.batches:8.2f} ms  prefetch() {alone / ours:5.3f}  "
              f"by hand {alone / hand:5.3f}  DataLoader(pin_memory) {alone / theirs:5.3f}", flush=True)


if __name__ == "__main__":
    main()
