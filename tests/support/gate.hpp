// SPDX-License-Identifier: Apache-2.0
/// A gate that blocks streams until a test opens it. The conformance suite and the fault sweep each
/// add how the gate is enqueued.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace test_support {

/// The destructor opens the gate. A stream that has waited at a closed gate for `limit` continues,
/// so that a failing test does not hang.
class Gate {
 public:
  explicit Gate(std::chrono::seconds limit) : limit_{limit} {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    const std::lock_guard lock{state_->mutex};
    state_->open = true;
    state_->changed.notify_all();
  }
  bool is_open() const {
    const std::lock_guard lock{state_->mutex};
    return state_->open || state_->forced;
  }
  /// Waits until a stream has reached the gate, so that the function which blocks there is the
  /// running one.
  bool reached() const {
    std::unique_lock lock{state_->mutex};
    return state_->changed.wait_for(lock, limit_, [&] { return state_->reached > 0; });
  }

 protected:
  ~Gate() { open(); }

  /// A host function that returns when the gate is open. It shares the gate's state, so it may run
  /// after the gate is destroyed.
  auto blocking_function() const {
    return [state = state_, limit = limit_] {
      std::unique_lock lock{state->mutex};
      ++state->reached;
      state->changed.notify_all();
      if (!state->changed.wait_for(lock, limit, [&] { return state->open; })) state->forced = true;
    };
  }
  /// Whether a stream continued because `limit` was over.
  bool was_forced() const { return state_->forced; }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int reached = 0;
    bool open = false;
    std::atomic_bool forced = false;
  };
  std::chrono::seconds limit_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace test_support
