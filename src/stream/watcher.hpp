// SPDX-License-Identifier: Apache-2.0
/// The thread that calls completion functions. It queries their events. A host function would not
/// do: it is not called after a device is lost, and it would delay the stream's later work. The
/// thread starts with the first completion.
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
    count_ended(Count::ended_completions);
  }
};
using OwnedCompletion = std::unique_ptr<Completion, DestroyCompletion>;

class Watcher {
 public:
  /// @throws errc::out_of_memory if the system has no thread
  void start(const char* operation);
  /// Adds a completion. It receives the exception that is stored in its slot. Requires: start() was
  /// called, and the completion's event is recorded.
  void add(OwnedCompletion completion) noexcept;
  /// Passes an exception of work on the stream to the completions that were submitted after that
  /// work.
  void note_failure(std::uint64_t stream_id, const Failure& failure) noexcept;
  /// Stops the thread's runtime calls; returns after the last one. Called when the process begins
  /// to exit.
  void stop() noexcept;

 private:
  void work() noexcept;
  void wake() noexcept;
  void sort_new() noexcept;
  [[nodiscard]] Completion* query_all() noexcept;
  void remove(Completion*& link) noexcept;
  void pause(sync::Clock::duration unsuccessful) noexcept;

  sync::Mutex starting_;
  bool started_ = false;
  sync::Mutex calling_;  // locked by the thread around its runtime calls
  bool stopped_ = false;
  // The thread locks it to change the lists. Other threads lock it to read the lists and to change
  // their entries.
  sync::Mutex mutex_;
  Completion* new_ = nullptr;  // the newest first, linked by `next`
  Completion* lines_ = nullptr;
  sync::Atomic<std::uint32_t> signal_{0};  // changes with each addition
  sync::Atomic<bool> asleep_{false};
};
[[nodiscard]] Watcher& watcher() noexcept;

/// True on the thread that calls completion functions.
[[nodiscard]] bool is_watcher_thread() noexcept;

}  // namespace runnel::inline RUNNEL_ABI::detail
