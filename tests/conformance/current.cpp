// SPDX-License-Identifier: Apache-2.0
// The current stream: setting it, its guards, and threads.

#include "support.hpp"

namespace conformance::current_cases {
using Current = Conformance;
using CurrentTwo = TwoDevices;

TEST_F(Current, TheDefaultStreamIsCurrentUntilOneIsSet) {
  on_thread([] {
    EXPECT_CURRENT(default_stream());
    for (const Device each : all_devices()) EXPECT_EQ(current_stream(each), each.default_stream());
  });
}

TEST_F(Current, UseSetsTheCurrentStream) {
  Stream stream;
  on_thread([&] {
    stream.use();
    EXPECT_CURRENT(stream);
    EXPECT_EQ(current_stream(stream.device()), stream);
    stream.device().default_stream().use();
    EXPECT_CURRENT(stream.device().default_stream());
  });
}

TEST_F(Current, FreeFunctionsUseTheCurrentStream) {
  Stream stream;
  const StreamGuard with{stream};
  DeviceInts a(16);
  PinnedInts b(16);
  EXPECT_EQ(a.stream(), stream);
  Gate gate{stream};
  fill(a, 7);
  copy(b, a);
  copy_bytes(b.data(), a.data(), sizeof(int));
  EXPECT_PENDING(stream);
  EXPECT_TRUE(held_by(gate, [&] {
    const StreamGuard here{stream};  // each thread has its own current stream
    synchronize();
  }));
  EXPECT_EQ(b[15], 7);
}

TEST_F(Current, TheCurrentStreamIsPerThread) {
  Stream mine, others;
  const StreamGuard with{mine};
  on_threads(4, [&](int) {
    EXPECT_NE(current_stream(), mine);
    others.use();
    EXPECT_CURRENT(others);
  });
  EXPECT_CURRENT(mine);
}

TEST_F(CurrentTwo, TheCurrentStreamIsPerDevice) {
  Stream a{first}, b{second};
  on_thread([&] {
    a.use();
    b.use();
    EXPECT_CURRENT_DEVICE(second);
    EXPECT_CURRENT(b);
    EXPECT_EQ(current_stream(first), a);
    first.use();
    EXPECT_CURRENT(a);
    EXPECT_EQ(current_stream(second), b);
  });
}

TEST_F(CurrentTwo, AGuardOnAnotherDeviceRestoresDeviceAndStream) {
  Stream a{first}, b{second}, c{second}, d{first};
  const StreamGuard outer{a};
  {
    const DeviceGuard other{second};
    b.use();
  }
  for (const bool is_reset : {false, true}) {
    {
      StreamGuard with{is_reset ? d : c};
      if (is_reset) with.reset(c);
      EXPECT_CURRENT_DEVICE(second);
      EXPECT_CURRENT(c);
      EXPECT_EQ(current_stream(first), a);
      EXPECT_EQ(with.original_stream(), a);  // the stream that the guard restores
      EXPECT_EQ(with.original_device(), first);
    }
    EXPECT_CURRENT_DEVICE(first);
    EXPECT_CURRENT(a);
    EXPECT_EQ(current_stream(second), b);
  }
  const DeviceGuard other{second};
  second.default_stream().use();
}

void nest(const Streams& streams, size_t depth) {
  if (depth == streams.size()) throw std::runtime_error{"innermost"};
  const StreamRef found = current_stream();
  try {
    const StreamGuard with{streams[depth]};
    EXPECT_CURRENT(streams[depth]);
    nest(streams, depth + 1);
  } catch (const std::runtime_error&) {
    EXPECT_CURRENT(found) << "at depth " << depth;
    throw;
  }
}

TEST_F(Current, NestedGuardsRestoreWhenAnExceptionIsThrown) {
  const Streams streams(5);
  EXPECT_THROW(nest(streams, 0), std::runtime_error);
}

TEST_F(Current, AGuardRestoresWhatItFoundAfterUseAndReset) {
  Stream a, b, c;
  std::optional gone{Stream{}};
  const StreamRef stale = *gone;
  gone.reset();
  const StreamGuard outer{a};
  {
    const StreamGuard with{b};
    c.use();
    EXPECT_CURRENT(c);
  }
  EXPECT_CURRENT(a);
  {
    StreamGuard with{b};
    EXPECT_ERROR(invalid_handle, with.reset(stale));
    EXPECT_CURRENT(b);
    with.reset(c);
    EXPECT_CURRENT(c);
    EXPECT_EQ(with.original_stream(), a);
    EXPECT_EQ(with.original_device(), device());
  }
  EXPECT_CURRENT(a);
}

TEST_F(Current, GuardsEndedOutOfOrderRestoreWhatTheyFound) {
  Stream a, b, c;
  const StreamGuard outermost{a};
  std::optional<StreamGuard> one{std::in_place, b}, two{std::in_place, c};
  one.reset();
  EXPECT_CURRENT(a);
  two.reset();
  EXPECT_CURRENT(b);
}

TEST_F(Current, ADestroyedCurrentStreamIsReplacedByTheDefault) {
  const StreamGuard with{default_stream()};
  {
    Stream stream;
    stream.use();
  }
  EXPECT_CURRENT(default_stream());
  const Stream new_one;  // may reuse the slot of the destroyed stream
  EXPECT_CURRENT(default_stream());
  EXPECT_RUNS(current_stream());
}

TEST_F(Current, AGuardRestoresTheDefaultIfThePreviousStreamIsDestroyed) {
  const StreamGuard with{default_stream()};
  std::optional found{Stream{}};
  found->use();
  {
    Stream stream;
    const StreamGuard inner{stream};
    found.reset();
    EXPECT_CURRENT(stream);
  }
  EXPECT_CURRENT(default_stream());
}

TEST_F(Current, AMovedStreamStaysCurrent) {
  Stream stream;
  const StreamGuard with{stream};
  const Stream moved{std::move(stream)};
  EXPECT_CURRENT(moved);
  EXPECT_RUNS(current_stream());
}

TEST_F(Current, AThreadMayEndInsideAGuard) {
  Stream mine, others;
  const StreamGuard with{mine};
  on_thread([&] {
    static thread_local std::optional<StreamGuard> guard;
    guard.emplace(others);
    EXPECT_CURRENT(others);
  });
  on_thread([&] { others.use(); });
  EXPECT_CURRENT(mine);
}

/// Runs `body(at_end)` on a thread. `body` assigns a function to `at_end`. The thread calls that
/// function while it ends, after the destructors of all thread_local objects that `body` made.
void on_ending_thread(const std::function<void(std::function<void()>& at_end)>& body) {
  struct AtEnd {
    std::function<void()> call;
    bool* has_ended;
    ~AtEnd() {
      call();
      *has_ended = true;
    }
  };
  bool has_ended = false;
  on_thread([&] {
    static thread_local AtEnd last;
    last.has_ended = &has_ended;
    body(last.call);
  });
  EXPECT_TRUE(has_ended);
}

TEST_F(Current, AGuardMayEndAfterTheLibrarysThreadLocals) {
  Stream stream;
  on_ending_thread([&](std::function<void()>& at_end) {
    auto guard = std::make_shared<std::optional<StreamGuard>>(std::in_place, stream);
    drop(StreamRef::per_thread_default(stream.device()));
    at_end = [&, guard] {
      EXPECT_CURRENT(stream);
      guard->reset();
      EXPECT_CURRENT(stream.device().default_stream());
    };
  });
}

TEST_F(CurrentTwo, AGuardOnAnotherDeviceMayEndAfterTheLibrarysThreadLocals) {
  Stream a{first}, b{second};
  on_ending_thread([&](std::function<void()>& at_end) {
    first.use();
    a.use();
    auto guard = std::make_shared<std::optional<StreamGuard>>(std::in_place, b);
    at_end = [&, guard] {
      EXPECT_CURRENT(b);
      guard->reset();
      EXPECT_CURRENT_DEVICE(first);
      EXPECT_EQ(current_stream(second), second.default_stream());
    };
  });
}

TEST_F(CurrentTwo, AThreadLocalGuardOnAnotherDeviceMayEndWithItsThread) {
  Stream b{second};
  repeat(3, [&] {
    on_thread([&] {
      static thread_local std::optional<StreamGuard> guard;
      first.use();
      guard.emplace(b);
      EXPECT_CURRENT_DEVICE(second);
    });
  });
  EXPECT_CURRENT_DEVICE(first);
}

TEST_F(Current, TheCurrentStreamMayBeSetWhileAThreadEnds) {
  Streams streams;
  for (const Device each : all_devices()) streams.emplace_back(each);
  on_ending_thread([&](std::function<void()>& at_end) {
    for (const Stream& stream : streams) stream.use();
    at_end = [&] {
      for (const Stream& stream : streams) {
        const StreamGuard with{stream};
        EXPECT_CURRENT(stream);
        for (const Device each : all_devices()) EXPECT_EQ(current_stream(each).device(), each);
      }
      streams.front().use();
      EXPECT_CURRENT(streams.front());
      EXPECT_CURRENT_DEVICE(streams.front().device());
    };
  });
}

TEST_F(Current, ThePerThreadDefaultStreamIsUsableWhileTheThreadEnds) {
  std::optional<StreamRef> seen;
  on_ending_thread([&, here = device()](std::function<void()>& at_end) {
    const StreamRef before = StreamRef::per_thread_default(here);
    at_end = [&seen, before, here] {
      EXPECT_FALSE(before.is_valid());
      seen = StreamRef::per_thread_default(here);
      EXPECT_TRUE(seen->is_valid());
      EXPECT_EQ(*seen, StreamRef::per_thread_default(here));
      EXPECT_EQ(seen->native(), StreamRef::per_thread_default(here).native());
    };
  });
  ASSERT_TRUE(seen);
  EXPECT_FALSE(seen->is_valid());
}

TEST_F(Current, HostFunctionsLaunchedWhileThreadsEndLeakNoMemory) {
  Stream stream;
  struct Use {
    const Stream* stream;
    bool launches;
    void operator()() const {
      if (launches)
        enqueue_nothing(*stream);
      else
        drop(stream->query());
    }
  };
  struct AtEnd {
    Use use;
    ~AtEnd() { use(); }
  };
  const auto growth = [&](int threads, bool launches) {
    const auto heap = heap_in_use();
    for (int i = 1; i <= threads; ++i) {
      std::thread{[&] {
        static thread_local const AtEnd last{{&stream, launches}};
        last.use();
      }}.join();
      // bounds the queue: the library keeps the memory of its longest one
      if (i % 100 == 0) stream.synchronize();
    }
    return static_cast<std::ptrdiff_t>(heap_in_use() - heap);
  };
  drop(growth(500, true));
  // what the runtime keeps for each thread, without the library
  const auto of_the_runtime = growth(6000, false);
  EXPECT_LE(growth(6000, true), of_the_runtime + static_cast<std::ptrdiff_t>(heap_slack));
}

TEST_F(CurrentTwo, AContextCarriesTheCurrentStreamOfEveryDevice) {
  Stream a{first}, b{second};
  on_thread([&] {
    a.use();
    b.use();
    const StreamContext here;
    on_thread([&] {
      {
        const StreamContext::Guard carried{here};
        EXPECT_CURRENT_DEVICE(second);
        EXPECT_CURRENT(b);
        EXPECT_EQ(current_stream(first), a);
      }
      EXPECT_CURRENT_DEVICE(first);
      EXPECT_CURRENT(first.default_stream());
      EXPECT_EQ(current_stream(second), second.default_stream());
    });
  });
}

TEST_F(Current, AContextWithAThreadsDefaultStreamIsForThatThread) {
  on_thread([&] {
    thread_default().use();
    const StreamContext here;
    {
      const StreamContext::Guard again{here};
    }
    on_thread([&] {
      const StreamRef found = current_stream();
      EXPECT_ERROR(invalid_argument, StreamContext::Guard{here});
      EXPECT_CURRENT(found);
    });
  });
}

TEST_F(Current, SettingAndReadingAllocatesNothing) {
  Stream a, b;
  const StreamGuard with{a};
  const auto set_and_get = [&](const Stream& stream) {
    stream.use();
    return current_stream() == stream;
  };
  bool right = set_and_get(b);
  const auto before = allocations();
  repeat(500'000, [&] { right = set_and_get(a) && set_and_get(b) && right; });
  for (int i : range(1000)) const StreamGuard inner{i % 2 == 0 ? a : b};
  EXPECT_EQ(allocations(), before);
  EXPECT_TRUE(right);
}

TEST_F(Current, IsSetWithoutUse) {
  const StreamRef before = current_stream();
  {
    Stream stream;
    set_current_stream(stream);
    EXPECT_CURRENT(stream);
    EXPECT_EQ(current_stream(stream.device()), stream);
  }
  EXPECT_CURRENT(before) << "a stream that was destroyed is not current";
  Stream gone, taken{std::move(gone)};
  EXPECT_ERROR(invalid_handle, set_current_stream(gone));  // NOLINT: this is what is tested
}

TEST_F(CurrentTwo, ADevicesStreamIsSetWithoutSwitchingDevice) {
  const StreamRef before = current_stream();
  Stream there{second};
  set_current_stream(there);
  EXPECT_CURRENT_DEVICE(first);
  EXPECT_CURRENT(before);
  EXPECT_EQ(current_stream(second), there);
  {
    const DeviceGuard on{second};
    EXPECT_CURRENT(there);
  }
  set_current_stream(second.default_stream());
  EXPECT_EQ(current_stream(second), second.default_stream());
}

}  // namespace conformance::current_cases
