// SPDX-License-Identifier: Apache-2.0
/// Native events, kept for reuse on each device, because creating an event costs more than recording it and waiting for it. An event may go
/// back to the pool while a stream still waits for it: a wait is bound to the record that was current at the call.
#pragma once

#include <runnel/detail/backend.hpp>
#include <runnel/native.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// An event of the device's pool, or a new one. @throws the runtime's error
[[nodiscard]] native::event take_event(int device, backend::EventKind kind, const char* operation);
/// Gives an event back to the pool; an event of a kind that is not pooled is destroyed. In a forked child this does nothing.
void return_event(native::event event, int device, backend::EventKind kind) noexcept;
/// Destroys an event that must not go to the pool, as soon as the runtime may be called.
void destroy_event(native::event event, int device) noexcept;

/// An event of the device's pool.
class PooledEvent {
 public:
  PooledEvent(int device, const char* operation) : device_{device}, event_{take_event(device, {}, operation)} {}
  PooledEvent(const PooledEvent&) = delete;
  PooledEvent& operator=(const PooledEvent&) = delete;
  ~PooledEvent() { return_event(event_, device_, {}); }
  [[nodiscard]] native::event get() const noexcept { return event_; }

 private:
  int device_;
  native::event event_;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
