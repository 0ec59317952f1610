// SPDX-License-Identifier: Apache-2.0
/// The thread that gives memory back to the runtime where that waits for devices. CUDA frees pinned
/// and managed memory, and ends a registration, only once all work of the devices is complete, and
/// meanwhile holds every thread that calls it. Callers would hang if some of that work waits for
/// them. So the thread first waits until the streams that the library knows are idle. It starts
/// with the first release.
#pragma once

#include "base/process.hpp"
#include "base/relaxed_capture.hpp"

#include <runnel/detail/backend.hpp>

#include <chrono>

namespace runnel::inline RUNNEL_ABI::detail {

/// A release in the thread's list. `item.release` makes the runtime call, and disposes of the
/// object.
struct LateRelease {
  Postponed item{};
  LateRelease* next = nullptr;
};

/// How long an allocation that finds no room waits for memory that is being given back.
inline constexpr std::chrono::milliseconds release_patience{1000};
/// How long trim() waits for memory that is being given back, and an allocation for what was freed
/// on a stream that may be idle already. Both take a part of a millisecond, but a busy machine may
/// not let a thread run for tens of them.
inline constexpr std::chrono::milliseconds short_patience{100};

/// Hands the release to the thread, and returns. Also from a host function. If the system has no
/// thread, the release is made here, and waits. Nothing is released in a forked child and while the
/// process exits. Requires: `item.release` also frees `late`, or whoever holds that.
void release_on_thread(LateRelease& late) noexcept;
/// The same for an item without a place in the list. Without memory for that, too, the release is
/// made here.
void release_on_thread(const Postponed& item) noexcept;

/// Makes a release that holds the caller, because the caller may need to know that it is done:
/// here, or, from a host function, on the thread. `device` is the one that is waited for; -1: all.
void release_and_wait(const char* operation, const Postponed& item, int device) noexcept;

[[nodiscard]] bool are_releases_waiting() noexcept;
/// Waits until everything is released that was handed over before the call, but no longer than
/// that.
void wait_for_releases(const char* operation, std::chrono::nanoseconds at_most) noexcept;

/// Calls `allocate()`, which returns a status, as a call of the library's own. If there is no
/// memory, but some is being given back, waits for that and calls it once more.
template <class F>
[[nodiscard]] backend::status allocate_behind_releases(const char* operation, F allocate) {
  const RelaxedCapture relaxed;
  const backend::status s = allocate();
  if (s == backend::ok || !are_releases_waiting() || backend::classify(s) != errc::out_of_memory)
    return s;
  backend::forget_error(s);
  wait_for_releases(operation, release_patience);
  return allocate();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
