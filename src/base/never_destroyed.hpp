// SPDX-License-Identifier: Apache-2.0
/// Objects that live from first use until the process ends.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>
#include <new>

namespace runnel::inline RUNNEL_ABI::detail {

/// The library's single object of type T. It is never destroyed, because threads and static objects
/// of the user may still use it while the process exits. It needs no heap memory, so that a
/// noexcept function may be the first to use it.
template <class T>
[[nodiscard]] T& never_destroyed() {
  alignas(T) static constinit std::byte storage[sizeof(T)]{};
  static T& object = *new (storage) T;
  return object;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
