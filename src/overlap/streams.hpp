// SPDX-License-Identifier: Apache-2.0
/// Streams that the library keeps between calls of overlap(). When a stream is destroyed, the
/// runtime unmaps the memory that was freed in it, and the next call would have to map memory
/// again: on an H200, 1 ms each for 512 MiB.
#pragma once

#include <runnel/device.hpp>
#include <runnel/stream.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// A stream named "overlap": one that an earlier call kept, or a new one.
[[nodiscard]] Stream take_overlap_stream(Device device);
/// Keeps the stream for later calls, or destroys it if the device has enough of them. Requires: the
/// stream is idle.
void keep_overlap_stream(Stream stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
