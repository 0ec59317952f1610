// SPDX-License-Identifier: Apache-2.0
/// The slots behind StreamRef, with the members that only the library's sources use.
#pragma once

#include "backend.hpp"
#include "base/deferred.hpp"
#include "base/operation.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "timeline/event_node.hpp"
#include "timeline/timeline.hpp"

#include <runnel/completion.hpp>
#include <runnel/current.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

class ShortRing;

/// The last operations of a stream, the oldest at `next`. Written only for hang reports. Several
/// threads may write at once; a report may then mix two operations.
struct OperationNotes {
  struct Note {
    sync::Atomic<const char*> operation{nullptr};
    sync::Atomic<uint64_t> stream{0};    // an id, because another stream may have used the slot
    sync::Atomic<uint64_t> other{0};     // id of the stream that is waited for
    sync::Atomic<std::int64_t> time{0};  // of sync::Clock
  };
  std::array<Note, 4> all{};
  sync::Atomic<uint32_t> next{0};
};

/// Completions of events that were recorded on one stream, as far as the library knows, in the
/// order in which they were submitted.
struct EventLine {
  Deferred* first = nullptr;
  Deferred** end = &first;      // where the next one is added
  Deferred** in_turn = &first;  // from here the thread queries next, besides the oldest
  EventLine* next = nullptr;
};

struct Slot : StreamSlot, Deferred {
  /// The event that wait_stream() records on this stream, again and again. A thread that finds it
  /// busy uses a pooled event. It saves 18 of 59 ns.
  EventRef wait_event{};
  sync::Atomic<bool> wait_event_busy{false};

  sync::Atomic<bool> has_failure{false};

  // The pinned memory of small copies (copy/short_copy.cpp). Like the slot it is never freed, and
  // its memory belongs to one stream after the other.
  sync::Atomic<ShortRing*> short_ring{nullptr};

  /// Bit 0: a capture begins or ends on the stream. The bits above: the number of threads that
  /// query the stream (slot/capture.hpp).
  mutable sync::Atomic<uint32_t> queries_and_change{0};

  /// For the race checker: the stream's id if all its operations are known to be complete, else 0.
  /// Always 0 for a blocking stream.
  mutable sync::Atomic<uint64_t> known_complete{0};

  /// The last search of the pinned pool that has found the stream's work pending.
  sync::Atomic<uint64_t> last_search{0};

  Timeline timeline;
  Slot* next_watched = nullptr;  // for the thread that looks what is due
  EventLine events;              // for the service thread

  // The lock in slots.cpp protects the following members, up to next_free.
  // The first exception of a host function since the last synchronize().
  std::exception_ptr failure;
  uint64_t failure_label = 0;
  // The number of Stream objects. Atomic, because a destructor in a forked child takes no lock.
  sync::Atomic<int> references{0};
  // A slot is not reused before all numbers of its timeline are complete.
  bool is_in_use = false;  // False from the begin of its stream's end, when no new Stream may refer
                           // to it.
  bool is_gone = false;    // The native stream was destroyed, but Stream objects remain.
  // One of the references belongs to the views that no Stream owns: StreamRef::from_native().
  bool has_views = false;
  Slot* next_in_bucket = nullptr;
  Slot* next_free = nullptr;

  const PartitionData* part = nullptr;  // of the device, for a stream of a partition
  mutable OperationNotes notes;

  // For a thread's own default stream: this_thread_id() of that thread.
  const void* thread = nullptr;

  // Protects the following members, up to `is_end_unknown`, and the change of `id` to 0.
  SpinLock lock;
  bool has_points = false;            // Points of the stream were made: its end takes a number.
  uint64_t ended_id = 0;              // the last stream that has ended
  bool is_end_unknown = false;        // Nothing can be recorded on it any more.
  bool end_is_queued = false;         // Its handle is still usable: a host function has ended it.
  sync::Atomic<int> handle_locks{0};  // the number of HandleLock objects
  int kept_handles = 0;               // the number of KeptHandle objects
  bool end_is_deferred = false;       // until there are none
  bool idle_at_end = false;           // The owner waits for the stream before it ends it.
};

/// An address that identifies the calling thread among the live threads.
const void* this_thread_id() noexcept;
/// False for another thread's default stream: its handle would mean the calling thread's stream.
inline bool is_reachable(const Slot& slot) noexcept {
  return slot.thread == nullptr || slot.thread == this_thread_id();
}
/// @throws errc::invalid_argument for such a stream
inline void require_own_thread(const Slot& slot, const char* operation) {
  if (!is_reachable(slot)) [[unlikely]]
    throw_invalid_argument(
        operation,
        "the stream is another thread's default stream, and its handle would mean this "
        "thread's: record an event there, and use that");
}

/// A native stream and its properties, which its slot repeats.
struct NativeStream {
  native::stream handle;
  int device;
  Blocking blocking;
};
inline Blocking blocking_if(bool blocking) noexcept {
  return blocking ? Blocking::yes : Blocking::no;
}

