// SPDX-License-Identifier: Apache-2.0
/// The thread that returns memory to the runtime if that call waits for devices. CUDA frees pinned
/// and managed memory, and ends a registration, only once all work of the devices is complete, and
/// meanwhile blocks every thread that calls CUDA. Callers would deadlock if some of that work waits
/// for them. Therefore the thread first waits until the streams that the library knows are idle.
/// The first release starts it.
#pragma once

#include "backend.hpp"
#include "base/deferred.hpp"
#include "base/relaxed_capture.hpp"

#include <chrono>

namespace runnel::inline RUNNEL_ABI::detail {

/// A call that returns memory to the runtime.
struct MemoryRelease : Deferred {
  MemoryRelease(backend::status (*how)(void* memory) noexcept, void* what, int of) noexcept
      : call{how}, memory{what}, device{of} {}
  backend::status (*call)(void* memory) noexcept;
  void* memory;
  int device;
};

/// How long an allocation waits for memory that is being returned to the runtime, if there is no
/// other.
inline constexpr std::chrono::milliseconds release_timeout{1000};
/// How long trim() waits for memory that is being returned to the runtime, and an allocation waits
/// for memory that was freed on a stream which may be idle already. Both take less than a
/// millisecond, but on a busy machine a thread may not be scheduled for tens of milliseconds.
inline constexpr std::chrono::milliseconds short_timeout{100};

/// Adds the object to the thread's list, and returns. May be called in a host function. If no
/// thread can be started, the calling thread makes the release, and waits. Releases nothing in a
/// forked child and while the process exits.
void release_on_thread(Deferred& object) noexcept;
/// The same, but allocates the list entry. If there is no memory for it, the calling thread makes
/// the release.
void release_on_thread(const MemoryRelease& release) noexcept;

/// Makes a release, and returns when it is complete, because the caller may depend on that. In a
/// host function and in a completion function it adds the release to the thread's list instead, and
/// does not wait. `device`: the device that the release waits for; -1: all devices.
void release_and_wait(const char* operation, const MemoryRelease& release, int device) noexcept;

bool are_releases_pending() noexcept;
/// Waits, for at most `at_most`, until all releases that were added before the call are complete.
void wait_for_releases(const char* operation, std::chrono::nanoseconds at_most) noexcept;
/// The short wait of a trim(). Does not wait in a completion function, which would hold up those of
/// all streams.
void wait_after_trim(const char* operation) noexcept;

/// Calls `allocate()`, which returns a status. If there is no memory, but releases are pending,
/// waits for them and calls it once more.
template <class F>
[[nodiscard]] backend::status allocate_behind_releases(const char* operation, F allocate) {
  const RelaxedCapture relaxed;
  const backend::status s = allocate();
  if (s == backend::ok || !are_releases_pending() || backend::classify(s) != errc::out_of_memory)
    return s;
  backend::forget_error(s);
  wait_for_releases(operation, release_timeout);
  return allocate();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
