// SPDX-License-Identifier: Apache-2.0
/// Runtime calls of operations on a device.
#pragma once

#include "backend.hpp"
#include "base/check.hpp"
#include "base/process.hpp"
#include "device/device_table.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"

namespace runnel::inline RUNNEL_ABI::detail {

/// The scope of one operation on a device. The runtime may be called, and the device exists. Stores
/// the operation's name for error texts. Any device may be current; CurrentDeviceCall is for calls
/// that concern the current device.
class DeviceCall {
 public:
  /// Requires: `operation` is a literal, as in "ask for a device's name".
  DeviceCall(int device, const char* operation) : operation_{operation}, device_{device} {
    enter(operation);
    require_device(device, operation);
  }

  const char* operation() const noexcept { return operation_; }
  int device() const noexcept { return device_; }
  /// @throws the runtime's error, if the call failed
  void check(backend::status status) const { detail::check(status, operation_); }

 private:
  const char* operation_;
  int device_;
};

/// The same, in a further scope.
template <class Scope>
class DeviceCallIn : public DeviceCall {
 public:
  DeviceCallIn(int device, const char* operation)
      : DeviceCall{device, operation}, scope_{device, operation} {}

 private:
  Scope scope_;
};
/// The same, with the device current in this scope.
using CurrentDeviceCall = DeviceCallIn<ScopedDevice>;
/// The same for calls that the library makes for itself.
using InternalDeviceCall = DeviceCallIn<InternalCalls>;

}  // namespace runnel::inline RUNNEL_ABI::detail
