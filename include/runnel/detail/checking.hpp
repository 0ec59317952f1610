// SPDX-License-Identifier: Apache-2.0
/// The part of the race checker (race_checker.hpp) that public headers need.
#pragma once

#include <runnel/detail/stream_slot.hpp>
#include <runnel/memory_kind.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

extern constinit Atomic<unsigned> observers;  // The bits are defined in detail/observers.hpp.
/// Whether the checker is on. While it is off, this load is its only cost.
[[nodiscard]] inline bool is_checking() noexcept {
  return (observers.load(__ATOMIC_RELAXED) & 1) != 0;
}

enum class MemoryAccess : unsigned char { read, write };
/// Declares to the checker that work which the user submits to the stream without the library
/// accesses memory. `kind`: null if unknown.
void declare_access(StreamSlot* slot, std::uint64_t id, MemoryAccess access, const void* pointer,
                    std::size_t bytes, const MemoryKind* kind);

/// The kind of memory that a type always refers to; null if it varies.
template <class R>
[[nodiscard]] constexpr const MemoryKind* kind_of_range() noexcept {
  if constexpr (requires { R::memory_kind; })
    return &R::memory_kind;
  else
    return nullptr;
}
template <class R>
[[nodiscard]] constexpr std::size_t size_in_bytes(const R& range) noexcept {
  return range.size() * sizeof(*range.data());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
