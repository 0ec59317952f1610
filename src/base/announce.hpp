// SPDX-License-Identifier: Apache-2.0
/// In a build with the option find_races, the library calls these functions to tell ThreadSanitizer
/// which memory the user's copies touch, and what happens before what. In all other builds they do
/// nothing. docs/finding-races.md shows the reports that users get.
#pragma once

#ifdef RUNNEL_FIND_RACES
#include "base/announce_races.hpp"
#else

#include <runnel/config.hpp>

#include <cstddef>
#include <memory>

namespace runnel::inline RUNNEL_ABI::sync {

inline constexpr bool finds_races = false;

/// What this thread did before the call happens before what another thread does after its
/// `happens_after` with the same address.
inline void happens_before(const void*) noexcept {}
inline void happens_after(const void*) noexcept {}
///@{ The calling thread reads or writes these bytes for the user.
inline void reads(const void*, std::size_t) noexcept {}
inline void writes(void*, std::size_t) noexcept {}
///@}

/// An address of its own for one use of happens_before() and happens_after(): a used address would
/// keep the order of its earlier uses.
struct Token {
  [[nodiscard]] static Token make() noexcept { return {}; }
  /// The address of a part of an object, which the token keeps alive.
  [[nodiscard]] static Token of_part(const std::shared_ptr<const void>&, const void*) noexcept {
    return {};
  }
  void happens_before() const noexcept {}
  void happens_after() const noexcept {}
};

/// While it lives, nothing that the calling thread does is checked or orders anything.
class Unseen {
 public:
  Unseen() noexcept {}
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

/// Who enqueued each of some tasks. A report shows these callers for what the task does.
template <std::size_t>
struct Callers {
  void note_caller(std::size_t) noexcept {}
};

}  // namespace runnel::inline RUNNEL_ABI::sync

#endif
