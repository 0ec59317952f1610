# SPDX-License-Identifier: Apache-2.0
"""offload(): modules of torch whose weights stay in the host's memory."""
from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import runnel
from conftest import ON_HOST, eventually, on_threads

torch: Any = pytest.importorskip("torch")
if not ON_HOST and not torch.cuda.is_available():
    pytest.skip("torch has no GPU here", allow_module_level=True)

PLACE = "cpu" if ON_HOST else "cuda:0"


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def layers(sizes: list[int], **keywords: Any) -> Any:
    return torch.nn.Sequential(*(torch.nn.Linear(a, b, **keywords) for a, b in zip(sizes, sizes[1:])))


def reference(modules: Any, run: Callable[[], Any]) -> Any:
    """The result with everything on the device, and the modules at home again."""
    homes = [(tensor, tensor.data) for module in modules for tensor in (*module.parameters(), *module.buffers())]
    for tensor, home in homes:
        tensor.data = home.to(PLACE)
    result = run()
    for tensor, home in homes:
        tensor.data = home
    return result


def where(modules: Any) -> list[Any]:
    return [(id(tensor), tensor.data_ptr(), tensor.dtype, tensor.device.type) for module in modules for tensor in (*module.parameters(), *module.buffers())]


X = torch.randn(5, 64).to(PLACE)


@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4], [0, 1, 1, 0, 2], [0, 2, 5], [3, 3, 3]])
def test_modules_in_any_order(depth: int, order: list[int]) -> None:
    modules = [*layers([64] * 7)]

    def run(x: Any, order: list[int]) -> Any:
        for i in order:
            x = modules[i](x)
        return x

    orders = [order, order, [0, 1, 2, 3], order[::-1]]  # an order that changes, modules that are skipped
    results = [reference(modules, lambda: run(X, each)) for each in orders]
    before = where(modules)
    with runnel.offload(modules, "cuda:0", depth):
        assert all(torch.equal(run(X, each), result) for each, result in zip(orders, results))
        assert where(modules) == before
    assert where(modules) == before and not any("forward" in vars(module) for module in modules)


def test_sizes_types_and_memory_of_all_kinds(tmp_path: Any) -> None:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            self.narrow = torch.nn.Parameter(torch.randn(64).bfloat16(), requires_grad=False)
            self.register_buffer("scale", torch.tensor(3, dtype=torch.int64))
            self.register_buffer("none", None)
            self.empty = torch.nn.Parameter(torch.empty(0, 4))
            self.part = torch.nn.Parameter(torch.randn(8, 8)[:, ::2])
            self.wide = torch.nn.Parameter(torch.randn(1).expand(6))

        def forward(self, x: Any) -> Any:
            assert self.conv.weight.is_contiguous(memory_format=torch.channels_last)
            y = self.conv(x[:1, :48].reshape(1, 3, 4, 4)).sum() + self.part[3, 2] * self.wide[3] + self.empty.sum()
            return x * self.narrow.float() * self.scale + y

    pinned = torch.nn.Linear(64, 64)
    for tensor in pinned.parameters():
        tensor.data = torch.from_numpy(runnel.pinned_empty(tuple(tensor.shape), "float32")).copy_(tensor)
    mapped = torch.nn.Linear(64, 64)
    (tmp_path / "weights").write_bytes(bytes(mapped.weight.data.numpy()))
    mapped.weight.data = torch.from_file(str(tmp_path / "weights"), size=64 * 64).view(64, 64)
    model = torch.nn.Sequential(Mixed(), pinned, torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 64), mapped, torch.nn.BatchNorm1d(64).eval())
    result, before = reference([model], lambda: model(X)), where([model])
    with runnel.offload(model) as offloaded:
        assert repr(offloaded) == f"<runnel.offload() of 7 modules, 0.00 GiB, 3 slots of 0.1 MiB on {PLACE}>"
        for _ in range(3):
            assert torch.equal(model(X), result)
        with torch.inference_mode():
            assert torch.equal(model(X), result)
    assert repr(offloaded).endswith("closed>") and where([model]) == before and torch.equal(reference([model], lambda: model(X)), result)


def test_places_in_the_slots_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = layers([64] * 6)
    result = reference(model, lambda: model(X))
    with runnel.offload(model):
        model(X)
        monkeypatch.delattr(torch, "empty")
        assert torch.equal(model(X), result)


