// SPDX-License-Identifier: Apache-2.0
/// The ways that a copy or a fill can go, and the choice among them. The choice is a pure function of the request and of facts about the
/// stream and the memory; the facts are asked when the choice needs them, in the order in which it needs them. run() goes the chosen way,
/// and where that turns out to be closed, notes the fact and has the choice made again.
#pragma once

#include "copy/request.hpp"

#include <runnel/config.hpp>

#include <cstddef>

namespace runnel::inline RUNNEL_ABI::detail {

enum class Route {
  nothing,             ///< no bytes, or the same bytes on both sides
  direct,              ///< one call of the runtime; the copy engine reads and writes the memory itself
  peer,                ///< one call of the runtime for memory of two devices
  driver_reads,        ///< one call of the runtime, which reads the few bytes of pageable memory before it returns
  short_copy,          ///< the calling thread moves the bytes through a pinned block
  staged,              ///< workers move the bytes through pinned buffers, in stream order
  host_function,       ///< a host function of the stream moves or sets the bytes
  blocked,             ///< the runtime's own way, which holds the caller
  seeded,              ///< a fill with wide elements: copies from a pinned block, then from what is filled already
  refused_by_policy,   ///< Pageable::refuse was asked for
  refused_in_capture,  ///< a graph cannot repeat it
};

/// Up to this size a driver may put the bytes of a copy to a device among its commands, at the call.
inline constexpr std::size_t driver_reads_up_to = std::size_t{32} << 10;
/// Up to this size the calling thread may move the bytes itself. Larger copies from or to pageable memory are staged.
inline constexpr std::size_t short_copy_up_to = std::size_t{256} << 10;

[[nodiscard]] inline bool is_host(MemoryKind kind) noexcept { return kind == MemoryKind::pageable || kind == MemoryKind::pinned; }

/// For a copy between a device and host memory that the copy engine cannot reach in one piece.
template <class Facts>
[[nodiscard]] Route choose_pageable_route(const CopyRequest& request, Facts& facts) {
  if (facts.is_capturing()) return Route::refused_in_capture;
  const std::size_t bytes = request.transfer.bytes();
  if (bytes > short_copy_up_to || facts.short_copy_failed()) return Route::staged;
  // To the host the driver would hold the caller for as long as the copies of other streams take.
  const bool may_be_read_at_call = bytes <= driver_reads_up_to && facts.from_kind() == MemoryKind::pageable && !facts.direct_failed();
  if (may_be_read_at_call) return facts.is_idle() ? Route::driver_reads : Route::staged;
  return Route::short_copy;
}

template <class Facts>
[[nodiscard]] Route choose_route(const CopyRequest& request, Facts& facts) {
  if (is_empty(request)) return Route::nothing;
  if (facts.runtime_takes_any_memory() && request.policy == Pageable::stage) return Route::direct;
  const MemoryKind to = facts.to_kind();
  const MemoryKind from = facts.from_kind();
  const bool pageable = to == MemoryKind::pageable || from == MemoryKind::pageable;
  if (pageable && request.policy == Pageable::refuse) return Route::refused_by_policy;
  if (pageable && request.policy == Pageable::block) return Route::blocked;
  if (facts.runtime_takes_any_memory()) return Route::direct;
  // The runtimes would do these while the caller waits.
  if (is_host(to) && is_host(from)) return facts.is_capturing() ? Route::refused_in_capture : Route::host_function;
  if (to == MemoryKind::device && from == MemoryKind::device && facts.are_on_two_devices()) return Route::peer;
  if (!pageable && !facts.direct_failed()) return Route::direct;
  if (facts.device_reads_pageable()) return Route::direct;
  if (request.policy == Pageable::refuse) return Route::refused_by_policy;  // the memory is pinned in parts only
  return choose_pageable_route(request, facts);
}

template <class Facts>
[[nodiscard]] Route choose_route(const FillRequest& request, Facts& facts) {
  if (is_empty(request)) return Route::nothing;
  const bool is_host_work = !facts.runtime_takes_any_memory() && facts.to_kind() == MemoryKind::pageable;
  const bool has_call = request.element_bytes == 1 || request.element_bytes == 2 || request.element_bytes == 4;
  if (has_call && !is_host_work) return Route::direct;
  if (facts.is_capturing()) return Route::refused_in_capture;
  return is_host_work ? Route::host_function : Route::seeded;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
