// SPDX-License-Identifier: Apache-2.0
#include <runnel/completion.hpp>

#include "base/announce.hpp"
#include "base/counters.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "slot/reclaimer.hpp"
#include "slot/slots.hpp"
#include "slot/stream_call.hpp"
#include "timeline/event_node.hpp"
#include "timeline/timeline.hpp"

#include <runnel/event.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

Outcome::Outcome(std::exception_ptr error) noexcept : error_{std::move(error)} {
  try {
    std::rethrow_exception(error_);
  } catch (const Error& thrown) {
    code_ = thrown.code();
  } catch (const std::bad_alloc&) {
    code_ = errc::out_of_memory;
  } catch (...) {
    code_ = errc::function_failed;
  }
}

namespace detail {
namespace {

constexpr const char* submitting = "report the completion of a stream";

[[nodiscard]] OwnedCompletion own(Completion* completion) noexcept {
  count_function(Count::made_completions);
  return OwnedCompletion{completion};
}

}  // namespace

/// `published`: an event that is to be the mark of the completion; null if there is none.
static void submit(StreamRef stream, EventBase* published, Completion* raw) {
  OwnedCompletion completion = own(raw);
  const StreamCall call{stream, submitting};
  Slot& slot = call.slot();
  reclaimer().start(submitting);
  completion->slot = &slot;
  completion->stream_id = stream.id();
  EventRef event = take_event(slot.device, {}, submitting);
  bool is_new = false;
  {
    Timeline::Recorder recorder{slot.timeline};
    // Otherwise the event could become a part of a capture that another thread begins meanwhile.
    const StreamQueryLock beside_captures{slot, true};
    refuse_in_capture(slot, submitting, refusal::nothing_completes);
    call.record(event.get());
    if (published != nullptr) {
      publish_record(const_cast<EventNodes&>(Access::nodes(*published, submitting)), event.share());
      // An open capture may know the native event from an earlier record.
      if (are_captures_open()) note_event(call.handle(), event.get());
    }
    Completion& hook = *completion.release();
    is_new = recorder.mark(std::move(event), hook, is_surely_same(slot), [&](uint64_t number) {
      hook.number = number;
      hook.failure = kept_failure(slot);
      sync::happens_before(&hook);
    });
  }
  if (is_new) reclaimer().watch(slot);
  reclaimer().wake();
}

void submit_completion(StreamRef stream, Completion* raw) { submit(stream, nullptr, raw); }

void submit_completion(StreamRef stream, EventBase& mark, Completion* raw) {
  submit(stream, &mark, raw);
}

std::exception_ptr failure_of(const Completion& completion) {
  return reclaimer().failure_of(completion);
}

/// Shared by the service thread and all copies of the future.
struct FutureState {
  sync::Atomic<int> references{1};
  sync::Atomic<uint32_t> is_ready{0};
  Outcome outcome{};

  void set(const Outcome& found) noexcept {
    outcome = found;
    sync::happens_before(this);
    is_ready.store(1, std::memory_order_release);
    is_ready.notify_all();
  }
  [[nodiscard]] bool look() const noexcept {
    if (is_ready.load(std::memory_order_acquire) == 0) return false;
    sync::happens_after(this);
    return true;
  }
};

void share_future(FutureState* state) noexcept {
  state->references.fetch_add(1, std::memory_order_relaxed);
}
void drop_future(FutureState* state) noexcept {
  if (state->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete state;
}

namespace {

struct DropFuture {
  void operator()(FutureState* state) const noexcept { drop_future(state); }
};
using SharedFuture = std::unique_ptr<FutureState, DropFuture>;

constexpr const char* waiting = "wait for a future";

[[nodiscard]] const FutureState& require(const FutureState* state) {
  if (state == nullptr) throw_error(errc::invalid_handle, waiting, "the future is empty");
  return *state;
}

/// Refuses a wait that could never return. Requires: the outcome is not set.
void refuse_endless_wait() {
  enter(waiting);  // refuses forked children and host functions
  if (is_service_thread())
    throw_error(errc::not_permitted, waiting, "this is the thread that has to bring the outcome");
}

}  // namespace

FutureState* make_future(StreamRef stream) {
  SharedFuture kept{new FutureState};
  share_future(kept.get());
  submit_completion(stream, make_completion([shared = SharedFuture{kept.get()}](
                                                const Outcome& outcome) { shared->set(outcome); }));
  return kept.release();
}

void submit_completion(const EventBase& event, Completion* raw) {
  OwnedCompletion completion = own(raw);
  EventRef node = waitable_node(event, submitting).reference();
  completion->event = node.release();
  reclaimer().start(submitting);
  reclaimer().add(std::move(completion));
}

bool quiesce_to(std::chrono::steady_clock::time_point deadline) {
  constexpr const char* operation = "wait until all functions have ended";
  enter(operation);
  if (is_service_thread())
    throw_error(errc::not_permitted, operation,
                "this is a completion function, which would wait for itself");
  const ScopedWait wait{operation};
  return poll_until(deadline, [] { return !are_functions_under_way(); });
}

}  // namespace detail

using namespace detail;

bool Future::is_ready() const { return require(state_).look(); }

void Future::wait() const {
  const FutureState& state = require(state_);
  if (state.look()) return;
  refuse_endless_wait();
  const ScopedWait wait{waiting};
  while (!state.look()) state.is_ready.wait(0, std::memory_order_acquire);
}

bool Future::wait_to(std::chrono::steady_clock::time_point deadline) const {
  const FutureState& state = require(state_);
  if (state.look()) return true;
  refuse_endless_wait();
  const ScopedWait wait{waiting};
  return poll_until(deadline, [&] { return state.look(); });
}

const Outcome& Future::outcome() const {
  wait();
  return state_->outcome;
}

}  // namespace runnel::inline RUNNEL_ABI
