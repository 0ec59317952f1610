// SPDX-License-Identifier: Apache-2.0
/// The slots behind StreamRef, with the members that only the library's sources see.
#pragma once

#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "stream/event_node.hpp"
#include "stream/work_ahead.hpp"

#include <runnel/current.hpp>
#include <runnel/detail/backend.hpp>
#include <runnel/detail/stream_slot.hpp>
#include <runnel/stream.hpp>

#include <array>
#include <cstdint>
#include <exception>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

/// A slot goes unused -> live -> ending -> unused, with `ended` before the last if Stream objects
/// still refer to it although its native stream was destroyed. While StreamPoints hold it, it is
/// not free for another stream.
enum class SlotState : unsigned char {
  unused,
  live,
  // no new Stream may refer to it; the later part of retire_slot() is under way or postponed
  ending,
  ended,  // its native stream was destroyed, but Stream objects still refer to it
};

struct Completion;

/// How far some work of a stream is.
enum class Progress {
  complete,
  pending,  ///< the runtime will say when it is complete
  stalled,  ///< the runtime fails, or another thread has to record an event first
  unknown,  ///< it will never be known when it is complete
};

/// How far a stream was when it ended: `event`, if there is one, marks its last work.
struct StreamEnd {
  Progress progress = Progress::pending;
  EventRef event{};
};

/// The last operations of a stream, the oldest at `next`. Written only for the report of long
/// waits. Several threads may write at once: then a report may mix two operations.
struct OperationNotes {
  struct Note {
    sync::Atomic<const char*> operation{nullptr};
    sync::Atomic<std::uint64_t> stream{0};  // its id: another stream may have had the slot
    sync::Atomic<std::uint64_t> other{0};   // id of a stream that was waited for
    sync::Atomic<std::int64_t> time{0};     // of sync::Clock
  };
  std::array<Note, 4> all{};
  sync::Atomic<std::uint32_t> next{0};
};

struct Slot : StreamSlot {
  /// The event that `wait_stream` records here, again and again. A thread that finds it busy takes
  /// one from the pool.
  EventRef wait_event{};
  sync::Atomic<bool> wait_event_busy{false};

  sync::Atomic<bool> has_failure{false};

  WorkAhead ahead;

  /// Bit 0: a capture begins or ends on the stream. Above it: how many threads ask the runtime
  /// about the stream (stream/capture.hpp).
  sync::Atomic<std::uint32_t> questions{0};

  /// For the race checker: the stream's id if the checker knows that all operations of the stream
  /// are complete, else 0. Always 0 for a blocking stream.
  mutable sync::Atomic<std::uint64_t> known_complete{0};

  /// How many completions were submitted (watcher.hpp). A host function keeps the number of its
  /// launch: it belongs to later ones only.
  sync::Atomic<std::uint64_t> completions{0};
  sync::Atomic<bool> completion_busy{false};
  Completion* last_completion = nullptr;           // the watcher's
  Completion* last_completion_of_event = nullptr;  // the same

  // The lock in slots.cpp guards the following members, up to next_free.
  // the first exception of a host function since the last synchronize()
  std::exception_ptr failure;
  std::uint64_t failure_label = 0;
  // how many Stream objects; atomic, because a destructor in a forked child takes no lock
  sync::Atomic<int> references{0};
  SlotState state = SlotState::unused;
  bool listed = false;  // in the table of handles
  // one of the references stands for the views that no Stream owns: StreamRef::from_native()
  bool viewed = false;
  Slot* next_in_bucket = nullptr;
  Slot* next_free = nullptr;

  const PartitionData* part = nullptr;  // of the device, if the stream was made with one
  mutable OperationNotes notes;

  // of a thread's own default stream: this_thread_id() of that thread
  const void* thread = nullptr;
  sync::Atomic<bool> mark_requested{false};  // see request_mark()

  // guards the following members, up to end, and the change of id to 0
  SpinLock lock;
  EventRef mark{};                   // the last mark, perhaps not complete yet
  std::uint64_t marks = 0;           // how many were made so far
  std::uint64_t marks_complete = 0;  // all up to this one are complete
  // how many StreamPoints hold the slot, which stays that stream's until they are gone
  std::size_t points = 0;
  bool waits_for_points = false;  // the last of them gives the slot back
  StreamEnd end;                  // once the stream has ended, for its points
  sync::Atomic<int> held{0};      // how many HeldStream objects
  bool idle_at_end = false;       // the stream was waited for before it is ended
};

