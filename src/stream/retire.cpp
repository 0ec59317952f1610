// SPDX-License-Identifier: Apache-2.0
#include "slot/retire.hpp"

#include "base/announce.hpp"
#include "base/lost_device.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "capture/open_captures.hpp"
#include "device/scoped_device.hpp"
#include "function/host_functions.hpp"
#include "slot/capture.hpp"
#include "slot/operations.hpp"
#include "slot/point.hpp"

#include <runnel/detail/attachment.hpp>

#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Ends all views of the stream. `is_end_unknown`: nothing can be recorded on it any more.
/// `is_queued`: the service thread takes the other steps.
void begin_retiring(Slot& slot, bool is_end_unknown, bool is_queued) noexcept {
  {
    const std::lock_guard lock{slot.lock};
    slot.is_end_unknown = is_end_unknown;
    slot.end_is_queued = is_queued && !is_end_unknown;
    if (std::exchange(slot.has_points, false))
      is_end_unknown ? slot.timeline.skip() : slot.timeline.ask();
    slot.ended_id = slot.id.exchange(0, std::memory_order_acq_rel);
  }
  emit_ended({&slot, slot.ended_id});
}

/// Records the end of the stream, which gets the numbers that were asked for. Requires: the
/// stream's device is current.
void record_end(Slot& slot) noexcept {
  if (!slot.is_end_unknown) {
    if (slot.idle_at_end || is_known_idle(slot)) return slot.timeline.complete_all();
    Timeline::Recorder recorder{slot.timeline};
    if (EventRef event = internal_call([&] { return record_on(slot, InCapture::never); }))
      return static_cast<void>(recorder.mark(std::move(event), is_surely_same(slot)));
  }
  slot.timeline.skip();
}

/// Enqueues an empty host function after the unfinished work of a thread's default stream. Without
/// it, CUDA's handler at the thread's exit hangs if the stream has allocated memory, or waited for
/// a stream that has: see docs/decisions/threads.md.
void work_around_thread_exit_hang(const Slot& slot) noexcept {
  const sync::TsanIgnore ignore;  // The user has not requested the query.
  if (is_known_idle(slot) || !can_record(slot)) return;
  succeeded_or_forget(backend::launch_host_func(slot.handle, [](void*) {}, nullptr));
}

void destroy_attachments(Slot& slot) noexcept {
  Attachment* each = slot.attachments.exchange(nullptr, std::memory_order_acquire);
  while (each != nullptr) {
    Attachment* const next = each->next;
    each->destroy(each);
    each = next;
  }
}

/// A runtime that loses a device may drop the functions that are pending in its streams. `s` is the
/// error of the stream's destruction.
void discard_if_forgotten(backend::status s, int device) noexcept {
  backend::forget_error(s);
  if (backend::classify(s) != errc::device_lost || !backend::forgets_host_functions()) return;
  // Otherwise the functions are still pending in their streams.
  if (is_current_device_lost()) discard_host_functions(device);
}

/// The last part of retire_slot(): destroys the handle.
void destroy_handle(Deferred& ended) noexcept {
  auto& slot = static_cast<Slot&>(ended);
  const ScopedDevice on{slot.device, ScopedDevice::no_throw};
  destroy_attachments(slot);
  const native::stream handle = slot.handle;
  const bool owned = slot.owned;
  const int device = slot.device;
  const uint64_t id = slot.ended_id;
  emit_lost_exception(id, finish_slot(slot));  // Then another stream may have the slot.
  if (!owned) return;
  if (const backend::status s = backend::stream_destroy(handle); s != backend::ok)
    discard_if_forgotten(s, device);
}

/// Whether the program's code still uses the handle. The last such code then defers the rest.
[[nodiscard]] bool is_handle_kept(Slot& slot) noexcept {
  const std::lock_guard lock{slot.lock};
  slot.run = destroy_handle;
  slot.end_is_deferred = slot.kept_handles > 0;
  return slot.end_is_deferred;
}

/// The part of retire_slot() that may be deferred.
void finish_retiring(Deferred& ended) noexcept {
  auto& slot = static_cast<Slot&>(ended);
  {
    const std::lock_guard lock{slot.lock};
    slot.end_is_queued = false;
  }
  // Another thread owns a HandleLock for a few runtime calls.
  while (slot.handle_locks.load(std::memory_order_acquire) > 0) sync::yield();
  const ScopedDevice on{slot.device, ScopedDevice::no_throw};
  // First: nothing can be recorded in a capture. Its stream may have been destroyed.
  if (any_capture_seen())
    slot.is_end_unknown ? close_capture(slot.ended_id) : abandon_capture({&slot, slot.ended_id});
  if (slot.timeline.is_asked()) record_end(slot);
  if (slot.thread == this_thread_id()) work_around_thread_exit_hang(slot);
  if (!is_handle_kept(slot)) destroy_handle(slot);
}

}  // namespace

void retire_slot(Slot* slot, bool is_orphaned) noexcept {
  const Release mode = release_mode();
  // This may be a forked child, where no lock may be taken.
  if (mode == Release::never) return slot->id.store(0, std::memory_order_release);
  // Other code may destroy its stream before the deferred part runs. Nothing could be recorded on
  // it then.
  const bool is_queued = mode == Release::later;
  begin_retiring(*slot, is_orphaned || (is_queued && !slot->owned), is_queued);
  if (mode == Release::now) return finish_retiring(*slot);
  slot->run = finish_retiring;
  run_later(*slot);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
