# SPDX-License-Identifier: Apache-2.0
"""The forum's question: how do copies and computing overlap? Its two answers, with data larger than the memory they may use.

A: each chunk has a stream, which copies it in, computes, and copies it back.
B: one stream for each of the three steps; events order the steps of a chunk.

The weights stay in ordinary memory: nothing is pinned, and no call but the last one waits. Both are written by hand here; overlap() has both
built in, as its third line shows.
"""
import time

import numpy as np

import runnel

LAYERS, SIDE, IN_FLIGHT = 24, 256, 3
weights = [np.full((SIDE, SIDE), i, np.float32) for i in range(LAYERS)]
results = [np.empty_like(w) for w in weights]
ON_HOST = runnel.backend == "host"


def compute(stream, block):
    """Doubles a layer, in the stream's order: a kernel of torch or CuPy, or a host function of NumPy's."""
    if ON_HOST:
        array = block.view("float32", (SIDE, SIDE))
        stream.launch_host_func(lambda: multiply(array))
        return
    try:
        import torch
    except ImportError:
        return  # without a framework nothing is computed: the copies are the lesson
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.handle)):
        torch.from_dlpack(block.view("float32", (SIDE, SIDE))).mul_(2)


def multiply(block):
    import ctypes

    memory = (ctypes.c_char * block.nbytes).from_address(block.ptr)
    np.frombuffer(memory, np.float32)[:] *= 2


def strategy_a():
    streams = [runnel.Stream() for _ in range(IN_FLIGHT)]
    blocks = [runnel.empty(weights[0].nbytes, stream) for stream in streams]
    for i, (weight, result) in enumerate(zip(weights, results)):
        stream, block = streams[i % IN_FLIGHT], blocks[i % IN_FLIGHT]
        runnel.copy(block, weight, stream)  # after what this stream did with the block before
        compute(stream, block)
        runnel.copy(result, block, stream)
    for stream in streams:
        stream.synchronize()


def strategy_b():
    copy_in, computing, copy_out = (runnel.Stream() for _ in range(3))
    blocks = [runnel.empty(weights[0].nbytes, copy_in) for _ in range(IN_FLIGHT)]
    free = [runnel.Event() for _ in blocks]
    for i, (weight, result) in enumerate(zip(weights, results)):
        block = blocks[i % IN_FLIGHT]
        copy_in.wait_event(free[i % IN_FLIGHT])
        runnel.copy(block, weight, copy_in)
        computing.wait_event(copy_in.record_event())
        compute(computing, block)
        copy_out.wait_event(computing.record_event())
        runnel.copy(result, block, copy_out)
        copy_out.record_event(free[i % IN_FLIGHT])
    copy_out.synchronize()


def check():
    factor = 2 if ON_HOST or has_torch() else 1
    for weight, result in zip(weights, results):
        assert (result == weight * factor).all()
        result[:] = 0


def has_torch():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


for strategy in (strategy_a, strategy_b):
    start = time.perf_counter()
    strategy()
    print(f"{strategy.__name__}: {LAYERS} layers in {1000 * (time.perf_counter() - start):.1f} ms, {IN_FLIGHT} on the device at once")
    check()

stack = np.concatenate(weights)
for name in ("A", "B"):
    same = np.empty_like(stack)
    result = runnel.overlap(stack, same, lambda chunk, x, y: x, chunk=SIDE, in_flight=IN_FLIGHT, strategy=name)
    assert (same == stack).all()
    print(f"overlap(strategy={name!r}): {result.chunks} chunks in {1000 * result.seconds:.1f} ms")
