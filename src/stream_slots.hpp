// SPDX-License-Identifier: Apache-2.0
/// The slots behind StreamRef, with what only the library's sources see of them.
#pragma once

#include <runnel/current.hpp>
#include <runnel/detail/stream_slot.hpp>
#include <runnel/stream.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {

struct Slot : StreamSlot {
  /// The event that `wait_stream` records here, again and again; whoever finds it busy takes one from the pool.
  native::event wait_event{};
  std::atomic<bool> wait_event_busy{false};

  std::atomic<bool> has_failure{false};
  std::mutex failure_mutex;
  std::exception_ptr failure;  // the first exception of a host function since the last synchronize
  std::uint64_t failure_label = 0;

  const void* thread = nullptr;  // a thread's own default stream: this_thread_mark() of that thread
  std::atomic<bool> mark_wanted{false};  // by another thread, see want_mark(); what it asks about is guarded by the same lock as uses:
  native::event mark{};                  // the last mark, perhaps not passed yet
  std::uint64_t marks = 0;               // made so far
  std::uint64_t marks_passed = 0;        // all up to this one

  // See stream_uses.hpp; the first is guarded by its lock.
  std::size_t memory_uses = 0;
  std::atomic<int> held{0};
  bool idle_at_end = false;  // whoever ends it has waited for it

  Slot* next_free = nullptr;
};

/// Whether memory may be allocated and freed on the stream itself. Not on a thread's own default stream: CUDA (seen with 13.0, driver 580)
/// hangs in its own handler of the thread's end where such a stream still has work to do and memory was allocated on it.
[[nodiscard]] inline bool may_allocate(const Slot& slot) noexcept { return slot.thread == nullptr; }

/// An address that differs between threads that are alive.
[[nodiscard]] const void* this_thread_mark() noexcept;

/// A free slot, to be filled in; its id stays 0 until `publish_slot`. Never fails after it returned.
[[nodiscard]] Slot* take_slot();
/// Gives it a new id, which makes it live.
std::uint64_t publish_slot(Slot* slot) noexcept;
/// Ends all views of it.
void free_slot(Slot* slot) noexcept;

/// The view of a live slot. @throws errc::invalid_handle
[[nodiscard]] Slot& live_slot(StreamRef stream);
[[nodiscard]] StreamRef default_stream_of(int device);

/// Keeps the first exception for the stream with that id, if it still exists.
void keep_failure(StreamSlot* slot, std::uint64_t id, std::exception_ptr failure, std::uint64_t label) noexcept;
/// Throws what was kept, once.
void deliver_failure(Slot& slot);
/// The same for what has that label only.
void deliver_failure_of(Slot& slot, std::uint64_t label);

}  // namespace runnel::inline RUNNEL_ABI::detail
