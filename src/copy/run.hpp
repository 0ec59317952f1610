// SPDX-License-Identifier: Apache-2.0
/// Taking a route: everything here enqueues work. Requires, throughout: the request is valid, and
/// the stream's device is current.
#pragma once

#include "base/operation.hpp"
#include "copy/facts.hpp"
#include "copy/request.hpp"
#include "copy/route.hpp"

#include <runnel/config.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// Returns what was done. If the route cannot be taken, returns nothing, has changed no memory of
/// the caller, and has noted why in `facts`: choose_route() chooses another route then.
[[nodiscard]] std::optional<CopyResult> run(Route route, const CopyRequest& request, Facts& facts);
void run(Route route, const FillRequest& request, Facts& facts);

/// Throws what a refused route stands for.
[[noreturn]] void refuse(Route route, Facts& facts);

/// Tries routes until one of them enqueues the copy.
CopyResult enqueue_copy(const CopyRequest& request, Facts& facts);
/// A copy that is being enqueued, for observers. Costs one load while nobody observes.
class CopyEvent {
 public:
  /// @throws errc::not_permitted or errc::capture if the copy is refused; then nothing is emitted
  CopyEvent(const CopyRequest& request, Facts& facts) {
    if (is_observed()) [[unlikely]]
      begin(request, facts);
  }
  void enqueued(const CopyRequest& request, CopyResult done, Facts& facts) {
    if (Operation* const operation = event_.operation()) [[unlikely]]
      add_uses(*operation, request, done, facts);
  }

 private:
  void begin(const CopyRequest& request, Facts& facts);
  static void add_uses(Operation& copy, const CopyRequest& request, CopyResult done, Facts& facts);

  ScopedEvent event_;
};

/// What is true of both parts: memory may be reused at once only after both have been moved.
[[nodiscard]] CopyResult together(CopyResult a, CopyResult b) noexcept;

/// All of a call: validates the request, makes the stream's device current, and enqueues the copy.
/// Rows that are further apart than a runtime takes are a copy each.
CopyResult copy_request(StreamRef stream, const CopyRequest& request, const char* operation);

/// Lets the stream's device reach device memory of the request. Call it before a direct copy.
void reach_devices(Facts& facts);
/// Makes sure that a copy of `bytes` bytes from pinned memory reads its source no earlier than the
/// stream's order allows. Call it before the copy. CUDA (13.0, driver 580, seen on an H200 with
/// 1000 bytes, not with 30,000) reads the source of a small copy at the call if the stream's own
/// work is complete, even if work of the default stream that the stream has to wait for may still
/// write the source. A command in front of the copy prevents that: a fill of the first byte of
/// `to`, which the copy writes after it.
void keep_source_for_later(CopyCall& call, void* to, std::size_t bytes);

}  // namespace runnel::inline RUNNEL_ABI::detail