def test_safetensors(tmp_path: Any) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = layers([64] * 5).bfloat16()
    safetensors.save_file(model.state_dict(), tmp_path / "model.safetensors")
    model.load_state_dict(safetensors.load_file(tmp_path / "model.safetensors"), assign=True)
    x = X.bfloat16()
    result = reference(model, lambda: model(x))
    with runnel.offload(model), torch.inference_mode():
        assert torch.equal(model(x), result)


def test_tied_weights_and_nesting() -> None:
    model = layers([64] * 5)
    model[2].weight, model[3].bias = model[1].weight, model[0].bias
    outer = torch.nn.Sequential(torch.nn.Sequential(model[0], model[1]), *model)
    result, before = reference([outer], lambda: outer(X)), where([outer])
    with runnel.offload([*outer, *model]), runnel.offload([outer]), runnel.offload(model):
        for _ in range(3):
            assert torch.equal(outer(X), result)
    first, second = runnel.offload(model), runnel.offload(model, depth=1)
    assert torch.equal(outer(X), result)
    first.close()  # in the order in which they were made
    assert torch.equal(outer(X), result)
    second.close()
    assert where([outer]) == before and "forward" not in vars(model[0])


def test_modules_that_call_others_need_slots() -> None:
    last = torch.nn.Linear(64, 64)

    class Calls(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.weight, self.inner = torch.nn.Parameter(torch.ones(3)), [inner]  # no submodule

        def forward(self, x: Any) -> Any:
            return self.inner[0](x) * self.weight[0]

    chain = Calls(Calls(last))
    with runnel.offload([chain, chain.inner[0], last], depth=1), pytest.raises(runnel.InvalidArgument, match="depth=2"):
        chain(X)
    with runnel.offload([chain, chain.inner[0], last], depth=2):
        assert torch.equal(chain(X), reference([last, chain, chain.inner[0]], lambda: chain(X)))


def test_an_exception_in_the_middle() -> None:
    model = layers([64] * 5)
    result, before, fail = reference(model, lambda: model(X)), where(model), [KeyboardInterrupt, KeyError]

    def hook(*_: Any) -> None:
        if fail:
            raise fail[-1]("mine")

    model[2].register_forward_hook(hook)
    inner = torch.nn.Sequential(model[0], torch.nn.Sequential(model[1], model[2]))
    with pytest.raises(ZeroDivisionError), runnel.offload([inner, *model]):
        while fail:
            with pytest.raises(fail[-1]):
                inner(X)
            fail.pop()
            assert where(model) == before
        assert torch.equal(model(X), result)
        raise ZeroDivisionError
    assert where(model) == before and "forward" not in vars(model[0])


def test_weights_that_change_or_move_meanwhile() -> None:
    model = layers([64] * 5)

    def check() -> None:
        expected = reference(model, lambda: model(X))
        assert torch.equal(model(X), expected)

    changes: list[Callable[[], object]] = [
        lambda: model[0].weight.mul_(2), lambda: model[1].weight.data.mul_(2), lambda: model[3].load_state_dict(layers([64, 64])[0].state_dict()),
        lambda: setattr(model[1], "weight", torch.nn.Parameter(torch.randn(64, 64))), lambda: setattr(model[0].bias, "data", torch.randn(64)),
        lambda: model.double(), lambda: model.float(), lambda: model[2].to(PLACE), lambda: model[2].cpu(), lambda: model.to(PLACE), lambda: model.cpu()]
    with runnel.offload(model) as offloaded:
        model(X)
        for change in changes:
            change()
            x, wide = X, model[0].weight.dtype == torch.float64
            results = reference(model, lambda: model(x.double() if wide else x)), model(x.double() if wide else x)
            assert torch.equal(*results)
    assert "closed" in repr(offloaded)


def test_what_a_module_writes_goes_home() -> None:
    class Counts(torch.nn.BatchNorm1d):
        def forward(self, x: Any) -> Any:
            if not hasattr(self, "seen"):
                self.register_buffer("seen", torch.ones(3, device=x.device))  # a new one stays where it was made
            self.weight.data = self.weight.data.clone()  # as does what is moved
            return super().forward(x)

    model = torch.nn.Sequential(Counts(64), torch.nn.BatchNorm1d(64))
    alone = copy.deepcopy(model).to(PLACE)
    with runnel.offload(model):
        for _ in range(3):
            assert torch.equal(model(X), alone(X))
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(model.buffers(), alone.buffers())) and int(model[1].num_batches_tracked) == 3
    assert model[1].running_mean.device.type == "cpu" and model[0].seen.device.type == model[0].weight.device.type == PLACE[:4].rstrip(":")


