// SPDX-License-Identifier: Apache-2.0
/// Runtime calls that destructors make.
#pragma once

#include "base/check.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/scoped_device.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Makes one runtime call with `device` current, and invalidates no capture. A failure is forgotten.
template <class F>
void call_quietly(int device, F call) noexcept {
  const ScopedDevice on{device, ScopedDevice::no_throw};
  const RelaxedCapture relaxed;
  succeeded_or_forget(call());
}

/// How a native object is destroyed by `destroy`.
template <class Handle, backend::status (*destroy)(Handle) noexcept>
[[nodiscard]] Postponed native_release(Handle handle, int device) noexcept {
  const auto release_now = [](const Postponed& item) noexcept {
    call_quietly(item.device, [&] { return destroy(static_cast<Handle>(item.handle)); });
  };
  return {release_now, handle, device};
}
/// Does that as soon as the runtime may be called.
template <class Handle, backend::status (*destroy)(Handle) noexcept>
void release_native(Handle handle, int device) noexcept {
  release(native_release<Handle, destroy>(handle, device));
}

}  // namespace runnel::inline RUNNEL_ABI::detail
