# SPDX-License-Identifier: Apache-2.0
"""The lesson on CuPy's current stream, line by line, with its asserts. With CuPy and a GPU its arrays are computed on runnel's streams."""
import numpy as np

import runnel

# with s: the stream is current within
stream = runnel.Stream()
assert runnel.current_stream() == runnel.Stream.null
with stream:
    assert runnel.current_stream() == stream
assert runnel.current_stream() == runnel.Stream.null

# they nest
other = runnel.Stream()
with stream:
    with other:
        assert runnel.current_stream() == other
    assert runnel.current_stream() == stream

# use() makes it current until changed
stream.use()
assert runnel.current_stream() == stream
other.use()
assert runnel.current_stream() == other
runnel.Stream.null.use()
assert runnel.current_stream() == runnel.Stream.null

# use() within a `with` ends with it
with stream:
    other.use()
    assert runnel.current_stream() == other
assert runnel.current_stream() == runnel.Stream.null

# a_gpu.set(a_cpu, stream) and a_gpu.get(stream): both return at once here, from any memory
a_cpu = np.arange(1_000_000, dtype=np.float32)
with stream:
    a_gpu = runnel.to_device(a_cpu)
    b_cpu = runnel.to_host(a_gpu)

# an event of one stream orders another one; done, synchronize
event = runnel.Event()
stream.record(event)
other.wait_event(event)
seen = []
other.launch_host_func(seen.append, "after the copies")
other.synchronize()
assert event.done and other.done
assert seen == ["after the copies"]
assert (a_cpu == b_cpu).all()

# cupy.cuda.get_elapsed_time(start, end) is start.elapsed_time(end)
start, end = runnel.Event(timing=True), runnel.Event(timing=True)
start.record(stream)
end.record(stream)
stream.synchronize()
assert start.elapsed_time(end) >= 0

if runnel.backend != "host":
    try:
        import cupy
    except ImportError:
        cupy = None
    if cupy is not None:
        theirs = cupy.cuda.Stream(non_blocking=True)
        ours = runnel.Stream.wrap(theirs)
        with cupy.cuda.ExternalStream(stream.ptr), stream:
            squares = cupy.from_dlpack(a_gpu) ** 2
            ours.wait_stream(stream)
        assert float(squares[3]) == 9

print(f"CuPy's lesson, on the backend {runnel.backend}: every assert holds")
