// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_completion
/// Completion without a blocked thread: a function that is called, or a future that becomes ready,
/// once the work of a stream is complete.
#pragma once

#include <runnel/error.hpp>
#include <runnel/stream.hpp>

#include <exception>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
class EventBase;
struct EventNode;
}  // namespace detail

/// How work ended: successfully, or with an error.
class Outcome {
 public:
  /// The work is complete.
  Outcome() noexcept = default;
  /// The work failed. Requires: `error` is not null.
  explicit Outcome(std::exception_ptr error) noexcept;

  /// Whether there was no error.
  [[nodiscard]] bool is_ok() const noexcept { return error_ == nullptr; }
  /// The same as is_ok().
  [[nodiscard]] explicit operator bool() const noexcept { return is_ok(); }
  /// The portable code; the empty code if there was no error. errc::function_failed if a host
  /// function threw an exception that is neither an Error nor a std::bad_alloc, whose code is
  /// errc::out_of_memory.
  [[nodiscard]] std::error_code code() const noexcept {
    return is_ok() ? std::error_code{} : code_;
  }  // The empty code is created here because the library may have another std::system_category().
  /// What `synchronize()` would throw; null if there was no error.
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }
  /// Throws the error, if there was one.
  void throw_if_failed() const {
    if (!is_ok()) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
  std::error_code code_;
};

namespace detail {

/// What a thread of the library does later (src/base/deferred.hpp). Embedded in what is deferred,
/// so that deferring allocates nothing.
struct Deferred {
  void (*run)(Deferred&) noexcept = nullptr;  // May destroy the object.
  Deferred* next = nullptr;                   // in the list of the thread
  // It may call functions of the program, which may take long. Only the service thread runs it.
  // Everything else is run first, also by a thread that needs memory.
  bool calls_program = false;
};

/// A function that waits for completion. The service thread of the library
/// (src/slot/reclaimer.hpp) calls it and owns it once it is submitted.
struct Completion : Deferred {
  Completion(void (*f)(Completion&, const Outcome&), void (*d)(Completion*) noexcept) noexcept
      : call{f}, destroy{d} {}
  void (*call)(Completion&, const Outcome&);  // May throw.
  void (*destroy)(Completion*) noexcept;
  // The following members are the library's.
  EventNode* event = nullptr;  // A counted reference, or null.
  StreamSlot* slot = nullptr;  // The stream whose work is waited for; null for an event.
  std::uint64_t stream_id = 0;
  std::uint64_t number = 0;  // of the stream's mark
  std::exception_ptr failure{};
};

template <class F>
struct CompletionOf : Completion {
  template <class G>
  explicit CompletionOf(G&& g)
      : Completion{[](Completion& self, const Outcome& outcome) {
                     static_cast<void>(static_cast<CompletionOf&>(self).function(outcome));
                   },
                   [](Completion* self) noexcept { delete static_cast<CompletionOf*>(self); }},
        function{std::forward<G>(g)} {}
  F function;
};

/// A function that takes an outcome.
template <class F>
concept OutcomeCallable = std::is_invocable_v<std::decay_t<F>&, const Outcome&> &&
                          std::is_constructible_v<std::decay_t<F>, F>;

template <OutcomeCallable F>
[[nodiscard]] Completion* make_completion(F&& function) {
  if (is_empty_callable(function))
    throw_invalid_argument("enqueue a completion function", "the function is null");
  return new CompletionOf<std::decay_t<F>>{std::forward<F>(function)};
}

/// Submits the function to the service thread. Takes ownership of it, also if the call throws.
void submit_completion(StreamRef stream, Completion* completion);
/// The same for the work recorded by an event.
void submit_completion(const EventBase& event, Completion* completion);
/// As for a stream, and records `mark`, which tells without the service thread whether the work is
/// complete.
void submit_completion(StreamRef stream, EventBase& mark, Completion* completion);
/// The exception that the completion will receive; null while there is none. Requires: its function
/// has not returned.
[[nodiscard]] std::exception_ptr failure_of(const Completion& completion);

/// Implements `stream.on_complete(f)` and `event.on_complete(f)`.
template <class Source, OutcomeCallable F>
void call_on_complete(const Source& source, F&& function) {
  submit_completion(source, make_completion(std::forward<F>(function)));
}

struct FutureState;
[[nodiscard]] FutureState* make_future(StreamRef stream);
void share_future(FutureState* state) noexcept;
void drop_future(FutureState* state) noexcept;

}  // namespace detail