def test_gradients_are_refused_in_words() -> None:
    model = layers([64] * 3)
    x = X.clone().requires_grad_()
    with runnel.offload(model), torch.enable_grad():
        with pytest.raises(runnel.NotSupported, match=r"a parameter of the Linear .*no_grad\(\).*requires_grad_\(False\)"):
            model(X)
        model.requires_grad_(False)
        assert model(X).shape == (5, 64)
        with pytest.raises(runnel.NotSupported, match="an input of the Linear"):
            model(x)
        with pytest.raises(runnel.NotSupported, match="an input"):
            model[0]({"batch": [X, (x,)]})
        with torch.no_grad():
            model(x)
        with torch.inference_mode():
            model(X)


def test_threads_and_streams() -> None:
    model = layers([64] * 6)
    result = reference(model, lambda: model(X))

    def run(i: int) -> None:
        with torch.no_grad():
            stream = torch.cuda.Stream() if not ON_HOST else None
            with torch.cuda.stream(stream):
                for _ in range(20):
                    out = model(X)
                if stream is not None:
                    stream.synchronize()
                assert torch.equal(out, result)

    torch.cuda.synchronize() if not ON_HOST else None
    with runnel.offload(model, depth=1):
        run(0)
        on_threads(run, 3)
        if not ON_HOST:  # two passes in flight at once
            streams = [torch.cuda.Stream() for _ in range(4)]
            outs = []
            for stream in streams * 3:
                with torch.cuda.stream(stream):
                    outs.append(model(X))
            torch.cuda.synchronize()
            assert all(torch.equal(out, result) for out in outs)


def test_copies_of_a_model_are_not_offloaded() -> None:
    model = layers([64] * 3)
    with runnel.offload(model), runnel.offload(model):
        for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert not isinstance(made[0].forward, type(vars(model[0])["forward"])) and torch.equal(reference(made, lambda: made(X)), model(X))


def test_wrong_arguments_and_ends() -> None:
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList(layers([64] * 3))
    with pytest.raises(TypeError, match=r"offload\(model.layers\)"):
        runnel.offload(model)
    with pytest.raises(TypeError, match=r"modules.values\(\)"):
        runnel.offload(torch.nn.ModuleDict({"a": model}))
    with pytest.raises(TypeError, match="meta"):
        runnel.offload(layers([64] * 3, device="meta"))
    for wrong, error in (([], ValueError), ([3], TypeError), (3, TypeError)):
        with pytest.raises(error):
            runnel.offload(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="depth"):
        runnel.offload(model.layers, depth=0)
    offloaded = runnel.offload(model.layers)
    with pytest.raises(runnel.InvalidArgument, match="within a module"):
        offloaded._run(model.layers[0], offloaded.close, (), {})
    offloaded.close()
    offloaded.close()
    with pytest.raises(runnel.InvalidArgument, match="closed"), offloaded:
        pass


def test_out_of_memory_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, empty = layers([64] * 3), torch.empty

    def fails(size: Any, *, dtype: Any, **keywords: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", fails)
    with pytest.raises(runnel.OutOfMemoryError, match="4 slots of 16640 bytes on .* depth=3, and one more"):
        runnel.offload(model, depth=3)
    monkeypatch.setattr(torch, "empty", empty)
    assert not runnel._offload._slot_addresses and "forward" not in vars(model[0])  # type: ignore[attr-defined]


def test_what_is_dropped_without_close_is_freed() -> None:
    model = layers([64] * 3)
    runnel.offload(model)
    model(X)
    assert runnel._offload._slot_addresses  # type: ignore[attr-defined]
    del model
    gc.collect()
    assert eventually(lambda: not runnel._offload._slot_addresses)  # type: ignore[attr-defined]


def test_generate_with_a_cache() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2, vocab_size=99)
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.arange(1, 9)[None].to(PLACE)
    arguments = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    expected = reference([model], lambda: model.generate(ids, **arguments))
    model.model.embed_tokens.to(PLACE), model.model.norm.to(PLACE), model.model.rotary_emb.to(PLACE), model.lm_head.to(PLACE)
    with runnel.offload(model.model.layers, "cuda:0"):
        assert torch.equal(model.generate(ids, **arguments), expected)
