// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_completion
/// Streams as schedulers for std::execution, as implemented by the library stdexec. Not part of
/// <runnel/runnel.hpp>.
///
/// `schedule(runnel::scheduler(stream))`, followed by `then`, `bulk`, `when_all`, `continues_on`
/// and `runnel::enqueue`, enqueues all work when the operation starts, without waiting: functions
/// become host functions of the stream, and an event orders two streams. Once the work of the last
/// stream is complete, the receiver is completed on the library's thread, which calls all functions
/// of `on_complete()`. Other adaptors, `let_value` among them, work as on every scheduler, and
/// continue on that thread.
#pragma once

#if !__has_include(<stdexec/execution.hpp>)
#error \
    "<runnel/execution.hpp> needs stdexec (https://github.com/NVIDIA/stdexec): put its folder 'include' into the include path"
#endif

#include <runnel/completion.hpp>
#include <runnel/current.hpp>
#include <runnel/detail/execution_steps.hpp>

#include <concepts>

#include <stdexec/execution.hpp>

namespace runnel::inline RUNNEL_ABI {

namespace detail::execution {
template <class Step>
class StreamSender;
/// The domain that transforms stdexec's adaptors into steps.
struct StreamDomain;
}  // namespace detail::execution

/// A stream as a scheduler. It owns nothing: an operation that starts after the stream was
/// destroyed completes with errc::invalid_handle.
class StreamScheduler {
 public:
  using scheduler_concept = stdexec::scheduler_t;  ///< required by stdexec

  /// The same as scheduler(stream).
  explicit StreamScheduler(StreamRef stream) noexcept : stream_{stream} {}
  /// A sender that completes once everything submitted to the stream before its start is complete.
  [[nodiscard]] detail::execution::StreamSender<detail::execution::ScheduleStep> schedule()
      const noexcept;
  /// The stream that the scheduler enqueues on.
  [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

  ///@{ Required by stdexec.
  [[nodiscard]] static stdexec::forward_progress_guarantee query(
      stdexec::get_forward_progress_guarantee_t) noexcept {
    // The functions of one stream run one after the other.
    return stdexec::forward_progress_guarantee::weakly_parallel;
  }
  template <class... Env>
  [[nodiscard]] StreamScheduler query(stdexec::get_completion_scheduler_t<stdexec::set_value_t>,
                                      const Env&...) const noexcept {
    return *this;
  }
  template <class... Env>
  [[nodiscard]] detail::execution::StreamDomain query(
      stdexec::get_completion_domain_t<stdexec::set_value_t>, const Env&...) const noexcept;
  ///@}
  /// Whether both schedule on the same stream.
  friend bool operator==(const StreamScheduler& a, const StreamScheduler& b) noexcept = default;

 private:
  StreamRef stream_;
};

namespace detail::execution {

template <class Step, class Receiver>
class WorkOf final : public Work {
 public:
  WorkOf(Step step, Receiver& receiver) : step_{std::move(step)}, receiver_{&receiver} {}

  static void start(const std::shared_ptr<WorkOf>& self) noexcept {
    try {
      if (self->goes_on()) {
        self->step_->check();
        self->step_->enqueue(self).on_complete([self](const Outcome& outcome) {
          if (!outcome.is_ok()) self->fail(outcome.error());
          self->close();
        });
        return;
      }
    } catch (...) {
      self->fail(std::current_exception());
    }
    self->close();
  }

 private:
  [[nodiscard]] bool is_stop_requested() const noexcept override {
    return stdexec::get_stop_token(stdexec::get_env(*receiver_)).stop_requested();
  }
  void deliver() noexcept override {
    std::optional<typename Step::Values> values;
    if (!has_failed()) {
      try {
        values.emplace(step_->take());
      } catch (...) {
        fail(std::current_exception());
      }
    }
    step_.reset();  // The caller's functions do not outlive the operation.
    if (values)
      std::apply(
          [this](auto&&... value) {
            stdexec::set_value(std::move(*receiver_), std::forward<decltype(value)>(value)...);
          },
          *std::move(values));
    else if (failure() != nullptr)
      stdexec::set_error(std::move(*receiver_), std::exception_ptr{failure()});
    else
      stdexec::set_stopped(std::move(*receiver_));
  }

