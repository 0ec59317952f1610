// SPDX-License-Identifier: Apache-2.0
// Timed events: how long a copy to the device takes, from pageable and from pinned memory.
#include <runnel/runnel.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

template <class From>
static double gigabytes_per_second(runnel::StreamRef stream, runnel::DeviceBuffer<std::byte>& to,
                                   const From& from) {
  runnel::TimedEvent start, stop;
  stream.record_event(start);
  runnel::copy(stream, to, from);
  stream.record_event(stop);
  stop.synchronize();
  return static_cast<double>(to.size_bytes()) /
         std::chrono::duration<double, std::nano>(stop - start).count();
}

int main() {
  constexpr std::size_t bytes = 64 << 20;
  runnel::Stream stream;
  runnel::DeviceBuffer<std::byte> on_device(bytes, stream);
  const std::vector<std::byte> pageable(bytes);
  const runnel::PinnedBuffer<std::byte> pinned(bytes);

  // not measured: the first copy includes initialization
  gigabytes_per_second(stream, on_device, pinned);
  std::cout << "from pageable memory: " << gigabytes_per_second(stream, on_device, pageable)
            << " GB/s\n"
            << "from pinned memory:   " << gigabytes_per_second(stream, on_device, pinned)
            << " GB/s\n";
}
