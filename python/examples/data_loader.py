# SPDX-License-Identifier: Apache-2.0
"""Feeds a training loop from NumPy: the next batches are on their way while one is used. Nothing is pinned; `batches` is all of it."""
import collections

import numpy as np

import runnel


def batches(arrays, ahead=3):
    """Yields each array on the device. `ahead` of them are under way; the current stream waits for the one that is yielded."""
    stream = runnel.Stream(name="loader")
    waiting = collections.deque()
    for array in arrays:
        waiting.append((runnel.to_device(array, stream=stream), stream.record_event()))
        if len(waiting) > ahead:
            yield use(*waiting.popleft())
    while waiting:
        yield use(*waiting.popleft())


def use(block, event):
    computing = runnel.current_stream()
    event.wait(computing)  # returns at once: what the loop enqueues comes after the copy
    block.record_stream(computing)
    return block


def main():
    random = np.random.default_rng(0)
    data = [random.random((64, 128), dtype=np.float32) for _ in range(20)]
    computing = runnel.Stream(name="training")
    sums = [np.empty_like(array) for array in data]
    with computing:
        for batch, result in zip(batches(data), sums):
            runnel.copy(result, batch)  # stands for a step of training
    computing.synchronize()
    assert all((array == result).all() for array, result in zip(data, sums))
    print(f"{len(data)} batches were used in order while others were on their way")


main()
