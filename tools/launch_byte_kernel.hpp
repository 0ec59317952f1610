// SPDX-License-Identifier: Apache-2.0
/// How the kernels get into a stream; which source implements it depends on the backend (tools/meson.build).
#pragma once

#include "byte_kernel.hpp"

#include <runnel/memory.hpp>
#include <runnel/stream.hpp>

namespace tool {

/// Nothing where the kernel can run, else one line that says what is missing.
[[nodiscard]] const char* why_no_byte_kernel() noexcept;

/// Enqueues `map_and_count`. At most 2^32 - 1 bytes at once: a block counts in 32 bits.
void launch_map_and_count(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in, runnel::DeviceSpan<unsigned char> out,
                          const ByteMap& map, runnel::DeviceSpan<ByteCount> counts);
/// Enqueues `double_and_add_one`.
void launch_double_and_add_one(runnel::StreamRef stream, runnel::DeviceSpan<const unsigned char> in, runnel::DeviceSpan<unsigned char> out,
                               unsigned rounds);

}  // namespace tool
