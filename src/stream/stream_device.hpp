// SPDX-License-Identifier: Apache-2.0
/// Makes a stream's device current for a scope, if the stream's handle needs that.
#pragma once

#include "device/scoped_device.hpp"
#include "stream/slots.hpp"

#include <runnel/config.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// Refuses another thread's default stream: its handle means "of the calling thread".
/// @throws errc::invalid_argument
inline void require_own_thread(const Slot& slot, const char* operation) {
  if (slot.thread != nullptr && slot.thread != this_thread_id()) [[unlikely]]
    throw_error(errc::invalid_argument, operation,
                "the stream is another thread's default stream, and its handle would mean this "
                "thread's: record an event there, and use that");
}

/// Only the handles of default streams mean "of the current device". For other streams this does
/// nothing, which saves two runtime calls: the runtime accepts them with any current device.
class StreamDevice {
 public:
  StreamDevice(const Slot& slot, const char* operation) {
    if (!slot.is_default) [[likely]]
      return;
    require_own_thread(slot, operation);
    device_.emplace(slot.device, operation);
  }

 private:
  std::optional<ScopedDevice> device_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
