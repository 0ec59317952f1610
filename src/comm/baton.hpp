// SPDX-License-Identifier: Apache-2.0
/// The order of operations of different streams.
#pragma once

#include "base/sync.hpp"

#include <runnel/event.hpp>
#include <runnel/stream.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// The order of operations of different streams: each one waits for the one before. Waits only where the stream changes.
class Baton {
 public:
  /// While it lives, the calling thread may enqueue operations on the stream, behind those of other streams so far. Other threads wait.
  class Turn {
   public:
    Turn(Baton& baton, StreamRef stream) : baton_{baton}, lock_{baton.mutex_}, stream_{stream} {
      if (baton.last_ != 0 && baton.last_ != stream.id()) stream.wait_event(baton.done_);
      if (baton.unrecorded_ && *baton.unrecorded_ != stream) stream.wait_stream(*baton.unrecorded_);
      baton.unrecorded_ = stream;  // if this turn does not come to its end
    }
    /// All is enqueued.
    void end() {
      stream_.record_event(baton_.done_);
      baton_.unrecorded_.reset();
      baton_.last_ = stream_.id();
    }

   private:
    Baton& baton_;
    std::unique_lock<sync::Mutex> lock_;
    StreamRef stream_;
  };
  /// Holds the calling thread until the operations so far have ended.
  void wait() {
    const std::lock_guard lock{mutex_};
    if (last_ != 0) done_.synchronize();
  }
  /// Whether the operations so far have ended.
  [[nodiscard]] bool is_idle() {
    const std::lock_guard lock{mutex_};
    return last_ == 0 || done_.query();
  }

 private:
  sync::Mutex mutex_;
  Event done_;
  std::uint64_t last_ = 0;               // the stream that has recorded `done_`
  std::optional<StreamRef> unrecorded_;  // has an operation that `done_` does not stand for
};

}  // namespace runnel::inline RUNNEL_ABI::detail
