// SPDX-License-Identifier: Apache-2.0
#include "memory/waiting_frees.hpp"

#include "base/counters.hpp"
#include "base/immortal.hpp"
#include "base/polling.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/call_quietly.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "memory/releaser.hpp"
#include "memory/resource_calls.hpp"
#include "stream/own_streams.hpp"
#include "stream/slots.hpp"

#include <runnel/detail/backend.hpp>

#include <array>
#include <list>
#include <mutex>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

struct WaitingFrees {
  sync::Mutex lock;
  WaitingFreeList all;
};
WaitingFrees& waiting(Whose whose) { return immortal<std::array<WaitingFrees, 2>>()[static_cast<std::size_t>(whose)]; }

/// Requires: no stream uses the memory. The plain free waits for the device.
void free_unused(void* pointer, int device) noexcept {
  const native::stream own = has_memory_pools(device) ? take_own_stream(device) : nullptr;
  if (own == nullptr) return release_on_thread(native_release<void*, backend::free_device>(pointer, device));
  const RelaxedCapture relaxed;
  const ScopedDevice on{device, ScopedDevice::no_throw};
  succeeded_or_note_capture(backend::free_async(pointer, own));
}

/// The same for memory of a resource. The default stream is there always: see allocate_device().
void give_back_now(const WaitingFree& each) noexcept {
  const auto stream = [&] {
    try {
      if (const native::stream own = take_own_stream(each.device)) return view_own_stream(own, each.device);
    } catch (const std::bad_alloc&) {
    }
    return default_stream_of(each.device);
  };
  give_back_to(*each.resource, stream(), each.pointer, each.bytes);
}

/// Removes the frees of which `progress(free)` says that they wait no more, and frees the memory unless it is lost. Returns whether there
/// were any. Does nothing without the list's lock.
template <class F>
bool run_if(Whose whose, std::unique_lock<sync::Mutex> lock, F progress) noexcept {
  WaitingFreeList complete;
  {
    const RelaxedCapture relaxed;
    WaitingFreeList& all = waiting(whose).all;
    if (!lock) return false;
    for (auto each = all.begin(); each != all.end();) {
      const auto found = each++;
      const Progress now = progress(*found);
      if (now == Progress::pending || now == Progress::stalled) continue;
      if (now == Progress::unknown) found->pointer = nullptr;
      complete.splice(complete.end(), all, found);
      count_down(frees_waiting[static_cast<std::size_t>(whose)]);
    }
    lock.unlock();
  }
  for (const WaitingFree& each : complete) {
    if (each.pointer == nullptr) continue;
    if (whose == Whose::resource)
      give_back_now(each);
    else
      free_unused(each.pointer, each.device);
  }
  return !complete.empty();
}

/// If another thread is at it, that is enough.
void run_complete(Whose whose) noexcept {
  run_if(whose, std::unique_lock{waiting(whose).lock, std::try_to_lock}, [](WaitingFree& each) { return advance(each.uses); });
}

}  // namespace

void free_once_complete(WaitingFreeList entries) noexcept {
  const RelaxedCapture relaxed;
  for (WaitingFree& each : entries)
    for (StreamPoint& point : each.uses) point.record();
  while (!entries.empty()) {
    const Whose whose = entries.front().resource ? Whose::resource : Whose::device;
    const std::lock_guard lock{waiting(whose).lock};
    waiting(whose).all.splice(waiting(whose).all.end(), entries, entries.begin());
    count_up(frees_waiting[static_cast<std::size_t>(whose)]);
  }
}

void run_complete_frees() noexcept { run_complete(Whose::device); }

void run_complete_resource_frees() noexcept {
  if (!is_in_resource()) run_complete(Whose::resource);
}

bool wait_for_a_free() noexcept {
  bool is_freed = false;
  hold_until([&] {
    bool comes = false;
    is_freed = run_if(Whose::device, std::unique_lock{waiting(Whose::device).lock}, [&](WaitingFree& each) {
      const Progress now = advance(each.uses);
      comes = comes || now == Progress::pending;
      return now;
    });
    return is_freed || !comes;
  });
  return is_freed;
}

void run_all_frees() noexcept {
  if (if_captures_met()) return;
  WaitingFrees& waits = waiting(Whose::device);
  WaitingFreeList taken;  // what another thread adds meanwhile may be used by work that the wait does not cover
  const auto move_all = [&](WaitingFreeList& to, WaitingFreeList& from) {
    const std::lock_guard lock{waits.lock};
    to.splice(to.begin(), from);
  };
  move_all(taken, waits.all);
  for (int i = 0; i < device_count(); ++i)
    if (!wait_for_device(i)) return move_all(waits.all, taken);
  for (WaitingFree& each : taken) {
    count_down(frees_waiting[static_cast<std::size_t>(Whose::device)]);
    free_unused(each.pointer, each.device);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
