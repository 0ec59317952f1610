# SPDX-License-Identifier: Apache-2.0
"""Weights in ordinary memory, two layers of them on the device: the next layer comes while this one computes. Torch computes where it is
there; without a GPU the same program runs on the host."""
import numpy as np

import runnel


class Offloaded:
    """Layers that are on the device when they are needed."""

    def __init__(self, layers):
        self.layers = layers
        self.stream = runnel.Stream(name="weights")
        self.slots = [runnel.empty(layers[0].nbytes, self.stream) for _ in range(2)]
        self.used = [runnel.Event(), runnel.Event()]
        self.came = [runnel.Event(), runnel.Event()]

    def fetch(self, i):
        slot = i % 2
        self.stream.wait_event(self.used[slot])  # what computed with the layer before
        runnel.copy(self.slots[slot], self.layers[i], self.stream)
        self.stream.record_event(self.came[slot])

    def run(self, computing, step):
        self.fetch(0)
        for i, layer in enumerate(self.layers):
            if i + 1 < len(self.layers):
                self.fetch(i + 1)
            computing.wait_event(self.came[i % 2])
            step(i, self.slots[i % 2].view("float32", layer.shape))
            computing.record_event(self.used[i % 2])


def main():
    layers = [np.full((64, 64), i, np.float32) for i in range(10)]
    seen = [np.empty_like(layer) for layer in layers]
    computing = runnel.Stream(name="computing")
    Offloaded(layers).run(computing, lambda i, weights: runnel.copy(seen[i], weights, computing))
    computing.synchronize()
    assert all((a == b).all() for a, b in zip(layers, seen))
    print(f"{len(layers)} layers passed through memory for two")


main()
