// SPDX-License-Identifier: Apache-2.0
/// Makes a device current for the runtime calls of a scope; costs nothing where there is one device only.
#pragma once

#include "device_table.hpp"

namespace runnel::inline RUNNEL_ABI::detail {

class ScopedDevice {
 public:
  struct NoThrow {};
  static constexpr NoThrow no_throw{};

  ScopedDevice(int device, const char* operation) {
    if (single_device()) return;
    check(driver::get_device(found_), operation);
    if (found_ == device)
      found_ = -1;
    else
      check(driver::set_device(device), operation);
  }
  /// For destructors: goes on where it cannot switch.
  ScopedDevice(int device, NoThrow) noexcept {
    if (single_device()) return;
    if (driver::get_device(found_) != driver::ok || found_ == device || driver::set_device(device) != driver::ok) found_ = -1;
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;
  ~ScopedDevice() {
    if (found_ < 0) return;
    if (const driver::status s = driver::set_device(found_); s != driver::ok) driver::forget_error(s);
  }

 private:
  int found_ = -1;  // -1: nothing to restore
};

}  // namespace runnel::inline RUNNEL_ABI::detail
