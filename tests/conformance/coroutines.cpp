// SPDX-License-Identifier: Apache-2.0
// Coroutines that wait for streams and events.
#include <deque>
#include <runnel/coroutine.hpp>

#include "support.hpp"

namespace conformance::coroutines_cases {
using Coroutines = Conformance;

/// A coroutine that begins at once and sets a promise at its end.
struct Task {
  struct promise_type {
    Task get_return_object() { return {ended.get_future()}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() { ended.set_value(); }
    void unhandled_exception() { ended.set_exception(std::current_exception()); }
    std::promise<void> ended;
  };
  std::future<void> ended;

  [[nodiscard]] bool has_ended() const { return ended.wait_for(0s) == std::future_status::ready; }
  void get() {
    ASSERT_EQ(ended.wait_for(patience), std::future_status::ready)
        << "the coroutine was not continued";
    ended.get();
  }
};

/// Runs what it is given when the test says so, on the test's thread.
class Executor {
 public:
  void execute(std::function<void()> function) const {
    const std::lock_guard lock{state_->mutex};
    state_->functions.push_back(std::move(function));
  }
  [[nodiscard]] bool run_one() const {
    if (!eventually([&] { return size() > 0; })) return false;
    std::function<void()> function;
    {
      const std::lock_guard lock{state_->mutex};
      function = std::move(state_->functions.front());
      state_->functions.pop_front();
    }
    function();
    return true;
  }

