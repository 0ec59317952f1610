// SPDX-License-Identifier: Apache-2.0
#include "stream/event_pool.hpp"

#include "base/counters.hpp"
#include "base/immortal.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "device/own_calls.hpp"
#include "device/scoped_device.hpp"

#include <mutex>
#include <new>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Shelf {
  sync::Mutex mutex;
  std::vector<native::event> events;
};
struct Pool {
  Shelf shelves[max_devices][2];  // by device; untimed and timed
};
Pool& pool() { return immortal<Pool>(); }

[[nodiscard]] bool is_pooled(backend::EventKind kind) noexcept { return !kind.blocking_wait && !kind.interprocess; }

}  // namespace

native::event take_event(int device, backend::EventKind kind, const char* operation) {
  if (is_pooled(kind)) {
    Shelf& shelf = pool().shelves[device][kind.timed];
    const std::lock_guard lock{shelf.mutex};
    if (!shelf.events.empty()) {
      const native::event event = shelf.events.back();
      shelf.events.pop_back();
      count_down(counters.pooled_events);
      return event;
    }
  }
  watch_main_thread();
  const ScopedDevice on{device, operation};
  native::event event{};
  check(backend::event_create(event, kind), operation);
  return event;
}

void destroy_event(native::event event, int device) noexcept { release_native<native::event, backend::event_destroy>(event, device); }

void return_event(native::event event, int device, backend::EventKind kind) noexcept {
  if (is_forked_child()) return;
  if (is_pooled(kind)) {
    Shelf& shelf = pool().shelves[device][kind.timed];
    const std::lock_guard lock{shelf.mutex};
    try {
      shelf.events.push_back(event);
      count_up(counters.pooled_events);
      return;
    } catch (const std::bad_alloc&) {  // the pool cannot hold it, so that it is destroyed
    }
  }
  destroy_event(event, device);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
