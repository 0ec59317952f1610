// SPDX-License-Identifier: Apache-2.0
/// The slots behind StreamRef, with what only the library's sources see of them.
#pragma once

#include <runnel/current.hpp>
#include <runnel/detail/stream_slot.hpp>
#include <runnel/stream.hpp>

#include <atomic>
#include <cstdint>
#include <exception>

namespace runnel::inline RUNNEL_ABI::detail {

/// A slot's way: unused -> live -> ending -> unused, or, where the native stream lives on without a Stream, resting -> live again.
enum class SlotState : unsigned char {
  unused,
  live,
  ending,   // no new Stream may refer to it; finish_retiring() is under way or postponed
  resting,  // it waits for the next wrapper of its handle, and keeps an exception for that
  ended,    // its native stream was destroyed, but Stream objects still refer to it
};

struct Slot : StreamSlot {
  /// The event that `wait_stream` records here, again and again; whoever finds it busy takes one from the pool.
  native::event wait_event{};
  std::atomic<bool> wait_event_busy{false};

  std::atomic<bool> has_failure{false};

  // The lock in stream_slots.cpp guards what follows, `thread` apart.
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::exception_ptr failure;  // the first exception of a host function since the last synchronize
  std::uint64_t failure_label = 0;
  std::uint64_t first_id = none;   // exceptions for this id and later ones belong here
  std::atomic<int> references{0};  // Stream objects; atomic, because a destructor in a forked child takes no lock
  SlotState state = SlotState::unused;
  bool listed = false;  // in the table of handles
  std::uint64_t resting_ticket = 0;
  Slot* next_in_bucket = nullptr;
  Slot* next_free = nullptr;

  const void* thread = nullptr;          // a thread's own default stream: this_thread_mark() of that thread
  std::atomic<bool> mark_wanted{false};  // by another thread, see want_mark(); what it asks about is guarded by the same lock as uses:
  native::event mark{};                  // the last mark, perhaps not passed yet
  std::uint64_t marks = 0;               // made so far
  std::uint64_t marks_passed = 0;        // all up to this one

  // See stream_uses.hpp; the first is guarded by its lock.
  std::size_t memory_uses = 0;
  std::atomic<int> held{0};
  bool idle_at_end = false;  // whoever ends it has waited for it
};

/// An address that differs between threads that are alive.
[[nodiscard]] const void* this_thread_mark() noexcept;

/// What a slot of a native stream is to say of it.
struct NativeStream {
  native::stream handle;
  int device;
  bool blocking;
};

/// A free slot, whose id stays 0 until it is published. Nothing after this can fail.
[[nodiscard]] Slot* take_slot();
/// Gives a slot that was never published back.
void give_back_slot(Slot* slot) noexcept;
/// Makes the slot of a default stream live: no table lists it, and no Stream refers to it.
void publish_default(Slot* slot) noexcept;
/// Makes the slot of a stream that was just created live, with one reference. What is still known of an earlier stream with that handle
/// is forgotten.
void publish_created(Slot* slot, const NativeStream& stream) noexcept;

/// The answer to a request to wrap a handle.
enum class Wrapped { joined, published, needs_slot, has_owner };
/// Finds the live slot of a handle, else makes the handle's resting slot live, else `slot` if it is not null; and adds a reference.
/// Afterwards `slot` is the one, unless `needs_slot` or `has_owner` is returned. `published`: the given slot was used.
[[nodiscard]] Wrapped wrap_handle(Slot*& slot, const NativeStream& stream, bool take) noexcept;

/// Takes a reference away. True if the slot has to be retired now: its owner ends, or it has no owner and this was the last reference.
[[nodiscard]] bool drop_reference(Slot& slot, bool owner) noexcept;
/// The owner gives the native stream away: it is borrowed from now on.
void disown(Slot& slot) noexcept;
/// The end of retiring a slot: it rests, or becomes free when no Stream refers to it any more.
void finish_slot(Slot& slot) noexcept;

/// The view of a live slot. @throws errc::invalid_handle
[[nodiscard]] Slot& live_slot(StreamRef stream);
[[nodiscard]] StreamRef default_stream_of(int device);

/// Keeps the first exception for the stream with that id, if its native stream may still exist: for its Stream objects, or for the next
/// wrapper of its handle.
void keep_failure(StreamSlot* slot, std::uint64_t id, std::exception_ptr failure, std::uint64_t label) noexcept;
/// Throws what was kept, once.
void deliver_failure(Slot& slot);
/// The same for what has that label only.
void deliver_failure_of(Slot& slot, std::uint64_t label);

}  // namespace runnel::inline RUNNEL_ABI::detail
