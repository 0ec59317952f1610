// SPDX-License-Identifier: Apache-2.0
#include "memory/waiting_frees.hpp"

#include "base/counters.hpp"
#include "base/immortal.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "stream/own_streams.hpp"

#include <runnel/detail/backend.hpp>

#include <list>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct WaitingFree {
  void* pointer;
  int device;
  std::vector<PendingUse> uses;
};

struct WaitingFrees {
  sync::Mutex lock;
  std::list<WaitingFree> all;
};
WaitingFrees& waiting() { return immortal<WaitingFrees>(); }

/// Requires: no stream uses the memory. The plain free would wait for the device.
void free_unused(void* pointer, int device) noexcept {
  const ScopedDevice on{device, ScopedDevice::no_throw};
  const native::stream own = has_memory_pools(device) ? take_own_stream(device) : nullptr;
  succeeded_or_note_capture(own != nullptr ? backend::free_async(pointer, own) : backend::free_device(pointer));
}

/// Removes the frees of which `progress(free)` says that they wait no more, and frees the memory unless it is lost.
template <class F>
void run_if(F progress) noexcept {
  const RelaxedCapture relaxed;
  std::list<WaitingFree> complete;
  {
    const std::unique_lock lock{waiting().lock, std::try_to_lock};
    if (!lock) return;  // another thread is at it
    for (auto each = waiting().all.begin(); each != waiting().all.end();) {
      const auto found = each++;
      const Progress now = progress(*found);
      if (now == Progress::waiting) continue;
      if (now == Progress::lost) found->pointer = nullptr;
      complete.splice(complete.end(), waiting().all, found);
      count_down(frees_waiting);
    }
  }
  for (const WaitingFree& each : complete)
    if (each.pointer != nullptr) free_unused(each.pointer, each.device);
}

}  // namespace

void free_once_complete(void* pointer, int device, std::vector<PendingUse> uses) {
  std::list<WaitingFree> added;
  added.push_back({pointer, device, std::move(uses)});
  const RelaxedCapture relaxed;
  for (PendingUse& pending : added.back().uses) record(pending);
  const std::lock_guard lock{waiting().lock};
  waiting().all.splice(waiting().all.end(), added);
  count_up(frees_waiting);
}

void run_complete_frees() noexcept {
  run_if([](WaitingFree& each) { return advance(each.uses); });
}

void run_all_frees() noexcept {
  if (if_captures_met()) return;
  for (int i = 0; i < device_count(); ++i)
    if (!wait_for_device(i)) return;
  run_if([](WaitingFree& each) {
    remove_all(each.uses);
    return Progress::complete;
  });
}

}  // namespace runnel::inline RUNNEL_ABI::detail
