// SPDX-License-Identifier: Apache-2.0
/// Executes the chosen route: enqueues its work. Requires, for all functions: the request is valid,
/// and the stream's device is current.
#pragma once

#include "base/operation.hpp"
#include "copy/facts.hpp"
#include "copy/request.hpp"
#include "copy/route.hpp"

#include <runnel/config.hpp>

#include <array>
#include <concepts>

namespace runnel::inline RUNNEL_ABI::detail {

/// A copy that is ready to be enqueued.
struct PlannedCopy {
  CopyRequest request;  // its rows are flattened
  CopyFacts facts;
  Route route;
  /// Requires: one side is host memory.
  Direction direction() const noexcept {
    return is_host(facts.to.kind) ? Direction::to_host : Direction::to_device;
  }
};
/// Resolves the facts and chooses the route, but enqueues nothing. @throws errc::not_permitted or
/// errc::capture if the copy is refused
[[nodiscard]] PlannedCopy plan_copy(CopyCall& call, const CopyRequest& request);
/// Requires: there is something to do.
CopyResult enqueue_copy(CopyCall& call, const PlannedCopy& copy);
/// Whether unfinished work that the library knows of may write the copy's source.
bool may_be_written(const PlannedCopy& copy) noexcept;

/// What the copy reads, and what it writes.
[[nodiscard]] std::array<MemoryUse, 2> uses_of(const PlannedCopy& copy, CopyResult done) noexcept;

/// The copy for the observers, before it is enqueued.
Operation about_copy(const CopyCall& call, const PlannedCopy& copy) noexcept;
/// Calls `enqueue()`, unless there is nothing to do, and emits the copy to the observers. Costs one
/// load if there are none.
template <std::invocable F>
CopyResult enqueue_observed(const CopyCall& call, const PlannedCopy& copy, F enqueue) {
  if (copy.route == Route::nothing) return CopyResult::nothing;
  ScopedEvent event{[&] { return about_copy(call, copy); }};
  const CopyResult done = enqueue();
  if (Operation* const operation = event.operation()) [[unlikely]]
    operation->uses = uses_of(copy, done);
  return done;
}

/// The result of a copy of two parts: the weaker one, because memory may be reused only after both
/// parts are done.
[[nodiscard]] CopyResult together(CopyResult a, CopyResult b) noexcept;

/// The whole call: validates the request, makes the stream's device current, and enqueues the copy.
/// If the pitch is larger than the runtimes take, each row is a copy of its own.
CopyResult copy_request(StreamRef stream, const CopyRequest& request, const char* operation);

/// Allows the stream's device to access the device memory of the request. Call it before a direct
/// copy.
void grant_pool_access(const CopyCall& call, const CopyFacts& facts);
/// Sources of up to this size may be read within the call.
inline constexpr size_t read_at_the_call = size_t{32} << 10;
/// Ensures that a copy of `bytes` bytes from pinned memory does not read its source too early. Call
/// it before the copy. CUDA (13.0, driver 580, seen on an H200 with 1000 bytes, not with 30,000)
/// reads the source of a small copy during the call if the stream's own work is complete, even if
/// the stream has to wait for work of the default stream, which may still write the source. A
/// command before the copy prevents that: a fill of the first byte of `to`, which the copy then
/// overwrites.
void protect_source(CopyCall& call, void* to, size_t bytes);

}  // namespace runnel::inline RUNNEL_ABI::detail
