// SPDX-License-Identifier: Apache-2.0
/// Lost devices: after a device is lost, each call for it fails.
#pragma once

#include "base/check.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// Called before an exception reports a lost device. After it returns, no thread of the library may
/// touch the user's memory. Null: no thread does.
inline constinit sync::Atomic<void (*)() noexcept> before_lost_device_is_reported{nullptr};

/// Queries the device again after a call has reported a lost device: some errors are reported once
/// only, and concern earlier work.
inline bool is_current_device_lost() noexcept {
  const backend::status s = backend::stream_query(backend::default_stream());
  return !succeeded_or_forget(s) && backend::classify(s) == errc::device_lost;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
