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
#include <vector>

namespace binding {

/// A copy that was under way when its call returned. The library's thread completes it, which then
/// gives its arrays back.
class Progress {
 public:
  using Done = std::function<void(const std::exception_ptr&)>;

  void complete(const std::exception_ptr& error);
  /// Waits at most that long, and tells whether it is complete.
  [[nodiscard]] bool wait_for(std::chrono::steady_clock::duration time);
  /// What failed, or null. Requires: it is complete.
  [[nodiscard]] std::exception_ptr error();
  /// Calls the function when it is complete, or now.
  void when_complete(Done done);

  Kept arrays;
  runnel::detail::StagedSources sources;  // of 0 bytes: only the end of the copy is known
  const int born = forks();
  bool is_captured = false;  // it is complete when a graph has run, which nobody tells

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_complete_ = false;
  std::exception_ptr error_;
  std::vector<Done> waiting_;
};

/// Keeps the arrays until the stream has passed. If that fails, waits for the stream, so that
/// nothing is freed early. Requires: not the interpreter's lock.
[[nodiscard]] std::shared_ptr<Progress> keep_arrays(runnel::StreamRef stream, Kept& arrays);

struct PyCopy {
  PyCopy(runnel::CopyResult how, runnel::StreamRef of, std::shared_ptr<Progress> under_way,
         bool is_left)
      : result{how},
        stream{of},
        device{of.device()},
        progress{std::move(under_way)},
        is_left_to_stream{is_left} {}
  PyCopy(const PyCopy&) = delete;
  PyCopy& operator=(const PyCopy&) = delete;

  runnel::CopyResult result;
  runnel::StreamRef stream;
  runnel::Device device;
  std::shared_ptr<Progress> progress;   // null: the call needed neither array any more
  std::atomic<bool> is_left_to_stream;  // it was small: the bytes are on their way to the device

  std::mutex mutex;                   // guards the event
  std::optional<runnel::Event> mark;  // of a small one, made when somebody asks
};

/// Calls the function when the copy is complete, or now. Requires: not the interpreter's lock.
void when_complete(PyCopy& copy, Progress::Done done);
void bind_handles(nb::module_& module);

}  // namespace binding
