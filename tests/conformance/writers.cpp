// SPDX-License-Identifier: Apache-2.0
// Copies whose source unfinished work still writes. A copy may read a pageable source early only if
// no such work is left, whoever has enqueued it and whatever else is ahead in the stream.

#include <runnel/hooks.hpp>

#include "support.hpp"

namespace conformance::writers_cases {
using Writers = Conformance;

// One for each way: short, short in a row, staged.
constexpr size_t sizes[] = {4 * kib, 200 * kib, 600 * kib};

/// The function is seen to run before the copy begins, and writes the source after that. `launch`
/// enqueues it from another thread, whose call may not have returned.
template <class Launch>
void expect_new_bytes(StreamRef stream, int rounds, Launch launch) {
  DeviceBytes there{sizes[2], stream};
  Bytes source(sizes[2]), back(sizes[2]);
  stream.synchronize();
  int stale = 0;
  for (int round = 1; round <= rounds; ++round) {
    const size_t bytes = sizes[static_cast<size_t>(round) % std::size(sizes)];
    const auto fresh = static_cast<unsigned char>(round);
    std::atomic_int stage{0};
    std::thread other{[&] {
      launch(stream, [&, fresh] {
        stage = 1;
        while (stage != 2) std::this_thread::yield();
        std::fill_n(source.begin(), bytes, fresh);
      });
      stream.synchronize();
    }};
    while (stage != 1) std::this_thread::yield();
    copy_bytes(stream, there.data(), source.data(), bytes);
    stage = 2;
    copy_bytes(stream, back.data(), there.data(), bytes);
    stream.synchronize();
    other.join();
    stale += std::count(back.begin(), back.begin() + static_cast<std::ptrdiff_t>(bytes), fresh) !=
             static_cast<std::ptrdiff_t>(bytes);
  }
  EXPECT_EQ(stale, 0);
}

TEST_F(Writers, AFunctionOfAnotherThreadThatIsSeenToRunComesFirst) {
  const Stream stream;
  expect_new_bytes(stream, long_tests() ? 100'000 : 300,
                   [](StreamRef on, auto write) { on.launch_host_func(write); });
}

TEST_F(Writers, AGraphOfAnotherThreadThatIsSeenToRunComesFirst) {
  const Stream stream;
  std::function<void()> write;
  const Graph graph = capture(stream, [&] { stream.launch_host_func([&write] { write(); }); });
  expect_new_bytes(stream, long_tests() ? 100'000 : 300, [&](StreamRef on, auto function) {
    write = function;
    graph.launch(on);
  });
}

/// Work of another stream, behind a gate, writes the source of a copy that waits for it.
template <class Write>
void expect_order(Write write) {
  const Stream writer, reader;
  DeviceBytes there{sizes[2], reader};
  for (const size_t bytes : sizes) {
    Bytes source(bytes, 1), back(bytes);
    reader.synchronize();
    Gate gate{writer, {.writes_host_memory = false}};
    write(StreamRef{writer}, source);
    reader.wait_stream(writer);
    copy_bytes(reader, there.data(), source.data(), bytes);
    gate.open();
    copy_bytes(reader, back.data(), there.data(), bytes);
    reader.synchronize();
    EXPECT_ALL(back, 2) << bytes;
  }
}

TEST_F(Writers, AStagedCopyComesFirst) {
  const Stream filler;
  DeviceBytes twos{sizes[2], filler};
  fill(filler, twos, 2);
  filler.synchronize();
  expect_order([&](StreamRef stream, Bytes& source) {
    copy_bytes(stream, source.data(), twos.data(), source.size());
  });
  expect_order([&](StreamRef stream, Bytes& source) {  // as one list
    std::vector<CopyOperation> parts;
    for (size_t at = 0; at < source.size(); at += 512)
      parts.push_back({source.data() + at, twos.data() + at, 512});
    copy_batch(stream, parts);
  });
}

TEST_F(Writers, ACopyBetweenHostMemoriesComesFirst) {
  const Bytes twos(sizes[2], 2);
  expect_order([&](StreamRef stream, Bytes& source) {
    copy_bytes(stream, source.data(), twos.data(), source.size());
  });
}

TEST_F(Writers, AFillComesFirst) {
  expect_order([&](StreamRef stream, Bytes& source) {
    fill_bytes(stream, source.data(), 2, source.size());
  });
}

TEST_F(Writers, WhoeverOpensAnAwaitedValueComesFirst) {
  SKIP_IF(!device().has_stream_memory_operations(), "the device has no stream values");
  const Stream stream;
  PinnedBuffer<uint32_t> value(1);
  DeviceBytes there{sizes[2], stream};
  uint32_t number = value[0] = 0;
  for (const size_t bytes : sizes) {
    Bytes source(bytes, 1), back(bytes);
    stream.synchronize();
    stream.wait_value(value.data(), ++number);
    copy_bytes(stream, there.data(), source.data(), bytes);
    std::ranges::fill(source, 2);
    std::atomic_ref{value[0]}.store(number, std::memory_order_release);
    copy_bytes(stream, back.data(), there.data(), bytes);
    stream.synchronize();
    EXPECT_ALL(back, 2) << bytes;
  }
}

