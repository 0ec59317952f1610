// SPDX-License-Identifier: Apache-2.0
/// How the library's own sources read an event.
#pragma once

#include <runnel/detail/access.hpp>
#include <runnel/event.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// The native event, for one call. While this lives, the handle is given to no other event, whatever other threads record. Null if nothing
/// was recorded.
class HandleInUse {
 public:
  /// @throws errc::invalid_handle for a moved-from event
  HandleInUse(const EventBase& event, const char* operation);
  HandleInUse(const HandleInUse&) = delete;
  HandleInUse& operator=(const HandleInUse&) = delete;
  ~HandleInUse() {
    if (counted_ != nullptr) [[unlikely]]
      counted_->users_.fetch_sub(1, std::memory_order_release);
  }
  [[nodiscard]] native::event get() const noexcept { return handle_; }
  /// The handle's device, if this is an interprocess event; -1 otherwise.
  [[nodiscard]] int interprocess_device() const noexcept { return interprocess_device_; }

 private:
  const EventBase* counted_ = nullptr;
  native::event handle_{};
  int interprocess_device_ = -1;
};

inline bool Access::is_external(const EventBase& event) noexcept { return event.options_.external; }

}  // namespace runnel::inline RUNNEL_ABI::detail
