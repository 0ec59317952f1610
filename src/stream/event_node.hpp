// SPDX-License-Identifier: Apache-2.0
/// Native events, and who needs them. A node is a native event with a count of references: of Event
/// objects, of waits, of completions and of StreamPoints. The last reference gives the node back to
/// a pool, because creating an event costs more than recording it and waiting for it. A stream that
/// waits holds no reference: its wait is bound to the record that was current at the call.
#pragma once

#include "base/sync.hpp"

#include <runnel/detail/backend.hpp>
#include <runnel/event.hpp>
#include <runnel/native.hpp>

#include <cstdint>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

inline constexpr std::uint64_t several_threads = ~std::uint64_t{0};

struct EventNode {
  /// Where the native event comes from, which decides where it goes in the end.
  enum class Origin : unsigned char {
    pool,   ///< made by the library
    taken,  ///< made elsewhere; destroyed, because other code may still know the handle or share it
            ///< with another process
    borrowed,  ///< made elsewhere, or released; left alone
  };

  native::event handle{};
  int device = 0;
  backend::EventKind kind{};
  Origin origin = Origin::pool;
  bool is_shared = false;                 // with other processes, which know this native event
  sync::Atomic<bool> is_captured{false};  // recorded in a capture
  // launches record it or wait for it: no other node may take its place
  sync::Atomic<bool> is_in_graph{false};
  sync::Atomic<int> references{1};
  EventNode* next = nullptr;  // in the pool

  /// The number of the only thread that has recorded it, or `several_threads`.
  sync::Atomic<std::uint64_t> thread{several_threads};
  // Of the last record, if that thread made it. Only that thread reads and writes them.
  StreamSlot* slot = nullptr;
  std::uint64_t stream_id = 0;
  std::uint64_t number = 0;  // of the thread's records
};

/// Of the calling thread. A number is never another thread's; 0 before the first record.
extern thread_local constinit std::uint64_t thread_number;
extern thread_local constinit std::uint64_t records_of_thread;
void number_thread() noexcept;
/// Notes which of the thread's records this is. Events that one thread has recorded on one stream
/// happen in the order of the records.
inline void note_record(EventNode& node, StreamSlot& slot, std::uint64_t stream_id) noexcept {
  if (node.thread.load(std::memory_order_relaxed) != thread_number) return;
  node.slot = &slot;
  node.stream_id = stream_id;
  node.number = ++records_of_thread;
}

/// A reference to a node, or none.
class EventRef {
 public:
  EventRef() noexcept = default;
  EventRef(EventRef&& other) noexcept : node_{other.release()} {}
  EventRef& operator=(EventRef&& other) noexcept {
    EventRef taken{std::move(other)};
    std::swap(node_, taken.node_);
    return *this;
  }
  ~EventRef() {
    if (node_ != nullptr) drop(node_);
  }

  /// Another reference to the same node.
  [[nodiscard]] EventRef share() const noexcept {
    if (node_ != nullptr) node_->references.fetch_add(1, std::memory_order_relaxed);
    return adopt(node_);
  }
  [[nodiscard]] explicit operator bool() const noexcept { return node_ != nullptr; }
  [[nodiscard]] EventNode* operator->() const noexcept { return node_; }
  /// The native event. Requires: there is a node.
  [[nodiscard]] native::event get() const noexcept { return node_->handle; }

  /// @{ The reference as a plain pointer. release() leaves no reference; adopt() takes what it has
  /// returned.
  [[nodiscard]] EventNode* release() noexcept { return std::exchange(node_, nullptr); }
  [[nodiscard]] static EventRef adopt(EventNode* node) noexcept {
    EventRef event;
    event.node_ = node;
    return event;
  }
  ///@}

 private:
  /// In a forked child this does nothing.
  static void drop(EventNode* node) noexcept;

  EventNode* node_ = nullptr;
};

inline constexpr backend::EventKind timed_event{
    .timed = true, .blocking_wait = false, .interprocess = false};

/// A native event of the device's pool, or a new one. @throws the runtime's error, std::bad_alloc
[[nodiscard]] EventRef take_event(int device, backend::EventKind kind, const char* operation);
/// A new one: that of a pool may still mark what it has marked before.
[[nodiscard]] EventRef make_event(int device, backend::EventKind kind, const char* operation);
/// As take_event(), but none if that fails.
[[nodiscard]] EventRef try_take_event(int device, backend::EventKind kind,
                                      const char* operation) noexcept;
/// For an event that was made elsewhere.
[[nodiscard]] EventRef wrap_event(native::event handle, int device, EventNode::Origin origin);

