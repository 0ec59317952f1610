# SPDX-License-Identifier: Apache-2.0
"""Training of a public vision model (torchvision) on uint8 images of NumPy: prefetch() beside torch's DataLoader(pin_memory=True).

    python training.py [--model resnet50] [--batch 256] [--steps 40]           --small: a tiny run, on any backend

The model, the step and the order of the images are the same for all ways; what differs is how a batch gets to the device. The sums of all
images that arrived are compared exactly, and the first losses. "Alone": the steps on a batch that is on the device already.
"""
from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torchvision

import runnel

ON_HOST = runnel.backend == "host"
DEVICE = torch.device("cpu" if ON_HOST else "cuda:0")


class Images(torch.utils.data.Dataset[Any]):
    """Images and labels in two arrays of NumPy. A batch is one indexing of them, as of a memory map."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __getitem__(self, which: Any) -> Any:
        return self.images[which], self.labels[which]

    def __len__(self) -> int:
        return len(self.images)


def loader(data: Images, batch: int, workers: int, pin: bool) -> Any:
    order = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data, generator=torch.Generator().manual_seed(0)), batch, drop_last=True)  # type: ignore[type-var]
    return torch.utils.data.DataLoader(data, batch_size=None, sampler=order, num_workers=workers, pin_memory=pin, persistent_workers=workers > 0)


def moved(batches: Any) -> Iterable[Any]:
    """The loop of torch's tutorials."""
    for images, labels in batches:
        yield images.to(DEVICE, non_blocking=True), labels.to(DEVICE, non_blocking=True)


def train(name: str, batches: Callable[[], Iterable[Any]], steps: int, warm: int) -> tuple[float, float, int]:
    """Seconds of a step, the first loss, and the sum of all images that were seen."""
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(num_classes=100).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    seen, number, start, first = torch.zeros((), dtype=torch.int64, device=DEVICE), 0, 0.0, None
    while True:
        for images, labels in batches():
            if number == warm:
                if not ON_HOST:
                    torch.cuda.synchronize()
                start = time.perf_counter()
            elif number == warm + steps:
                if not ON_HOST:
                    torch.cuda.synchronize()
                return (time.perf_counter() - start) / steps, float(first), int(seen)  # type: ignore[arg-type]
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=not ON_HOST):
                x = images.permute(0, 3, 1, 2).to(torch.float32 if ON_HOST else torch.bfloat16).div_(255).to(memory_format=torch.channels_last)
                loss = criterion(model(x), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            seen += images.sum(dtype=torch.int64)
            first = loss.detach() if first is None else first
            number += 1


def main() -> bool:
    """Whether all results are the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="*", default=["resnet50", "resnet18"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 4])
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.small:
        options.batch, options.steps, options.model = 4, 4, ["resnet18"]
    side, count = (32, 64) if options.small else (224, (options.steps + 12) * options.batch)
    print(f"runnel {runnel.__version__} ({runnel.backend}), torch {torch.__version__}, torchvision {torchvision.__version__}, NumPy {np.__version__}, "
          f"{DEVICE if ON_HOST else torch.cuda.get_device_name()}; batches of {options.batch} x {side} x {side} x 3 uint8")
    random, all_same = np.random.default_rng(0), True
    data = Images(random.integers(0, 256, (count, side, side, 3), np.uint8), random.integers(0, 100, count))
    on_device = [torch.from_numpy(array[: options.batch]).to(DEVICE) for array in (data.images, data.labels)]
    for name in options.model:
        alone, _, _ = train(name, lambda: [on_device] * 1000, options.steps, 8)
        print(f"\n{name}: alone {1e3 * alone:.2f} ms a step, {options.batch / alone:.0f} images/s")
        for workers in options.workers:
            made = functools.partial(loader, data, options.batch, workers)
            ways = {"DataLoader(pin_memory=True)": lambda: moved(made(not ON_HOST)), "DataLoader": lambda: moved(made(False)),
                    "prefetch(DataLoader)": lambda: runnel.prefetch(made(False), "cuda:0", like=torch)}
            results = {way: train(name, batches, options.steps, 8) for way, batches in ways.items()}  # type: ignore[arg-type]
            reference = next(iter(results.values()))
            for way, (step, first, seen) in results.items():
                same = seen == reference[2] and abs(first - reference[1]) < 1e-2
                all_same &= same
                print(f"  {workers} workers, {way:28} {1e3 * step:8.2f} ms {options.batch / step:8.0f} images/s, {alone / step:.3f} of the step alone"
                      f"{'' if same else '  OTHER RESULT'}", flush=True)
    return all_same


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
