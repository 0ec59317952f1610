// SPDX-License-Identifier: Apache-2.0
/// Streams that stay when a call of overlap() ends. Destroying a stream makes the runtime unmap the memory that was freed in it, which
/// the next call would have to map again: on an H200 one and one millisecond for half a gigabyte.
#pragma once

#include <runnel/device.hpp>
#include <runnel/stream.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// One that an earlier call kept, or a new one.
[[nodiscard]] Stream take_overlap_stream(Device device);
/// It has nothing left to do. Beyond a few of a device it is destroyed.
void keep_overlap_stream(Stream stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
