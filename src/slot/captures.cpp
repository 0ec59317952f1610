// SPDX-License-Identifier: Apache-2.0
/// The ends of captures, and who takes part in one.
#include "base/check.hpp"
#include "capture/open_captures.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"
#include "slot/point.hpp"

#include <algorithm>

namespace runnel::inline RUNNEL_ABI::detail {

bool takes_part_in_capture(int device) noexcept {
  if (!any_capture_seen()) return false;
  if (is_capture_open_on(device)) return true;
  const ScopedDevice on{device, ScopedDevice::no_throw};
  const auto takes_part = [device](StreamKey each) {
    const HandleLock locked{each};
    return locked && locked->owned && locked->device == device &&
           capture_state(locked->handle) == CaptureState::active;
  };
  for (SomeStreams some; (some = next_streams(some.batch)).batch != nullptr;)
    if (std::any_of(some.streams.data(), some.streams.data() + some.count, takes_part)) return true;
  return false;
}

backend::status end_native_capture(Slot& slot, native::graph& graph) noexcept {
  const CaptureChangeLock alone{&slot};
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

}  // namespace runnel::inline RUNNEL_ABI::detail
