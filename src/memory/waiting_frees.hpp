// SPDX-License-Identifier: Apache-2.0
/// Device memory that is to be freed, but waits for streams that no other stream can be made to wait for now. Such a stream is the default
/// stream of another thread. The memory is freed at a later allocation or free. To wait for the device instead would hold the caller, and
/// would break every capture.
///
/// Memory of a program's resource waits in a list of its own. A resource may hold a lock while it calls the library, so that it must not be
/// called from there: only calls about buffers that have a resource, and trim(), go through that list.
#pragma once

#include "stream/stream_point.hpp"

#include <runnel/config.hpp>
#include <runnel/stream_ordered_resource.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

struct WaitingFree {
  void* pointer;
  int device;
  std::vector<StreamPoint> uses;
  std::size_t bytes = 0;      // of a resource's block
  SharedResource resource{};  // null: the device's own memory
};
using WaitingFreeList = std::list<WaitingFree>;

/// Frees the memory of each entry once the work of its streams is complete. Leaks it if that will never be
/// known.
void free_once_complete(WaitingFreeList entries) noexcept;

enum class Whose { device, resource };
inline constinit std::array<sync::Atomic<std::size_t>, 2> frees_waiting{0, 0};
[[nodiscard]] inline bool are_frees_waiting(Whose whose = Whose::device) noexcept {
  return frees_waiting[static_cast<std::size_t>(whose)].load(std::memory_order_relaxed) > 0;
}

/// Frees what can be freed now.
void run_complete_frees() noexcept;
/// Gives back to their resources what can be given back now. Does nothing within a call of a resource.
void run_complete_resource_frees() noexcept;
/// Holds the caller until some of the memory that no resource owns can be freed, and frees it. False if the runtime will not say when that
/// is: another thread has to call the library first, or the runtime fails.
[[nodiscard]] bool wait_for_a_free() noexcept;
/// Waits for all devices, and frees all that no resource owns. If the process has captured streams, it does nothing, because the wait would
/// break a capture.
void run_all_frees() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
