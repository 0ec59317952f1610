// SPDX-License-Identifier: Apache-2.0
/// The thread that calls completion functions. It queries their events, because a host function
/// would not be called once the device is lost, and would hold up the stream's later work. It
/// starts with the first completion.
#pragma once

#include "base/counters.hpp"
#include "base/sync.hpp"
#include "stream/event_node.hpp"
#include "stream/slots.hpp"

#include <runnel/completion.hpp>

#include <cstdint>
#include <memory>

namespace runnel::inline RUNNEL_ABI::detail {

struct DestroyCompletion {
  void operator()(Completion* completion) const noexcept {
    const EventRef event = EventRef::adopt(completion->event);
    completion->destroy(completion);
    count_destroyed_function();
  }
};
using OwnedCompletion = std::unique_ptr<Completion, DestroyCompletion>;

class Watcher {
 public:
  /// @throws errc::out_of_memory if the system has no thread
  void start(const char* operation);
  /// Requires: start() was called, and the completion's event is recorded. An exception that the
  /// completion's slot keeps goes to the completion.
  void add(OwnedCompletion completion) noexcept;
  /// An exception has left work of the stream: completions that were submitted later than the work
  /// get it.
  void note_failure(std::uint64_t stream_id, const Failure& failure) noexcept;
  /// Returns once this thread makes no runtime call any more. Called where the process begins to
  /// exit.
  void stop() noexcept;

 private:
  void work() noexcept;
  void wake() noexcept;
  void sort_new() noexcept;
  [[nodiscard]] Completion* query_all() noexcept;
  void remove(Completion*& place) noexcept;
  void rest(sync::Clock::duration unsuccessful) noexcept;

  sync::Mutex starting_;
  bool started_ = false;
  sync::Mutex calling_;  // the thread holds it while it makes runtime calls
  bool stopped_ = false;
  // Others than the thread read the lists, and change what hangs on them, with this lock; the
  // thread changes the lists with it.
  sync::Mutex mutex_;
  Completion* new_ = nullptr;  // the newest first, by `next`
  Completion* lines_ = nullptr;
  sync::Atomic<std::uint32_t> signal_{0};  // changes with each addition
  sync::Atomic<bool> asleep_{false};
};
[[nodiscard]] Watcher& watcher() noexcept;

/// True on the thread that calls completion functions.
[[nodiscard]] bool is_watcher_thread() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
