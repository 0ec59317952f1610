// SPDX-License-Identifier: Apache-2.0
#include "slot/reclaimer.hpp"

#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/never_destroyed.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/start_thread.hpp"
#include "base/try_flag.hpp"
#include "device/current_device.hpp"
#include "device/device_table.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "slot/capture.hpp"
#include "slot/device_waits.hpp"
#include "slot/operations.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

using namespace std::chrono_literals;

constexpr const char* watching = "watch for the completion of work";

thread_local constinit bool on_service_thread = false;

/// Queries an event. Retries after an error: a transient error says nothing about the work.
[[nodiscard]] backend::status query(native::event event) noexcept {
  const auto ask = [event] {
    const backend::status s = backend::event_query(event);
    if (s != backend::ok) backend::forget_error(s);
    return s;
  };
  const backend::status s = ask();
  return s == backend::ok || backend::is_not_ready(s) ? s : ask();
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
  if (EventRef event = EventRef::adopt(std::exchange(completion->event, nullptr)))
    emit_complete(event.get());
  StreamSlot* const slot = completion->slot;
  const uint64_t id = completion->stream_id;
  const Outcome outcome = completion->failure == nullptr ? Outcome{} : Outcome{completion->failure};
  if (slot == nullptr) return completion->call(*completion, outcome);
  try {
    completion->call(*completion, outcome);
  } catch (...) {
    keep_failure(slot, id, {.exception = std::current_exception(), .epoch = after_all_completions});
  }
}

/// False if the device was lost. A capture allows this call.
bool has_events(int device) noexcept {
  native::event probe{};
  return call_quietly(device, [&] { return backend::event_create(probe, {}); }) &&
         call_quietly(device, [&] { return backend::event_destroy(probe); });
}

/// Returns false if work may still run, or if a capture would break.
[[nodiscard]] bool wait_for_all_devices() noexcept {
  Progress worst = Progress::complete;
  for (int device = 0; device < device_count(); ++device)
    worst = std::max(worst, wait_for_device(device));
  return worst == Progress::complete;
}

void run(Deferred& object) noexcept {
  // The process exits. The object stays reachable, so that a leak checker does not report it.
  if (release_mode() != Release::now) return reclaimer().add(object);
  sync::happens_after(&object);
  object.run(object);
}

}  // namespace

Reclaimer& reclaimer() noexcept { return never_destroyed<Reclaimer>(); }
bool is_service_thread() noexcept { return on_service_thread; }

bool Reclaimer::try_start() noexcept {
  if (started_.load(std::memory_order_acquire)) [[likely]]
    return true;
  const std::lock_guard lock{starting_};
  if (started_.load(std::memory_order_relaxed)) return true;
  const bool is_started = start_thread([this] { work(); });
  static constinit ExitHook at_exit{[]() noexcept { reclaimer().stop(); }};
  if (is_started) call_at_exit(at_exit);
  started_.store(is_started, std::memory_order_release);
  return is_started;
}

void Reclaimer::start(const char* operation) {
  if (!try_start())
    throw_error(errc::out_of_memory, operation,
                "the system has no thread to watch for the completion");
}

void Reclaimer::watch(Slot& slot) noexcept { new_watched_.add(slot); }

void Reclaimer::add_to(Arrivals<&Deferred::next>& list, Deferred& object) noexcept {
  sync::happens_before(&object);
  list.add(object);
  wake();
}

void Reclaimer::wake() noexcept {
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst)) signal_.notify_one();
}

void Reclaimer::note_failure(Slot& slot, uint64_t stream_id, const Failure& failure) noexcept {
  if (failure.epoch == after_all_completions) return;
  slot.timeline.for_each_hook([&](Deferred& hook) {
    auto& each = static_cast<Completion&>(hook);
    if (each.stream_id != stream_id || each.number <= failure.epoch || each.failure != nullptr)
      return;
    each.failure = failure.exception;
    sync::happens_before(&each);
  });
}

std::exception_ptr Reclaimer::failure_of(const Completion& completion) noexcept {
  const std::lock_guard lock{failures_};
  const auto stored_failure = [&] {
    sync::happens_after(&completion);
    return completion.failure;
  };
  Slot* const slot = static_cast<Slot*>(completion.slot);
  return slot != nullptr ? slot->timeline.locked(stored_failure) : stored_failure();
}

