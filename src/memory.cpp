// SPDX-License-Identifier: Apache-2.0
#include <runnel/memory.hpp>

#include "check.hpp"
#include "counters.hpp"
#include "device_table.hpp"
#include "pinned_blocks.hpp"
#include "process.hpp"
#include "stream_device.hpp"

namespace runnel::inline RUNNEL_ABI {

PointerInfo pointer_info(const void* pointer) {
  constexpr const char* operation = "ask what a pointer points to";
  detail::enter(operation);
  PointerInfo info{MemoryKind::pageable, Device{0}};
  if (pointer != nullptr) detail::check(driver::pointer_info(info, pointer), operation);
  return info;
}

namespace detail {
namespace {

void release_memory(const Postponed& item) noexcept {
  switch (release_mode()) {
    case Release::now:
      release_native(item);
      break;
    case Release::later:
      postpone(item);
      break;
    case Release::never:
      break;
  }
}

}  // namespace

std::size_t bytes_for(std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes))
    throw_error(errc::out_of_memory, "allocate memory", "the number of elements times their size does not fit an address");
  return bytes;
}

void* allocate_pinned(std::size_t bytes) {
  constexpr const char* operation = "allocate pinned memory";
  if (bytes == 0) return nullptr;
  enter(operation);
  watch_thread_exit();
  require_device(0, operation);
  void* block = nullptr;
  check(driver::malloc_host(block, bytes), operation);
  try {
    add_pinned_block(block, bytes);
  } catch (...) {
    release_memory({Postponed::What::pinned, block, {}, 0, false});
    throw;
  }
  count_up(counters.pinned_blocks);
  return block;
}

void free_pinned(void* pointer) noexcept {
  count_down(counters.pinned_blocks);
  remove_pinned_block(pointer);
  release_memory({Postponed::What::pinned, pointer, {}, 0, false});
}

void* allocate_device(StreamRef stream, std::size_t bytes) {
  constexpr const char* operation = "allocate device memory";
  enter(operation);
  Slot& slot = live_slot(stream);
  if (bytes == 0) return nullptr;
  watch_thread_exit();
  void* block = nullptr;
  if (has_memory_pools(slot.device)) {
    const StreamDevice on{slot, operation};
    check(driver::malloc_async(block, bytes, slot.handle), operation);
  } else {
    const ScopedDevice on{slot.device, operation};
    check(driver::malloc_device(block, bytes), operation);
  }
  count_up(counters.device_blocks);
  return block;
}

void free_device(void* pointer, StreamRef stream, int device) noexcept {
  count_down(counters.device_blocks);
  // Its stream may be gone while its last work still runs: then the plain free, which waits for the device.
  const bool on_stream = stream.valid() && has_memory_pools(device);
  release_memory({Postponed::What::device, pointer, on_stream ? Access::slot(stream)->handle : native::stream{}, device, on_stream});
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
