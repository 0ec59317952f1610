// SPDX-License-Identifier: Apache-2.0
/// The order of operations of different streams.
#pragma once

#include "base/sync.hpp"

#include <runnel/device.hpp>
#include <runnel/event.hpp>
#include <runnel/stream.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// The order of operations of different streams: each one waits for the one before. Waits only
/// where the stream changes.
class Baton {
 public:
  /// While it lives, the calling thread may enqueue operations on the stream, behind those of other
  /// streams so far. Other threads wait.
  class Turn {
   public:
    Turn(Baton& baton, StreamRef stream)
        : baton_{baton}, lock_{baton.mutex_}, stream_{stream}, device_{stream.device()} {
      baton.make_follow(stream);
    }
    /// All is enqueued, or a part of it.
    void end() noexcept {
      for (int attempt = 0; attempt < 2; ++attempt) {
        try {
          stream_.record_event(baton_.done_);
          baton_.unrecorded_.reset();
          baton_.last_ = stream_.id();
          return;
        } catch (const std::exception&) {
        }
      }
      baton_.unrecorded_ = stream_;  // the next turn waits for the stream instead
      baton_.unrecorded_device_ = device_;
    }

   private:
    Baton& baton_;
    std::unique_lock<sync::Mutex> lock_;
    StreamRef stream_;
    Device device_;
  };
  /// What is enqueued on the stream from now on comes behind the operations so far.
  void let_follow(StreamRef stream) {
    const std::lock_guard lock{mutex_};
    make_follow(stream);
  }
  /// Holds the calling thread until the operations so far have ended.
  void wait() {
    const std::lock_guard lock{mutex_};
    if (last_ != 0) done_.synchronize();
    if (unrecorded_) unrecorded_device_.synchronize();
  }
  /// Whether the operations so far have ended.
  [[nodiscard]] bool is_idle() {
    const std::lock_guard lock{mutex_};
    if (unrecorded_ && !(unrecorded_->is_valid() && unrecorded_->query())) return false;
    return last_ == 0 || done_.query();
  }

 private:
  /// Requires: the calling thread holds the lock.
  void make_follow(StreamRef stream) {
    if (last_ != 0 && last_ != stream.id()) stream.wait_event(done_);
    if (!unrecorded_ || *unrecorded_ == stream) return;
    if (unrecorded_->is_valid())
      stream.wait_stream(*unrecorded_);
    else
      unrecorded_device_.synchronize();
  }

  sync::Mutex mutex_;
  Event done_;
  std::uint64_t last_ = 0;  // the stream that has recorded `done_`
  // has an operation that `done_` does not stand for; may have ended since
  std::optional<StreamRef> unrecorded_;
  Device unrecorded_device_{0};
};

}  // namespace runnel::inline RUNNEL_ABI::detail
