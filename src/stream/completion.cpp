// SPDX-License-Identifier: Apache-2.0
#include <runnel/completion.hpp>

#include "base/announce.hpp"
#include "base/counters.hpp"
#include "base/hang_report.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"
#include "stream/event_pool.hpp"
#include "stream/recorded_event.hpp"
#include "stream/stream_call.hpp"
#include "stream/watcher.hpp"

#include <runnel/event.hpp>

#include <memory>
#include <new>
#include <optional>
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

constexpr const char* submitting = "enqueue a completion function";

/// While it lives, no other thread submits a completion to the stream, unless is_alone() is false: then nobody knows which of the two
/// threads records first, and the completion must not wait for that of the other thread.
class Turn {
 public:
  explicit Turn(Slot& slot) noexcept : slot_{slot}, is_alone_{!slot.completion_busy.exchange(true, std::memory_order_acquire)} {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (is_alone_) slot_.completion_busy.store(false, std::memory_order_release);
  }
  [[nodiscard]] bool is_alone() const noexcept { return is_alone_; }

 private:
  Slot& slot_;
  bool is_alone_;
};

/// Records an event of the pool, which the watcher then queries and gives back.
void record_for(Completion& completion, const StreamCall& call) {
  const int device = call.slot().device;
  const native::event event = take_event(device, {}, call.operation());
  try {
    call.record(event);
  } catch (...) {
    return_event(event, device, {});
    throw;
  }
  completion.event = event;
  completion.device = device;
  completion.event_is = Completion::Event::of_pool;
}

[[nodiscard]] OwnedCompletion own(Completion* completion) noexcept {
  count_made_function();
  return OwnedCompletion{completion};
}

}  // namespace

void submit_completion(StreamRef stream, Completion* raw) {
  OwnedCompletion completion = own(raw);
  const StreamCall call{stream, submitting};
  refuse_in_capture(call.slot(), submitting, "the stream is being captured: nothing completes before the graph is launched");
  watcher().start(submitting);
  const Turn turn{call.slot()};
  record_for(*completion, call);
  completion->slot = &call.slot();
  completion->stream_id = stream.id();
  completion->in_line = turn.is_alone();
  completion->epoch = call.slot().completions.fetch_add(1, std::memory_order_relaxed) + 1;
  watcher().add(std::move(completion), &call.slot());
}

/// What the future's copies and the watcher share.
struct FutureState {
  sync::Atomic<int> references{1};
  sync::Atomic<std::uint32_t> is_ready{0};
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

void share_future(FutureState* state) noexcept { state->references.fetch_add(1, std::memory_order_relaxed); }
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

/// Refuses a wait that could not end. Requires: the outcome is not there.
void refuse_endless_wait() {
  enter(waiting);  // not in a forked child, nor in a host function
  if (is_watcher_thread()) throw_error(errc::not_permitted, waiting, "this is the thread that has to bring the outcome");
}

}  // namespace

FutureState* make_future(StreamRef stream) {
  SharedFuture kept{new FutureState};
  share_future(kept.get());
  submit_completion(stream, make_completion([shared = SharedFuture{kept.get()}](const Outcome& outcome) { shared->set(outcome); }));
  return kept.release();
}

void submit_completion(const EventBase& event, Completion* raw) {
  OwnedCompletion completion = own(raw);
  enter(submitting);
  event.is_replaceable_.store(true);  // before the handle is read: the next record replaces it
  std::optional<HandleInUse> use{std::in_place, event, submitting};
  event.refuse_captured(use->get(), submitting);
  completion->event = use->get();
  watcher().start(submitting);
  event.watched_.store(true, std::memory_order_release);
  watcher().add(std::move(completion), use);
}

bool quiesce_to(std::chrono::steady_clock::time_point deadline) {
  constexpr const char* operation = "wait until all functions have ended";
  enter(operation);
  if (is_watcher_thread()) throw_error(errc::not_permitted, operation, "this is a completion function, which would wait for itself");
  const WatchedWait watched{operation};
  return poll_until(deadline, [] { return !are_functions_under_way(); });
}

}  // namespace detail

bool Future::is_ready() const { return detail::require(state_).look(); }

void Future::wait() const {
  const detail::FutureState& state = detail::require(state_);
  if (state.look()) return;
  detail::refuse_endless_wait();
  const detail::WatchedWait watched{detail::waiting};
  while (!state.look()) state.is_ready.wait(0, std::memory_order_acquire);
}

bool Future::wait_to(std::chrono::steady_clock::time_point deadline) const {
  const detail::FutureState& state = detail::require(state_);
  if (state.look()) return true;
  detail::refuse_endless_wait();
  const detail::WatchedWait watched{detail::waiting};
  return detail::poll_until(deadline, [&] { return state.look(); });
}

const Outcome& Future::outcome() const {
  wait();
  return state_->outcome;
}

}  // namespace runnel::inline RUNNEL_ABI
