// SPDX-License-Identifier: Apache-2.0
/// Runtime calls that the library makes for itself, to manage memory and handles or to query a
/// stream.
#pragma once

#include "base/check.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/scoped_device.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// In this scope, the device is current, and no call of this thread invalidates a capture on any
/// thread.
class InternalCalls {
 public:
  InternalCalls(int device, const char* operation) : device_{device, operation} {}
  InternalCalls(int device, ScopedDevice::NoThrow goes_on) noexcept : device_{device, goes_on} {}

 private:
  ScopedDevice device_;
  RelaxedCapture relaxed_;
};

/// Calls `f()` in an InternalCalls scope, and returns its result. `where` is the operation's name,
/// for an error if the device cannot be made current, or ScopedDevice::no_throw.
template <class Where, class F>
decltype(auto) internal_call(int device, Where where, F f) {
  const InternalCalls own{device, where};
  return f();
}
/// The same for destructors: clears an error. Returns whether the call succeeded.
template <class F>
bool call_quietly(int device, F call) noexcept {
  return succeeded_or_note_capture(internal_call(device, ScopedDevice::no_throw, call));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
