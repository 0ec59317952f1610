// SPDX-License-Identifier: Apache-2.0
// What the program's functions find and leave behind on threads that are not the program's: host
// functions, functions of graphs, and functions of on_complete().
#include <runnel/graph.hpp>

#include "support.hpp"

namespace conformance::callbacks_cases {
using Callbacks = Conformance;
using CallbacksTwo = TwoDevices;

/// What a new thread has.
struct Settings {
  StreamRef stream = current_stream();
  Pageable policy = default_pageable();
};
void expect_those_of_a_new_thread(const Settings& found, const char* where) {
  EXPECT_EQ(found.stream, Device{0}.default_stream()) << where;
  EXPECT_EQ(found.policy, Pageable::stage) << where;
}

/// Runs the function as one of on_complete(), and waits until the next one is called on its thread.
template <class F>
void run_when_complete(const Stream& stream, F function) {
  stream.on_complete([function](const Outcome& outcome) {
    EXPECT_TRUE(outcome.is_ok());
    function();
  });
  stream.future().wait();
}

TEST_F(Callbacks, HostFunctionsMustNotSetTheCurrentStream) {
  const Stream own, other;
  StreamPool pool{device(), {.size = 2, .max = 2}};
  StreamGuard outside{other};
  const StreamContext context;
  std::optional<StreamRef> before, after;
  own.launch_host_func([&] {
    before = current_stream();
    const std::string words = "a host function must not use streams";
    EXPECT_SAYS(TEXT_OF(other.use()), words);
    EXPECT_SAYS(TEXT_OF(set_current_stream(other)), words);
    EXPECT_SAYS(TEXT_OF(StreamGuard{other}), words);
    EXPECT_ERROR(not_permitted, StreamGuard{other});
    EXPECT_SAYS(TEXT_OF(outside.reset(own)), words);
    EXPECT_SAYS(TEXT_OF(StreamContext::Guard{context}), words);
    EXPECT_SAYS(TEXT_OF(other.device().use()), words);
    EXPECT_SAYS(TEXT_OF(DeviceGuard{other.device()}), words);
    repeat(3, [&] { EXPECT_SAYS(TEXT_OF(pool.acquire()), words); });
    EXPECT_SAYS(TEXT_OF(pool.acquire_for(patience)), words);
    after = current_stream();
  });
  own.synchronize();
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(*before, *after);
  EXPECT_CURRENT(other);
  EXPECT_EQ(outside.original_stream(), default_stream());
  EXPECT_EQ(pool.leased(), 0U);
}

TEST_F(Callbacks, HostFunctionsFindTheirThreadAsNew) {
  const Stream stream, mine;
  std::vector<Settings> found;
  Graph graph = capture(stream, [&] {
    stream.launch_host_func([&] {
      found.emplace_back();
      set_default_pageable(Pageable::refuse);
    });
  });
  repeat(20, [&] {
    mine.use();
    auto guard = std::make_shared<std::optional<StreamGuard>>(std::in_place, stream);
    stream.launch_host_func([&found, guard] {
      found.emplace_back();
      set_default_pageable(Pageable::block);
      guard->reset();  // it restores `mine`, on this thread
    });
    graph.launch(stream);
    stream.synchronize();
    default_stream().use();
  });
  ASSERT_EQ(found.size(), 40U);
  for (const Settings& each : found) expect_those_of_a_new_thread(each, "in a host function");
}

TEST_F(Callbacks, CompletionFunctionsFindTheirThreadAsNew) {
  const Stream stream, other;
  repeat(3, [&] {
    run_when_complete(stream, [&] {
      expect_those_of_a_new_thread({}, "in a function of on_complete()");
      other.use();
      set_default_pageable(Pageable::refuse);
      EXPECT_CURRENT(other);
    });
  });
}

TEST_F(Callbacks, ACompletionFunctionLeavesNoCaptureOpen) {
  const Stream stream, captured;
  PinnedInts in(100), out(100);
  const auto kept = std::make_shared<int>(0);
  run_when_complete(stream, [&, kept] {
    begin_capture(captured);
    captured.launch_host_func([kept] { ++*kept; });
  });
  EXPECT_FALSE(captured.is_capturing());
  EXPECT_EQ(kept.use_count(), 1) << "the capture's function is destroyed";
  std::string text;
  run_when_complete(stream, [&] {
    text = TEXT_OF(end_capture(captured));
    overlap(in, out, {.chunk = 50}, copy_chunk);
  });
  EXPECT_SAYS(text, "no capture was begun on this stream");
  EXPECT_EQ(*kept, 0);
  EXPECT_RUNS(captured);
}

TEST_F(CallbacksTwo, CompletionFunctionsFindTheFirstDeviceCurrent) {
  const Stream stream{first}, there{second};
  repeat(3, [&] {
    run_when_complete(stream, [&] {
      EXPECT_CURRENT_DEVICE(first);
      EXPECT_EQ(current_stream(second), second.default_stream());
      there.use();
      EXPECT_CURRENT_DEVICE(second);
    });
  });
}

TEST_F(CallbacksTwo, HostFunctionsFindTheFirstDeviceCurrent) {
  const Stream stream{first}, there{second};
  const StreamRef standard = first.default_stream();
  int wrong = 0;
  repeat(20, [&] {
    there.use();
    auto guard = std::make_shared<std::optional<StreamGuard>>(std::in_place, stream);
    stream.launch_host_func([&, guard] {
      if (current_stream() != standard) ++wrong;
      EXPECT_ERROR(not_permitted, there.use());
      guard->reset();  // it restores the second device
    });
    stream.synchronize();
    first.use();
    first.default_stream().use();
    set_current_stream(second.default_stream());
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace conformance::callbacks_cases
