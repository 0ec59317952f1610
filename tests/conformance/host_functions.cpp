// SPDX-License-Identifier: Apache-2.0

#include "support.hpp"

namespace conformance::host_functions_cases {
using HostFunctions = Conformance;

/// Counts the instances, calls and moves of a callable and its copies.
struct Fate {
  std::atomic_int alive{0}, runs{0}, moves{0};
};

class MoveOnly {
 public:
  explicit MoveOnly(std::shared_ptr<Fate> fate) : fate_{std::move(fate)} { ++fate_->alive; }
  MoveOnly(MoveOnly&& other) noexcept : fate_{other.fate_} {
    ++fate_->alive;
    ++fate_->moves;
  }
  MoveOnly& operator=(MoveOnly&&) = delete;
  ~MoveOnly() { --fate_->alive; }
  void operator()() const { ++fate_->runs; }

 private:
  std::shared_ptr<Fate> fate_;
};

TEST_F(HostFunctions, AFunctionRunsOnceBetweenEarlierAndLaterWork) {
  constexpr size_t size = mib;
  Stream stream;
  PinnedBytes memory{size};
  auto seen = std::make_shared<Ints>();
  for (int round : range(3)) {
    fill_bytes(stream, memory.data(), static_cast<unsigned char>(round), size);
    stream.launch_host_func([seen, last = &memory[size - 1]] { seen->push_back(*last); });
  }
  stream.synchronize();
  EXPECT_EQ(*seen, (Ints{0, 1, 2}));
}

TEST_F(HostFunctions, FunctionsAreCountedUntilTheyAreDestroyed) {
  const Stream stream;
  device().synchronize();
  Gate gate{stream};
  const size_t before = live_objects().host_functions;
  repeat(3, [&] { enqueue_nothing(stream); });
  EXPECT_EQ(live_objects().host_functions, before + 3);
  gate.open_and_wait(stream);
  EXPECT_LE(live_objects().host_functions, before);
}

TEST_F(HostFunctions, AMoveOnlyCallableIsDestroyedOnce) {
  const auto fate = std::make_shared<Fate>();
  Stream stream;
  {
    MoveOnly function{fate};
    stream.launch_host_func(std::move(function));
    stream.synchronize();
    EXPECT_EQ(fate->runs, 1);
    EXPECT_EQ(fate->moves, 1);
    EXPECT_EQ(fate->alive, 1);  // `function` here, which was moved from
  }
  EXPECT_EQ(fate->alive, 0);
}

TEST_F(HostFunctions, LvaluesAreCopiedAndAnyCallableIsAccepted) {
  Stream stream;
  int count = 0;
  const std::function<int()> returns_something = [&count] { return ++count; };
  stream.launch_host_func(returns_something);
  stream.launch_host_func([&count, left = 1]() mutable { count += left--; });
  stream.synchronize();
  EXPECT_EQ(count, 2);
  EXPECT_TRUE(static_cast<bool>(returns_something));
}

TEST_F(HostFunctions, ACallableIsDestroyedOnceWhenTheEnqueueFails) {
  const auto fate = std::make_shared<Fate>();
  Stream gone;
  Stream stream{std::move(gone)};
  EXPECT_ERROR(invalid_handle, gone.launch_host_func(MoveOnly{fate}));  // NOLINT
  EXPECT_EQ(fate->alive, 0);
  std::error_code inside;
  stream.launch_host_func(
      [&] { inside = code_of([&] { stream.launch_host_func(MoveOnly{fate}); }); });
  stream.synchronize();
  EXPECT_EQ(inside, errc::not_permitted);
  EXPECT_EQ(fate->alive, 0);
  EXPECT_EQ(fate->runs, 0);
}

TEST_F(HostFunctions, ACallableRunsAndIsDestroyedOnceAfterItsStreamIsDestroyed) {
  const auto fate = std::make_shared<Fate>();
  Gate gate;
  {
    Stream stream;
    gate.close_on(stream);
    stream.launch_host_func(MoveOnly{fate});
  }
  EXPECT_EQ(fate->runs, 0);
  EXPECT_EQ(fate->alive, 1);
  gate.open();
  EXPECT_EVENTUALLY(fate->alive == 0);
  EXPECT_EQ(fate->runs, 1);
}

struct Marker : std::runtime_error {
  explicit Marker(int number) : std::runtime_error{"marker"}, value{number} {}
  int value;
};

TEST_F(HostFunctions, AnExceptionIsDeliveredByTheNextSynchronize) {
  Log log;
  Stream stream;
  const void* thrown = nullptr;
  stream.launch_host_func([&thrown] {
    try {
      throw Marker{17};
    } catch (const Marker& marker) {
      thrown = &marker;
      throw;
    }
  });
  log.write(stream, "later");
  try {
    stream.synchronize();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Marker& marker) {
    EXPECT_EQ(marker.value, 17);
    EXPECT_EQ(&marker, thrown);
  }
  EXPECT_EQ(log.entries(), Entries{"later"});
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_RUNS(stream);
}

TEST_F(HostFunctions, AnExceptionStaysWithItsStream) {
  Log log;
  Stream failing, waiter, other;
  failing.launch_host_func([] { throw Marker{1}; });
  const Event event{failing};
  waiter.wait_event(event);
  other.wait_stream(failing);
  log.write(waiter, "waiter");
  EXPECT_COMPLETES(event);
  EXPECT_NO_THROW(event.synchronize());
  EXPECT_COMPLETES(waiter);
  EXPECT_NO_THROW(other.synchronize());
  EXPECT_EQ(log.size(), 1U);
  EXPECT_THROW(failing.synchronize(), Marker);
}

TEST_F(HostFunctions, AnUnobservedExceptionIsDroppedWithItsStream) {
  const auto token = std::make_shared<int>(0);
  {
    Stream stream;
    stream.launch_host_func([token] { throw Marker{1}; });
    stream.record_event().synchronize();
  }
  Stream next;  // may reuse the slot of the destroyed stream
  EXPECT_NO_THROW(next.synchronize());
  EXPECT_EVENTUALLY(token.use_count() == 1);
}

TEST_F(HostFunctions, AnExceptionAfterTheStreamIsDestroyedIsDropped) {
  Log log;
  Gate gate;
  {
    Stream stream;
    gate.close_on(stream);
    stream.launch_host_func([] { throw Marker{1}; });
    log.write(stream, "later");
  }
  Stream next;
  gate.open();
  EXPECT_EVENTUALLY(log.has("later"));
  EXPECT_NO_THROW(next.synchronize());
}

TEST_F(HostFunctions, TheFirstOfTwoExceptionsIsKept) {
  Stream stream;
  stream.launch_host_func([] { throw Marker{1}; });
  stream.launch_host_func([] { throw Marker{2}; });
  try {
    stream.synchronize();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Marker& marker) {
    EXPECT_EQ(marker.value, 1);
  }
  EXPECT_NO_THROW(stream.synchronize());
  stream.launch_host_func([] { throw Marker{3}; });
  EXPECT_THROW(stream.synchronize(), Marker);
}

TEST_F(HostFunctions, UsingStreamsInsideAHostFunctionIsRefused) {
  Stream own, other;
  Event event{other};
  TimedEvent timed{other};
  PinnedInts a(4), b(4);
  other.synchronize();
  int tried = 0;
  own.launch_host_func([&, here = device()] {
    for (const Stream* stream : {&own, &other}) {
      EXPECT_ERROR(not_permitted, stream->launch_host_func([] {}));
      EXPECT_ERROR(not_permitted, stream->on_complete([](const Outcome&) {}));
      EXPECT_ERROR(not_permitted, stream->synchronize());
      EXPECT_ERROR(not_permitted, stream->synchronize_for(patience));
      EXPECT_ERROR(not_permitted, stream->query());
      EXPECT_ERROR(not_permitted, stream->record_event(event));
      EXPECT_ERROR(not_permitted, stream->record_event(timed));
      EXPECT_ERROR(not_permitted, stream->record_event());
      EXPECT_ERROR(not_permitted, stream->wait_event(event));
      EXPECT_ERROR(not_permitted, stream->wait_stream(stream == &own ? other : own));
      EXPECT_ERROR(not_permitted, copy(*stream, b, a));
      EXPECT_ERROR(not_permitted, copy_2d(*stream, b.data(), 8, a.data(), 8, 4, 2));
      EXPECT_ERROR(not_permitted, fill(*stream, a, 1));
      EXPECT_ERROR(not_permitted, fill_2d(*stream, a.data(), 8, 0, 4, 2));
      EXPECT_ERROR(not_permitted, DeviceInts{4, *stream});
      ++tried;
    }
    EXPECT_ERROR(not_permitted, event.synchronize());
    EXPECT_ERROR(not_permitted, here.synchronize());
  });
  own.synchronize();
  EXPECT_EQ(tried, 2);
  EXPECT_RUNS(own);
  EXPECT_RUNS(other);
}

TEST_F(HostFunctions, AnUncaughtRefusalReachesSynchronize) {
  Stream stream;
  stream.launch_host_func([&stream] { stream.synchronize(); });
  EXPECT_ERROR(not_permitted, stream.synchronize());
  EXPECT_NO_THROW(stream.synchronize());
}

TEST_F(HostFunctions, AFunctionCanDestroyItsOwnStream) {
  Log log;
  auto stream = std::make_shared<Stream>();
  Gate gate{*stream};
  enqueue_drop(*stream, stream);
  log.write(*stream, "later");
  stream.reset();
  gate.open();
  EXPECT_EVENTUALLY(log.has("later"));
}

TEST_F(HostFunctions, AFunctionCanDestroyOtherObjects) {
  const auto before = owned_objects();
  {
    Stream stream;
    auto other = std::make_unique<Stream>();
    auto event = std::make_unique<Event>(*other);
    auto device_memory = std::make_unique<DeviceInts>(1000UL, *other);
    auto pinned_memory = std::make_unique<PinnedInts>(1000UL);
    stream.wait_stream(*other);
    stream.launch_host_func([a = std::move(pinned_memory), b = std::move(device_memory),
                             c = std::move(event), d = std::move(other)]() mutable {
      a.reset();
      b.reset();
      c.reset();
      d.reset();
    });
    EXPECT_NO_THROW(stream.synchronize());
    EXPECT_RUNS(stream);
  }
  device().synchronize();
  EXPECT_EVENTUALLY(owned_objects() == before) << owned_objects();
}

TEST_F(HostFunctions, FunctionsRunAndThrowOnTheDefaultStreams) {
  Log log;
  const Device here = device();
  for (const StreamRef stream : {here.default_stream(), StreamRef::per_thread_default(here)}) {
    log.write(stream, "done");
    stream.synchronize();
    stream.launch_host_func([] { throw Marker{1}; });
    EXPECT_THROW(stream.synchronize(), Marker);
    EXPECT_NO_THROW(stream.synchronize());
  }
  EXPECT_EQ(log.size(), 2U);
}

}  // namespace conformance::host_functions_cases
