// SPDX-License-Identifier: Apache-2.0
/// Uses of device memory that were recorded by an address within a block, by any thread, instead of by the buffer that owns the block. No
/// allocation is entered here: a program that records no such use pays nothing.
#pragma once

#include "base/sync.hpp"
#include "stream/slots.hpp"
#include "stream/uses.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/stream.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

namespace runnel::inline RUNNEL_ABI::detail {

[[nodiscard]] inline StreamUse use_of(StreamRef stream) noexcept { return {static_cast<Slot*>(Access::slot(stream)), stream.id()}; }

/// Streams by the address that they use. Each is a counted use.
using RecordedUses = std::multimap<std::uintptr_t, StreamRef>;

inline constinit sync::Atomic<std::size_t> uses_recorded{0};

/// Counts a use of the block that holds the address. @throws errc::invalid_handle if the stream has ended
void add_recorded_use(const void* pointer, StreamRef stream);
/// Removes and returns the uses of a block that is about to be freed. Their counted uses go on. Allocates nothing.
[[nodiscard]] RecordedUses take_recorded_uses_slowly(const void* block, std::size_t bytes) noexcept;
[[nodiscard]] inline RecordedUses take_recorded_uses(const void* block, std::size_t bytes) noexcept {
  return uses_recorded.load(std::memory_order_relaxed) == 0 ? RecordedUses{} : take_recorded_uses_slowly(block, bytes);
}

/// Whether the stream has ended and all its work is complete. Then its counted use has ended too.
[[nodiscard]] bool end_use_if_complete(StreamRef stream) noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
