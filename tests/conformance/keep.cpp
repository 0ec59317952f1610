// SPDX-License-Identifier: Apache-2.0
// Objects that a stream keeps: keep(), and copies from containers that are moved.

#include "support.hpp"

namespace conformance::keep_cases {
using Keep = Conformance;

constexpr size_t much = 3 * mib;

/// Tells where and when it ends.
struct Watched {
  struct Seen {
    std::atomic_bool ended{false};
    std::atomic<std::thread::id> on{};
    std::function<void()> also{};
  };
  explicit Watched(Seen& into) noexcept : seen{&into} {}
  Watched(Watched&& other) noexcept : seen{std::exchange(other.seen, nullptr)} {}
  ~Watched() {
    if (seen == nullptr) return;
    if (seen->also) seen->also();
    seen->on = std::this_thread::get_id();
    seen->ended = true;
  }
  Seen* seen;
};

/// Waits until nothing is kept, as the test's own check of live objects wants.
void wait_for_all() { ASSERT_TRUE(quiesce_for(patience)); }

TEST_F(Keep, AnObjectEndsOnceTheWorkIsComplete) {
  const Stream stream;
  Watched::Seen seen;
  {
    Gate gate{stream};
    keep(stream, Watched{seen});
    ASSERT_TRUE(gate.reached());
    EXPECT_FALSE(seen.ended);
  }
  EXPECT_EVENTUALLY(seen.ended.load());
  EXPECT_NE(seen.on.load(), std::this_thread::get_id());
  wait_for_all();
}

TEST_F(Keep, ObjectsEndInOrderOnTheThreadOfCompletions) {
  const Stream stream;
  Watched::Seen seen;
  std::atomic<std::thread::id> on{};
  std::atomic_bool ended_before{false};
  keep(stream, Watched{seen});
  stream.on_complete([&](const Outcome&) {
    ended_before = seen.ended.load();
    on = std::this_thread::get_id();
  });
  wait_for_all();
  EXPECT_TRUE(ended_before);
  EXPECT_EQ(seen.on.load(), on.load());
}

TEST_F(Keep, ADestructorMayUseStreams) {
  const Stream stream;
  Watched::Seen seen;
  std::atomic_bool worked{false};
  seen.also = [&] {
    const Stream other;
    other.synchronize();
    worked = other.query();
  };
  keep(stream, Watched{seen});
  wait_for_all();
  EXPECT_TRUE(worked);
}

TEST_F(Keep, VectorsAndPointersAreKept) {
  const Stream stream;
  const auto shared = std::make_shared<int>(1);
  keep(stream, Ints(100));
  keep(stream, std::make_unique<int>(1));
  keep(stream, std::shared_ptr{shared});
  keep(stream, PinnedInts{100});
  keep(stream, DeviceInts{100, stream});
  keep(stream, std::string(100, 'x'));
  wait_for_all();
  EXPECT_EQ(shared.use_count(), 1);
}

TEST_F(Keep, AnObjectMayOutliveItsStream) {
  Watched::Seen seen;
  Gate gate;
  {
    const Stream stream;
    gate.close_on(stream);
    keep(stream, Watched{seen});
  }
  EXPECT_FALSE(seen.ended);
  gate.open();
  wait_for_all();
  EXPECT_TRUE(seen.ended);
}

TEST_F(Keep, AfterARefusalTheObjectIsTheCallers) {
  Stream stream;
  StreamRef ended = stream;
  stream = Stream{};
  Watched::Seen seen;
  {
    Watched object{seen};
    Ints values(10, 1);
    EXPECT_ERROR(invalid_handle, keep(ended, std::move(object)));
    EXPECT_ERROR(invalid_handle, keep(ended, std::move(values)));
    EXPECT_EQ(object.seen, &seen);
    EXPECT_EQ(values.size(), 10U);
    EXPECT_FALSE(seen.ended);
  }
  EXPECT_TRUE(seen.ended);
}

TEST_F(Keep, WithoutMemoryTheObjectIsTheCallers) {
  SKIP_IF(!streams_are_threads(), "the vendor's runtime may need the memory itself");
  const Stream stream;
  DeviceInts there{10, stream};
  copy(stream, there, Ints(10));  // starts what there is to start
  wait_for_all();
  bool failed = true;
  for (long number = 1; failed && number < 50; ++number) {
    Ints values(10, 7);
    const int* const at = values.data();
    bool is_thrown = false;
    {
      const AllocationFault fault{number};
      try {
        copy(stream, there, std::move(values));
      } catch (const std::bad_alloc&) {
        is_thrown = true;
      }
      failed = fault.happened();
    }
    EXPECT_EQ(values.data(), is_thrown ? at : nullptr) << "allocation " << number;
    EXPECT_EQ(values.size(), is_thrown ? 10U : 0U) << "allocation " << number;
    if (!is_thrown) {
      EXPECT_EQ(get(stream, there, 9), 7) << "allocation " << number;
    }
    fill(stream, there, 0);
  }
  EXPECT_FALSE(failed);
  wait_for_all();
}

TEST_F(Keep, AGraphKeepsWhatIsCaptured) {
  const Stream stream;
  Watched::Seen seen;
  PinnedInts source{100};
  DeviceInts there{100, stream};
  std::ranges::fill(source, 4);
  const int* const at = source.data();
  Gate gate;
  {
    const Graph graph = capture(stream, [&] {
      keep(stream, Watched{seen});
      copy(stream, there, std::move(source));
    });
    EXPECT_TRUE(source.empty());
    EXPECT_NE(at, nullptr);
    repeat(3, [&] {
      fill(stream, there, 0);
      graph.launch(stream);
      EXPECT_EQ(get(stream, there, 99), 4);
    });
    gate.close_on(stream);
    graph.launch(stream);
  }
  EXPECT_FALSE(seen.ended) << "the last launch has not run";
  gate.open();
  EXPECT_EVENTUALLY(seen.ended.load());
  stream.synchronize();
  wait_for_all();
}

TEST_F(Keep, AnAbandonedCaptureKeepsNothing) {
  const Stream stream;
  Watched::Seen seen;
  struct Mine {};
  EXPECT_THROW(drop(capture(stream,
                            [&] {
                              keep(stream, Watched{seen});
                              throw Mine{};
                            })),
               Mine);
  EXPECT_TRUE(seen.ended);
}

TEST_F(Keep, MovedVectorsAreCopiedBehindAGate) {
  const Stream stream;
  for (const size_t size : {1UL, 5000UL, much}) {
    DeviceInts there{size, stream};
    Ints source(size), back(size);
    count_from(source, 1);
    const Ints expected = source;
    Gate gate{stream};
    copy(stream, there, std::move(source));
    EXPECT_TRUE(source.empty());
    copy(stream, back, there);
    Ints other(size, -1);  // would get the memory if it were free
    gate.open_and_wait(stream);
    EXPECT_TRUE(back == expected) << size;
    EXPECT_EQ(other[0], -1);
    wait_for_all();
  }
}

TEST_F(Keep, TemporariesAndStringsAreCopied) {
  const Stream stream;
  DeviceBuffer<char> there{5, stream};
  std::string back(5, ' ');
  Gate gate{stream};
  copy(stream, there, std::string{"short"}, {.source = SourceAccess::any_time});
  copy(stream, back, std::move(there));
  gate.open_and_wait(stream);
  EXPECT_EQ(back, "short");
  {
    const StreamGuard with{stream};
    copy(back, std::string{"other"});
  }
  stream.synchronize();
  EXPECT_EQ(back, "other");
  wait_for_all();
}

/// What ends on the thread of completions does not wait there for itself.
TEST_F(Keep, TheEndsOfOwnersHoldUpNoFuture) {
  const Stream stream, other;
  Standstills machine;
  const auto begin = Clock::now();
  static std::array<Ints, 4> memory;  // It outlives the registrations.
  for (Ints& each : memory) {
    each.resize(100'000);
    keep(stream, HostRegistration{each});
    keep(stream, SharedBuffer<int>{1000});
    stream.on_complete([](const Outcome&) {
      {
        const PinnedBuffer<char> block{mib};
      }
      repeat(10, PinnedPool::trim);
    });
  }
  other.future().wait();
  wait_for_all();
  const auto took = Clock::now() - begin;
  EXPECT_LT(took - machine.longest(), 2s);
}

TEST_F(Keep, ARefusedCopyLeavesTheVectorAlone) {
  const Stream stream;
  DeviceInts there{9, stream};
  Ints source(10, 3);
  EXPECT_ERROR(invalid_argument, copy(stream, there, std::move(source)));
  EXPECT_EQ(source, Ints(10, 3));
  stream.synchronize();
}

}  // namespace conformance::keep_cases
