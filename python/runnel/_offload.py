# SPDX-License-Identifier: Apache-2.0
"""``offload()``: modules of torch whose weights stay in the host's memory, and are on the device only while they run."""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from runnel import _calls, _core, _interop
from runnel._errors import InvalidArgument, NotSupported, OutOfMemoryError

_slot_addresses: set[int] = set()  # of all living slots


def _parts(module: Any) -> list[Any]:
    """The module and those within it. Faster than ``module.modules()``, which makes their names."""
    found = [module]
    for each in found:
        found.extend(part for part in each._modules.values() if part is not None)
    return found


def _tensors(module: Any) -> list[Any]:
    """The parameters and buffers of a module and of those within it, each once."""
    found = [tensor for each in _parts(module) for tensor in (*each._parameters.values(), *each._buffers.values()) if tensor is not None]
    return list({id(tensor): tensor for tensor in found}.values())


def _to_move(module: Any) -> list[Any]:
    """Those in the host's memory. What is on a device already stays there, as does what an enclosing module has in a slot."""
    return [tensor for tensor in _tensors(module) if tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() not in _slot_addresses]


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _state(tensor: Any) -> tuple[Any, ...]:
    """Changes if the tensor is replaced, moved, or written by an operation of torch."""
    return id(tensor), tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), _version(tensor)