/// Returns a slot that nobody knows: it was not published, or as a default stream that another
/// thread was the first to make.
struct ReturnSlot {
  void operator()(Slot* slot) const noexcept;
};
using FreshSlot = std::unique_ptr<Slot, ReturnSlot>;
/// Reserves a free slot of the device. Its id stays 0 until it is published. Call this first, so
/// that no later step can fail.
/// @throws std::bad_alloc
[[nodiscard]] FreshSlot take_slot(int device);
/// Makes the slot of a default stream live. It is in no table, and no Stream refers to it.
void publish_default(Slot* slot) noexcept;
/// Makes the slot of a newly created stream live, with one reference. Removes slots of earlier
/// streams with the same handle.
void publish_created(Slot* slot, const NativeStream& stream) noexcept;

/// Who refers to a handle: a Stream that borrows it, the Stream that owns it, or views.
enum class Holder : unsigned char { borrower, owner, views };
/// Finds the live slot of a handle, or publishes a new one; `is_new` says which. A Stream gets a
/// reference. The views of a handle get one together, unless a Stream owns the handle: they end
/// when that Stream ends. Returns null, and does nothing, if another Stream is to own a handle that
/// has an owner.
/// @throws std::bad_alloc
Slot* wrap_handle(const NativeStream& stream, Holder holder, bool& is_new);

/// Removes a reference. True if the slot must be retired now: its owner has ended, or it has no
/// owner and this was the last reference.
[[nodiscard]] bool drop_reference(Slot& slot, bool owner) noexcept;
/// The owner gives up the native stream: it is borrowed from now on.
void disown(Slot& slot) noexcept;
/// The last step of retire_slot(): it is free when no Stream refers to it. Returns the exception
/// that nobody has collected.
[[nodiscard]] std::exception_ptr finish_slot(Slot& slot) noexcept;

/// Whether this is the device's default stream, which orders with blocking streams, and not a
/// thread's default stream.
inline bool is_legacy_default(const Slot& slot) noexcept {
  return slot.is_default && slot.thread == nullptr;
}

/// Whether the handle means the same native stream as long as the slot is live: a borrowed one may
/// be destroyed elsewhere, and another one created with it.
inline bool is_surely_same(const Slot& slot) noexcept { return slot.owned || slot.is_default; }

inline Blocking blocking_of(const Slot& slot) noexcept {
  return slot.blocking.load(std::memory_order_relaxed);
}
/// The same. Asks the runtime if that is not known and the stream is not being captured. Requires:
/// the stream's device is current if its handle needs that.
[[nodiscard]] Blocking learn_blocking(const Slot& slot) noexcept;
inline bool may_be_blocking(const Slot& slot) noexcept {
  const Blocking known = blocking_of(slot);
  return known == Blocking::yes ||
         (known == Blocking::unknown && learn_blocking(slot) != Blocking::no);
}

inline StreamKey key_of(StreamRef stream) noexcept {
  return {static_cast<Slot*>(Access::slot(stream)), stream.id()};
}
inline StreamRef view_of(StreamKey key) noexcept { return Access::ref(key.slot, key.id); }
/// The stream that uses the slot now.
inline StreamKey key_of(const Slot& slot) noexcept {
  return {const_cast<Slot*>(&slot), slot.id.load(std::memory_order_acquire)};
}
/// Whether the stream has ended.
inline bool has_ended(StreamKey key) noexcept {
  return key.slot->id.load(std::memory_order_acquire) != key.id;
}
/// All live streams of the library at this moment.
/// @throws std::bad_alloc
[[nodiscard]] std::vector<StreamKey> live_streams();

/// Whether only views refer to the handle. Other code may have destroyed the stream since, and a
/// runtime may crash if it gets the handle then.
bool is_only_viewed(const Slot& slot) noexcept;

inline constexpr size_t slots_in_batch = 32;
/// The live streams of one batch of slots.
struct SomeStreams {
  std::array<StreamKey, slots_in_batch> streams{};
  size_t count = 0;
  const void* batch = nullptr;  // null behind the last batch
};
/// The live streams in the batch behind that one, or in the first one for null. Allocates nothing.
[[nodiscard]] SomeStreams next_streams(const void* last_batch) noexcept;

/// A timeline that a wait for its device includes, up to a number.
struct AwaitedTimeline {
  Slot* slot;
  uint64_t number;
};
/// Calls begin_wait() of the device's timelines that are not idle; of some if there is no memory.
[[nodiscard]] std::vector<AwaitedTimeline> begin_device_wait(int device) noexcept;

/// The slot behind a view.
/// @throws errc::invalid_handle if the view's stream has ended
Slot& live_slot(StreamRef stream);
StreamRef default_stream_of(int device);

/// The epoch of an exception that no completion receives.
inline constexpr uint64_t after_all_completions = ~uint64_t{0};
/// An exception of work on a stream.
struct Failure {
  std::exception_ptr exception;
  uint64_t label = 0;  // host_function_label
  uint64_t epoch = 0;  // the timeline's epoch() when the work was submitted
};
/// Stores the first exception for the stream with this id, for the next wait through one of its
/// Stream objects. If these have ended, the exception goes to the hook. Completions of the work
/// receive it in any case.
void keep_failure(StreamSlot* slot, uint64_t id, Failure failure) noexcept;
/// The exception that the next synchronize() will throw; null if there is none.
[[nodiscard]] std::exception_ptr kept_failure(Slot& slot) noexcept;
/// Throws the stored exception of the stream, once; with a label, only one of that label.
void deliver_failure(Slot& slot, std::optional<uint64_t> label = {});

}  // namespace runnel::inline RUNNEL_ABI::detail
