// SPDX-License-Identifier: Apache-2.0
/// Makes a device current for the runtime calls of a scope. With a single device it does nothing.
#pragma once

#include "base/check.hpp"
#include "device/device_table.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// For places that cannot report a failure. A call that fails once may work the second time; and if
/// the thread stayed on another device, all its later work would go there.
inline void restore_device(int device) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (succeeded_or_forget(backend::set_device(device))) return;
  }
}

class ScopedDevice {
 public:
  struct NoThrow {};
  static constexpr NoThrow no_throw{};

  ScopedDevice(int device, const char* operation) {
    if (single_device()) return;
    check(backend::get_device(found_), operation);
    if (found_ == device) {
      found_ = -1;
    } else if (const backend::status s = backend::set_device(device); s != backend::ok) {
      restore_device(found_);  // the call may have taken effect all the same
      throw_status(s, operation);
    }
  }
  /// For destructors: goes on if it cannot switch.
  ScopedDevice(int device, NoThrow) noexcept {
    if (single_device()) return;
    if (!succeeded_or_forget(backend::get_device(found_)) || found_ == device)
      found_ = -1;
    else
      succeeded_or_forget(backend::set_device(device));
  }
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;
  ~ScopedDevice() {
    if (found_ >= 0) restore_device(found_);
  }

 private:
  int found_ = -1;  // -1: nothing to restore
};

}  // namespace runnel::inline RUNNEL_ABI::detail
