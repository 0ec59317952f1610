// SPDX-License-Identifier: Apache-2.0
/// Error texts of calls that a capture refuses, or that have invalidated one.
#include "base/check.hpp"
#include "capture/open_captures.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"
#include "slot/point.hpp"

#include <cstdint>
#include <new>
#include <thread>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// The runtime gives an invalidated capture no number.
bool is_broken(const OpenCapture& capture) noexcept {
  const HandleLock locked{capture.begun_on};
  if (!locked.is_usable()) return false;
  const ScopedDevice on{locked->device, ScopedDevice::no_throw};
  uint64_t number = 0;
  return capture_state(locked->handle) == CaptureState::active &&
         succeeded_or_forget(backend::stream_capture_number(locked->handle, number)) && number == 0;
}

/// Called after an operation has failed: it has invalidated the captures that are newly broken.
void note_broken_captures(const char* operation) noexcept try {
  for (const OpenCapture& each : open_captures())
    if (each.broken_by == nullptr && is_broken(each)) note_broken(each.begun_on.id, operation);
} catch (const std::bad_alloc&) {  // The later error does not name the operation.
}

/// The operation that has broken a capture of the calling thread; null if it is not known.
const char* breaking_operation() noexcept try {
  for (const OpenCapture& each : open_captures())
    if (each.broken_by != nullptr && each.thread == std::this_thread::get_id())
      return each.broken_by;
  return nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

const char* text_of(backend::status status) noexcept {
  using enum backend::CaptureFault;
  switch (backend::capture_fault(status)) {
    case two_captures:
      return "the streams are in two captures, which cannot become one, and both are broken now: "
             "capture the work of both streams in one";
    case outside:
      return "what it waits for is no part of the capture, which is broken now: let the stream "
             "wait before the capture begins, or let the "
             "other stream wait for the captured one first";
    case default_stream:
      return "the default stream cannot take part in a capture: use a stream of your own";
    case ended:
      return "the event was recorded in a capture, which has ended: it marks a place in a graph. "
             "Record it again";
    case broken:
    case other:
      break;
  }
  return backend::error_text(status);
}

}  // namespace

void throw_broken_capture(const char* operation, backend::status status) {
  if (const char* const cause = breaking_operation(); cause != nullptr)
    throw_formatted(errc::capture, operation, status,
                    "an earlier call, which could not %s, has broken the capture: end it, and "
                    "capture the work again",
                    cause);
  throw_formatted(errc::capture, operation, status,
                  "an earlier call has broken the capture: end it, which gives no graph, and "
                  "capture the work again without that call");
}

void throw_in_capture(const Slot& slot, const char* operation, const char* reason) {
  uint64_t number = 0;
  if (succeeded_or_forget(backend::stream_capture_number(slot.handle, number)) && number == 0)
    throw_broken_capture(operation);
  throw_error(errc::capture, operation, reason);
}

void throw_capture_query(const Slot& slot, backend::status status, const char* operation) {
  if (!are_captures_open() || !is_legacy_default(slot) ||
      backend::classify(status) != errc::capture)
    throw_status(status, operation);
  backend::forget_error(status);
  throw_error(errc::capture, operation, refusal::default_stream);
}

void throw_capture_status(backend::status status, const char* operation) {
  note_capture();
  if (backend::capture_fault(status) == backend::CaptureFault::broken)
    throw_broken_capture(operation, status);
  note_broken_captures(operation);
  throw_error(errc::capture, operation, text_of(status), status, backend::error_name(status));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
