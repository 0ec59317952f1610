// SPDX-License-Identifier: Apache-2.0
/// Waits for devices, and for streams that have ended, on behalf of the library.
#pragma once

#include "slot/point.hpp"
#include "timeline/timeline.hpp"

#include <runnel/config.hpp>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// Blocks until the device is idle. Tries a second time after a failure, since an error of earlier
/// work may be reported only once. Returns `complete`, or `unknown` at once if the wait would break
/// a capture, or `lost`.
[[nodiscard]] Progress wait_for_device(int device) noexcept;
/// Waits for the last work of a stream that has ended. False if that is not known.
[[nodiscard]] bool is_passed(Point& ended, const char* waiting);

}}}  // namespace runnel::RUNNEL_ABI::detail