/// The result of copying behind a host function. What is inlined may be overwritten at once.
CopyResult copied_behind(StreamRef stream, size_t bytes, HostFunctionOptions of_function,
                         const CopyOptions& options = {}) {
  DeviceBytes there{bytes, stream};
  Bytes source(bytes, 1), back(bytes);
  stream.synchronize();
  Gate gate{stream, of_function};
  const CopyResult done = copy_bytes(stream, there.data(), source.data(), bytes, options);
  if (done == CopyResult::inlined) std::ranges::fill(source, 2);
  gate.open();
  copy_bytes(stream, back.data(), there.data(), bytes);
  stream.synchronize();
  EXPECT_ALL(back, 1);
  return done;
}

TEST_F(Writers, OnlyAFunctionThatMayWriteDelaysTheReading) {
  SKIP_IF(streams_are_threads(), "the stream reads pageable memory itself");
  const Stream stream;
  const CopyResult in_order = copied_behind(stream, 4 * kib, {}),
                   early = copied_behind(stream, 4 * kib, {.writes_host_memory = false}),
                   not_early = copied_behind(stream, 4 * kib, {.writes_host_memory = false},
                                             {.source = SourceAccess::stream_order});
  EXPECT_EQ(in_order, CopyResult::staged);
  EXPECT_EQ(not_early, CopyResult::staged);
  // Where other code could have enqueued what writes pageable memory, the library cannot know.
  EXPECT_TRUE(early == CopyResult::inlined || early == CopyResult::staged);
}

TEST_F(Writers, AWaitThatIsPassedDelaysNoReading) {
  SKIP_IF(!device().has_stream_memory_operations(), "the device has no stream values");
  const Stream stream, other;
  PinnedBuffer<uint32_t> value(1);
  value[0] = 1;
  const auto copied = [&] { return copied_behind(stream, 4 * kib, {.writes_host_memory = false}); };
  const CopyResult before = copied();
  repeat(3, [&] { other.wait_value(value.data(), 1); });
  other.synchronize();
  EXPECT_EVENTUALLY(copied() == before);
}

TEST_F(Writers, AFunctionOfAGraphThatWritesNothingDelaysNoReading) {
  SKIP_IF(streams_are_threads(), "the stream reads pageable memory itself");
  SKIP_IF(!host_functions_overlap(), "two gates are closed at once");
  const Stream stream, other;
  DeviceBytes there{sizes[0], other};
  const Bytes source(sizes[0], 1);
  other.synchronize();
  const auto is_delayed = [&](bool writes, auto make_graph) {
    Gate gate;
    const Graph graph = make_graph([&] { gate.close_on(stream, {.writes_host_memory = writes}); });
    graph.launch(stream);
    Gate busy{other, {.writes_host_memory = false}};
    const bool is_staged =
        copy_bytes(other, there.data(), source.data(), sizes[0]) == CopyResult::staged;
    gate.open_and_wait(stream);
    busy.open_and_wait(other);
    return is_staged;
  };
  const auto as_captured = [&](auto body) { return capture(stream, body); };
  const auto as_child = [&](auto body) {
    const Graph child = capture(stream, body);
    return capture(stream, [&] { child.launch(stream); });
  };
  const auto as_update = [&](auto body) {
    Graph updated = capture(stream, [&] { enqueue_nothing(stream); });
    updated.update(stream, body);
    return updated;
  };
  EXPECT_TRUE(is_delayed(true, as_captured));
  EXPECT_TRUE(is_delayed(true, as_child));
  EXPECT_TRUE(is_delayed(true, as_update));
  // As without a graph: an earlier test may have left a writer that the library cannot see end.
  const bool is_ever =
      copied_behind(stream, sizes[0], {.writes_host_memory = false}) == CopyResult::staged;
  EXPECT_EQ(is_delayed(false, as_captured), is_ever);
  EXPECT_EQ(is_delayed(false, as_child), is_ever);
  EXPECT_EQ(is_delayed(false, as_update), is_ever);
}

TEST_F(Writers, ARefusedFunctionEndsNoOther) {
  SKIP_IF(streams_are_threads(), "the stream reads pageable memory itself");
  const Stream stream;
  const StreamRef ended = StreamRef{Stream{}};
  repeat(3, [&] { EXPECT_ERROR(invalid_handle, ended.launch_host_func([] {})); });
  EXPECT_EQ(copied_behind(stream, 4 * kib, {}), CopyResult::staged);
}

TEST_F(Writers, NeitherTheHandleNorAHookChangesTheWay) {
  const Stream own, given;
  EXPECT_NE(given.native(), nullptr);
  for (const size_t bytes : sizes)
    for (const bool writes : {false, true}) {
      const CopyResult expected = copied_behind(own, bytes, {.writes_host_memory = writes});
      EXPECT_EQ(copied_behind(given, bytes, {.writes_host_memory = writes}), expected) << bytes;
      const Hook before =
          set_hook([](const HookEvent& event) noexcept { drop(event.native_stream); });
      EXPECT_EQ(copied_behind(own, bytes, {.writes_host_memory = writes}), expected) << bytes;
      set_hook(before);
    }
}

}  // namespace conformance::writers_cases
