// SPDX-License-Identifier: Apache-2.0
// What calls of the library cost the calling thread, one row each: name, tab, nanoseconds. turns.py
// compares two builds by it, so it uses only what the library has long had, and takes the least of
// many batches, which other programs disturb least.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <runnel/runnel.hpp>
#include <utility>
#include <vector>

namespace {
using namespace runnel;
using Clock = std::chrono::steady_clock;

template <class F, class After>
void row(const char* name, int batch, F call, After after) {
  double least = 1e18;
  for (int round = 0; round < 300; ++round) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < batch; ++i) call();
    least = std::min(
        least, std::chrono::duration<double, std::nano>{Clock::now() - begin}.count() / batch);
    after();
  }
  std::printf("%s\t%.3f\n", name, least);
}
template <class F>
void row(const char* name, int batch, F call) {
  row(name, batch, call, [] {});
}

/// The compiler must take the object for used.
template <class T>
void use(T& object) {
  asm volatile("" : : "r"(&object) : "memory");
}

void measure_buffers(StreamRef stream, StreamRef other) {
  const auto wait = [&] { stream.synchronize(); };
  DeviceBuffer<int> device{256, stream}, empty{0, stream}, to{256, stream};
  PinnedBuffer<int> pinned{256}, none{0};
  const std::vector<int> values(256);
  wait();
  row("two moves of a DeviceBuffer", 1000, [&] {
    empty = std::move(device);
    use(empty);
    device = std::move(empty);
    use(device);
  });
  row("two moves of a PinnedBuffer", 1000, [&] {
    none = std::move(pinned);
    use(none);
    pinned = std::move(none);
    use(pinned);
  });
  const auto make = [&](std::size_t size) {
    DeviceBuffer<int> made{size, stream};
    use(made);
  };
  row("DeviceBuffer without elements", 1000, [&] { make(0); });
  row("DeviceBuffer, made and dropped", 200, [&] { make(256); }, wait);
  row("PinnedBuffer, made and dropped", 200, [&] {
    PinnedBuffer<int> made{256};
    use(made);
  });
  row("copy, pinned to device", 200, [&] { copy(stream, device, pinned); }, wait);
  row("copy, pageable to device", 200, [&] { copy(stream, device, values); }, wait);
  row("copy, device to device", 200, [&] { copy(stream, to, device); }, wait);
  row("fill", 200, [&] { fill(stream, device, 1); }, wait);
  row("record_stream", 500, [&] { device.record_stream(other); });
  row("pointer_info", 500, [&] {
    const PointerInfo info = pointer_info(device.data());
    use(info);
  });
}

void measure_streams(StreamRef stream, StreamRef other) {
  const auto wait = [&] { stream.synchronize(), other.synchronize(); };
  Event event;
  TimedEvent timed;
  row("host function", 200, [&] { stream.launch_host_func([] {}); }, wait);
  row("record an event", 500, [&] { stream.record_event(event); }, wait);
  row("record a timed event", 500, [&] { stream.record_event(timed); }, wait);
  row("wait for an event", 500, [&] { other.wait_event(event); }, wait);
  row("wait_stream", 500, [&] { other.wait_stream(stream); }, wait);
  row("query a stream", 500, [&] { static_cast<void>(stream.query()); });
  row("query an event", 500, [&] { static_cast<void>(event.query()); });
  row("synchronize an idle stream", 500, [&] { stream.synchronize(); });
  row("a stream, made and ended", 100, [] { const Stream made; });
  row("StreamGuard", 500, [&] { const StreamGuard with{stream}; });
  row("DeviceGuard", 500, [] { const DeviceGuard with{Device{0}}; });
  row("current_stream", 1000, [] {
    const StreamRef current = current_stream();
    use(current);
  });
  StreamPool pool{Device{0}};
  row("lease of a pool", 500, [&] { const StreamLease lease = pool.acquire(); });
}

}  // namespace

int main() {
  const Stream stream, other;
  measure_buffers(stream, other);
  measure_streams(stream, other);
}