def _room_for(tensor: Any) -> int:
    return -(-_interop.nbytes_of(tensor) // 256) * 256  # aligned as torch's allocator does it: kernels choose by that


def _leaves(inputs: Any) -> Iterator[Any]:
    """What is in the arguments of a module, and in containers there."""
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    elif dataclasses.is_dataclass(inputs):
        inputs = tuple(getattr(inputs, field.name, None) for field in dataclasses.fields(inputs))
    if isinstance(inputs, (list, tuple)):
        for each in inputs:
            yield from _leaves(each)
    else:
        yield inputs


def _refuse_gradients(module: Any, inputs: Any) -> None:
    weight = any(tensor.requires_grad for tensor in _tensors(module))
    if weight or any(getattr(each, "requires_grad", False) for each in _leaves(inputs)):
        raise NotSupported(
            f"{'a parameter' if weight else 'an input'} of the {type(module).__name__} requires a gradient, but its weights are on the device only while it "
            "runs, and would be gone in the backward pass: run the model within torch.no_grad() or torch.inference_mode()"
            + (", or call model.requires_grad_(False)" if weight else ""))


class _Slot:
    """Memory on the device for the tensors of one module at a time."""

    def __init__(self) -> None:
        self.memory: Any = None
        self.module: Any = None  # whose tensors are in it, or on their way
        self.moved: list[tuple[Any, Any, Any, Any]] = []  # tensor, its data at home, its place here, its state
        self.places: dict[Any, tuple[Any, Any]] = {}  # tensors of this memory and their bytes, by all that they depend on
        self.copies: Any = None
        self.came, self.used, self.busy = _core.Event(), _core.Event(), False


class _Forward:
    """Stands for the method ``forward`` of a module."""

    def __init__(self, owner: Offload, module: Any) -> None:
        functools.update_wrapper(self, module.forward)
        self.owner, self.module, self.forward, self.before = owner, module, module.forward, module.__dict__.get("forward")

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.owner._run(self.module, self.forward, arguments, keywords)

    def __reduce__(self) -> Any:  # a copy of the module, or a pickled one, is not offloaded
        return (getattr, (self.module, "forward")) if self.before is None else (operator.itemgetter(0), ((self.before,),))

    def remove(self) -> None:
        if self.module.__dict__.get("forward") is not self:
            return  # somebody has wrapped it since: it only calls through
        before = self.before
        while isinstance(before, _Forward) and before.owner._closed:
            before = before.before
        if before is None:
            del self.module.forward
        else:
            self.module.forward = before


class Offload:
    """The result of ``offload()``: a context manager, which ends with ``close()``."""

    def __init__(self, modules: list[Any], device: Any, depth: int) -> None:
        self._torch: Any = _interop.module_of("torch")
        self._stream = _core.Stream(device, name="weights")
        self._place = "cpu" if _interop.ON_HOST else f"cuda:{self._stream.device.index}"
        self._allocated_in = None if _interop.ON_HOST else _interop.current_of("torch", self._stream.device)
        self._modules, self._depth, self._closed, self._lock = modules, depth, False, threading.RLock()
        self._following: dict[Any, Any] = dict(zip(modules, modules[1:]))
        self._last: Any = None
        self._pass: set[Any] = set()  # the modules that have run in it
        self._bytes = [sum(map(_room_for, _to_move(module))) for module in modules]
        self._slots = [_Slot() for _ in range(depth + 1)]
        for slot in self._slots:
            self._allocate(slot, max(self._bytes))
        self._forwards = [_Forward(self, module) for module in modules]
        for forward in self._forwards:
            forward.module.forward = forward

    def __repr__(self) -> str:
        slots = "closed" if self._closed else f"{len(self._slots)} slots of {max(self._bytes) / 2**20:.1f} MiB on {self._place}"
        return f"<runnel.offload() of {len(self._modules)} modules, {sum(self._bytes) / 2**30:.2f} GiB, {slots}>"

    def __enter__(self) -> Offload:
        if self._closed:
            raise InvalidArgument("offload() is closed: call it again")
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """The modules run as before, where their weights are. Device memory is given back behind what was enqueued; nothing waits."""
        with self._lock:
            if any(slot.busy for slot in self._slots):
                raise InvalidArgument("close() of an offload() within a module of it: close it when the module has returned")
            self._closed = True
            for forward in reversed(self._forwards):
                forward.remove()
            copies, self._forwards = [slot.copies for slot in self._slots if slot.copies is not None], []
            for slot in self._slots:
                self._free(slot)
            for each in copies:
                each.done()  # raises what failed

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the end of the process
            for slot in self._slots:
                self._free(slot)

    def _allocate(self, slot: _Slot, size: int) -> None:
        self._free(slot)
        try:
            slot.memory = self._torch.empty(max(size, 1), dtype=self._torch.uint8, device=self._place)
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            for each in self._slots:
                self._free(each)
            raise OutOfMemoryError(
                f"offload() needs {len(self._slots)} slots of {size} bytes on {self._place}: depth={self._depth}, and one more, for the largest of the modules. "
                "They do not fit: write a smaller depth (1 is the least), or offload the parts of the modules instead") from error
        _slot_addresses.add(slot.memory.data_ptr())
        if self._allocated_in is not None:
            self._stream.wait_stream(self._allocated_in[0])  # what torch did with this memory before

    def _free(self, slot: _Slot) -> None:
        """Torch gives the memory out again in the order of the stream that it was allocated in."""
        if slot.memory is None:
            return
        if self._allocated_in is not None:
            self._allocated_in[0].wait_stream(self._stream)
            self._allocated_in[0].wait_event(slot.used)
        _slot_addresses.discard(slot.memory.data_ptr())
        slot.memory, slot.module, slot.moved, slot.places, slot.copies = None, None, [], {}, None

    def _run(self, module: Any, forward: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
        if self._torch.is_grad_enabled():
            _refuse_gradients(module, (arguments, keywords))
        with self._lock:
            with self._torch.inference_mode(False):
                slot = None if self._closed else self._arrive(module)
            if slot is None:
                return forward(*arguments, **keywords)
            current = None
            if _interop.ON_HOST:
                slot.copies.wait()  # torch computes in this thread
            else:
                current = _interop.current_of("torch", self._stream.device)[0]
                current.wait_event(slot.came)
            slot.busy = True
            try:
                for tensor, _, place, _ in slot.moved:
                    tensor.data = place
                return forward(*arguments, **keywords)
            finally:
                written, statistics = [], self._statistics(module)
                for tensor, home, place, state in slot.moved:
                    if tensor.data_ptr() == place.data_ptr():  # else the module has moved it
                        tensor.data = home
                        if _version(tensor) != state[-1] or id(tensor) in statistics:
                            written.append((home, place))
                slot.busy, slot.module = False, None
                if written:
                    _calls.copy_many(written, current).wait()
                if current is not None:
                    current.record_event(slot.used)

    def _statistics(self, module: Any) -> set[int]:
        """The buffers that batch_norm() writes, which does not count as a change of them."""
        norms = [each for each in _parts(module) if each.training and isinstance(each, self._torch.nn.modules.batchnorm._NormBase)]
        return {id(buffer) for each in norms for buffer in each._buffers.values()}

    def _arrive(self, module: Any) -> _Slot | None:
        """The slot with the tensors of a module, while those of the next modules are on their way. None: there is nothing to move."""
        if not _interop.ON_HOST and self._torch.cuda.is_current_stream_capturing():
            raise NotSupported("a module of an offload() within a capture: each launch of the graph would need its weights in the same slot")
        if self._last not in (None, module):
            self._following[self._last] = module
        self._last = module
        if module in self._pass:  # a new pass: the weights may have changed in a way that _state() does not see
            self._pass.clear()
            for slot in self._slots:
                slot.module = slot.module if slot.busy else None
        self._pass.add(module)
        ahead = [module]
        while len(ahead) <= self._depth:
            following = self._following.get(ahead[-1])
            if following is None or following in self._pass or following in ahead:
                break
            ahead.append(following)
        found = self._fetch(module, ahead)
        for each in ahead[1:]:
            if all(slot.module is not each for slot in self._slots):  # else its state is looked at when it runs
                self._fetch(each, ahead)
        return found

    def _fetch(self, module: Any, ahead: list[Any]) -> _Slot | None:
        """The slot with the tensors of a module, which are on their way at least. None: there is nothing to move, or no slot to move it ahead."""
        tensors = _to_move(module)
        if not tensors:
            return None
        states, idle = [_state(tensor) for tensor in tensors], [slot for slot in self._slots if not slot.busy]
        slot = next((slot for slot in idle if slot.module is module), None)
        if slot is not None and [each[-1] for each in slot.moved] == states:
            return slot
        slot = slot or next((slot for slot in idle if slot.module is None), None) or next((slot for slot in idle if slot.module not in ahead), None)
        if slot is None:
            if module is not ahead[0]:
                return None
            raise InvalidArgument(f"more modules of an offload() run within each other than it has slots: write depth={self._depth + 1}")
        self._slots.remove(slot)
        self._slots.append(slot)  # the first one is that which was used longest ago
        rooms = list(map(_room_for, tensors))
        slot.module, size = None, sum(rooms)
        if slot.copies is not None:
            slot.copies.done()  # raises what failed
        if slot.memory.numel() < size:  # the module has grown
            self._allocate(slot, size)
        slot.moved, pairs, at = [], [], 0
        for tensor, state, room in zip(tensors, states, rooms):
            home = tensor.data
            source = home if home.is_contiguous() or _interop.order_of(home) else home.contiguous()
            place, to = self._view(slot, at, source, tensor.is_inference())
            slot.moved.append((tensor, home, place, state))
            if room:
                pairs.append((to, source.as_strided((source.numel(),), (1,)).view(self._torch.uint8)))
            at += room
        self._stream.wait_event(slot.used)
        slot.copies = _calls.copy_many(pairs, self._stream)
        self._stream.record_event(slot.came)
        slot.module = module
        return slot

    def _view(self, slot: _Slot, at: int, source: Any, is_inference: bool) -> tuple[Any, Any]:
        """The tensor like ``source`` at an offset of the slot, and its bytes."""
        key = at, source.dtype, source.shape, source.stride(), is_inference
        if key not in slot.places:
            with self._torch.inference_mode(is_inference):
                place = self._torch.empty(0, dtype=source.dtype, device=self._place)
                place.set_(slot.memory.untyped_storage(), at // source.element_size(), source.shape, source.stride())
            slot.places[key] = place, slot.memory[at : at + _interop.nbytes_of(source)]
        return slot.places[key]


def _checked(modules: Any, torch: Any) -> list[Any]:
    """The modules, each once."""
    if isinstance(modules, torch.nn.Module) and not isinstance(modules, Iterable):
        lists = {name: len(each) for name, each in modules.named_modules() if isinstance(each, (torch.nn.ModuleList, torch.nn.Sequential))}
        advice = f": write offload(model.{max(lists, key=lists.__getitem__)}), and move the rest to the device" if lists else ""
        raise TypeError(f"offload() takes the modules that are to be on the device one at a time, not the {type(modules).__name__} as a whole{advice}")
    made = list(dict.fromkeys(modules))
    for each in made:
        if not isinstance(each, torch.nn.Module):
            raise TypeError(f"offload() takes modules of torch, not an object of type {type(each)}" + (": write modules.values()" if isinstance(each, str) else ""))
        for tensor in _tensors(each):
            if tensor.layout != torch.strided or type(tensor.data) is not torch.Tensor or tensor.device.type == "meta":
                raise TypeError(f"offload() moves plain tensors that have memory, and a {type(each).__name__} has one on {tensor.device} of type "
                                f"{type(tensor.data)} and layout {tensor.layout}")
    if not made:
        raise ValueError("offload() of no modules")
    return made


def offload(modules: Iterable[Any], device: Any = None, depth: int = 2) -> Offload:
    """Runs modules of torch whose weights do not fit into the device's memory:

        with runnel.offload(model.model.layers, device="cuda:0", depth=2):
            logits = model(ids).logits

    Parameters and buffers stay where they are: in ordinary memory, pinned, or mapped from a file, as safetensors has it. While
    one of ``modules`` runs, its tensors are in one of ``depth + 1`` slots on the device, and those of the next ``depth``
    modules are on their way: the ones that followed last time, in the first pass those of the sequence. Each slot is as large as the
    largest module. The host waits for no copy. The rest of the model has to be on the device.

    Ends with the ``with``, or by ``close()``. Weights may change between two passes. What a module writes into its buffers
    goes back to the host, which waits for that. Threads run one module at a time. Gradients are refused: NotSupported.
    On the host backend the device is torch's CPU. Raises OutOfMemoryError, TypeError, ValueError.
    """
    if operator.index(depth) < 1:
        raise ValueError(f"depth is 1 or more, not {depth}")
    return Offload(_checked(modules, _interop.module_of("torch")), device, depth)
