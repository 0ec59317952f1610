// SPDX-License-Identifier: Apache-2.0
/// The ways to execute a copy or a fill, and the choice among them. A CopyResult is coarser: it is
/// what the caller needs to know about the route. The choice enqueues nothing, and depends on its
/// arguments alone. `stream` is a CopyCall; the choice queries it only if captures matter.
#pragma once

#include "copy/facts.hpp"
#include "copy/request.hpp"

#include <runnel/config.hpp>

#include <cstddef>
#include <cstdint>

namespace runnel::inline RUNNEL_ABI::detail {

enum class Route {
  nothing,     ///< no bytes, or the same bytes on both sides
  direct,      ///< one runtime call; the copy engine reads and writes the memory itself
  peer,        ///< one runtime call for memory of two devices
  short_copy,  ///< the calling thread moves the bytes through a pinned block; `staged` if it cannot
  staged,      ///< workers move the bytes through pinned memory, in stream order
  host_function,  ///< a host function of the stream, or of a graph, moves or sets the bytes
  blocked,        ///< the runtime's own copy of pageable memory, which blocks the caller
  seeded,  ///< a fill for which the runtime has no call: copies from a pinned block, then from the
           ///< bytes that are already filled
  refused_by_policy,   ///< the policy is Pageable::refuse
  refused_in_capture,  ///< a graph cannot repeat it
};

inline bool is_refused(Route route) noexcept {
  return route == Route::refused_by_policy || route == Route::refused_in_capture;
}

/// Larger copies from or to pageable memory are staged. Up to this size the calling thread tries to
/// move the bytes itself, through a block of this size (short_copy.cpp).
inline constexpr size_t short_copy_up_to = size_t{256} << 10;

template <class Stream>
Route choose_route(const CopyRequest& request, const CopyFacts& facts, Stream& stream) {
  if (has_nothing_to_do(request)) return Route::nothing;
  const bool pageable = facts.has_pageable_side();
  if (pageable && request.policy == Pageable::refuse) return Route::refused_by_policy;
  if (pageable && request.policy == Pageable::block) return Route::blocked;
  if (facts.runtime_takes_any_memory) return Route::direct;
  // The runtimes block the caller of a copy between two host memories.
  if (facts.are_both_host()) return Route::host_function;
  // CUDA's call for two devices breaks a capture. Its other call can be captured, if the devices
  // can access each other's memory.
  if (facts.are_on_two_devices()) return stream.is_capturing() ? Route::direct : Route::peer;
  if (!pageable || facts.device_reads_pageable) return Route::direct;
  if (stream.is_capturing()) return Route::refused_in_capture;
  const size_t bytes = request.transfer.bytes();
  // The driver's own call would be slower, and would block the caller: to the host until the copies
  // of other streams are complete, to a device once 4 MiB are pending.
  return bytes > short_copy_up_to ? Route::staged : Route::short_copy;
}

/// The route to take after the runtime has refused to copy the memory in one call, because it is
/// pinned in parts.
template <class Stream>
Route choose_fallback(const CopyRequest& request, const CopyFacts& facts, Stream& stream) {
  if (facts.are_both_host()) return Route::host_function;
  if (request.policy == Pageable::refuse) return Route::refused_by_policy;
  if (stream.is_capturing()) return Route::refused_in_capture;
  return request.transfer.bytes() > short_copy_up_to ? Route::staged : Route::short_copy;
}

/// Runtimes set elements of 1, 2 and 4 bytes, at addresses that are multiples of that.
inline bool has_runtime_call(const FillRequest& request) noexcept {
  const size_t width = request.element_bytes;
  return (width == 1 || width == 2 || width == 4) &&
         reinterpret_cast<uintptr_t>(request.to) % width == 0;
}

template <class Stream>
Route choose_route(const FillRequest& request, const CopyFacts& facts, Stream& stream) {
  if (has_nothing_to_do(request)) return Route::nothing;
  if (facts.to.kind == MemoryKind::pageable) return Route::host_function;
  if (has_runtime_call(request)) return Route::direct;
  return stream.is_capturing() ? Route::refused_in_capture : Route::seeded;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
