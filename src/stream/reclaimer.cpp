// SPDX-License-Identifier: Apache-2.0
#include "stream/reclaimer.hpp"

#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/start_thread.hpp"
#include "device/current_device.hpp"
#include "device/device_table.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "stream/capture.hpp"
#include "stream/device_waits.hpp"
#include "stream/graph_functions.hpp"
#include "stream/operations.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

using namespace std::chrono_literals;

constexpr const char* watching = "watch for the completion of work";

thread_local constinit bool on_service_thread = false;

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
  const Outcome outcome = completion->failure == nullptr ? Outcome{} : Outcome{completion->failure};
  if (slot == nullptr) return completion->call(*completion, outcome);
  try {
    completion->call(*completion, outcome);
  } catch (...) {
    keep_failure(slot, id, {.exception = std::current_exception(), .epoch = after_all_completions});
  }
}

/// False if the device was lost. A capture allows this call.
[[nodiscard]] bool has_events(int device) noexcept {
  native::event probe{};
  return call_quietly(device, [&] { return backend::event_create(probe, {}); }) &&
         call_quietly(device, [&] { return backend::event_destroy(probe); });
}

/// False if work may still run, or if a capture would break.
[[nodiscard]] bool wait_for_all_devices() noexcept {
  bool is_known = true;
  for (int device = 0; device < device_count(); ++device) is_known &= wait_for_device(device);
  return is_known;
}

[[nodiscard]] Completion*& last_of_line(const Completion& completion) noexcept {
  Slot& slot = static_cast<Slot&>(*completion.line);
  return completion.thread == 0 ? slot.last_completion : slot.last_completion_of_event;
}
/// Whether `next` completes after `last`.
[[nodiscard]] bool is_after(const Completion& last, const Completion& next) noexcept {
  return next.stream_id == last.stream_id && next.thread == last.thread && next.epoch >= last.epoch;
}

/// Reverses a list that is linked by `next`.
template <class T>
[[nodiscard]] T* reversed(T* list) noexcept {
  T* result = nullptr;
  while (list != nullptr) {
    T* const taken = std::exchange(list, list->next);
    taken->next = std::exchange(result, taken);
  }
  return result;
}

}  // namespace

Reclaimer& reclaimer() noexcept { return never_destroyed<Reclaimer>(); }
bool is_service_thread() noexcept { return on_service_thread; }

bool Reclaimer::try_start() noexcept {
  const std::lock_guard lock{starting_};
  if (started_) [[likely]]
    return true;
  started_ = start_thread([this] { work(); });
  static constinit ExitHook at_exit{[]() noexcept { reclaimer().stop(); }};
  if (started_) call_at_exit(at_exit);
  return started_;
}

void Reclaimer::start(const char* operation) {
  if (!try_start())
    throw_error(errc::out_of_memory, operation,
                "the system has no thread to watch for the completion");
}

void Reclaimer::add(OwnedCompletion owned) noexcept {
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

void Reclaimer::add(Deferred& object) noexcept {
  sync::happens_before(&object);
  {
    const std::lock_guard lock{mutex_};
    object.next = std::exchange(new_due_, &object);
  }
  wake();
}

void Reclaimer::add(DeferredWork& object) noexcept {
  sync::happens_before(&object);
  {
    const std::lock_guard lock{mutex_};
    object.number = ++numbers_;
    object.next = new_work_;
    new_work_ = &object;
  }
  wake();
}

std::uint64_t Reclaimer::last_number() noexcept {
  const std::lock_guard lock{mutex_};
  return numbers_;
}
void Reclaimer::note_complete(std::uint64_t number, bool is_known) noexcept {
  sync::Atomic<std::uint64_t>& last = is_known ? known_complete_ : unknown_;
  for (std::uint64_t known = last.load(std::memory_order_relaxed); known < number;)
    if (last.compare_exchange_weak(known, number, std::memory_order_release)) return wake();
}

void Reclaimer::wake() noexcept {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst)) signal_.notify_one();
}

