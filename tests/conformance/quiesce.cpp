// SPDX-License-Identifier: Apache-2.0
// Waiting until no function of the caller's is enqueued or runs.
#include "support.hpp"

namespace conformance::quiesce_cases {
using Quiesce = Conformance;

TEST_F(Quiesce, WithoutFunctionsItReturnsAtOnce) {
  EXPECT_TRUE(quiesce_for(0s));
  EXPECT_TRUE(quiesce_until(std::chrono::system_clock::now()));
}

TEST_F(Quiesce, WaitsForHostFunctionsThatRunOrAreEnqueued) {
  const Stream stream;
  Gate gate{stream};
  std::atomic_bool ended{false};
  stream.launch_host_func([&] { ended = true; });
  ASSERT_TRUE(gate.reached());
  EXPECT_FALSE(quiesce_for(1ms));
  EXPECT_HELD(gate, EXPECT_TRUE(quiesce_for(patience)));
  EXPECT_TRUE(ended);
}

TEST_F(Quiesce, WaitsForCompletionFunctions) {
  const Stream stream;
  Gate gate;
  std::atomic_bool inside{false}, ended{false};
  stream.on_complete([&](const Outcome&) {
    inside = true;
    EXPECT_EVENTUALLY(gate.is_open());
    // what a function submits counts too
    stream.on_complete([&](const Outcome&) { ended = true; });
  });
  EXPECT_EVENTUALLY(inside.load());
  EXPECT_FALSE(quiesce_for(0s));
  EXPECT_HELD(gate, EXPECT_TRUE(quiesce_for(patience)));
  EXPECT_TRUE(ended);
}

TEST_F(Quiesce, AGraphsFunctionsCountWhileTheyAreDue) {
  const Stream stream;
  std::atomic_int calls{0};
  const Graph graph = capture(stream, [&] {
    stream.launch_host_func([&] { ++calls; });
    stream.launch_host_func([&] { ++calls; });
  });
  EXPECT_TRUE(quiesce_for(0s)) << "the graph owns the functions, and nothing calls them";
  EXPECT_GE(live_objects().host_functions, 2U);
  Gate gate{stream};
  graph.launch(stream);
  graph.launch(stream);
  ASSERT_TRUE(gate.reached());
  gate.open();
  EXPECT_TRUE(quiesce_for(patience));
  EXPECT_EQ(calls, 4);
  stream.synchronize();
}

TEST_F(Quiesce, AGraphLaunchThatIsHeldUpCounts) {
  const Stream stream, other;
  std::atomic_int calls{0};
  const Graph graph = capture(stream, [&] { stream.launch_host_func([&] { ++calls; }); });
  PinnedBuffer<uint32_t> location{1};
  location[0] = 0;
  SKIP_IF(!device().has_stream_memory_operations(),
          "nothing but a function could hold the stream up");
  stream.wait_value(location.data(), 1);
  graph.launch(stream);
  EXPECT_FALSE(quiesce_for(1ms));
  std::atomic_ref{location[0]} = 1;
  EXPECT_TRUE(quiesce_for(patience));
  EXPECT_EQ(calls, 1);
  stream.synchronize();
}

TEST_F(Quiesce, IsRefusedWhereItWouldWaitForItself) {
  const Stream stream;
  std::atomic_bool refused{false}, refused_too{false};
  stream.launch_host_func(
      [&] { refused = code_of([] { return quiesce_for(0s); }) == errc::not_permitted; });
  stream.on_complete([&](const Outcome&) {
    refused_too = code_of([] { return quiesce_for(0s); }) == errc::not_permitted;
  });
  EXPECT_TRUE(quiesce_for(patience));
  EXPECT_TRUE(refused);
  EXPECT_TRUE(refused_too);
}

}  // namespace conformance::quiesce_cases