void Reclaimer::stop() noexcept {
  stopped_.store(true, std::memory_order_seq_cst);
  // The exiting thread may be the service thread itself.
  if (!on_service_thread)
    try_for(200ms, [this] { return !calling_.load(std::memory_order_seq_cst); });
}

void Reclaimer::make_due(Completion& completion, backend::status status) noexcept {
  if (status != backend::ok) {
    static_cast<void>(EventRef::adopt(std::exchange(completion.event, nullptr)));
    std::exception_ptr failure = exception_of(status);
    const std::lock_guard lock{failures_};
    std::swap(completion.failure, failure);
  }
  completion.run = [](Deferred& due) noexcept {
    // The exit of the process does not wait for the program's function.
    reclaimer().calling_.store(false, std::memory_order_seq_cst);
    // Resetting may destroy user objects, too.
    const CountedCall until_reset{Count::made_completions};
    deliver(OwnedCompletion{static_cast<Completion*>(&due)});
    reset_thread();
  };
  calls_program_.add(completion);
  if (!on_service_thread) wake();
}

void Reclaimer::advance(Slot& slot) noexcept {
  slot.timeline.advance(query, [this](Deferred& hook, EventRef event, backend::status s) {
    auto& completion = static_cast<Completion&>(hook);
    completion.event = event.release();
    make_due(completion, s);
  });
}
void advance(Slot& slot) noexcept { reclaimer().advance(slot); }

/// Advances the timelines for which something waits.
void Reclaimer::watch_timelines() noexcept {
  for (Slot* fresh = new_watched_.take(); fresh != nullptr;) {
    Slot& added = *std::exchange(fresh, fresh->next_watched);
    added.next_watched = std::exchange(watched_, &added);
  }
  // Rarely: work may be stalled for long without that.
  const bool asks_devices = on_service_thread && ++rounds_ % 1024 == 0;
  for (Slot** link = &watched_; *link != nullptr;) {
    Slot& slot = **link;
    settle_if_asked(slot);
    if (asks_devices && slot.timeline.is_asked()) {
      const Timeline::Recorder alone{slot.timeline, std::try_to_lock};
      if (alone && !has_events(slot.device)) slot.timeline.skip();
    }
    advance(slot);
    Slot* const next = slot.next_watched;  // Another thread may add the slot again.
    if (slot.timeline.stop_watching())
      *link = next;
    else
      link = &slot.next_watched;
  }
}

/// Appends new completions of events to the lines of their streams.
void Reclaimer::sort_events() noexcept {
  for (Deferred *added = new_events_.take(), *hook; (hook = added) != nullptr;) {
    added = std::exchange(hook->next, nullptr);
    const EventNode* const event = static_cast<Completion*>(hook)->event;
    Slot* const slot =
        event != nullptr ? event->recorded_on.load(std::memory_order_relaxed) : nullptr;
    EventLine& line = slot != nullptr ? slot->events : of_unknown_stream_;
    if (line.first == nullptr) line.next = std::exchange(lines_, &line);
    *std::exchange(line.end, &hook->next) = hook;
  }
}

/// Asks the events of a line from there, until some are found pending. Returns where it stopped.
Deferred** Reclaimer::ask(EventLine& line, Deferred** link) noexcept {
  for (int pending = 0; *link != nullptr && pending < 2;) {
    auto& completion = static_cast<Completion&>(**link);
    const backend::status s =
        completion.event == nullptr ? backend::ok : query(completion.event->handle);
    if (backend::is_not_ready(s)) {
      link = &completion.next;
      ++pending;
      continue;
    }
    *link = completion.next;
    for (Deferred*** place : {&line.end, &line.in_turn})
      if (*place == &completion.next) *place = link;
    make_due(completion, s);
  }
  return link;
}

/// An event may be anybody's, so nothing is known of their order. Of one stream it asks the oldest,
/// and some of the others in turn.
void Reclaimer::ask_events() noexcept {
  for (EventLine** link = &lines_; *link != nullptr;) {
    EventLine& line = **link;
    Deferred** const behind_oldest = ask(line, &line.first);
    if (line.in_turn == &line.first) line.in_turn = behind_oldest;
    Deferred** const stopped = ask(line, line.in_turn);
    line.in_turn = *stopped == nullptr ? &line.first : stopped;
    if (line.first == nullptr)
      *link = line.next;
    else
      link = &line.next;
  }
}

