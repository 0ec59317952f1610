// SPDX-License-Identifier: Apache-2.0
/// Taking a route: nearly everything here enqueues work. Requires, throughout: the request is
/// valid, and the stream's device is current.
#pragma once

#include "base/operation.hpp"
#include "copy/facts.hpp"
#include "copy/request.hpp"
#include "copy/route.hpp"

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI::detail {

/// A copy that is ready to be enqueued.
struct PlannedCopy {
  CopyRequest request;  // its rows are flattened
  CopyFacts facts;
  Route route;
  /// Requires: one side is host memory.
  [[nodiscard]] Direction direction() const noexcept {
    return is_host(facts.to.kind) ? Direction::to_host : Direction::to_device;
  }
};
/// Enqueues nothing. @throws errc::not_permitted or errc::capture if the copy is refused
[[nodiscard]] PlannedCopy plan_copy(CopyCall& call, const CopyRequest& request);
CopyResult enqueue_copy(CopyCall& call, const PlannedCopy& copy);
/// Notes what is ahead in the stream now that a copy has been enqueued.
void note_enqueued(CopyCall& call, const CopyFacts& facts, CopyResult done);

/// A copy that is being enqueued, for observers. Costs one load while nobody observes.
class CopyEvent {
 public:
  CopyEvent(const CopyCall& call, const PlannedCopy& copy) {
    if (is_observed()) [[unlikely]]
      begin(call, copy);
  }
  void enqueued(const PlannedCopy& copy, CopyResult done) {
    if (Operation* const operation = event_.operation()) [[unlikely]]
      add_uses(*operation, copy, done);
  }

 private:
  void begin(const CopyCall& call, const PlannedCopy& copy);
  static void add_uses(Operation& operation, const PlannedCopy& copy, CopyResult done);

  ScopedEvent event_;
};

/// What is true of both parts: memory may be reused at once only after both have been moved.
[[nodiscard]] CopyResult together(CopyResult a, CopyResult b) noexcept;

/// All of a call: validates the request, makes the stream's device current, and enqueues the copy.
/// Rows that are further apart than a runtime takes are a copy each.
CopyResult copy_request(StreamRef stream, const CopyRequest& request, const char* operation);

/// Lets the stream's device reach device memory of the request. Call it before a direct copy.
void reach_devices(const CopyCall& call, const CopyFacts& facts);
/// Makes sure that a copy of `bytes` bytes from pinned memory reads its source no earlier than the
/// stream's order allows. Call it before the copy. CUDA (13.0, driver 580, seen on an H200 with
/// 1000 bytes, not with 30,000) reads the source of a small copy at the call if the stream's own
/// work is complete, even if work of the default stream that the stream has to wait for may still
/// write the source. A command in front of the copy prevents that: a fill of the first byte of
/// `to`, which the copy writes after it.
void keep_source_for_later(CopyCall& call, void* to, std::size_t bytes);

}  // namespace runnel::inline RUNNEL_ABI::detail
