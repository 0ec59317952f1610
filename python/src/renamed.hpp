// SPDX-License-Identifier: Apache-2.0
// What is being renamed in the library, by either name.
#pragma once

#include <runnel/stream.hpp>

namespace binding {

template <class S>
[[nodiscard]] bool is_valid(const S& stream) {
  if constexpr (requires { stream.is_valid(); })
    return stream.is_valid();
  else
    return stream.valid();
}
template <class S>
[[nodiscard]] bool is_blocking(const S& stream) {
  if constexpr (requires { stream.is_blocking(); })
    return stream.is_blocking();
  else
    return stream.blocking();
}
template <class P>
[[nodiscard]] int number_of(const P& priority) {
  if constexpr (requires { priority.value; })
    return priority.value;
  else
    return priority;
}

}  // namespace binding
