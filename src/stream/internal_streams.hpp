// SPDX-License-Identifier: Apache-2.0
/// Internal streams, for work that follows the work of several user streams.
#pragma once

#include "stream/uses.hpp"

#include <runnel/detail/backend.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// One of four internal streams of the device. They are created at first use and never destroyed.
/// Prefers an idle one, so that long waits delay little other work. Null if no stream could be
/// created.
[[nodiscard]] native::stream pick_internal_stream(int device) noexcept;
/// A view of an internal stream for user code. It stays valid.
/// @throws std::bad_alloc
[[nodiscard]] StreamRef view_internal_stream(native::stream stream, int device);

/// Blocks until the device is idle. Tries a second time after a failure, since an error of earlier
/// work may be reported only once. False if work may still run. Returns false at once if the wait
/// would break a capture.
[[nodiscard]] bool wait_for_device(int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