/// An address that differs between threads that are alive.
[[nodiscard]] const void* this_thread_id() noexcept;

/// A native stream and its properties, which its slot repeats.
struct NativeStream {
  native::stream handle;
  int device;
  bool blocking;
};

/// Reserves a free slot, whose id stays 0 until it is published. Reserve first; nothing later can
/// fail. @throws std::bad_alloc
[[nodiscard]] Slot* take_slot();
/// Frees a slot that was never published.
void give_back_slot(Slot* slot) noexcept;
/// Frees a slot that waited for its last point.
void free_waiting_slot(Slot& slot) noexcept;
/// Makes the slot of a default stream live: no table lists it, and no Stream refers to it.
void publish_default(Slot* slot) noexcept;
/// Makes the slot of a stream that was just created live, with one reference. Forgets an earlier
/// stream of the same handle.
void publish_created(Slot* slot, const NativeStream& stream) noexcept;

enum class Wrapped {
  joined,      ///< a Stream has wrapped the handle before: `slot` is now the handle's slot
  published,   ///< the given slot is now the handle's slot
  needs_slot,  ///< nothing was done: call again with a slot
  has_owner,   ///< nothing was done: a Stream owns the handle already
};
/// For a Stream that borrows the handle, for one that takes it, or for views.
enum class Wrap : unsigned char { borrow, take, view };
/// Finds the slot of a handle: its live slot, else `slot` if that is not null. Adds a reference for
/// a Stream. All views together have one, but none if a Stream owns the handle: they end with it.
[[nodiscard]] Wrapped wrap_handle(Slot*& slot, const NativeStream& stream, Wrap wrap) noexcept;

/// Removes a reference. True if the slot has to be retired now: its owner ends, or it has no owner
/// and this was the last reference.
[[nodiscard]] bool drop_reference(Slot& slot, bool owner) noexcept;
/// The owner gives the native stream away: it is borrowed from now on.
void disown(Slot& slot) noexcept;
/// The last step of retiring a slot: it becomes free as soon as no Stream refers to it. Returns the
/// exception that nobody has collected.
[[nodiscard]] std::exception_ptr finish_slot(Slot& slot) noexcept;

/// Whether the stream is the device's default stream, which orders with blocking streams, and not a
/// thread's.
[[nodiscard]] inline bool is_legacy_default(const Slot& slot) noexcept {
  return slot.is_default && slot.thread == nullptr;
}

/// The stream's knowledge of the work ahead; null if other code may have enqueued work, or the
/// stream orders with the default stream.
[[nodiscard]] inline WorkAhead* work_ahead(Slot& slot) noexcept {
  const bool is_own = slot.owned && !slot.blocking && !slot.is_default;
  const bool is_needed = !backend::copies_pageable_asynchronously();
  return is_needed && is_own && !slot.handle_is_known.load(__ATOMIC_RELAXED) ? &slot.ahead
                                                                             : nullptr;
}

struct LiveStream {
  Slot* slot;
  std::uint64_t id;
  bool is_owned;
};
/// All streams that the library knows of at this moment. @throws std::bad_alloc
[[nodiscard]] std::vector<LiveStream> live_streams();

/// The slot behind a view. @throws errc::invalid_handle if the view's stream has ended
[[nodiscard]] Slot& live_slot(StreamRef stream);
[[nodiscard]] StreamRef default_stream_of(int device);

/// The epoch of an exception that no completion gets.
inline constexpr std::uint64_t after_all_completions = ~std::uint64_t{0};
/// An exception that leaves work of a stream.
struct Failure {
  std::exception_ptr exception;
  std::uint64_t label = 0;  // host_function_label
  std::uint64_t epoch = 0;  // Slot::completions when the work was submitted
};
/// Keeps the first exception for the stream with that id, for the next wait through one of its
/// Stream objects. Once these have ended, a hook is told of the exception. Completions of the work
/// get it in any case.
void keep_failure(StreamSlot* slot, std::uint64_t id, Failure failure) noexcept;
/// The exception that the next synchronize() will throw; null if there is none.
[[nodiscard]] std::exception_ptr kept_failure(Slot& slot) noexcept;
/// Throws the exception that is kept for the stream, once.
void deliver_failure(Slot& slot);
/// The same, only for an exception with that label.
void deliver_failure_of(Slot& slot, std::uint64_t label);

}  // namespace runnel::inline RUNNEL_ABI::detail
