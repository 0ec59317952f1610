// SPDX-License-Identifier: Apache-2.0
/// Streams of the library's own, for what has to be done once the work of several streams is
/// complete.
#pragma once

#include "stream/uses.hpp"

#include <runnel/detail/backend.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// One of four streams of that device, created at first use and never destroyed: an idle one if
/// there is one, so that what waits long holds up little else. Null if no stream could be created.
[[nodiscard]] native::stream take_own_stream(int device) noexcept;
/// A view of one of these, for code that is not the library's. It stays valid. @throws
/// std::bad_alloc
[[nodiscard]] StreamRef view_own_stream(native::stream stream, int device);

/// Waits for all work of the device; again if the first wait fails, since an error of earlier work
/// may be reported only once. False if work may still run, and at once if the wait would break a
/// capture.
[[nodiscard]] bool wait_for_device(int device) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
