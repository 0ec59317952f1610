#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch reaches with the job of `runnel bench`: 2 GiB in, y = 2x + 1, 2 GiB out, chunks of 64 MiB. Prints GB/s of the input and the part
of the limit, which is both directions at once from pinned memory: medians of five runs after one that does not count. Requires a GPU.
"""
import statistics
import sys
import time

import torch

CHUNK, CHUNKS = 64 << 20, 32
BYTES = CHUNK * CHUNKS


def rate(job):
    times = []
    for _ in range(6):
        torch.cuda.synchronize()
        start = time.perf_counter()
        job()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return BYTES / 1e9 / statistics.median(times[1:])


def computed(x):
    return x.mul_(2).add_(1)


def one_stream(source, result):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for a, b in zip(source, result):
            b.copy_(computed(a.to('cuda', non_blocking=True)), non_blocking=True)


def stream_per_chunk(source, result, in_flight=4):
    streams = [torch.cuda.Stream() for _ in range(in_flight)]
    slots = [torch.empty(CHUNK, dtype=torch.uint8, device='cuda') for _ in range(in_flight)]
    for i, (a, b) in enumerate(zip(source, result)):
        slot = slots[i % in_flight]
        with torch.cuda.stream(streams[i % in_flight]):
            slot.copy_(a, non_blocking=True)
            b.copy_(computed(slot), non_blocking=True)


def copy_compute_copy(source, result, in_flight=4):
    up, run, down = (torch.cuda.Stream() for _ in range(3))
    slots = [torch.empty(CHUNK, dtype=torch.uint8, device='cuda') for _ in range(in_flight)]
    left = [torch.cuda.Event() for _ in range(in_flight)]
    for i, (a, b) in enumerate(zip(source, result)):
        slot, here, done = slots[i % in_flight], torch.cuda.Event(), torch.cuda.Event()
        with torch.cuda.stream(up):
            up.wait_event(left[i % in_flight])
            slot.copy_(a, non_blocking=True)
            here.record()
        with torch.cuda.stream(run):
            run.wait_event(here)
            computed(slot)
            done.record()
        with torch.cuda.stream(down):
            down.wait_event(done)
            b.copy_(slot, non_blocking=True)
            left[i % in_flight].record()


def chunks_of(memory):
    return list(memory.view(CHUNKS, CHUNK))


def main():
    pageable = torch.randint(0, 255, (BYTES,), dtype=torch.uint8), torch.zeros(BYTES, dtype=torch.uint8)
    pinned = tuple(memory.pin_memory() for memory in pageable)
    there = torch.empty(BYTES, dtype=torch.uint8, device='cuda'), torch.empty(BYTES, dtype=torch.uint8, device='cuda')
    up, down = torch.cuda.Stream(), torch.cuda.Stream()

    def both_ways():
        with torch.cuda.stream(up):
            there[0].copy_(pinned[0], non_blocking=True)
        with torch.cuda.stream(down):
            pinned[1].copy_(there[1], non_blocking=True)

    limit = rate(both_ways)
    print(f'PyTorch {torch.__version__}, {torch.cuda.get_device_name()}')
    print(f'{"memory":10} {"strategy":22} {"GB/s":>8} {"of limit":>9}')
    print(f'{"pinned":10} {"limit":22} {limit:8.2f} {1:9.2f}')
    for name, (source, result) in (('pinned', pinned), ('pageable', pageable)):
        for job in (one_stream, stream_per_chunk, copy_compute_copy):
            reached = rate(lambda: job(chunks_of(source), chunks_of(result)))
            if not torch.equal(result, source * 2 + 1):
                sys.exit(f'{job.__name__}, {name} memory: the result is wrong')
            print(f'{name:10} {job.__name__.replace("_", " "):22} {reached:8.2f} {reached / limit:9.2f}')


if __name__ == '__main__':
    main()