/// What a call uses of an Event: its node at the call. Empty if nothing was recorded.
///
/// Most events have one node for their whole life, which a call uses without a reference, since
/// counting would cost a third of a query. Only one that is in place of the first is counted.
class CurrentNode {
 public:
  explicit CurrentNode(const EventNodes& nodes) noexcept
      : node_{nodes.first.load(std::memory_order_acquire)} {
    if (nodes.later.load(std::memory_order_acquire) != nullptr) [[unlikely]]
      hold_later(nodes);
  }

  [[nodiscard]] explicit operator bool() const noexcept { return node_ != nullptr; }
  [[nodiscard]] const EventNode* operator->() const noexcept { return node_; }
  [[nodiscard]] native::event get() const noexcept {
    return node_ != nullptr ? node_->handle : native::event{};
  }
  /// A reference for longer than the call: a record that comes meanwhile takes another node.
  [[nodiscard]] EventRef hold() && noexcept;

 private:
  void hold_later(const EventNodes& nodes) noexcept;

  EventNode* node_;
  EventRef held_{};
};

/// The node of an event that the host asks about. @throws errc::invalid_handle; errc::capture for
/// an event that was recorded in a capture
[[nodiscard]] CurrentNode waitable_node(const EventBase& event, const char* operation);

/// Makes `later` the later node, perhaps none, and drops the old one.
void replace_later(EventNodes& nodes, EventRef later) noexcept;
/// Whether a record on that device may use the node again: nobody else needs what it marks now.
[[nodiscard]] inline bool is_reusable(const EventNode& node, int device) noexcept {
  return node.device == device && node.references.load(std::memory_order_seq_cst) == 1;
}
/// Whether the calling thread may record the node without saying so.
[[nodiscard]] inline bool is_recorded_here(const EventNode& node) noexcept {
  const std::uint64_t thread = node.thread.load(std::memory_order_relaxed);
  return thread == thread_number || thread == several_threads;
}
/// Says so. In the total order this is before the look at the references: so either the record
/// takes another node, or whoever takes a reference finds several threads.
inline void share_records(EventNode& node) noexcept {
  if (!is_recorded_here(node)) node.thread.store(several_threads, std::memory_order_seq_cst);
}
/// Whether the node's last record is the calling thread's, and no record follows while references
/// are held. Requires: one is held.
[[nodiscard]] inline bool is_order_known(const EventNode& node) noexcept {
  const std::uint64_t thread = node.thread.load(std::memory_order_seq_cst);
  return thread == thread_number && !node.kind.interprocess;
}
/// Whether a record must use the node again, although others refer to it, because other code or a
/// graph knows the native event.
[[nodiscard]] inline bool must_stay(const EventNode& node) noexcept {
  return node.origin == EventNode::Origin::borrowed || node.is_shared ||
         node.is_in_graph.load(std::memory_order_relaxed);
}
/// Held by records that need another node than the first, and by whoever makes the first one.
extern constinit sync::Mutex changing_nodes;

/// The first node of an event.
void publish_first(EventNodes& nodes, EventRef first) noexcept;

/// For an event that has no node, or whose first node is needed or of another device.
template <class Take, class Record>
EventNode& record_on_other(EventNodes& nodes, int device, Take take, Record record) {
  const std::lock_guard lock{changing_nodes};
  EventNode* const first = nodes.first.load(std::memory_order_relaxed);
  EventNode* const later = nodes.later.load(std::memory_order_relaxed);
  EventNode* const present = later != nullptr ? later : first;
  if (thread_number == 0) number_thread();
  for (EventNode* each : {first, later})
    if (each != nullptr) share_records(*each);
  if (present != nullptr && must_stay(*present)) return record(*present), *present;
  if (first != nullptr && is_reusable(*first, device)) {
    record(*first);
    replace_later(nodes, {});
    return *first;
  }
  if (later != nullptr && is_reusable(*later, device)) return record(*later), *later;
  EventRef fresh = take();
  EventNode& node = *fresh.operator->();
  node.thread.store(thread_number, std::memory_order_relaxed);
  record(node);
  first == nullptr ? publish_first(nodes, std::move(fresh))
                   : replace_later(nodes, std::move(fresh));
  return node;
}
/// Calls `record(node)` for a node of that device, which then is the event's: the present one if
/// nobody else needs it, else one from `take()`. If one of them throws, the event marks what it has
/// marked before.
template <class Take, class Record>
EventNode& record_on_node(EventNodes& nodes, int device, Take take, Record record) {
  EventNode* const first = nodes.first.load(std::memory_order_acquire);
  const bool is_usual = first != nullptr && is_recorded_here(*first) && is_reusable(*first, device);
  if (!is_usual || nodes.later.load(std::memory_order_acquire) != nullptr) [[unlikely]]
    return record_on_other(nodes, device, take, record);
  return record(*first), *first;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
