// SPDX-License-Identifier: Apache-2.0
#include "event_pool.hpp"

#include "device_table.hpp"
#include "immortal.hpp"
#include "process.hpp"
#include "scoped_device.hpp"

#include <mutex>
#include <new>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct Shelf {
  std::mutex mutex;
  std::vector<native::event> events;
};
// Never destroyed: events come back as late as static destructors run.
struct Pool {
  Shelf shelves[max_devices][2];  // by device; untimed and timed
};
Pool& pool() { return immortal<Pool>(); }
constinit std::atomic<std::size_t> pooled{0};

[[nodiscard]] bool is_pooled(driver::EventKind kind) noexcept { return !kind.blocking_wait && !kind.interprocess; }

}  // namespace

native::event take_event(int device, driver::EventKind kind, const char* operation) {
  if (is_pooled(kind)) {
    Shelf& shelf = pool().shelves[device][kind.timed];
    const std::lock_guard lock{shelf.mutex};
    if (!shelf.events.empty()) {
      const native::event event = shelf.events.back();
      shelf.events.pop_back();
      pooled.fetch_sub(1, std::memory_order_relaxed);
      return event;
    }
  }
  watch_thread_exit();
  const ScopedDevice on{device, operation};
  native::event event{};
  check(driver::event_create(event, kind), operation);
  return event;
}

void return_event(native::event event, int device, driver::EventKind kind) noexcept {
  if (is_forked_child()) return;
  if (is_pooled(kind)) {
    Shelf& shelf = pool().shelves[device][kind.timed];
    const std::lock_guard lock{shelf.mutex};
    try {
      shelf.events.push_back(event);
      pooled.fetch_add(1, std::memory_order_relaxed);
      return;
    } catch (const std::bad_alloc&) {  // then it is destroyed below
    }
  }
  release({Postponed::What::event, event, device});
}

std::size_t pooled_events() noexcept { return pooled.load(std::memory_order_relaxed); }

}  // namespace runnel::inline RUNNEL_ABI::detail
