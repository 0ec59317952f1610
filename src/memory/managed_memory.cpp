// SPDX-License-Identifier: Apache-2.0
#include <runnel/managed_buffer.hpp>

#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/operation.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/device_call.hpp"
#include "device/device_table.hpp"
#include "device/internal_calls.hpp"
#include "memory/memory_facts.hpp"
#include "memory/pinned_pages.hpp"
#include "memory/releaser.hpp"
#include "slot/capture.hpp"
#include "slot/stream_call.hpp"

#include <cstddef>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

/// @throws errc::invalid_argument unless both ends of the range are managed memory
void require_managed(const void* memory, size_t bytes, const char* operation) {
  require_rows(memory, bytes, bytes, 1, operation);
  for (const size_t at : {size_t{0}, bytes - 1}) {
    PointerInfo info{MemoryKind::pageable, Device{0}};
    check(backend::pointer_info(info, static_cast<const unsigned char*>(memory) + at), operation);
    if (info.kind != MemoryKind::managed)
      throw_invalid_argument(operation, "the memory is not managed memory");
  }
}

/// Refuses sizes that exceed all memory of the machine, for which CUDA would wait for the devices
/// before it fails. @throws errc::out_of_memory
void require_possible(size_t bytes, const char* operation) {
  size_t all = machine_memory();
  for (int device = 0; bytes > all && device < device_count(); ++device)
    all += total_memory(device);
  if (bytes > all)
    throw_error(errc::out_of_memory, operation, "it is more than the machine and its devices have");
}

/// The backend's number of the location.
int number_of(MemoryPlace place, const char* operation) {
  if (place.is_host()) return backend::host_place;
  const int device = place.device()->ordinal();
  require_device(device, operation);
  return device;
}

}  // namespace

void* allocate_managed(size_t bytes, Device device) {
  const InternalDeviceCall call{device.ordinal(), "allocate managed memory"};
  if (bytes == 0) return nullptr;
  require_possible(bytes, call.operation());
  watch_main_thread();
  void* block = nullptr;
  ScopedEvent event{[&] {
    return about_allocation(call.operation(), MemoryKind::managed, bytes, call.device());
  }};
  // CUDA waits for the device before it reports that there is no memory.
  const ScopedWait wait{call.operation(), {.device = call.device()}};
  call.check(allocate_behind_releases(call.operation(),
                                      [&] { return backend::malloc_managed(block, bytes); }));
  event.allocated(block);
  count_up(counters.shared_and_managed_blocks);
  return block;
}

void free_managed(void* pointer, size_t bytes, int device) noexcept {
  count_down(counters.shared_and_managed_blocks);
  if (is_observed() && release_mode_before_wait() != Release::never) [[unlikely]]
    emit_free("free managed memory", MemoryKind::managed, pointer, bytes, device);
  release_on_thread({backend::free_device, pointer, device});
}

}  // namespace detail

using namespace detail;

void prefetch_bytes(StreamRef stream, const void* memory, size_t bytes, MemoryPlace place) {
  const StreamCall call{stream, "prefetch managed memory"};
  require_own_thread(call.slot(), call.operation());
  if (bytes == 0) return;
  const int to = number_of(place, call.operation());
  const ScopedDevice on{call.slot().device, call.operation()};
  require_managed(memory, bytes, call.operation());
  refuse_in_capture(call.slot(), call.operation(), refusal::prefetch);
  call.check(backend::prefetch_async(memory, bytes, to, call.handle()));
}

void advise_bytes(const void* memory, size_t bytes, MemoryAdvice advice, MemoryPlace place) {
  constexpr const char* operation = "advise on managed memory";
  enter(operation);
  const int whose = number_of(place, operation);
  if (bytes == 0) return;
  require_managed(memory, bytes, operation);
  check(internal_call([&] { return backend::advise(memory, bytes, advice, whose); }), operation);
}

}  // namespace runnel::inline RUNNEL_ABI
