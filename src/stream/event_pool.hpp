// SPDX-License-Identifier: Apache-2.0
/// Native events kept warm per device, because making one costs more than recording it and waiting for it. An event may go back while
/// a stream still waits for it: a wait is bound to its record at the call.
#pragma once

#include <runnel/detail/backend.hpp>
#include <runnel/native.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// From the pool of that device, or new. @throws what the runtime says
[[nodiscard]] native::event take_event(int device, backend::EventKind kind, const char* operation);
/// Back to the pool; kinds that are not pooled are destroyed. In a forked child it does nothing.
void return_event(native::event event, int device, backend::EventKind kind) noexcept;
/// Destroys an event that must not go to the pool, as soon as the runtime may be called.
void destroy_event(native::event event, int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
