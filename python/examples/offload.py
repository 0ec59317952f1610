# SPDX-License-Identifier: Apache-2.0
"""A model whose layers stay in ordinary memory, with three of them on the device at a time: runnel.offload() is all of it. Without a GPU the same
program runs on the host."""
import importlib.util
import sys

import runnel

if importlib.util.find_spec("torch") is None:
    print("this example needs torch")
    sys.exit()
import torch

if runnel.backend == "host" or not torch.cuda.is_available():
    device = "cpu"
else:
    device = "cuda:0"


class Model(torch.nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True) for _ in range(depth))
        self.head = torch.nn.Linear(width, 100)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    model = Model(128, 10).eval()
    model.head.to(device)  # what is no layer has to be on the device
    x = torch.randn(2, 16, 128, device=device)
    with torch.inference_mode():
        with runnel.offload(model.layers, device="cuda:0", depth=2) as offloaded:
            print(offloaded)
            outputs = [model(x) for _ in range(3)]
        expected = model.to(device)(x)  # it fits: this is what it has to compute
    assert all(torch.allclose(output, expected, atol=1e-5) for output in outputs)
    print(f"{len(outputs)} passes through {len(model.layers)} layers")


main()
