// SPDX-License-Identifier: Apache-2.0
#include "stream/watcher.hpp"

#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/immortal.hpp"
#include "base/process.hpp"
#include "device/current_device.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "stream/graph_functions.hpp"
#include "stream/open_captures.hpp"
#include "stream/operations.hpp"

#include <chrono>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

constexpr const char* watching = "watch for the completion of work";

thread_local constinit bool is_watcher = false;

/// Queries an event, again after an error: one that does not last says nothing about the work.
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

/// Ends what the function has left on this thread, so that the next one begins as on a new thread:
/// open captures, the current device and streams, the policy for pageable memory.
void begin_anew() noexcept {
  if (release_mode() == Release::now) {
    if (are_captures_open()) abandon_own_captures();
    // Asked first: to set a device that is current already would make its context.
    int device = 0;
    if (!single_device() && succeeded_or_forget(backend::get_device(device)) && device != 0)
      set_device_back(0);
  }
  forget_settings();
}

/// Calls the function and destroys it. A function of an event has no stream that could keep its
/// exception.
void tell(OwnedCompletion completion) noexcept {
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
/// Whether the work of the second one completes later.
[[nodiscard]] bool is_after(const Completion& last, const Completion& next) noexcept {
  return next.stream_id == last.stream_id && next.thread == last.thread && next.epoch >= last.epoch;
}

}  // namespace

Watcher& watcher() noexcept { return immortal<Watcher>(); }
bool is_watcher_thread() noexcept { return is_watcher; }

void Watcher::start(const char* operation) {
  const std::lock_guard lock{starting_};
  if (started_) [[likely]]
    return;
  try {
    sync::Thread{[this] { work(); }}.detach();
  } catch (const std::system_error&) {
    throw_error(errc::out_of_memory, operation,
                "the system has no thread to watch for the completion");
  }
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

/// Puts what was added behind the earlier completions of the same stream, or into a line of its
/// own.
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

/// Removes the first completion of a line.
void Watcher::remove(Completion*& place) noexcept {
  const std::lock_guard lock{mutex_};
  Completion* const removed = place;
  if (removed->line != nullptr && last_of_line(*removed) == removed)
    last_of_line(*removed) = nullptr;
  if (removed->next != nullptr) removed->next->next_line = removed->next_line;
  place = removed->next != nullptr ? removed->next : removed->next_line;
  removed->next = nullptr;
}

/// The completions whose events have happened or failed, by `next`, the first one first.
Completion* Watcher::query_all() noexcept {
  Completion* first = nullptr;
  Completion** end = &first;
  for (Completion** place = &lines_; *place != nullptr;) {
    Completion& completion = **place;
    const backend::status s =
        completion.event == nullptr ? backend::ok : query(completion.event->handle);
    if (backend::is_not_ready(s)) {
      backend::forget_error(s);
      place = &completion.next_line;
      continue;
    }
    if (s == backend::ok && completion.event != nullptr) emit_complete(completion.event->handle);
    remove(*place);
    if (s != backend::ok) completion.failure = exception_of(s);
    const EventRef unneeded = EventRef::adopt(std::exchange(completion.event, nullptr));
    *end = &completion;
    end = &completion.next;
  }
  return first;
}

/// Pauses between two rounds; longer when the work takes long.
void Watcher::rest(sync::Clock::duration unsuccessful) noexcept {
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
      const CountedCall until_anew;  // what the function has left may end with the user's code, too
      tell(OwnedCompletion{std::exchange(complete, complete->next)});
      begin_anew();
    }
    if (lines_ != nullptr) {
      rest(sync::Clock::now() - last_success);
    } else if (sync::Clock::now() - last_success < 200us) {
      sync::yield();  // stay awake for a while: waking takes longer than short work
    } else {
      asleep_.store(true, std::memory_order_seq_cst);
      signal_.wait(seen, std::memory_order_seq_cst);
      asleep_.store(false, std::memory_order_relaxed);
      last_success = sync::Clock::now();
    }
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
