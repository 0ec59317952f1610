// SPDX-License-Identifier: Apache-2.0
// What copy() returns: a handle that tells how far the copy is.
#pragma once

#include "arrays.hpp"

#include <runnel/completion.hpp>
#include <runnel/copy.hpp>
#include <runnel/detail/staged_sources.hpp>
#include <runnel/event.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace binding {

/// In a ring of what is under way in one stream, the oldest first.
struct Link {
  Link* newer = this;
  Link* older = this;
  [[nodiscard]] bool is_alone() const noexcept { return newer == this; }
};

/// A copy that was under way when its call returned. Whoever sees first that it is complete gives
/// its arrays back: the library's thread, or one that waits.
class Progress : public Link, runnel::detail::Completion {
 public:
  using Done = std::function<void(const std::exception_ptr&)>;

  Progress() noexcept;
  /// Enqueues what completes `progress`, behind the work that the stream has now.
  static void follow(const std::shared_ptr<Progress>& progress, runnel::StreamRef stream);
  /// Waits at most that long, and tells whether it is complete. @throws what failed
  [[nodiscard]] bool wait_for(std::chrono::steady_clock::duration time);
  /// Calls the function when the library's thread has seen that it is complete, or now.
  void when_complete(Done done);
  /// Whether the arrays are on their way back, which they are if the copy is complete.
  [[nodiscard]] bool try_give_back() noexcept;
  void give_back();

  Kept arrays;
  runnel::detail::StagedSources sources;  // of 0 bytes: only the end of the copy is known
  const int born = forks();
  bool is_captured = false;  // it is complete when a graph has run, which nobody tells

 private:
  void complete(const std::exception_ptr& error);
  void enter(runnel::StreamRef stream);
  void leave();

  runnel::Event mark_;  // behind the copy
  std::atomic<bool> is_complete_ = false;
  std::mutex mutex_;  // guards the arrays, once they are followed, and the next ones
  std::condition_variable changed_;
  std::exception_ptr error_;        // set before is_complete_
  std::shared_ptr<Progress> self_;  // while it is submitted
  std::vector<Done> waiting_;
};

/// Keeps the arrays until the stream has passed. If that fails, waits for the stream, so that
/// nothing is freed early. Requires: not the interpreter's lock.
[[nodiscard]] std::shared_ptr<Progress> keep_arrays(runnel::StreamRef stream, Kept& arrays);

struct PyCopy {
  runnel::CopyResult result;
  runnel::StreamRef stream;
  runnel::Device device;
  std::shared_ptr<Progress> progress;  // null: the call needed neither array any more
  // The source was read, and the bytes are on their way to the device.
  std::atomic<bool> is_left_to_stream;

  std::mutex mutex;                   // guards the event
  std::optional<runnel::Event> mark;  // of a small one, made when somebody asks
};

/// Calls the function when the copy is complete, or now. Requires: not the interpreter's lock.
void when_complete(PyCopy& copy, Progress::Done done);
void bind_handles(nb::module_& module);

}  // namespace binding
