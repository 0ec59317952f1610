// SPDX-License-Identifier: Apache-2.0
// Many threads that enqueue, make and destroy. Random programs and the load test (tests/stress) do
// the same with memory and more streams; these also run under ThreadSanitizer and on a GPU.

#include "support.hpp"

namespace conformance::stress_cases {
using Stress = Conformance;

TEST_F(Stress, AllThreadsEnqueueOnOneStream) {
  const int threads = static_cast<int>(std::max(4U, std::thread::hardware_concurrency()));
  constexpr int each = 10'000;
  Stream stream;
  Ints last(static_cast<size_t>(threads), -1);
  int count = 0;
  bool in_order = true;
  on_threads(threads, [&](int i) {
    for (int k : range(each))
      stream.launch_host_func([&, k, &mine = nth(last, i)] {
        in_order = in_order && k == mine + 1;
        mine = k;
        ++count;
      });
  });
  stream.synchronize();
  EXPECT_EQ(count, threads * each);
  EXPECT_TRUE(in_order) << "functions of one thread ran out of order";
}

TEST_F(Stress, CreateMoveAndDestroyFrom16Threads) {
  const int rounds = long_tests() ? 5000 : 500;
  auto ran = shared_count();
  Stream shared;
  on_threads(16, [&](int i) {
    std::mt19937 random{static_cast<uint32_t>(i)};
    Streams streams(4);
    std::vector<Event> events(4);
    for (int k = 0; k < rounds; ++k) {
      Stream& stream = streams[random() % 4];
      Event& event = events[random() % 4];
      stream.launch_host_func([ran] { ++*ran; });
      switch (random() % 6) {
        case 0:
          stream = Stream{};
          break;
        case 1:
          std::swap(stream, streams[random() % 4]);
          break;
        case 2:
          event = stream.record_event();
          break;
        case 3:
          stream.wait_event(event);
          break;
        case 4:
          shared.wait_stream(stream);
          break;
        default:
          stream.record_event(event);
      }
    }
    for (const Stream& stream : streams) stream.synchronize();
  });
  shared.synchronize();
  device().synchronize();
  EXPECT_EVENTUALLY(*ran == 16 * rounds) << *ran;
}

}  // namespace conformance::stress_cases
