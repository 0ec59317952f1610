// SPDX-License-Identifier: Apache-2.0
/// The ends of captures, and who takes part in one.
#include "base/check.hpp"
#include "capture/open_captures.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"
#include "slot/point.hpp"

#include <algorithm>
#include <new>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

bool takes_part_in_capture(int device) noexcept try {
  if (!any_capture_seen()) return false;
  const std::vector<OpenCapture> open = open_captures();
  if (std::any_of(open.begin(), open.end(),
                  [=](const OpenCapture& each) { return each.begun_on.slot->device == device; }))
    return true;
  const ScopedDevice on{device, ScopedDevice::no_throw};
  const auto takes_part = [&](StreamKey each) {
    const HandleLock locked{each};
    return locked && locked->device == device &&
           capture_state(locked->handle) == CaptureState::active;
  };
  const std::vector<StreamKey> streams = live_streams(true);
  return std::any_of(streams.begin(), streams.end(), takes_part);
} catch (const std::bad_alloc&) {
  return true;
}

backend::status end_native_capture(Slot& slot, native::graph& graph) noexcept {
  const CaptureChangeLock alone{slot};
  const backend::status s = backend::stream_end_capture(slot.handle, graph);
  if (s == backend::ok || capture_state(slot.handle) != CaptureState::active) return s;
  backend::forget_error(s);
  return backend::stream_end_capture(slot.handle, graph);
}

void discard_native_capture(Slot& slot) noexcept {
  native::graph graph{};
  if (succeeded_or_forget(end_native_capture(slot, graph)))
    succeeded_or_forget(backend::graph_destroy(graph));
}

void abandon_capture(StreamKey stream) noexcept {
  if (!capture_begun_on(stream.id)) return;
  if (is_reachable(*stream.slot)) discard_native_capture(*stream.slot);
  close_capture(stream.id);
}

void abandon_own_captures() noexcept {
  while (const OpenCapture own = own_capture()) {
    if (const HandleLock locked{own.begun_on}) {
      const ScopedDevice on{locked->device, ScopedDevice::no_throw};
      abandon_capture(own.begun_on);
    } else {
      close_capture(own.begun_on.id);
    }
  }
}

}}}  // namespace runnel::RUNNEL_ABI::detail
