// SPDX-License-Identifier: Apache-2.0
/// What headers need of the checker (race_checker.hpp).
#pragma once

#include <runnel/detail/stream_slot.hpp>
#include <runnel/memory_kind.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

extern constinit Atomic<unsigned> observers;  // bits: detail/observers.hpp
/// Whether the checker is on. All that it costs while it is off is this question.
[[nodiscard]] inline bool is_checking() noexcept {
  return (observers.load(__ATOMIC_RELAXED) & 1) != 0;
}

enum class MemoryAccess : unsigned char { read, write };
/// Tells the checker that work which the user submits to the stream without the library uses
/// memory. `kind`: null where the caller does not know it.
void declare_access(StreamSlot* slot, std::uint64_t id, MemoryAccess access, const void* pointer,
                    std::size_t bytes, const MemoryKind* kind);

/// What kind of memory a type always holds; null if that differs.
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
