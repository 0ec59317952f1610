// SPDX-License-Identifier: Apache-2.0
/// Runtime calls of destructors.
#pragma once

#include "base/check.hpp"
#include "base/relaxed_capture.hpp"
#include "device/scoped_device.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Makes one runtime call with `device` current and without invalidating any capture. A failure is forgotten.
template <class F>
void call_quietly(int device, F call) noexcept {
  const ScopedDevice on{device, ScopedDevice::no_throw};
  const RelaxedCapture relaxed;
  succeeded_or_forget(call());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
