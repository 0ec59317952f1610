// SPDX-License-Identifier: Apache-2.0
/// The steps that <runnel/execution.hpp> converts senders to. Steps enqueue their work on streams,
/// one after the other, without waiting. Each step has these members:
/// | member | purpose |
/// |---|---|
/// | Values | a std::tuple of the types of its values |
/// | check() | throws if the work cannot be enqueued; called for all steps before one enqueues |
/// | enqueue(work) | enqueues the previous steps, then its own work; returns the stream of its values |
/// | refs(), take() | the values as references, or moved; called in the order of that stream |
/// | stream() | the stream that enqueue() will return |
#pragma once

#include <runnel/detail/capturing.hpp>
#include <runnel/error.hpp>

#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail::execution {

/// The state that the host functions of one operation share, and that ends the operation. Each
/// function keeps it alive, because after a failure functions may stay enqueued for longer than the
/// operation lasts. Such functions do nothing when they run, because the end of the operation
/// closes the work.
class Work {
 public:
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  virtual ~Work() = default;

  /// Calls the function, unless the operation has failed or a stop was requested.
  template <class F>
  void call(F&& function) noexcept {
    if (!enter()) return;
    if (goes_on()) {
      try {
        std::forward<F>(function)();
      } catch (...) {
        fail(std::current_exception());
      }
    }
    leave(-user);
  }
  /// Marks the operation as failed: no further function is called. The first failure is kept; null
  /// means that a stop was requested.
  void fail(std::exception_ptr failure) noexcept {
    if (!has_failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::move(failure);
  }
  [[nodiscard]] bool goes_on() noexcept {
    if (has_failed_.load(std::memory_order_relaxed)) return false;
    if (!is_stop_requested()) return true;
    fail(nullptr);
    return false;
  }
  /// No function is called from now on. The operation ends in this call, or when a function that is
  /// running returns. Called once.
  void close() noexcept { leave(closed - user); }

 protected:
  [[nodiscard]] bool has_failed() const noexcept {
    return has_failed_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }

 private:
  [[nodiscard]] virtual bool is_stop_requested() const noexcept = 0;
  /// Completes the receiver. This object must not be used afterwards, except for its reference
  /// count.
  virtual void deliver() noexcept = 0;

  static constexpr int closed = 1;
  static constexpr int user = 2;

  [[nodiscard]] bool enter() noexcept {
    for (int seen = users_.load(std::memory_order_relaxed); (seen & closed) == 0;)
      if (users_.compare_exchange_weak(seen, seen + user, std::memory_order_acquire,
                                       std::memory_order_relaxed))
        return true;
    return false;
  }
  void leave(int change) noexcept {
    if (users_.fetch_add(change, std::memory_order_acq_rel) + change == closed) deliver();
  }

  std::atomic<int> users_{user};  // `user` for each running function and for the caller of close(),
                                  // plus `closed` once it was called.
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;
};
using SharedWork = std::shared_ptr<Work>;

/// Refuses a stream that is being captured, before anything is recorded into its graph: captured
/// work does not complete until the graph is launched.
inline void check_stream(StreamRef stream) {
  constexpr const char* operation = "start a sender";
  if (is_capturing(stream, operation))
    throw_error(errc::capture, operation,
                "the stream is being captured: its work does not run yet");
}

struct ScheduleStep {
  using Values = std::tuple<>;

  void check() const { check_stream(on); }
  [[nodiscard]] StreamRef enqueue(const SharedWork&) const { return on; }
  [[nodiscard]] std::tuple<> refs() const noexcept { return {}; }
  [[nodiscard]] std::tuple<> take() const noexcept { return {}; }
  [[nodiscard]] StreamRef stream() const noexcept { return on; }

  StreamRef on;
};

/// A step with one previous step, whose values it passes on.
template <class Previous>
struct StepAfter {
  using Values = typename Previous::Values;

  void check() const { previous.check(); }
  [[nodiscard]] auto refs() noexcept { return previous.refs(); }
  [[nodiscard]] auto take() { return previous.take(); }
  [[nodiscard]] StreamRef stream() const noexcept { return previous.stream(); }

