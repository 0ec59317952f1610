// SPDX-License-Identifier: Apache-2.0
/// A stream's device, current for the runtime calls of a scope, if the handle needs it: only the default streams' handles mean
/// "of the current device"; every other call takes the stream whichever device is current, and saves two runtime calls.
#pragma once

#include "scoped_device.hpp"
#include "stream_slots.hpp"

#include <runnel/config.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

class StreamDevice {
 public:
  StreamDevice(const Slot& slot, const char* operation) {
    if (slot.is_default) [[unlikely]]
      device_.emplace(slot.device, operation);
  }

 private:
  std::optional<ScopedDevice> device_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