/// The outcome of work that completes later. Copies of a Future share one outcome. A Future does
/// not keep the stream alive: the stream may be destroyed first.
class Future {
 public:
  /// An empty future: every member except is_valid() throws errc::invalid_handle.
  Future() noexcept = default;
  ///@{ The other future is empty after a move.
  Future(const Future& other) noexcept : state_{other.state_} {
    if (state_ != nullptr) detail::share_future(state_);
  }
  Future(Future&& other) noexcept : state_{std::exchange(other.state_, nullptr)} {}
  Future& operator=(Future other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ///@}
  /// Does not wait.
  ~Future() {
    if (state_ != nullptr) detail::drop_future(state_);
  }

  /// False for an empty future.
  [[nodiscard]] bool is_valid() const noexcept { return state_ != nullptr; }
  /// Whether the outcome is available. Never waits, and makes no runtime call.
  [[nodiscard]] bool is_ready() const;
  /// Waits for the outcome, without a runtime call. @throws errc::not_permitted in a host function
  /// and in a function of `on_complete()`, because their threads must run for the outcome to become
  /// available; errc::forked in a forked child. Neither is thrown if the outcome is available
  /// already.
  void wait() const;
  /// As wait(), but waits at most `timeout`; returns false if the time ran out first.
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> timeout) const {
    return wait_to(detail::deadline_after(timeout));
  }
  /// The same until a point in time.
  template <class Clock, class Duration>
  [[nodiscard]] bool wait_until(std::chrono::time_point<Clock, Duration> time) const {
    return wait_to(detail::deadline_at(time));
  }
  /// Waits, and throws the error if there was one. Every call throws it.
  void get() const { outcome().throw_if_failed(); }
  /// Waits, and returns how the work ended.
  [[nodiscard]] const Outcome& outcome() const;

 private:
  friend Future future_of(StreamRef stream);
  explicit Future(detail::FutureState* state) noexcept : state_{state} {}
  [[nodiscard]] bool wait_to(std::chrono::steady_clock::time_point deadline) const;

  detail::FutureState* state_ = nullptr;
};

namespace detail {
[[nodiscard]] bool quiesce_to(std::chrono::steady_clock::time_point deadline);
}
/// Waits until no function of the program is enqueued or running on a thread of the library or the
/// runtime: host functions, also those of launched graphs, functions of `on_complete()` and
/// everything built on it, destructors of objects passed to keep(), deallocations of the program's
/// resources that had to be put off, and hooks called around them.
/// This covers all streams and threads of the process. It waits at most `timeout`, and returns
/// false if the time ran out first. Use it before you tear down what such functions need, for
/// example when an interpreter shuts down. Another thread that continues to submit can prolong the
/// wait; the call does not wait for what is submitted after it. @throws errc::not_permitted in a
/// host function and in a function of `on_complete()`, which would wait for themselves;
/// errc::forked in a forked child
template <class Rep, class Period>
[[nodiscard]] bool quiesce_for(std::chrono::duration<Rep, Period> timeout) {
  return detail::quiesce_to(detail::deadline_after(timeout));
}
/// The same until a point in time of any clock.
template <class Clock, class Duration>
[[nodiscard]] bool quiesce_until(std::chrono::time_point<Clock, Duration> time) {
  return detail::quiesce_to(detail::deadline_at(time));
}

using detail::call_on_complete;
/// Implements `stream.future()`.
[[nodiscard]] inline Future future_of(StreamRef stream) {
  return Future{detail::make_future(stream)};
}

}  // namespace runnel::inline RUNNEL_ABI
