# SPDX-License-Identifier: Apache-2.0
"""A public model whose weights stay on the host: transformers' Llama, offloaded by accelerate, by torch by hand, and by runnel.offload().

    python offload.py [--layers 12 16] [--tokens 1 64] [--rounds 3]       --small: a tiny model, on any backend

The weights are random bfloat16, in ordinary memory; for disk_offload() and "mapped" they are in files whose pages are in memory. The outputs are
compared bit by bit with those of the unchanged model offloaded by accelerate. The ways take turns, and the best round of each counts.
"""
from __future__ import annotations

import argparse
import copy
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import accelerate
import safetensors
import safetensors.torch
import torch
import transformers

import runnel

ON_HOST = runnel.backend == "host"
DEVICE = torch.device("cpu" if ON_HOST else "cuda:0")


def synchronize() -> None:
    if not ON_HOST:
        torch.cuda.synchronize()


def make_model(layers: int, small: bool) -> Any:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4} if small else {
        "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32}
    config = transformers.LlamaConfig(num_hidden_layers=layers, vocab_size=8000, use_cache=False, **sizes)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model = model.to_empty(device="cpu").eval().requires_grad_(False)
    values = torch.empty(64 << 20).uniform_(-0.02, 0.02, generator=torch.Generator().manual_seed(0))
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.data.fill_(1)
        else:
            weight.data.copy_(values[: weight.numel()].view(weight.shape))
    rotary = model.model.rotary_emb
    half = config.hidden_size // config.num_attention_heads // 2
    rotary.inv_freq = rotary.original_inv_freq = 10000.0 ** -(torch.arange(half, dtype=torch.float32) / half)
    return model


def to_device(model: Any) -> None:
    for part in (model.model.embed_tokens, model.model.norm, model.model.rotary_emb, model.lm_head):
        part.to(DEVICE)


def tensors_of(layers: Any) -> list[dict[str, Any]]:
    return [{name: weight.data for name, weight in layer.named_parameters()} for layer in layers]


class ByHand:
    """What a program of torch does without a library: hooks that move each layer, by `.to()` or by two slots and a stream beside."""

    def __init__(self, model: Any, weights: list[dict[str, Any]], slots: int) -> None:
        self.model, self.weights, self.handles = model, weights, []
        layers = model.model.layers
        if slots:
            self.side = torch.cuda.Stream()
            self.slots = [{name: torch.empty_like(weight, device=DEVICE) for name, weight in weights[0].items()} for _ in range(slots)]
            self.came, self.used = ([torch.cuda.Event() for _ in range(slots)] for _ in range(2))
        for i, layer in enumerate(layers):
            before = (lambda _, inputs, i=i: self.before(i)) if slots else (lambda _, inputs, i=i: self.move(i))
            self.handles += [layer.register_forward_pre_hook(before), layer.register_forward_hook(lambda _, inputs, outputs, i=i: self.after(i, slots))]

    def swap(self, i: int, tensors: dict[str, Any]) -> None:
        for name, weight in self.model.model.layers[i].named_parameters():
            weight.data = tensors[name]

    def move(self, i: int) -> None:
        self.swap(i, {name: weight.to(DEVICE, non_blocking=True) for name, weight in self.weights[i].items()})

    def fetch(self, i: int) -> None:
        slot = i % len(self.slots)
        self.side.wait_event(self.used[slot])
        with torch.cuda.stream(self.side):
            for name, weight in self.weights[i].items():
                self.slots[slot][name].copy_(weight, non_blocking=True)
            self.came[slot].record()

    def before(self, i: int) -> None:
        if i == 0:
            self.fetch(0)
        if i + 1 < len(self.model.model.layers):
            self.fetch(i + 1)
        torch.cuda.current_stream().wait_event(self.came[i % len(self.slots)])
        self.swap(i, self.slots[i % len(self.slots)])

    def after(self, i: int, slots: int) -> None:
        if slots:
            self.used[i % slots].record()
        self.swap(i, self.weights[i])

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()


class Way:
    def __init__(self, name: str, model: Any, begin: Callable[[], Any], rounds: int) -> None:
        self.name, self.model, self.begin, self.rounds = name, model, begin, rounds
        self.best, self.call, self.output = 1e9, 1e9, None

    def round(self, ids: Any) -> None:
        begun = self.begin()
        for _ in range(2):  # the first one warms up
            synchronize()
            start = time.perf_counter()
            self.output = self.model(ids).logits
            call = time.perf_counter() - start
            synchronize()
            took = time.perf_counter() - start
        if took < self.best:
            self.best, self.call = took, call
        if begun is not None:
            begun.close()


def main(folder: str) -> bool:
    """Whether all outputs are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=[12, 16])
    parser.add_argument("--tokens", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--held", type=int, default=2048, help="the tokens of the pass that shows how long the host is held")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the names of the ways to measure")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    print(f"runnel {runnel.__version__} ({runnel.backend}), torch {torch.__version__}, transformers {transformers.__version__}, accelerate "
          f"{accelerate.__version__}, safetensors {safetensors.__version__}, {DEVICE if ON_HOST else torch.cuda.get_device_name()}")
    is_equal = True
    most = max(options.layers)
    model = make_model(most, options.small)
    wanted = lambda name: options.only in name
    by_cpu = accelerate.cpu_offload(copy.deepcopy(model), execution_device=DEVICE)
    by_disk = accelerate.disk_offload(copy.deepcopy(model), folder + "/disk", execution_device=DEVICE) if wanted("disk") else None
    models = [each for each in (model, by_cpu, by_disk) if each is not None]
    all_layers, home = [each.model.layers for each in models], tensors_of(model.model.layers)
    safetensors.torch.save_file({f"{i}.{name}": weight for i, weights in enumerate(home) for name, weight in weights.items()}, folder + "/layers.safetensors")
    file = safetensors.safe_open(folder + "/layers.safetensors", framework="pt")
    mapped = [{name: file.get_tensor(f"{i}.{name}") for name in weights} for i, weights in enumerate(home)]
    pinned = home if ON_HOST else [{name: weight.pin_memory() for name, weight in weights.items()} for weights in home]
    to_device(model)

    def offloaded(weights: list[dict[str, Any]]) -> Any:
        for layer, tensors in zip(model.model.layers, weights):
            for name, weight in layer.named_parameters():
                weight.data = tensors[name]
        return runnel.offload(model.model.layers, "cuda:0", depth=2)

    for layers in options.layers:
        for each, whole in zip(models, all_layers):
            each.model.layers, each.config.num_hidden_layers = whole[:layers], layers
        nbytes = sum(weight.numel() * weight.element_size() for weights in home[:layers] for weight in weights.values())
        for tokens in options.tokens:
            ids = torch.randint(0, 8000, (1, tokens), generator=torch.Generator().manual_seed(1)).to(DEVICE)
            ways = [Way("accelerate cpu_offload()", by_cpu, lambda: None, 1), Way("accelerate disk_offload()", by_disk, lambda: None, 1),
                    Way("runnel.offload(), ordinary memory", model, lambda: offloaded(home), options.rounds),
                    Way("runnel.offload(), mapped file", model, lambda: offloaded(mapped), options.rounds)]
            if not ON_HOST:
                ways += [Way("torch, .to(non_blocking=True) in each layer", model, lambda: ByHand(model, home, 0), 1),
                         Way("torch, two slots, ordinary memory", model, lambda: ByHand(model, home, 2), 1),
                         Way("torch, two slots, pinned by hand", model, lambda: ByHand(model, pinned, 2), options.rounds)]
            ways = [way for way in ways if way.model is not None and (wanted(way.name) or "cpu_offload" in way.name)]
            with torch.no_grad():
                for number in range(options.rounds):
                    for way in ways:
                        if number < way.rounds:
                            way.round(ids)
            print(f"\n{layers} layers, {nbytes / 2**30:.2f} GiB, {tokens} tokens: a pass, GB/s of weights, the call's share; beside pinned by hand, accelerate")
            limit = next((way.best for way in ways if "pinned" in way.name), None)
            for way in sorted(ways, key=lambda way: -way.best):
                of_limit = f"{limit / way.best:6.3f}" if limit else ""
                print(f"  {way.name:44} {1e3 * way.best:8.1f} ms {nbytes / way.best / 1e9:6.1f} {100 * way.call / way.best:5.0f} % {of_limit} "
                      f"{ways[0].best / way.best:6.2f}x{'' if torch.equal(way.output, ways[0].output) else '  OTHER OUTPUT'}", flush=True)
            is_equal &= all(torch.equal(way.output, ways[0].output) for way in ways)
            for way in ways:
                way.output = None

    # The device's memory, and how long the calls of a pass take: nothing should hold them, so they take what torch's own work on the host takes.
    ids = torch.randint(0, 8000, (1, 16 if options.small else options.held)).to(DEVICE)
    largest = max(sum(weight.numel() * weight.element_size() for weight in weights.values()) for weights in home)
    with torch.no_grad():
        if not ON_HOST:
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]
            with offloaded(home) as slots:
                after = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]
                print(f"\n{slots!r}: {(after[0] - before[0]) / largest:.4f} of the largest layer in torch's allocator, "
                      f"{(before[1] - after[1]) / largest:.4f} of the device's memory; the bound is {3 * 1.01:.4f}")
        ways = [Way("runnel.offload()", model, lambda: offloaded(home), options.rounds)]
        if not ON_HOST:
            ways.append(Way("two slots, pinned by hand", model, lambda: ByHand(model, pinned, 2), options.rounds))
        for way in ways:
            for _ in range(options.rounds):
                way.round(ids)
        model.model.layers.to(DEVICE)
        ways.append(Way("weights on the device", model, lambda: None, 1))
        ways[-1].round(ids)
    print(f"\n{ids.numel()} tokens: the calls of a pass, the pass, what the calls take beyond those with the weights on the device")
    for way in ways:
        is_equal &= torch.equal(way.output, ways[-1].output)
        print(f"  {way.name:44} {1e3 * way.call:8.1f} of {1e3 * way.best:8.1f} ms {100 * (way.call - ways[-1].call) / way.best:5.1f} % of the pass")
    print("all outputs are equal" if is_equal else "OTHER OUTPUTS")
    return is_equal


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        done = main(made)
    sys.exit(0 if done else 1)
