// SPDX-License-Identifier: Apache-2.0
/// Events of the host backend.
#pragma once

#include "capture.hpp"
#include "shared_marks.hpp"

#include "base/announce.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace host {

/// The completion time of a timed event. Each record creates a new one, and the record's task
/// writes it.
struct Stamp {
  sync::Clock::time_point time;
};

/// A record of an event.
struct Mark {
  Wait wait{};              // without a queue: nothing
  CapturedMark captured{};  // instead of the wait
  std::shared_ptr<const Stamp> stamp;
  // The number of the record among those of all processes, for an interprocess event.
  std::uint64_t shared_number = 0;
};

/// A task that completes a record.
struct MarkTask {
  std::shared_ptr<Stamp> stamp;  // null: an event without timing
  [[no_unique_address]] sync::Token token;
  void operator()() const noexcept {
    if (stamp != nullptr) stamp->time = sync::Clock::now();
    token.happens_before();
  }
};

}  // namespace host

struct native::host_event {
  explicit host_event(backend::EventKind with,
                      std::shared_ptr<const host::SharedMarks> with_others = nullptr) noexcept
      : kind{with}, shared{std::move(with_others)} {}

  [[nodiscard]] host::Mark read() const {
    const std::lock_guard lock{mutex};
    return mark;
  }
  void replace(host::Mark by) {
    const std::lock_guard lock{mutex};
    std::swap(mark, by);  // The old mark is destroyed outside the lock.
  }
  /// A task for a record of this event.
  /// @throws std::bad_alloc
  [[nodiscard]] host::MarkTask make_task() const {
    return {kind.timed ? std::make_shared<host::Stamp>() : nullptr, sync::Token::make()};
  }

  /// The number of the last record if it is another one than `known`: usually another process has
  /// made it. Otherwise 0.
  [[nodiscard]] std::uint64_t newer_number(const host::Mark& known) const noexcept {
    const std::uint64_t last = shared == nullptr ? 0 : shared->last();
    return last == known.shared_number ? 0 : last;
  }

  const backend::EventKind kind;
  // Null: the event belongs to this process only.
  const std::shared_ptr<const host::SharedMarks> shared;
  // Two threads may record at once: one of the two marks stays, and is never torn.
  mutable sync::Mutex mutex;
  host::Mark mark;
};

}  // namespace runnel::inline RUNNEL_ABI
