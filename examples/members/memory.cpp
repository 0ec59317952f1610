// SPDX-License-Identifier: Apache-2.0
// What a program can ask of memory, and set: limits, peaks, addresses, places, resources of its
// own.
#include <runnel/resource_adaptors.hpp>
#include <runnel/runnel.hpp>

#include <iostream>
#include <limits>
#include <vector>

/// Device memory: how much is in use, and how much may be.
static void limit_device_memory(runnel::StreamRef stream) {
  const runnel::DeviceResource resource{stream.device()};
  resource.reset_peak();
  resource.set_limit(resource.statistics().in_use + (1 << 20));
  try {
    const runnel::DeviceBuffer<char> too_large(2 << 20, stream);
  } catch (const std::bad_alloc& error) {
    std::cout << error.what() << " (the limit is " << resource.limit() << " bytes)\n";
  }
  resource.set_limit(std::numeric_limits<std::size_t>::max());
  if (stream.device().has_memory_pools()) {
    resource.set_release_threshold(64 << 20);  // the pool keeps no more when a stream is waited for
    std::cout << "the pool of " << resource.device() << " holds " << resource.reserved()
              << " bytes\n";
  }
  resource.trim();
  std::cout << "at most " << resource.statistics().peak << " bytes were in use\n";
}

/// A buffer gives its elements away, and other code frees them.
static void give_away(runnel::StreamRef first, runnel::StreamRef second) {
  runnel::DeviceBuffer<int> buffer(1000, first);
  runnel::fill_bytes(first, buffer.data(), 1, buffer.size_bytes());
  second.wait_stream(first);
  buffer.set_stream(second);  // is freed in the order of this stream from now on
  runnel::record_stream(first, buffer.span().subspan(10, 20));
  std::cout << "elements of " << buffer.device().value() << ", freed in the order of "
            << buffer.stream() << '\n';
  const runnel::DeviceSpan<int> elements = buffer.release();
  runnel::DeviceResource{second.device()}.deallocate(second, elements.data(),
                                                     elements.size_bytes());
}

/// Pinned memory, of the pool and of the program.
static void pin(runnel::StreamRef stream) {
  runnel::PinnedPool::reset_peak();
  const std::size_t limit = runnel::PinnedPool::limit();
  runnel::PinnedBuffer<int> pinned(1000, runnel::PinnedOptions{.write_combined = false});
  std::cout << "kernels see the buffer at " << pinned.device_pointer(stream.device()) << '\n';
  stream.launch_host_func([numbers = pinned.data()] { numbers[0] = 1; });
  pinned.record_stream(stream);  // the pool does not see what a host function uses
  const runnel::PinnedStatistics pool = runnel::PinnedPool::statistics();
  std::cout << pool.in_use << " bytes in " << pool.blocks << " blocks, at most " << pool.peak
            << ", " << pool.hits << " from the cache; "
            << (limit == std::numeric_limits<std::size_t>::max() ? "no limit\n" : "a limit\n");

  std::vector<int> numbers(1000, 5);
  const runnel::HostRegistration registration{numbers};
  std::cout << "kernels see the vector at " << registration.device_pointer<int>(stream.device())
            << '\n';
  for (const void* pointer :
       {static_cast<const void*>(pinned.data()), static_cast<const void*>(numbers.data())})
    if (runnel::pointer_info(pointer).kind == runnel::MemoryKind::pageable)
      throw std::logic_error{"it is not pinned"};
  stream.synchronize();
}

/// Managed memory is at the host or at a device.
static void move_managed(runnel::StreamRef stream) {
  runnel::ManagedBuffer<int> managed(1000, stream.device());
  for (const runnel::MemoryPlace place :
       {runnel::MemoryPlace::host(), runnel::MemoryPlace{stream.device()}})
    try {
      runnel::advise(managed, runnel::MemoryAdvice::preferred_place, place);
      runnel::prefetch(stream, managed, place);
      // The same for a part of it.
      runnel::advise_bytes(managed.data(), 100 * sizeof(int), runnel::MemoryAdvice::mostly_read,
                           place);
      runnel::prefetch_bytes(stream, managed.data(), 100 * sizeof(int), place);
      std::cout << "managed memory goes to "
                << (place.is_host() ? "the host" : to_string(*place.device())) << '\n';
    } catch (const runnel::Error& error) {
      std::cout << error.what() << '\n';  // not every device moves pages on demand
    }
  stream.synchronize();
}

/// Resources of the program's own: what is allocated is written down, counted, and limited.
static void use_resources(runnel::StreamRef stream) {
  std::size_t calls = 0;
  const runnel::DeviceResource device{stream.device()};
  runnel::LimitResource limited{device, 1 << 20};
  runnel::StatisticsResource counted{limited};
  runnel::LoggingResource logged{counted, [&calls](const runnel::ResourceCall& call) {
                                   calls +=
                                       call.kind == runnel::ResourceCall::Kind::allocate ? 1 : 0;
                                 }};
  {
    const runnel::DeviceBuffer<int> buffer(1000, logged, stream);
    std::cout << counted.statistics().in_use << " bytes of " << limited.limit() << ", "
              << limited.in_use() << " by the limit's count, " << calls << " call\n";
  }
  counted.reset_peak();
  // The same for containers that know only the vendor's streams.
  runnel::NativeDeviceResource native{stream.device()};
  void* const at_once = native.allocate_sync(256);
  native.deallocate_sync(at_once, 256);
  void* const in_order = native.allocate_async(256, 256, stream.native());
  native.deallocate_async(in_order, 256, 256, stream.native());
}

int main() {
  runnel::Stream first, second;
  limit_device_memory(first);
  give_away(first, second);
  pin(first);
  move_managed(first);
  use_resources(first);
  const runnel::LiveObjects left = runnel::live_objects();
  std::cout << left.streams << " streams, " << left.device_blocks << " blocks of device memory\n";
  return left.device_blocks == 0 ? 0 : 1;
}