  std::optional<Step> step_;
  Receiver* receiver_;  // Lives until it is completed.
};

template <class Step, class Receiver>
class Operation {
 public:
  using operation_state_concept = stdexec::operation_state_t;
  Operation(Step step, Receiver receiver)
      : receiver_{std::move(receiver)},
        work_{std::make_shared<WorkOf<Step, Receiver>>(std::move(step), receiver_)} {}
  Operation(Operation&&) = delete;
  void start() & noexcept {
    const auto kept = work_;  // This object may be destroyed before the function returns.
    WorkOf<Step, Receiver>::start(kept);
  }

 private:
  Receiver receiver_;
  std::shared_ptr<WorkOf<Step, Receiver>> work_;
};

template <class Values>
struct SignaturesOf;
template <class... Values>
struct SignaturesOf<std::tuple<Values...>> {
  using type = stdexec::completion_signatures<stdexec::set_value_t(Values...),
                                              stdexec::set_error_t(std::exception_ptr),
                                              stdexec::set_stopped_t()>;
};

/// A step as a sender.
template <class Step>
class StreamSender {
 public:
  using sender_concept = stdexec::sender_t;
  using completion_signatures = typename SignaturesOf<typename Step::Values>::type;

  explicit StreamSender(Step step) : step_{std::move(step)} {}

  template <stdexec::receiver Receiver>
  [[nodiscard]] auto connect(Receiver receiver) && {
    return Operation<Step, Receiver>{std::move(step_), std::move(receiver)};
  }
  template <stdexec::receiver Receiver>
  [[nodiscard]] auto connect(Receiver receiver) const& {
    return Operation<Step, Receiver>{step_, std::move(receiver)};
  }
  [[nodiscard]] StreamScheduler get_env() const noexcept { return StreamScheduler{step_.stream()}; }

  [[nodiscard]] const Step& step() const& noexcept { return step_; }
  [[nodiscard]] Step&& step() && noexcept { return std::move(step_); }

 private:
  Step step_;
};

template <class S>
inline constexpr bool is_stream_sender = false;
template <class Step>
inline constexpr bool is_stream_sender<StreamSender<Step>> = true;

/// What make_step() returns for a sender that is not completely made of streams.
struct NoStep {};
template <class Sender>
[[nodiscard]] auto make_step(Sender&& sender);
template <class Sender>
using StepOf = decltype(make_step(std::declval<Sender>()));
template <class... Senders>
inline constexpr bool have_steps = (!std::is_same_v<StepOf<Senders>, NoStep> && ...);

/// Creates the step of one of stdexec's adaptors. It is called with the adaptor's tag, its data,
/// and its child senders.
struct StepMaker {
  template <class F, class Sender>
  auto operator()(stdexec::then_t, F&& function, Sender&& sender) const {
    if constexpr (have_steps<Sender>)
      return ThenStep<StepOf<Sender>, std::decay_t<F>>{make_step(std::forward<Sender>(sender)),
                                                       std::forward<F>(function)};
    else
      return NoStep{};
  }
  template <class Data, class Sender>
  auto operator()(stdexec::bulk_t, Data&& data, Sender&& sender) const {
    return bulk<false>(std::forward<Data>(data), std::forward<Sender>(sender));
  }
  template <class Data, class Sender>
  auto operator()(stdexec::bulk_unchunked_t, Data&& data, Sender&& sender) const {
    return bulk<false>(std::forward<Data>(data), std::forward<Sender>(sender));
  }
  template <class Data, class Sender>
  auto operator()(stdexec::bulk_chunked_t, Data&& data, Sender&& sender) const {
    return bulk<true>(std::forward<Data>(data), std::forward<Sender>(sender));
  }
  template <class Data, class Sender>
  auto operator()(stdexec::schedule_from_t, Data&&, Sender&& sender) const {
    return make_step(std::forward<Sender>(sender));
  }
  template <class Scheduler, class Sender>
  auto operator()(stdexec::continues_on_t, Scheduler&& scheduler, Sender&& sender) const {
    if constexpr (std::is_same_v<std::decay_t<Scheduler>, StreamScheduler> && have_steps<Sender>)
      return ContinueStep<StepOf<Sender>>{make_step(std::forward<Sender>(sender)),
                                          scheduler.stream()};
    else
      return NoStep{};
  }
  template <class Data, class... Senders>
  auto operator()(stdexec::when_all_t, Data&&, Senders&&... senders) const {
    if constexpr (have_steps<Senders...>)
      return AllStep<StepOf<Senders>...>{{make_step(std::forward<Senders>(senders))...}};
    else
      return NoStep{};
  }

