// SPDX-License-Identifier: Apache-2.0
/// Reference-counted native events. Event objects, waits, completions and marks own
/// references to a node. The last reference returns the node to a pool, because creating an event
/// costs more than recording it and waiting for it. A waiting stream needs no reference: the
/// runtime binds the wait to the record that was current at the call.
#pragma once

#include "backend.hpp"
#include "base/deferred.hpp"
#include "base/operation.hpp"
#include "base/sync.hpp"

#include <runnel/event.hpp>
#include <runnel/native.hpp>

#include <cstdint>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

struct Slot;

struct EventNode : Deferred {
  /// Where the native event comes from. This decides how it is released.
  enum class Origin : unsigned char {
    pool,      ///< created by the library
    taken,     ///< created elsewhere, owned here: destroyed and not pooled, because other code may
               ///< still have the handle, or share it with another process
    borrowed,  ///< created elsewhere, or released: not destroyed
  };

  native::event handle{};
  int device = 0;
  backend::EventKind kind{};
  Origin origin = Origin::pool;
  // with other processes, which have opened this native event
  sync::Atomic<bool> is_shared{false};
  sync::Atomic<bool> is_captured{false};  // recorded in a capture
  // A graph's launches record it or wait for it, so no other node can replace it.
  sync::Atomic<bool> is_in_graph{false};
  sync::Atomic<int> references{1};

  /// The stream of the last record of the library, if there is one. Only a hint: other code or
  /// another thread may have recorded the event meanwhile.
  sync::Atomic<Slot*> recorded_on{nullptr};

  // For a mark of a stream (timeline/timeline.hpp).
  uint64_t number = 0;
  Deferred* hook = nullptr;
};

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

  /// Another reference to a node that has one.
  [[nodiscard]] static EventRef another_to(EventNode& node) noexcept {
    node.references.fetch_add(1, std::memory_order_relaxed);
    return adopt(&node);
  }
  [[nodiscard]] EventRef share() const noexcept {
    return node_ != nullptr ? another_to(*node_) : EventRef{};
  }
  explicit operator bool() const noexcept { return node_ != nullptr; }
  [[nodiscard]] EventNode* operator->() const noexcept { return node_; }
  /// The native event. Requires: there is a node.
  native::event get() const noexcept { return node_->handle; }

  /// @{ Converts the reference to a plain pointer and back. adopt() takes over the reference that
  /// release() gave up.
  [[nodiscard]] EventNode* release() noexcept { return std::exchange(node_, nullptr); }
  [[nodiscard]] static EventRef adopt(EventNode* node) noexcept {
    EventRef event;
    event.node_ = node;
    return event;
  }
  ///@}

 private:
  /// Does nothing in a forked child.
  static void drop(EventNode* node) noexcept;

  EventNode* node_ = nullptr;
};

inline constexpr backend::EventKind timed_event{
    .timed = true, .blocking_wait = false, .interprocess = false};

/// A pooled native event of the device, or a new one.
/// @throws the runtime's error, std::bad_alloc
[[nodiscard]] EventRef take_event(int device, backend::EventKind kind, const char* operation);
/// Always a new one: a pooled event may still refer to an earlier record.
[[nodiscard]] EventRef make_event(int device, backend::EventKind kind, const char* operation);
/// As take_event(), but empty after a failure.
[[nodiscard]] EventRef try_take_event(int device, backend::EventKind kind,
                                      const char* operation) noexcept;
/// For an event that other code created.
[[nodiscard]] EventRef wrap_event(native::event handle, int device, EventNode::Origin origin);

/// The node of an Event at the time of a call. Empty if the event was never recorded.
///
/// Most events keep one node for their whole life. A call uses that node without a reference, since
/// counting would cost a third of a query. Only a node that has replaced the first one is counted.
class CurrentNode {
 public:
  explicit CurrentNode(const EventNodes& nodes) noexcept
      : node_{nodes.first.load(std::memory_order_acquire)} {
    if (nodes.later.load(std::memory_order_acquire) != nullptr) [[unlikely]]
      reference_later(nodes);
  }

  explicit operator bool() const noexcept { return node_ != nullptr; }
  [[nodiscard]] const EventNode* operator->() const noexcept { return node_; }
  native::event get() const noexcept { return node_ != nullptr ? node_->handle : native::event{}; }
  /// A reference that outlives the call: meanwhile, a new record uses another node.
  [[nodiscard]] EventRef reference() && noexcept;

 private:
  void reference_later(const EventNodes& nodes) noexcept;

  EventNode* node_;
  EventRef reference_{};
};

/// Calls enter(), and returns the node of an event that the host queries or waits for.
/// @throws as enter(); errc::invalid_handle; errc::capture for an event that was recorded in a
/// capture
[[nodiscard]] CurrentNode waitable_node(const EventBase& event, const char* operation);

/// Whether a record on the device may reuse the node: nobody else refers to its present record.
inline bool is_reusable(const EventNode& node, int device) noexcept {
  return node.device == device && node.references.load(std::memory_order_acquire) == 1;
}
/// Whether a record must reuse the node although others refer to it, because other code or a graph
/// uses the native event.
inline bool must_reuse(const EventNode& node) noexcept {
  return node.origin == EventNode::Origin::borrowed ||
         node.is_shared.load(std::memory_order_relaxed) ||
         node.is_in_graph.load(std::memory_order_relaxed);
}
/// Makes `fresh` the first node of an event that has none. Returns a reference to the first node,
/// which is another one if another thread was first.
EventRef publish_first(EventNodes& nodes, EventRef fresh) noexcept;
/// A reference to the node of the event that a record may use now; empty if the record needs
/// another node. While the reference exists, records of other threads use other nodes, unless the
/// event must keep its node.
[[nodiscard]] EventRef claim_node(const EventNodes& nodes, int device) noexcept;
/// Makes a node that was recorded the event's present node.
void publish_record(EventNodes& nodes, EventRef recorded) noexcept;

/// The slow path of record_on_node(): there is no node, or the first node is in use or belongs to
/// another device. No lock is held while `record` calls the runtime, which may block: the stream
/// may be full.
template <class Take, class Record>
EventNode& record_on_other(EventNodes& nodes, int device, Take take, Record record) {
  EventRef claimed = claim_node(nodes, device);
  if (!claimed) claimed = take();
  EventNode& node = *claimed.operator->();
  record(node);
  publish_record(nodes, std::move(claimed));
  return node;
}
/// Calls `record(node)` for a node of the device, which then is the event's node: the present one
/// if nobody else refers to it, else one from `take()`. If either function throws, the event keeps
/// its last record.
template <class Take, class Record>
EventNode& record_on_node(EventNodes& nodes, int device, Take take, Record record) {
  EventNode* const first = nodes.first.load(std::memory_order_acquire);
  const bool is_usual = first != nullptr && is_reusable(*first, device);
  if (!is_usual || nodes.later.load(std::memory_order_acquire) != nullptr) [[unlikely]]
    return record_on_other(nodes, device, take, record);
  return record(*first), *first;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