 private:
  size_t size() const {
    const std::lock_guard lock{state_->mutex};
    return state_->functions.size();
  }
  struct State {
    std::mutex mutex;
    std::deque<std::function<void()>> functions;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

Task wait_for(StreamRef stream) { co_await stream; }
Task wait_for(const Event& event) { co_await event; }
Task wait_for(const TimedEvent& event) { co_await event; }

TEST_F(Coroutines, ACoroutineContinuesOnceTheStreamIsComplete) {
  Stream stream;
  Gate gate{stream};
  Task task = wait_for(stream);
  EXPECT_FALSE(task.has_ended());
  gate.open();
  task.get();
  wait_for(stream).get();  // idle
}

TEST_F(Coroutines, ACoroutineContinuesOnceTheEventHasHappened) {
  Stream stream;
  Gate gate{stream};
  Event event{stream};
  TimedEvent timed{stream};
  Task one = wait_for(event);
  Task two = wait_for(timed);
  EXPECT_FALSE(one.has_ended() || two.has_ended());
  gate.open();
  one.get();
  two.get();
  wait_for(Event{}).get();  // never recorded
}

Task send_and_return(Stream& stream, PinnedInts& memory, int rounds) {
  DeviceInts there(memory.size(), stream);
  for (int round = 0; round < rounds; ++round) {
    copy(stream, there, memory);
    fill(stream, memory, 0);
    copy(stream, memory, there);
    co_await stream;
    for (int& each : memory) ++each;
  }
}

TEST_F(Coroutines, AContinuedCoroutineMayUseStreams) {
  Stream stream;
  PinnedInts memory{1000};
  std::ranges::fill(memory, 0);
  send_and_return(stream, memory, 50).get();
  EXPECT_TRUE(std::ranges::all_of(memory, [](int x) { return x == 50; }));
}

TEST_F(Coroutines, CoAwaitThrowsTheExceptionOfAHostFunction) {
  Stream stream;
  stream.launch_host_func([] { throw std::out_of_range{"mine"}; });
  EXPECT_THROW(wait_for(stream).get(), std::out_of_range);
  EXPECT_THROW(stream.synchronize(), std::out_of_range) << "co_await swallowed it";
}

TEST_F(Coroutines, CoAwaitThrowsTheErrorOfARefusedWait) {
  StreamRef view = default_stream();
  {
    const Stream stream;
    view = stream;
  }
  EXPECT_ERROR(invalid_handle, wait_for(view).get());
  Stream stream;
  const Graph graph = capture(stream, [&] { EXPECT_ERROR(capture, wait_for(stream).get()); });
}

Task wait_on(StreamRef stream, Executor executor, std::thread::id& resumed) {
  co_await resume_on(stream, executor);
  resumed = std::this_thread::get_id();
}

TEST_F(Coroutines, AnExecutorContinuesTheCoroutine) {
  const Stream stream;
  const Executor executor;
  std::thread::id resumed;
  Task task = wait_on(stream, executor, resumed);
  EXPECT_TRUE(executor.run_one());
  task.get();
  EXPECT_EQ(resumed, std::this_thread::get_id());
}

template <class Awaited>
Task wait_with(const Awaited& awaited, std::function<void(std::coroutine_handle<>)> hook) {
  co_await resume_on(awaited, std::move(hook));
}

TEST_F(Coroutines, AHookContinuesTheCoroutine) {
  const Stream stream;
  const Event event{stream};
  std::promise<std::coroutine_handle<>> passed;
  Task task = wait_with(event, [&](std::coroutine_handle<> handle) { passed.set_value(handle); });
  const auto handle = passed.get_future().get();
  EXPECT_FALSE(task.has_ended());
  handle.resume();
  task.get();
}

TEST_F(Coroutines, CoAwaitThrowsTheExceptionOfTheHook) {
  const Stream stream;
  EXPECT_THROW(
      wait_with(StreamRef{stream}, [](std::coroutine_handle<>) { throw std::range_error{"full"}; })
          .get(),
      std::range_error);
}

/// A hook that is moved to where it is called, which fails.
struct HookThatCannotMove {
  bool moves = true;
  HookThatCannotMove() = default;
  HookThatCannotMove(HookThatCannotMove&& other) : moves{other.moves} {
    if (!moves) throw std::range_error{"cannot move"};
  }
  HookThatCannotMove(const HookThatCannotMove& other) : moves{other.moves} {}
  void operator()(std::coroutine_handle<> handle) const { handle.resume(); }
};
Task wait_with_copy_of(StreamRef stream, const HookThatCannotMove& hook) {
  co_await resume_on(stream, hook);
}

TEST_F(Coroutines, CoAwaitThrowsTheExceptionOfAnImmovableHook) {
  const Stream stream;
  HookThatCannotMove hook;
  hook.moves = false;
  EXPECT_THROW(wait_with_copy_of(stream, hook).get(), std::range_error);
  stream.synchronize();
}

TEST_F(Coroutines, ManyWaitAtOnce) {
  Streams streams(16);
  std::vector<Task> tasks;
  Gate gate{streams[0]};
  for (size_t i = 1; i < streams.size(); ++i) streams[i].wait_stream(streams[0]);
  repeat(20, [&] {
    for (const Stream& stream : streams) tasks.push_back(wait_for(stream));
  });
  EXPECT_TRUE(std::ranges::none_of(tasks, [](const Task& task) { return task.has_ended(); }));
  gate.open();
  for (Task& task : tasks) task.get();
}

/// Waits for the stream and for an event of it, in turn. Returns to `executor` each time. `count`
/// must be what the stream has counted to.
Task count_along(StreamRef stream, const Executor& executor, int& count, int rounds) {
  for (int round = 1; round <= rounds; ++round) {
    stream.launch_host_func([&count] { ++count; });
    const Event event{stream};
    const TimedEvent timed{stream};
    if (round % 3 == 0)
      co_await stream;
    else if (round % 3 == 1)
      co_await event;
    else if (round % 2 == 0)
      co_await resume_on(event, executor);
    else
      co_await resume_on(timed, executor);
    if (count < round)
      throw std::logic_error{"the coroutine was continued before the stream was complete"};
  }
}

// docs/thread-safety.md
TEST_F(Coroutines, FourThreadsAwaitOneStream) {
  constexpr int rounds = 60;
  const Stream stream;
  // not atomic: each is written in the order of the stream, which co_await waits for
  std::array<int, 4> counts{};
  on_threads(4, [&](int i) {
    const Executor executor;
    Task task = count_along(stream, executor, nth(counts, i), rounds);
    for (int round = 2; round <= rounds; round += 3) ASSERT_TRUE(executor.run_one());
    task.get();
  });
  EXPECT_EQ(counts, (std::array<int, 4>{rounds, rounds, rounds, rounds}));
}

TEST_F(Coroutines, FourThreadsAwaitOneEvent) {
  const Stream stream;
  int written = 0;  // not atomic: the event gives the order
  for (int round = 1; round <= 30; ++round) {
    stream.launch_host_func([&written, round] { written = round; });
    const Event event = stream.record_event();
    on_threads(4, [&](int) {
      wait_for(event).get();
      EXPECT_EQ(written, round);
    });
  }
}

}  // namespace conformance::coroutines_cases
