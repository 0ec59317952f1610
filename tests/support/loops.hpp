// SPDX-License-Identifier: Apache-2.0
/// Loops that count, and elements by such numbers.
#pragma once

#include <cstddef>

namespace test_support {

/// What range() gives. clang 14 does not compile <ranges>.
template <class Number>
struct Numbers {
  struct Iterator {
    Number number;
    Number operator*() const { return number; }
    void operator++() { ++number; }
    bool operator==(const Iterator&) const = default;
  };
  Number count;
  Iterator begin() const { return {}; }
  Iterator end() const { return {count}; }
};

/// The numbers from 0 to `count` - 1: for (int i : range(3)).
template <class Number>
Numbers<Number> range(Number count) {
  return {count};
}

/// The element with that number, which may be an int.
template <class All>
decltype(auto) nth(All&& all, auto number) {
  return all[static_cast<std::size_t>(number)];
}

/// Calls the function so many times.
template <class F>
void repeat(auto times, F&& f) {
  for (decltype(times) i = 0; i < times; ++i) f();
}

}  // namespace test_support
