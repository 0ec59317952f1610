// SPDX-License-Identifier: Apache-2.0
#include "stream/watcher.hpp"

#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/process.hpp"
#include "base/start_thread.hpp"
#include "device/current_device.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "stream/capture.hpp"
#include "stream/graph_functions.hpp"
#include "stream/operations.hpp"

#include <chrono>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

constexpr const char* watching = "watch for the completion of work";

thread_local constinit bool is_watcher = false;

/// Queries an event. Retries after an error: a transient error says nothing about the work.
[[nodiscard]] backend::status query(native::event event) noexcept {
  backend::status s = backend::event_query(event);
  if (s == backend::ok || backend::is_not_ready(s)) return s;
  backend::forget_error(s);
  return backend::event_query(event);
}

[[nodiscard]] std::exception_ptr exception_of(backend::status s) noexcept {
  try {
    throw_status(s, watching);
  } catch (...) {
    return std::current_exception();
  }
}

/// Resets what the function has left on this thread, so that the next one runs as on a new thread:
/// open captures, the current device and streams, the pageable policy.
void reset_thread() noexcept {
  if (release_mode() == Release::now) {
    if (are_captures_open()) abandon_own_captures();
    // Queried first: setting a device that is already current would create its context.
    int device = 0;
    if (!single_device() && succeeded_or_forget(backend::get_device(device)) && device != 0)
      restore_device(0);
  }
  reset_thread_settings();
}

/// Calls the function and destroys it. A function without a stream must not throw: no slot could
/// store its exception.
void deliver(OwnedCompletion completion) noexcept {
  sync::happens_after(completion.get());
  StreamSlot* const slot = completion->slot;
  const std::uint64_t id = completion->stream_id;
  const Outcome outcome =
      completion->failure == nullptr ? Outcome{} : Outcome{std::move(completion->failure)};
  if (slot == nullptr) return completion->call(*completion, outcome);
  try {
    completion->call(*completion, outcome);
  } catch (...) {
    keep_failure(slot, id, {.exception = std::current_exception(), .epoch = after_all_completions});
  }
}

[[nodiscard]] Completion*& last_of_line(const Completion& completion) noexcept {
  Slot& slot = static_cast<Slot&>(*completion.line);
  return completion.thread == 0 ? slot.last_completion : slot.last_completion_of_event;
}
/// Whether `next` completes after `last`.
[[nodiscard]] bool is_after(const Completion& last, const Completion& next) noexcept {
  return next.stream_id == last.stream_id && next.thread == last.thread && next.epoch >= last.epoch;
}

}  // namespace

Watcher& watcher() noexcept { return never_destroyed<Watcher>(); }
bool is_watcher_thread() noexcept { return is_watcher; }

void Watcher::start(const char* operation) {
  const std::lock_guard lock{starting_};
  if (started_) [[likely]]
    return;
  if (!start_thread([this] { work(); }))
    throw_error(errc::out_of_memory, operation,
                "the system has no thread to watch for the completion");
  started_ = true;
  call_at_exit([]() noexcept { watcher().stop(); });
}

void Watcher::add(OwnedCompletion owned) noexcept {
  Completion* const completion = owned.release();
  {
    const std::lock_guard lock{mutex_};
    if (completion->slot != nullptr)
      completion->failure = kept_failure(static_cast<Slot&>(*completion->slot));
    sync::happens_before(completion);
    completion->next = std::exchange(new_, completion);
  }
  wake();
}

void Watcher::wake() noexcept {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst)) signal_.notify_one();
}

void Watcher::note_failure(std::uint64_t stream_id, const Failure& failure) noexcept {
  if (failure.epoch == after_all_completions) return;
  const std::lock_guard lock{mutex_};
  const auto note = [&](Completion* each) {
    for (; each != nullptr; each = each->next) {
      const bool is_later =
          each->slot != nullptr && each->stream_id == stream_id && each->epoch > failure.epoch;
      if (!is_later || each->failure != nullptr) continue;
      each->failure = failure.exception;
      sync::happens_before(each);
    }
  };
  note(new_);
  for (Completion* line = lines_; line != nullptr; line = line->next_line) note(line);
}

