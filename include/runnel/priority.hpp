// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_streams
/// The priorities of streams. docs/priorities.md shows their effect on devices.
#pragma once

#include <runnel/config.hpp>

#include <compare>
#include <iosfwd>
#include <limits>
#include <string>

namespace runnel::inline RUNNEL_ABI {

/// The priority of a stream: a lower number is more urgent. StreamOptions takes any `int` and
/// clamps it to the device's range. The three constants below become {-5, 0, 0} on NVIDIA (where 0
/// is the least urgent), and {-1, 0, 1} on AMD and on the host backend.
struct Priority {
  int value = 0;  ///< the number

  constexpr Priority() noexcept = default;
  /// Accepts any number.
  constexpr Priority(int number) noexcept
      : value{number} {}  // NOLINT: `.priority = -1` is how it is written

  static const Priority high;    ///< the most urgent that the device has
  static const Priority normal;  ///< 0
  static const Priority low;     ///< the least urgent that the device has

  ///@{ Compares the numbers: the more urgent priority is less than the other.
  // Not defaulted: nvcc calls a defaulted one without defining it.
  friend constexpr bool operator==(Priority a, Priority b) noexcept { return a.value == b.value; }
  friend constexpr auto operator<=>(Priority, Priority) noexcept = default;
  ///@}
  /// The number: "-5".
  friend std::string to_string(Priority priority) { return std::to_string(priority.value); }
  /// Writes the number.
  template <class Char, class Traits>
  friend auto& operator<<(std::basic_ostream<Char, Traits>& out, Priority priority) {
    return out << priority.value;
  }
};
inline constexpr Priority Priority::high{std::numeric_limits<int>::min()};
inline constexpr Priority Priority::normal{0};
inline constexpr Priority Priority::low{std::numeric_limits<int>::max()};

/// The priorities of a device's streams. Lower numbers are more urgent, so `greatest <= least`.
struct PriorityRange {
  Priority least;     ///< the least urgent, numerically largest
  Priority greatest;  ///< the most urgent, numerically smallest

  /// Whether `priority` is in the range.
  [[nodiscard]] constexpr bool contains(Priority priority) const noexcept {
    return greatest <= priority && priority <= least;
  }
  /// The priority in the range that is nearest to `priority`.
  [[nodiscard]] constexpr Priority clamp(Priority priority) const noexcept {
    return priority < greatest ? greatest : priority > least ? least : priority;
  }
  /// False if the device has one level only, {0, 0}.
  [[nodiscard]] constexpr bool has_levels() const noexcept { return greatest < least; }
  friend constexpr bool operator==(PriorityRange, PriorityRange) noexcept = default;
};

}  // namespace runnel::inline RUNNEL_ABI
