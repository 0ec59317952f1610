// SPDX-License-Identifier: Apache-2.0
/// A cache of streams for overlap(). When a stream is destroyed, the runtime unmaps the memory that
/// was freed on it, and the next call would have to map memory again: on an H200, each takes 1 ms
/// for 512 MiB.
#pragma once

#include <runnel/device.hpp>
#include <runnel/stream.hpp>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

/// Returns a stream named "overlap": a cached one, or a new one.
[[nodiscard]] Stream acquire_overlap_stream(Device device);
/// Puts the stream into the cache, or destroys it if the device's cache is full. Requires: the
/// stream is idle.
void release_overlap_stream(Stream stream) noexcept;

}}}  // namespace runnel::RUNNEL_ABI::detail
