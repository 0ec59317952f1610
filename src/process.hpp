// SPDX-License-Identifier: Apache-2.0
/// Where the process and the calling thread stand: may the runtime be called at all?
#pragma once

#include <runnel/native.hpp>

#include <atomic>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

/// True when the next operation must look before it goes on: first use, a forked child, exit, or something left to destroy.
extern constinit std::atomic<bool> attention;
/// True on a thread that is inside a host function.
extern thread_local constinit bool in_host_function;

void look_before(const char* operation);

/// Every operation that reaches the runtime begins with this. @throws where the runtime must not be called now
inline void enter(const char* operation) {
  if (attention.load(std::memory_order_relaxed) || in_host_function) [[unlikely]]
    look_before(operation);
}

/// What a destructor does about the runtime.
enum class Release { now, later, never };
/// `later`: inside a host function, where nothing may be called. `never`: in a forked child, while exiting, before first use.
[[nodiscard]] Release release_mode() noexcept;

/// Something whose destruction had to wait until a thread outside host functions comes by.
struct Postponed {
  enum class What { stream, event, pinned, registration, device, managed } what;
  void* handle;          // `stream`: its Slot; `device`: a DeviceFree
  int device;            // to be current
  std::uint64_t id = 0;  // `stream`: what it was
};
void postpone(Postponed item) noexcept;
void release_native(const Postponed& item) noexcept;
/// Now, later or never, as the moment allows.
void release(const Postponed& item) noexcept;

/// Sees the main thread's end coming: called where objects are made, so that none is destroyed after statics begin to die.
void watch_thread_exit();

}  // namespace runnel::inline RUNNEL_ABI::detail