void Watcher::stop() noexcept {
  const std::lock_guard lock{calling_};
  stopped_ = true;
}

/// Appends new completions to the queues of their streams, or starts new queues.
void Watcher::sort_new() noexcept {
  const std::lock_guard lock{mutex_};
  Completion* oldest = nullptr;
  while (new_ != nullptr) {
    Completion* const taken = std::exchange(new_, new_->next);
    taken->next = std::exchange(oldest, taken);
  }
  while (oldest != nullptr) {
    Completion* const completion = std::exchange(oldest, oldest->next);
    completion->next = nullptr;
    Completion* last = nullptr;
    if (completion->line != nullptr) last = std::exchange(last_of_line(*completion), completion);
    if (last != nullptr && is_after(*last, *completion))
      last->next = completion;
    else
      completion->next_line = std::exchange(lines_, completion);
  }
}

/// Removes the first completion of a queue.
void Watcher::remove(Completion*& link) noexcept {
  const std::lock_guard lock{mutex_};
  Completion* const removed = link;
  if (removed->line != nullptr && last_of_line(*removed) == removed)
    last_of_line(*removed) = nullptr;
  if (removed->next != nullptr) removed->next->next_line = removed->next_line;
  link = removed->next != nullptr ? removed->next : removed->next_line;
  removed->next = nullptr;
}

/// Returns the completions whose events are complete or have failed, oldest first, linked by
/// `next`.
Completion* Watcher::query_all() noexcept {
  Completion* first = nullptr;
  Completion** end = &first;
  for (Completion** link = &lines_; *link != nullptr;) {
    Completion& completion = **link;
    const backend::status s =
        completion.event == nullptr ? backend::ok : query(completion.event->handle);
    if (backend::is_not_ready(s)) {
      backend::forget_error(s);
      link = &completion.next_line;
      continue;
    }
    if (s == backend::ok && completion.event != nullptr) emit_complete(completion.event->handle);
    remove(*link);
    if (s != backend::ok) completion.failure = exception_of(s);
    const EventRef unneeded = EventRef::adopt(std::exchange(completion.event, nullptr));
    *end = &completion;
    end = &completion.next;
  }
  return first;
}

/// Pauses between two rounds; longer if the work takes long.
void Watcher::pause(sync::Clock::duration unsuccessful) noexcept {
  if (unsuccessful < 200us)
    sync::yield();
  else
    sync::sleep_for(unsuccessful < 20ms ? 50us : unsuccessful < 1s ? 200us : 1000us);
}

void Watcher::work() noexcept {
  is_watcher = true;
  // Queries must not invalidate a capture on any thread.
  backend::CaptureMode mode = backend::CaptureMode::relaxed;
  auto last_success = sync::Clock::now();
  for (bool is_first = true;; is_first = false) {
    const std::uint32_t seen = signal_.load(std::memory_order_seq_cst);
    sort_new();
    Completion* complete = nullptr;
    {
      const std::lock_guard lock{calling_};
      if (stopped_) return;
      if (is_first) succeeded_or_forget(backend::exchange_capture_mode(mode));
      complete = query_all();
    }
    if (complete != nullptr || signal_.load(std::memory_order_relaxed) != seen)
      last_success = sync::Clock::now();
    while (complete != nullptr) {
      const CountedCall until_reset{
          Count::made_completions};  // Resetting may destroy user objects, too.
      deliver(OwnedCompletion{std::exchange(complete, complete->next)});
      reset_thread();
    }
    if (lines_ != nullptr) {
      pause(sync::Clock::now() - last_success);
    } else if (sync::Clock::now() - last_success < 200us) {
      sync::yield();  // Wakeup takes longer than short work, so it stays awake for a while.
    } else {
      asleep_.store(true, std::memory_order_seq_cst);
      signal_.wait(seen, std::memory_order_seq_cst);
      asleep_.store(false, std::memory_order_relaxed);
      last_success = sync::Clock::now();
    }
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
