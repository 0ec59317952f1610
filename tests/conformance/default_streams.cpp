// SPDX-License-Identifier: Apache-2.0
// The null stream and the per-thread default streams.

#include "support.hpp"

namespace conformance::default_streams_cases {
using DefaultStreams = Conformance;
using DefaultStreamsTwo = TwoDevices;

TEST_F(DefaultStreams, ADefaultStreamIsThePlatformsNullStream) {
  const StreamRef stream = default_stream();
  Stream other;
  EXPECT_TRUE(stream.is_valid());
  EXPECT_TRUE(stream.is_blocking());
  EXPECT_EQ(stream, default_stream());
  EXPECT_EQ(stream.native(), default_stream().native());
  EXPECT_NE(stream.native(), other.native());
  EXPECT_NE(stream.native(), thread_default().native());
  EXPECT_EQ(stream.device(), device());
  EXPECT_RUNS(stream);
}

/// A copy on a stream that orders with the default stream. Its source is written by pending work of
/// the default stream.
class CopyBehindTheDefaultStream : public Conformance, public testing::WithParamInterface<size_t> {
 protected:
  void expect_new_bytes(StreamRef stream) {
    const size_t size = GetParam();
    const auto fresh = pattern(size, 2);
    Bytes between = pattern(size, 1);
    DeviceBytes first{size, stream}, second{size, stream};
    copy(stream, first, fresh);
    fill_bytes(stream, second.data(), 0, size);
    stream.synchronize();
    Gate gate{default_stream()};
    copy(default_stream(), between, std::as_const(first));
    copy(stream, second, std::as_const(between));
    gate.open();
    EXPECT_TRUE(read_back(stream, second) == fresh);
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, CopyBehindTheDefaultStream,
                         testing::Values(1000, 100'000, 4 << 20));

TEST_P(CopyBehindTheDefaultStream, OnABlockingStreamReadsWhatTheDefaultStreamWrote) {
  expect_new_bytes(Stream{{.blocking = true}});
}

TEST_P(CopyBehindTheDefaultStream, OnAPerThreadStreamReadsWhatTheDefaultStreamWrote) {
  expect_new_bytes(thread_default());
}

TEST_F(DefaultStreams, PerThreadDefaultStreamsAreIndependent) {
  const StreamRef mine = thread_default();
  EXPECT_EQ(mine, thread_default());
  EXPECT_NE(mine, default_stream());
  Gate gate{mine};
  on_thread([&, here = device()] {
    const StreamRef other = StreamRef::per_thread_default(here);
    EXPECT_NE(other, mine);
    EXPECT_RUNS(other);
  });
  EXPECT_BEHIND(gate, mine);
}

/// A host function on one stream writes the pinned source of a copy on another stream. Only the
/// rule of the default stream orders the copy after the function.
class SmallCopyBehindTheDefaultStream : public Conformance,
                                        public testing::WithParamInterface<size_t> {
 protected:
  void expect_new_bytes(StreamRef writer, StreamRef copier, bool batch) {
    const size_t size = GetParam();
    PinnedBytes source{size};
    DeviceBytes there{size, copier};
    std::ranges::fill(source, 1);
    copier.synchronize();
    Gate gate{writer};
    writer.launch_host_func([&] { std::ranges::fill(source, 2); });
    if (batch)
      copy_batch(copier, std::array{copy_operation(there, source)});
    else
      copy(copier, there, source);
    gate.open();
    EXPECT_ALL(read_back(copier, there), 2);
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, SmallCopyBehindTheDefaultStream,
                         testing::Values(16, 1000, 4096, 20'000, 100'000));

TEST_P(SmallCopyBehindTheDefaultStream, ReadsItsPinnedSourceInOrder) {
  const Stream blocking{{.blocking = true}};
  const StreamRef legacy = default_stream(), own = thread_default();
  for (const bool batch : {false, true}) {
    expect_new_bytes(legacy, blocking, batch);
    expect_new_bytes(legacy, own, batch);
    expect_new_bytes(blocking, legacy, batch);
    expect_new_bytes(own, legacy, batch);
  }
}

/// A runtime runs host functions one at a time, so a copy with a host function of its own would
/// wait for the functions of other streams.
TEST_F(DefaultStreams, ASmallPinnedCopyRunsBesideAnotherStream) {
  SKIP_IF(!device().has_stream_memory_operations(), "needs wait_value()");
  constexpr size_t count = 400, size = 1000;
  const StreamRef legacy = default_stream();
  const Stream other{{.blocking = false}};
  PinnedBytes source{count * size};
  DeviceBytes there{count * size, legacy};
  PinnedBuffer<uint32_t> number{1};
  std::ranges::fill(source, 3);
  std::vector<CopyOperation> operations;
  for (size_t i = 1; i < count; ++i)
    operations.push_back({there.data() + i * size, source.data() + i * size, size, {}, {}});
  number[0] = 0;
  legacy.synchronize();
  Gate gate{other};
  EXPECT_TRUE(gate.reached());
  legacy.wait_value(number.data(), 1);
  copy_bytes(legacy, there.data(), source.data(), size);
  copy_batch(legacy, operations);
  std::atomic_ref{number[0]} = 1;
  legacy.synchronize();
  gate.open();
  EXPECT_ALL(read_back(legacy, there), 3);
}

TEST_F(DefaultStreams, AnotherThreadsDefaultStreamIsRefused) {
  const StreamRef theirs = thread_default();
  DeviceBytes there{100, theirs};
  Bytes host(100);
  Event marked = theirs.record_event();
  on_thread([&] {
    Stream mine;
    Event event;
    const auto refused = [](auto operation) {
      return code_of([&] {
               operation();
               return 0;
             }) == errc::invalid_argument;
    };
    EXPECT_TRUE(refused([&] { mine.wait_stream(theirs); }));
    EXPECT_TRUE(refused([&] { theirs.wait_stream(mine); }));
    EXPECT_TRUE(refused([&] { theirs.wait_event(marked); }));
    EXPECT_TRUE(refused([&] { event.record(theirs); }));
    EXPECT_TRUE(refused([&] { theirs.synchronize(); }));
    EXPECT_TRUE(refused([&] { drop(theirs.query()); }));
    EXPECT_TRUE(refused([&] { theirs.launch_host_func([] {}); }));
    EXPECT_TRUE(refused([&] { copy(theirs, there, host); }));
    EXPECT_TRUE(refused([&] { fill(theirs, there, 1); }));
    EXPECT_TRUE(refused([&] { DeviceInts(10, theirs); }));
    const StreamRef before = current_stream();
    EXPECT_TRUE(refused([&] { theirs.use(); }));
    EXPECT_TRUE(refused([&] { set_current_stream(theirs); }));
    EXPECT_TRUE(refused([&] { const StreamGuard with{theirs}; }));
    StreamGuard guard{mine};
    EXPECT_TRUE(refused([&] { guard.reset(theirs); }));
    EXPECT_CURRENT(mine);
    EXPECT_EQ(guard.original_stream(), before);
    mine.wait_event(marked);
    mine.synchronize();
  });
  theirs.synchronize();
}

TEST_F(DefaultStreams, PerThreadWorkOutlivesItsThreadAndTheViewDoesNot) {
  Log log;
  std::optional<StreamRef> view;
  Gate gate;
  on_thread([&, here = device()] {
    view = StreamRef::per_thread_default(here);
    EXPECT_RUNS(*view);
    gate.close_on(*view);
    log.write(*view, "done");
  });
  EXPECT_FALSE(view->is_valid());
  EXPECT_ERROR(invalid_handle, view->synchronize());
  EXPECT_EQ(log.size(), 0U);
  gate.open();
  EXPECT_EVENTUALLY(log.has("done"));
}

TEST_F(DefaultStreams, AWrapperDestroysNoDefaultStream) {
  const StreamRef streams[] = {default_stream(), thread_default()};
  for (const StreamRef stream : streams)
    for (const Ownership ownership : {Ownership::borrow, Ownership::take}) {
      const auto code = code_of(
          [&] { Stream wrapper = Stream::from_native(stream.native(), device(), ownership); });
      EXPECT_TRUE(code == nothing_thrown || code == errc::invalid_argument ||
                  code == errc::not_permitted)
          << code;
      EXPECT_TRUE(stream.is_valid());
      EXPECT_RUNS(stream);
    }
}

TEST_F(DefaultStreams, BlockingStreamsAreOrdered) {
  const StreamRef null = default_stream();
  Log log;
  Stream blocking{{.blocking = true}};
  Gate gate{blocking};
  log.write(blocking, "before");
  log.write(null, "default");
  log.write(blocking, "after");
  EXPECT_PENDING(null);
  gate.open_and_wait(blocking);
  EXPECT_LOG(log, "before", "default", "after");
}

TEST_F(DefaultStreams, NonBlockingStreamsAreNotOrdered) {
  const StreamRef null = default_stream();
  Stream independent, other;
  {
    Gate gate{independent};
    EXPECT_RUNS(null);
    EXPECT_RUNS(other);
    EXPECT_PENDING(independent);
  }
  Gate gate{null};
  EXPECT_RUNS(independent);
  EXPECT_BEHIND(gate, null);
}

TEST_F(DefaultStreams, ADefaultStreamWaitsForAllBlockingStreams) {
  const StreamRef null = default_stream();
  Log log;
  Streams streams;
  repeat(4, [&] { streams.emplace_back(StreamOptions{.blocking = true}); });
  Gate gate;
  for (const Stream& stream : streams) {
    gate.close_on(stream);
    log.write(stream, "blocking");
  }
  log.write(null, "default");
  gate.open_and_wait(null);
  EXPECT_LOG(log, "blocking", "blocking", "blocking", "blocking", "default");
}

TEST_F(DefaultStreamsTwo, EachDeviceHasItsOwn) {
  EXPECT_EQ(second.default_stream(), second.default_stream());
  EXPECT_NE(first.default_stream(), second.default_stream());
  EXPECT_EQ(second.default_stream().device(), second);
  EXPECT_NE(StreamRef::per_thread_default(first), StreamRef::per_thread_default(second));
  const StreamRef held = second.default_stream();
  Gate gate{held};
  EXPECT_RUNS(first.default_stream());
  EXPECT_BEHIND(gate, held);
}

}  // namespace conformance::default_streams_cases
