// SPDX-License-Identifier: Apache-2.0
/// Makes a device current for the runtime calls of a scope. Does nothing with a single device.
#pragma once

#include "base/check.hpp"
#include "base/not_copied.hpp"
#include "device/device_table.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// For scopes that cannot report a failure. Tries twice, because a failed call may succeed the
/// second time, and all later work of a thread on a wrong device would go there.
inline void restore_device(int device) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (succeeded_or_forget(backend::set_device(device))) return;
  }
}

class ScopedDevice : NotCopied {
 public:
  struct NoThrow {};
  static constexpr NoThrow no_throw{};

  ScopedDevice(int device, const char* operation, bool needed = true) {
    if (!needed || single_device()) return;
    check(backend::get_device(found_), operation);
    if (found_ == device) {
      found_ = -1;
    } else if (const backend::status s = backend::set_device(device); s != backend::ok) {
      restore_device(found_);  // The call may have taken effect in spite of the error.
      throw_status(s, operation);
    }
  }
  /// For destructors: continues on the present device if it cannot switch.
  ScopedDevice(int device, NoThrow, bool needed = true) noexcept {
    if (!needed || single_device()) return;
    if (!succeeded_or_forget(backend::get_device(found_)) || found_ == device)
      found_ = -1;
    else
      succeeded_or_forget(backend::set_device(device));
  }
  ~ScopedDevice() {
    if (found_ >= 0) restore_device(found_);
  }

 private:
  int found_ = -1;  // -1: nothing to restore
};

}  // namespace runnel::inline RUNNEL_ABI::detail