 private:
  template <bool is_chunked, class Data, class Sender>
  static auto bulk(Data&& data, Sender&& sender) {
    if constexpr (have_steps<Sender>) {
      auto&& [policy, count, function] = std::forward<Data>(data);
      static_cast<void>(policy);
      return BulkStep<is_chunked, StepOf<Sender>, std::decay_t<decltype(count)>,
                      std::decay_t<decltype(function)>>{make_step(std::forward<Sender>(sender)),
                                                        count, function};
    } else {
      return NoStep{};
    }
  }
};

template <class Sender>
auto make_step(Sender&& sender) {
  if constexpr (is_stream_sender<std::remove_cvref_t<Sender>>)
    return std::forward<Sender>(sender).step();
  else if constexpr (requires {
                       stdexec::__structured_apply(StepMaker{}, std::forward<Sender>(sender));
                     })
    return stdexec::__structured_apply(StepMaker{}, std::forward<Sender>(sender));
  else
    return NoStep{};
}

struct StreamDomain {
  template <stdexec::sender Sender, class Env>
    requires(!is_stream_sender<std::remove_cvref_t<Sender>> && have_steps<Sender>)
  auto transform_sender(stdexec::set_value_t, Sender&& sender, const Env&) const {
    return StreamSender<StepOf<Sender>>{make_step(std::forward<Sender>(sender))};
  }
};

template <class F>
struct Enqueue : stdexec::sender_adaptor_closure<Enqueue<F>> {
  explicit Enqueue(F f) : function{std::move(f)} {}
  template <stdexec::sender Sender>
  [[nodiscard]] auto operator()(Sender&& sender) && {
    static_assert(have_steps<Sender>,
                  "runnel::enqueue() comes after schedule(runnel::scheduler(stream)), or what "
                  "follows it on a stream");
    using Step = EnqueueStep<StepOf<Sender>, F>;
    return StreamSender<Step>{Step{make_step(std::forward<Sender>(sender)), std::move(function)}};
  }
  F function;
};

}  // namespace detail::execution

template <class... Env>
detail::execution::StreamDomain StreamScheduler::query(
    stdexec::get_completion_domain_t<stdexec::set_value_t>, const Env&...) const noexcept {
  return {};
}
inline detail::execution::StreamSender<detail::execution::ScheduleStep> StreamScheduler::schedule()
    const noexcept {
  return detail::execution::StreamSender<detail::execution::ScheduleStep>{{stream_}};
}

/// The scheduler of a stream, for `stdexec::schedule()`, `starts_on()` and `continues_on()`. All
/// errors arrive as `set_error` with a `std::exception_ptr`: errors of the runtime, exceptions of
/// the functions, errc::capture for a stream that is being captured, errc::invalid_handle for a
/// stream that was destroyed, errc::not_permitted for a start in a host function. Once a function
/// throws, or a stop is requested, functions of the operation that have not begun are not called.
/// Receivers are not completed once the process exits, nor in a forked child.
[[nodiscard]] inline StreamScheduler scheduler(StreamRef stream) noexcept {
  return StreamScheduler{stream};
}
/// @cond
template <detail::TemporaryStream S>
StreamScheduler scheduler RUNNEL_REFUSED_TEMPORARY_STREAM(S&&);
/// @endcond

/// An adaptor that calls `function(StreamRef)` in start(). The function enqueues kernels, copies or
/// other work, which runs in stream order after the work of the previous senders. Their values are
/// passed on. Requires: the previous sender is one of a stream.
template <class F>
  requires std::invocable<std::decay_t<F>, StreamRef>
[[nodiscard]] auto enqueue(F&& function) {
  return detail::execution::Enqueue<std::decay_t<F>>{std::forward<F>(function)};
}

}  // namespace runnel::inline RUNNEL_ABI
