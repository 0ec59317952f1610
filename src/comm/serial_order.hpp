// SPDX-License-Identifier: Apache-2.0
/// The serial orders of operations on different streams: one for each device, and those of
/// communicators that have their own.
#pragma once

#include "base/not_copied.hpp"
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

/// A serial order of operations on different streams: each operation waits for the previous one. A
/// stream waits only if the previous operation was on another stream.
class SerialOrder {
 public:
  /// While it lives, the calling thread may enqueue operations on the stream. They run after the
  /// previous operations of the order. Other threads block in the constructor.
  class Entry : NotCopied {
   public:
    Entry(SerialOrder& order, StreamRef stream)
        : order_{order}, lock_{order.mutex_}, stream_{stream}, device_{stream.device()} {
      order.wait_for_previous(stream);
    }
    /// Records the end of the operations, also if only a part of them was enqueued.
    ~Entry() {
      for (int attempt = 0; attempt < 2; ++attempt) {
        try {
          stream_.record_event(order_.done_);
          order_.unrecorded_.reset();
          order_.last_ = stream_.id();
          return;
        } catch (const std::exception&) {
        }
      }
      order_.unrecorded_ = stream_;  // The next entry waits for the stream instead.
      order_.unrecorded_device_ = device_;
    }

   private:
    SerialOrder& order_;
    std::unique_lock<sync::Mutex> lock_;
    StreamRef stream_;
    Device device_;
  };
  /// Makes the stream wait for the previous operations of the order.
  void make_wait(StreamRef stream) {
    const std::lock_guard lock{mutex_};
    wait_for_previous(stream);
  }
  /// Blocks the calling thread until the previous operations have ended.
  void wait() {
    const std::lock_guard lock{mutex_};
    if (last_ != 0) done_.synchronize();
    if (unrecorded_) unrecorded_device_.synchronize();
  }
  /// Whether the previous operations have ended.
  bool is_idle() {
    const std::lock_guard lock{mutex_};
    if (unrecorded_ && !(unrecorded_->is_valid() && unrecorded_->query())) return false;
    return last_ == 0 || done_.query();
  }

 private:
  /// Requires: the calling thread holds the lock.
  void wait_for_previous(StreamRef stream) {
    if (last_ != 0 && last_ != stream.id()) stream.wait_event(done_);
    if (!unrecorded_ || *unrecorded_ == stream) return;
    if (unrecorded_->is_valid())
      stream.wait_stream(*unrecorded_);
    else
      unrecorded_device_.synchronize();
  }

  sync::Mutex mutex_;
  Event done_;
  uint64_t last_ = 0;  // The stream on which `done_` was recorded.
  // A stream with an operation that `done_` does not cover. It may have been destroyed since.
  std::optional<StreamRef> unrecorded_;
  Device unrecorded_device_{0};
};

/// The order that the communicators of a device share.
SerialOrder& order_of_device(Device device);
/// Creates an order for one communicator.
[[nodiscard]] std::shared_ptr<SerialOrder> make_serial_order();
/// Blocks the calling thread until all operations enqueued so far have ended.
void wait_for_all_orders();

}  // namespace runnel::inline RUNNEL_ABI::detail