void Reclaimer::note_failure(std::uint64_t stream_id, const Failure& failure) noexcept {
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

std::exception_ptr Reclaimer::failure_of(const Completion& completion) noexcept {
  const std::lock_guard lock{mutex_};
  sync::happens_after(&completion);
  return completion.failure;
}

void Reclaimer::stop() noexcept {
  stopped_.store(true, std::memory_order_seq_cst);
  // The exiting thread may be the service thread itself.
  if (!on_service_thread)
    try_for(200ms, [this] { return !calling_.load(std::memory_order_seq_cst); });
}

/// Appends new completions to the queues of their streams, or starts new queues.
void Reclaimer::sort_new() noexcept {
  const std::lock_guard lock{mutex_};
  Completion* oldest = reversed(std::exchange(new_, nullptr));
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
void Reclaimer::remove(Completion*& link) noexcept {
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
Completion* Reclaimer::query_all() noexcept {
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
    if (s != backend::ok) {
      std::exception_ptr failure = exception_of(s);
      const std::lock_guard lock{mutex_};
      completion.failure = std::move(failure);
    }
    const EventRef unneeded = EventRef::adopt(std::exchange(completion.event, nullptr));
    *end = &completion;
    end = &completion.next;
  }
  return first;
}

/// Whether the object's points are complete. Polls a stream until it is found pending, and then not
/// again in this round: the other objects that wait for it are newer.
bool Reclaimer::is_due(DeferredWork& object) noexcept {
  const bool is_complete = object.number <= known_complete_.load(std::memory_order_acquire);
  const auto is_over = [&](StreamPoint& point) {
    if (!is_complete && point) {
      Slot* const slot = point.stream().slot;
      if (slot != nullptr && slot->pending_in == round_) return false;
      const Progress progress = point.poll();
      // Few rounds ask whether the device is lost. Work may be stalled for long without that.
      const bool is_lost =
          progress == Progress::unknown ||
          (progress == Progress::stalled && round_ % 1024 == 0 && !has_events(point.device()));
      const bool is_unknown = is_lost && object.number <= unknown_.load(std::memory_order_acquire);
      object.is_unknown |= is_unknown;
      if (progress != Progress::complete && !is_unknown) {
        needs_devices_ |= is_lost;
        if (slot != nullptr) slot->pending_in = round_;
        return false;
      }
    }
    point = {};
    return true;
  };
  while (!object.others.empty() && is_over(object.others.front())) object.others.pop_front();
  return object.others.empty() && is_over(object.own);
}

/// Starts a thread that waits for all devices, unless there is one. What was deferred before is
/// complete then.
void Reclaimer::start_device_wait() noexcept {
  if (!std::exchange(needs_devices_, false) ||
      waits_for_devices_.exchange(true, std::memory_order_acquire))
    return;
  const bool is_started = start_thread([this, number = last_number()] {
    bool is_known = true;
    for (int device = 0; device < device_count(); ++device) {
      block_until([device] { return !takes_part_in_capture(device); });
      is_known &= wait_for_device(device);
    }
    note_complete(number, is_known);
    waits_for_devices_.store(false, std::memory_order_release);
  });
  if (!is_started) waits_for_devices_.store(false, std::memory_order_relaxed);
}

/// Returns the objects that can be run now, linked by `next`.
Deferred* Reclaimer::take_due() noexcept {
  Deferred* due = nullptr;
  Deferred* fresh = nullptr;  // the oldest first
  {
    const std::lock_guard lock{mutex_};
    due = std::exchange(new_due_, nullptr);
    fresh = reversed<Deferred>(std::exchange(new_work_, nullptr));
  }
  ++round_;
  Deferred** link = &waiting_;
  while (*link != nullptr || fresh != nullptr) {
    if (*link == nullptr) *link = std::exchange(fresh, nullptr);
    if (!is_due(static_cast<DeferredWork&>(**link))) {
      link = &(*link)->next;
      continue;
    }
    Deferred* const taken = *link;
    *link = taken->next;
    taken->next = std::exchange(due, taken);
  }
  start_device_wait();
  return due;
}

/// Pauses between two rounds; longer if the work takes long.
void Reclaimer::pause(sync::Clock::duration unsuccessful) noexcept {
  if (unsuccessful < 200us)
    sync::yield();
  else
    sync::sleep_for(unsuccessful < 20ms ? 50us : unsuccessful < 1s ? 200us : 1000us);
}

void Reclaimer::deliver_all(Completion* complete) noexcept {
  // Nothing is called or destroyed once the process exits.
  while (complete != nullptr && !stopped_.load(std::memory_order_seq_cst)) {
    // Resetting may destroy user objects, too.
    const CountedCall until_reset{Count::made_completions};
    deliver(OwnedCompletion{std::exchange(complete, complete->next)});
    reset_thread();
  }
}

/// Returns false once the process exits.
bool Reclaimer::run_all(Deferred* due) noexcept {
  if (due == nullptr) return true;
  while (due != nullptr) {
    Deferred& object = *std::exchange(due, due->next);
    if (release_mode() != Release::now) return false;
    sync::happens_after(&object);
    object.run(object);
  }
  reset_thread();
  return true;
}

void Reclaimer::work() noexcept {
  on_service_thread = true;
  // Queries must not invalidate a capture on any thread.
  backend::CaptureMode mode = backend::CaptureMode::relaxed;
  auto last_success = sync::Clock::now();
  for (bool is_first = true;; is_first = false) {
    const std::uint32_t seen = signal_.load(std::memory_order_seq_cst);
    sort_new();
    calling_.store(true, std::memory_order_seq_cst);
    if (stopped_.load(std::memory_order_seq_cst)) return calling_.store(false);
    if (is_first) succeeded_or_forget(backend::exchange_capture_mode(mode));
    Completion* const complete = query_all();
    Deferred* const due = take_due();
    if (complete != nullptr || due != nullptr || signal_.load(std::memory_order_relaxed) != seen)
      last_success = sync::Clock::now();
    const bool goes_on = run_all(due);
    calling_.store(false, std::memory_order_seq_cst);
    if (!goes_on) return;
    deliver_all(complete);
    if (lines_ != nullptr || waiting_ != nullptr) {
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

void run_later(Deferred& object) noexcept {
  static_cast<void>(reclaimer().try_start());  // Otherwise the next object starts the thread.
  reclaimer().add(object);
}

void run_after(DeferredWork& object) noexcept {
  const bool is_started = reclaimer().try_start();
  internal_call(
      [&] {
        for (StreamPoint& point : object.others) point.record();
        object.own.record();
      },
      !in_host_function);
  if (in_host_function) return reclaimer().add(object);
  if (is_started) return reclaimer().add(object);
  const ScopedWait wait{"give back what streams use"};
  const auto is_over = [&](StreamPoint& point) {
    const Progress progress = point ? point.poll() : Progress::complete;
    object.is_unknown |= progress == Progress::unknown || progress == Progress::stalled;
    return progress != Progress::pending;
  };
  block_until([&] { return std::ranges::all_of(object.others, is_over) && is_over(object.own); });
  if (object.is_unknown) object.is_unknown = !wait_for_all_devices();
  object.run(object);
}

bool complete_deferred_work() noexcept {
  if (any_capture_seen()) return false;
  const std::uint64_t number = reclaimer().last_number();
  if (!wait_for_all_devices()) return false;
  reclaimer().note_complete(number, true);
  return true;
}

}}}  // namespace runnel::RUNNEL_ABI::detail
