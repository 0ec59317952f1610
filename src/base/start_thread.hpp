// SPDX-License-Identifier: Apache-2.0
/// Starts the library's threads.
#pragma once

#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <new>
#include <system_error>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

/// Calls `work()` on a new, detached thread. Returns false if the system has no thread, or no
/// memory for one.
template <class F>
[[nodiscard]] bool start_thread(F work) noexcept try {
  sync::Thread{std::move(work)}.detach();
  return true;
} catch (const std::system_error&) {
  return false;
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