bool Reclaimer::is_over(const Point& point, DeferredWork& object) noexcept {
  const Progress progress = point.progress();
  if (progress == Progress::complete) return true;
  object.is_unknown |= progress == Progress::lost;
  if (progress == Progress::unknown) request_device_wait(point.slot()->device);
  if (point.watch()) {
    Slot& slot = *point.slot();
    slot.next_watched = std::exchange(watched_, &slot);
  }
  return progress == Progress::lost;
}

/// Whether the object's points are complete.
bool Reclaimer::is_due(DeferredWork& object) noexcept {
  std::erase_if(object.others, [&](const Point& each) { return is_over(each, object); });
  return object.others.empty() && is_over(object.own, object);
}

/// Returns the objects that can be run now and call no function of the program. The service thread
/// gets the others.
DeferredQueue Reclaimer::take_due() noexcept {
  DeferredQueue due;
  Deferred* fresh = new_work_.take();
  watch_timelines();
  for (Deferred** link = &waiting_;
       *link != nullptr || (*link = std::exchange(fresh, nullptr)) != nullptr;) {
    auto& object = static_cast<DeferredWork&>(**link);
    if (!is_due(object)) {
      link = &object.next;
      continue;
    }
    *link = object.next;
    object.calls_program ? add(static_cast<Deferred&>(object)) : due.push(object);
  }
  is_waiting_.store(watched_ != nullptr || waiting_ != nullptr, std::memory_order_relaxed);
  return due;
}

bool Reclaimer::give_back() noexcept {
  DeferredQueue due;
  {
    const TryFlag is_alone{is_looking_};
    if (!is_alone) return true;
    due = take_due();
  }
  const bool has_found = due.size() > 0;
  while (Deferred* const object = due.pop()) run(*object);
  return has_found;
}

/// Pauses between two rounds; longer if the work takes long.
void Reclaimer::pause(sync::Clock::duration unsuccessful) noexcept {
  if (unsuccessful < 200us)
    sync::yield();
  else
    sync::sleep_for(unsuccessful < 20ms ? 50us : unsuccessful < 1s ? 200us : 1000us);
}

/// Calls the functions of the program that are due. Frees do not wait for all of them: returns
/// false if it has stopped for that.
bool Reclaimer::call_due() noexcept {
  const auto begun = sync::Clock::now();
  for (;;) {
    // Nothing is called or destroyed once the process exits.
    calling_.store(true, std::memory_order_seq_cst);
    if (stopped_.load(std::memory_order_seq_cst)) break;
    if (calls_ == nullptr) calls_ = calls_program_.take();
    if (calls_ == nullptr) return calling_.store(false, std::memory_order_seq_cst), true;
    run(*std::exchange(calls_, calls_->next));
    reset_thread();
    if (is_waiting_.load(std::memory_order_relaxed) && sync::Clock::now() - begun > 1ms) break;
  }
  calling_.store(false, std::memory_order_seq_cst);
  return false;
}

void Reclaimer::work() noexcept {
  on_service_thread = true;
  // Queries must not invalidate a capture on any thread.
  backend::CaptureMode mode = backend::CaptureMode::relaxed;
  auto last_success = sync::Clock::now();
  for (bool is_first = true;; is_first = false) {
    const uint32_t seen = signal_.load(std::memory_order_seq_cst);
    sort_events();
    calling_.store(true, std::memory_order_seq_cst);
    if (stopped_.load(std::memory_order_seq_cst)) return calling_.store(false);
    if (is_first) succeeded_or_forget(backend::exchange_capture_mode(mode));
    ask_events();
    if (give_back() || has_due() || signal_.load(std::memory_order_relaxed) != seen)
      last_success = sync::Clock::now();
    if (!call_due()) continue;
    if (lines_ != nullptr || is_waiting_.load(std::memory_order_relaxed)) {
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
        for (Point& point : object.others) point.record();
        object.own.record();
      },
      !in_host_function);
  if (is_started || in_host_function) return reclaimer().add(object);
  const ScopedWait wait{"give back what streams use"};
  Progress worst{};
  block_until([&] {
    worst = std::max(advance(object.others), object.own.poll());
    return worst != Progress::pending;
  });
  object.is_unknown |= worst != Progress::complete && !wait_for_all_devices();
  object.run(object);
}

bool complete_deferred_work() noexcept { return !any_capture_seen() && wait_for_all_devices(); }

}  // namespace runnel::inline RUNNEL_ABI::detail
