// SPDX-License-Identifier: Apache-2.0
/// Copies between ordinary host memory and a device that do not hold the caller.
///
/// At the call everything is enqueued on the caller's own stream: for each piece, a wait for a value, the copy between the device and a
/// slot of a pinned ring, a write of a value. Workers move the bytes between slots and user memory, and read and set the values; they
/// never call the runtime. Nothing that a stream waits for here depends on work enqueued later, on any stream:
/// a ring belongs to one stream at a time, so its slots become free by that stream's own earlier pieces and by the workers alone, and
/// workers never wait for one stream's values while another stream's piece could be moved.
/// A worker reads the source only after the stream has come to the copy, since earlier work of the stream may write it.
#pragma once

#include "copy/host_move.hpp"
#include "stream/slots.hpp"

#include <runnel/copy.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

enum class Side { to_device, to_host };
/// What is done to the host's side.
[[nodiscard]] inline Purpose purpose_of(Side side) noexcept { return side == Side::to_device ? Purpose::reading : Purpose::writing; }

/// The bytes of host memory that some rows of a transfer span.
struct HostBytes {
  const void* begin;
  std::size_t bytes;
};
[[nodiscard]] inline HostBytes host_bytes(const Transfer& t, Side side, std::size_t first_row, std::size_t rows) noexcept {
  const unsigned char* const begin = side == Side::to_device ? t.from : t.to;
  const std::size_t pitch = side == Side::to_device ? t.from_pitch : t.to_pitch;
  return {begin + first_row * pitch, (rows - 1) * pitch + t.width};
}

/// Enqueues the transfer; the host side is ordinary memory. The stream's device is current if its handle needs that.
/// `idle`: the stream has been seen to have nothing ahead, so that the source may be read at once.
void stage(Slot& slot, const Transfer& transfer, Side side, bool idle, const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
