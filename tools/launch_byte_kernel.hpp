// SPDX-License-Identifier: Apache-2.0
/// Enqueues the kernels. The source that implements this depends on the backend
/// (tools/meson.build).
#pragma once

#include "byte_kernel.hpp"

#include <runnel/memory.hpp>
#include <runnel/stream.hpp>

namespace tool {

/// One line that explains why the kernels cannot run; null if they can.
[[nodiscard]] const char* why_no_byte_kernel() noexcept;

/// Enqueues `map_and_count`. Requires: at most 2^32 - 1 bytes, because a block counts in 32 bits.
void launch_map_and_count(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in,
                          runnel::DeviceSpan<unsigned char> out, const ByteMap& map,
                          runnel::DeviceSpan<ByteCount> counts);
/// Enqueues `double_and_add_one`.
void launch_double_and_add_one(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in,
                               runnel::DeviceSpan<unsigned char> out, unsigned rounds);

}  // namespace tool