  Previous previous;
};

/// Enqueues a host function that calls step.compute().
template <class Step>
void launch(StreamRef stream, const SharedWork& work, Step& step) {
  stream.launch_host_func([work, &step]() noexcept { work->call([&step] { step.compute(); }); });
}

/// The type in which a step stores a result. An rvalue reference becomes a value.
template <class R>
using Kept = std::conditional_t<std::is_rvalue_reference_v<R>, std::remove_cvref_t<R>,
                                std::remove_const_t<R>>;

/// `then(f)`: a host function calls f with the values.
template <class Previous, class F>
struct ThenStep : StepAfter<Previous> {
  using Result = decltype(std::apply(std::declval<F>(), std::declval<typename Previous::Values>()));
  static constexpr bool is_void = std::is_void_v<Result>;
  using Values = typename std::conditional_t<is_void, std::type_identity<std::tuple<>>,
                                             std::type_identity<std::tuple<Kept<Result>>>>::type;

  ThenStep(Previous before, F f) : StepAfter<Previous>{std::move(before)}, function{std::move(f)} {}

  [[nodiscard]] StreamRef enqueue(const SharedWork& work) {
    const StreamRef on = this->previous.enqueue(work);
    launch(on, work, *this);
    return on;
  }
  void compute() {
    if constexpr (is_void) {
      std::apply(std::move(function), this->previous.take());
      values.emplace();
    } else {
      values.emplace(std::apply(std::move(function), this->previous.take()));
    }
  }
  [[nodiscard]] auto refs() noexcept {
    return std::apply([](auto&... value) { return std::tie(value...); }, *values);
  }
  [[nodiscard]] Values take() { return *std::move(values); }

  F function;
  std::optional<Values> values{};
};

/// `bulk(n, f)` and `bulk_chunked(n, f)`: one host function calls f for all indices, or for all of
/// them at once.
template <bool is_chunked, class Previous, class Shape, class F>
struct BulkStep : StepAfter<Previous> {
  BulkStep(Previous before, Shape n, F f)
      : StepAfter<Previous>{std::move(before)}, count{n}, function{std::move(f)} {}

  [[nodiscard]] StreamRef enqueue(const SharedWork& work) {
    const StreamRef on = this->previous.enqueue(work);
    launch(on, work, *this);
    return on;
  }
  void compute() {
    std::apply(
        [this](auto&... value) {
          if constexpr (is_chunked)
            function(Shape{0}, count, value...);
          else
            for (Shape i{0}; i < count; ++i) function(i, value...);
        },
        this->previous.refs());
  }

  Shape count;
  F function;
};

/// `runnel::enqueue(f)`: f(stream) is called in start(), and enqueues any work.
template <class Previous, class F>
struct EnqueueStep : StepAfter<Previous> {
  EnqueueStep(Previous before, F f)
      : StepAfter<Previous>{std::move(before)}, function{std::move(f)} {}

  [[nodiscard]] StreamRef enqueue(const SharedWork& work) {
    const StreamRef on = this->previous.enqueue(work);
    std::invoke(std::move(function), on);
    return on;
  }

  F function;
};

/// `continues_on(scheduler)`: the other stream waits for this one; no thread waits.
template <class Previous>
struct ContinueStep : StepAfter<Previous> {
  ContinueStep(Previous before, StreamRef on) : StepAfter<Previous>{std::move(before)}, next{on} {}

  void check() const {
    this->previous.check();
    check_stream(next);
  }
  [[nodiscard]] StreamRef enqueue(const SharedWork& work) {
    next.wait_stream(this->previous.enqueue(work));
    return next;
  }
  [[nodiscard]] StreamRef stream() const noexcept { return next; }

  StreamRef next;
};

/// `when_all(...)`: the stream of the first sender waits for those of the others.
template <class... Previous>
struct AllStep {
  using Values = decltype(std::tuple_cat(std::declval<typename Previous::Values>()...));

  void check() const {
    std::apply([](const auto&... each) { (each.check(), ...); }, previous);
  }
  [[nodiscard]] StreamRef enqueue(const SharedWork& work) {
    const StreamRef on = stream();
    // All branches are enqueued before the first stream waits, so that they run concurrently.
    const auto streams =
        std::apply([&](auto&... each) { return std::array{each.enqueue(work)...}; }, previous);
    for (const StreamRef& other : streams) on.wait_stream(other);
    return on;
  }
  [[nodiscard]] auto refs() noexcept {
    return std::apply([](auto&... each) { return std::tuple_cat(each.refs()...); }, previous);
  }
  [[nodiscard]] Values take() {
    return std::apply([](auto&... each) { return std::tuple_cat(each.take()...); }, previous);
  }
  [[nodiscard]] StreamRef stream() const noexcept { return std::get<0>(previous).stream(); }

  std::tuple<Previous...> previous;
};

}  // namespace runnel::inline RUNNEL_ABI::detail::execution
