// SPDX-License-Identifier: Apache-2.0
#include "timeline/event_node.hpp"

#include "base/counters.hpp"
#include "base/never_destroyed.hpp"
#include "base/process.hpp"
#include "base/spin_lock.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"

#include <memory>
#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// An intrusive list, so that returning an event cannot fail.
struct FreeList {
  SpinLock lock;
  EventNode* first = nullptr;
};
struct Pool {
  FreeList free_lists[max_devices][2];  // by device; untimed and timed
};
Pool& pool() { return never_destroyed<Pool>(); }

bool is_pooled(const EventNode& node) noexcept {
  return node.origin == EventNode::Origin::pool && !node.kind.blocking_wait &&
         !node.kind.interprocess;
}

// Protects the choice of an event's node, and taking a reference to a later node.
constinit SpinLock nodes_lock;

}  // namespace

EventRef take_event(int device, backend::EventKind kind, const char* operation) {
  if (!kind.blocking_wait && !kind.interprocess) {
    FreeList& free_list = pool().free_lists[device][kind.timed];
    const std::lock_guard lock{free_list.lock};
    if (EventNode* const node = free_list.first; node != nullptr) {
      free_list.first = static_cast<EventNode*>(node->next);
      node->references.store(1, std::memory_order_relaxed);
      count_down(counters.pooled_events);
      return EventRef::adopt(node);
    }
  }
  return make_event(device, kind, operation);
}

EventRef make_event(int device, backend::EventKind kind, const char* operation) {
  watch_main_thread();
  auto node = std::make_unique<EventNode>();
  const ScopedDevice on{device, operation};
  check(backend::event_create(node->handle, kind), operation);
  node->device = device;
  node->kind = kind;
  return EventRef::adopt(node.release());
}

EventRef try_take_event(int device, backend::EventKind kind, const char* operation) noexcept try {
  return take_event(device, kind, operation);
} catch (...) {
  return {};
}

EventRef wrap_event(native::event handle, int device, EventNode::Origin origin) {
  EventNode* const node = new EventNode;
  node->handle = handle;
  node->device = device;
  node->origin = origin;
  return EventRef::adopt(node);
}

void EventRef::drop(EventNode* node) noexcept {
  if (is_forked_child()) return;  // No lock may be taken.
  // With a single reference no other thread can copy it, so the count need not change.
  const bool is_only = node->references.load(std::memory_order_acquire) == 1;
  if (!is_only && node->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (is_pooled(*node)) {
    node->is_captured.store(false, std::memory_order_relaxed);
    node->is_in_graph.store(false, std::memory_order_relaxed);
    FreeList& free_list = pool().free_lists[node->device][node->kind.timed];
    const std::lock_guard lock{free_list.lock};
    node->next = std::exchange(free_list.first, node);
    return count_up(counters.pooled_events);
  }
  node->run = [](Deferred& ended) noexcept {
    const std::unique_ptr<EventNode> owned{static_cast<EventNode*>(&ended)};
    call_quietly(owned->device, [&] { return backend::event_destroy(owned->handle); });
  };
  if (node->origin == EventNode::Origin::borrowed || !run_or_defer(*node)) delete node;
}

void CurrentNode::reference_later(const EventNodes& nodes) noexcept {
  const std::lock_guard lock{nodes_lock};
  EventNode* const later = nodes.later.load(std::memory_order_relaxed);
  if (later == nullptr) return;  // The first node was recorded again meanwhile.
  later->references.fetch_add(1, std::memory_order_relaxed);
  node_ = later;
  reference_ = EventRef::adopt(later);
}

EventRef CurrentNode::reference() && noexcept {
  if (node_ == nullptr || reference_) return std::move(reference_);
  return EventRef::another_to(*node_);
}

namespace {
/// Requires: the lock is held, and the event has no first node.
void set_first(EventNodes& nodes, EventRef first) noexcept {
  if (first->origin != EventNode::Origin::borrowed) count_up(counters.events);
  nodes.first.store(first.release(), std::memory_order_release);
}
}  // namespace

EventRef publish_first(EventNodes& nodes, EventRef fresh) noexcept {
  const std::lock_guard lock{nodes_lock};
  EventNode* const first = nodes.first.load(std::memory_order_relaxed);
  if (first == nullptr) {
    set_first(nodes, fresh.share());
    return fresh;
  }
  return EventRef::another_to(*first);
}

EventRef claim_node(const EventNodes& nodes, int device) noexcept {
  if (nodes.first.load(std::memory_order_acquire) == nullptr) return {};
  const std::lock_guard lock{nodes_lock};
  EventNode* const first = nodes.first.load(std::memory_order_relaxed);
  EventNode* const later = nodes.later.load(std::memory_order_relaxed);
  EventNode* claimed = later != nullptr ? later : first;
  if (!must_reuse(*claimed)) {
    claimed = nullptr;
    for (EventNode* each : {later, first})
      if (each != nullptr && is_reusable(*each, device)) claimed = each;
  }
  if (claimed != nullptr) claimed->references.fetch_add(1, std::memory_order_relaxed);
  return EventRef::adopt(claimed);
}

void publish_record(EventNodes& nodes, EventRef recorded) noexcept {
  EventRef replaced;  // destroyed after the lock is released
  const std::lock_guard lock{nodes_lock};
  EventNode* const first = nodes.first.load(std::memory_order_relaxed);
  if (first == nullptr) return set_first(nodes, std::move(recorded));
  const bool is_first = recorded.operator->() == first;
  replaced = EventRef::adopt(
      nodes.later.exchange(is_first ? nullptr : recorded.release(), std::memory_order_acq_rel));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
