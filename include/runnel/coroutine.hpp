// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_completion
/// Coroutines that wait for streams and events without blocking a thread: `co_await stream;`,
/// `co_await event;`. Not part of <runnel/runnel.hpp>.
///
/// The coroutine is resumed on the library's thread, which calls all functions of `on_complete()`:
/// it may use streams, but should not occupy that thread for long.
/// `co_await resume_on(stream, hook)` resumes it elsewhere. `co_await` throws what `synchronize()`
/// would throw. If a host function threw, the next `synchronize()` still throws its exception.
/// Requires: the coroutine is not destroyed while it waits.
#pragma once

#include <runnel/completion.hpp>
#include <runnel/event.hpp>

#include <coroutine>

namespace runnel::inline RUNNEL_ABI {

/// A callable that resumes a coroutine: a function `hook(std::coroutine_handle<>)`, or an executor
/// with `execute(function)`.
template <class H>
concept ResumeHook = std::is_invocable_v<std::decay_t<H>&, std::coroutine_handle<>> ||
                     requires(std::decay_t<H>& executor, std::coroutine_handle<> handle) {
                       executor.execute(handle);
                     };

namespace detail {

/// Resumes the coroutine on the thread that calls the completion function.
struct ResumeHere {
  void operator()(std::coroutine_handle<> handle) const { handle.resume(); }
};

template <class Source, ResumeHook Hook>
class Awaiter {
 public:
  template <class H>
  Awaiter(const Source& source, H&& hook) : source_{source}, hook_{std::forward<H>(hook)} {}

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  // Not inline: the coroutine may continue, and end, on another thread before this function
  // returns.
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<> handle) {
    source_.on_complete([this, handle](const Outcome& outcome) {
      outcome_ = outcome;
      pass_on(handle);
    });
  }
  void await_resume() const { outcome_.throw_if_failed(); }

 private:
  void pass_on(std::coroutine_handle<> handle) {
    if constexpr (!std::is_same_v<Hook, ResumeHere>) {
      try {
        // The coroutine's frame, which contains this object, may be destroyed before the hook
        // returns.
        Hook hook{std::move(hook_)};
        if constexpr (std::is_invocable_v<Hook&, std::coroutine_handle<>>)
          hook(handle);
        else
          hook.execute(handle);
        return;
      } catch (...) {
        outcome_ = Outcome{std::current_exception()};
      }
    }
    handle.resume();
  }

  // A StreamRef is copied because it may be a temporary; an event is referred to.
  std::conditional_t<std::is_same_v<Source, StreamRef>, StreamRef, const Source&> source_;
  Hook hook_;
  Outcome outcome_{};
};

}  // namespace detail

/// Suspends the coroutine until everything submitted to the stream so far, or what the event has
/// recorded, is complete or has failed.
[[nodiscard]] inline auto operator co_await(const StreamRef& stream) {
  return detail::Awaiter<StreamRef, detail::ResumeHere>{stream, detail::ResumeHere{}};
}
/// The same for an event.
[[nodiscard]] inline auto operator co_await(const Event& event) {
  return detail::Awaiter<Event, detail::ResumeHere>{event, detail::ResumeHere{}};
}
/// The same for a timed event.
[[nodiscard]] inline auto operator co_await(const TimedEvent& event) {
  return detail::Awaiter<TimedEvent, detail::ResumeHere>{event, detail::ResumeHere{}};
}

/// @{ The same, but the hook determines where the coroutine is resumed:
/// `co_await resume_on(stream, [&](std::coroutine_handle<> h) { pool.post(h); })`, or
/// `co_await resume_on(stream, executor)` for an object with `execute(function)`, which is copied.
/// The library's thread calls the hook once. If the hook throws, the coroutine is resumed on that
/// thread, and `co_await` throws the exception. Requires: a hook that throws has not resumed the
/// coroutine, and will not do so later.
template <ResumeHook Hook>
[[nodiscard]] auto resume_on(StreamRef stream, Hook&& hook) {
  return detail::Awaiter<StreamRef, std::decay_t<Hook>>{stream, std::forward<Hook>(hook)};
}
template <ResumeHook Hook>
[[nodiscard]] auto resume_on(const Event& event, Hook&& hook) {
  return detail::Awaiter<Event, std::decay_t<Hook>>{event, std::forward<Hook>(hook)};
}
template <ResumeHook Hook>
[[nodiscard]] auto resume_on(const TimedEvent& event, Hook&& hook) {
  return detail::Awaiter<TimedEvent, std::decay_t<Hook>>{event, std::forward<Hook>(hook)};
}
///@}

}  // namespace runnel::inline RUNNEL_ABI
