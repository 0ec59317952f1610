// SPDX-License-Identifier: Apache-2.0
/// A stream's device, current for the runtime calls of a scope, if the handle needs it: only the default streams' handles mean
/// "of the current device"; every other call takes the stream whichever device is current, and saves two runtime calls. A thread's default
/// stream also means "of the calling thread", so another thread's is refused.
#pragma once

#include "device/scoped_device.hpp"
#include "stream/slots.hpp"

#include <runnel/config.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// @throws errc::invalid_argument
inline void require_own_thread(const Slot& slot, const char* operation) {
  if (slot.thread != nullptr && slot.thread != this_thread_mark()) [[unlikely]]
    throw_error(
        errc::invalid_argument, operation,
        "the stream is another thread's default stream, and its handle would mean this thread's: record an event there, and use that");
}

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
