// SPDX-License-Identifier: Apache-2.0
/// What headers need of those that observe what the library does: the checker (race_checker.hpp), a hook (hooks.hpp), the trace
/// (trace.hpp).
#pragma once

#include <runnel/detail/stream_slot.hpp>
#include <runnel/memory_kind.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

/// Who observes. All that this costs while nobody does is one load of this number.
inline constexpr unsigned observer_checker = 1;
inline constexpr unsigned observer_hook = 2;
inline constexpr unsigned observer_trace = 4;
inline constexpr unsigned observer_hangs = 8;  // waits that last long are reported
extern constinit Atomic<unsigned> observers;
[[nodiscard]] inline bool has_observers(unsigned which) noexcept { return (observers.load(__ATOMIC_RELAXED) & which) != 0; }
/// Whether the checker is on.
[[nodiscard]] inline bool is_checking() noexcept { return has_observers(observer_checker); }
/// Whether a hook or the trace is on.
[[nodiscard]] inline bool is_told() noexcept { return has_observers(observer_hook | observer_trace); }
/// Whether any of the three is on.
[[nodiscard]] inline bool is_observed() noexcept { return has_observers(observer_checker | observer_hook | observer_trace); }

enum class MemoryAccess : unsigned char { read, write };
/// Tells the checker that work which the user submits to the stream without the library uses memory. `kind`: null where the caller does not
/// know it.
void declare_access(StreamSlot* slot, std::uint64_t id, MemoryAccess access, const void* pointer, std::size_t bytes,
                    const MemoryKind* kind);

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
