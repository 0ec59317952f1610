# SPDX-License-Identifier: Apache-2.0
"""Every call of torch's page on streams, with runnel's streams. It runs with or without torch, with or without a GPU."""
import runnel

# Stream(device, priority): a lower number is more urgent.
s = runnel.Stream(device=0, priority=-1)
t = runnel.Stream()

# `with torch.cuda.stream(s):` is `with s:`, and current_stream() and default_stream() are the same.
with s:
    assert runnel.current_stream() == s
assert runnel.current_stream() == runnel.default_stream()

# record_event(event=None) and Event.record(stream)
event = s.record_event()
timed = runnel.Event(timing=True)
timed.record(s)
assert s.record_event(timed) is timed

# wait_event, Event.wait, wait_stream: they return at once; later work waits.
t.wait_event(event)
event.wait(t)
t.wait_stream(s)

# query and synchronize
t.synchronize()
assert t.query() and s.query() and event.query()

# Event.elapsed_time(end), in milliseconds
end = runnel.Event(timing=True)
end.record(t)
end.synchronize()
assert timed.elapsed_time(end) >= 0

# ExternalStream(handle) is Stream.wrap(handle); torch takes runnel's stream by `cuda_stream`.
assert runnel.Stream.wrap(s.cuda_stream) == s

# x.to("cuda", non_blocking=True), from memory that is not pinned, too: the call returns at once.
up = bytearray(b"some bytes" * 100)
down = bytearray(len(up))
with s:
    on_device = runnel.to_device(up)
    runnel.copy(down, on_device)
s.synchronize()
assert down == up

# record_stream: the memory is freed after what `t` has been given.
on_device.record_stream(t)

try:
    import torch
except ImportError:
    torch = None
if torch is not None:
    tensor = torch.arange(1000, dtype=torch.float32)
    if runnel.backend != "host":
        tensor = tensor.cuda()
        with torch.cuda.stream(torch.cuda.ExternalStream(s.handle)), s:
            twice = tensor * 2
            back = runnel.to_host(twice)
        wrapped = runnel.Stream.wrap(torch.cuda.current_stream())
        wrapped.wait_stream(s)
    else:
        back = runnel.to_host(tensor * 2, stream=s)
    s.synchronize()
    assert (torch.from_numpy(back) == torch.arange(1000) * 2).all()

print(f"torch's page, on the backend {runnel.backend}: every call did what it does there")
