// SPDX-License-Identifier: Apache-2.0
/// In a build with the option find_races, these functions declare to ThreadSanitizer which memory
/// the user's copies access, and which operation happens before which. In all other builds they do
/// nothing. docs/finding-races.md shows the reports that users get.
#pragma once

#ifdef RUNNEL_FIND_RACES
#include "base/announce_races.hpp"
#else

#include "base/not_copied.hpp"

#include <runnel/config.hpp>

#include <cstddef>
#include <memory>

namespace runnel::inline RUNNEL_ABI::sync {

inline constexpr bool finds_races = false;

/// What this thread did before happens_before(address) happens before what another thread does
/// after happens_after(address).
inline void happens_before(const void*) noexcept {}
inline void happens_after(const void*) noexcept {}
/// @{ Declares that the calling thread reads or writes these bytes for the user.
inline void reads(const void*, std::size_t) noexcept {}
inline void writes(void*, std::size_t) noexcept {}
///@}

/// A unique address for one pair of happens_before() and happens_after(). An address that is used
/// again would keep the order of its earlier uses.
struct Token {
  [[nodiscard]] static Token make() noexcept { return {}; }
  /// The address of a part of an object. The token keeps the object alive.
  static Token of_part(const std::shared_ptr<const void>&, const void*) noexcept { return {}; }
  void happens_before() const noexcept {}
  void happens_after() const noexcept {}
};

/// In this scope, ThreadSanitizer ignores the calling thread: its accesses are not checked, and its
/// synchronization orders nothing.
class TsanIgnore : detail::NotCopied {
 public:
  TsanIgnore() noexcept {}
};

/// The call stacks that enqueued some tasks. Race reports show them as the callers of the tasks.
template <std::size_t>
struct Callers {
  void note_caller(std::size_t) noexcept {}
};

}  // namespace runnel::inline RUNNEL_ABI::sync

#endif
