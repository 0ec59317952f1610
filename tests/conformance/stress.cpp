// SPDX-License-Identifier: Apache-2.0
// Many threads, many streams, and random graphs of work.
#include <cstdlib>
#include <random>

#include "support.hpp"

namespace {
using namespace runnel;
using namespace conformance;
using Stress = Conformance;

TEST_F(Stress, AllThreadsEnqueueOnOneStream) {
  const int threads = static_cast<int>(std::max(4U, std::thread::hardware_concurrency()));
  constexpr int each = 10'000;
  Stream stream;
  std::vector<int> last(static_cast<std::size_t>(threads), -1);
  int count = 0;
  bool in_order = true;
  on_threads(threads, [&](int i) {
    for (int k = 0; k < each; ++k)
      stream.launch_host_func([&, k, &mine = last[static_cast<std::size_t>(i)]] {
        in_order = in_order && k == mine + 1;
        mine = k;
        ++count;
      });
  });
  stream.synchronize();
  EXPECT_EQ(count, threads * each);
  EXPECT_TRUE(in_order) << "functions of one thread ran out of order";
}

TEST_F(Stress, ManyRoundTripsOnManyStreams) {
  constexpr std::size_t lines = 20, size = 64;
  const int rounds = long_tests() ? 1024 : 256;
  struct Line {
    Stream stream;
    DeviceBuffer<int> a{size, stream}, b{size, stream};
    PinnedBuffer<int> host{size};
  };
  std::vector<Line> all(lines);
  for (std::size_t i = 0; i < lines; ++i)
    std::fill(all[i].host.begin(), all[i].host.end(), static_cast<int>(i));
  for (int round = 0; round < rounds; ++round)
    for (Line& line : all) {
      copy(line.stream, line.a, line.host);
      copy(line.stream, line.b, line.a);
      copy(line.stream, line.host, line.b);
      line.stream.launch_host_func([host = line.host.data()] {
        for (std::size_t k = 0; k < size; ++k) ++host[k];
      });
    }
  for (std::size_t i = 0; i < lines; ++i) {
    all[i].stream.synchronize();
    for (const int value : all[i].host) ASSERT_EQ(value, static_cast<int>(i) + rounds);
  }
}

/// Random operations on cells, spread over streams. Two operations on the same cell are ordered,
/// unless both only read it: by the stream, by an event, by wait_stream() or through the host. All
/// other operations may run in any order. So a correct run has the result of a sequential run, and
/// a lost dependency gives another value.
class RandomGraph {
 public:
  explicit RandomGraph(std::uint32_t seed) : random_{seed} {
    for (std::size_t i = 0; i < cells; ++i) memory_[i] = expected_[i] = i + 1;
  }

  void run(int operations) {
    for (int i = 0; i < operations; ++i) step();
    for (const Stream& stream : streams_) stream.synchronize();
    for (std::size_t i = 0; i < cells; ++i) ASSERT_EQ(memory_[i], expected_[i]) << "cell " << i;
  }

 private:
  static constexpr std::size_t cells = 6, lines = 4;
  struct Touch {
    std::size_t line;
    Event event;
  };
  struct Cell {
    std::optional<Touch> writer;
    std::vector<Touch> readers;
  };

  std::size_t pick(std::size_t n) { return random_() % n; }

  void order_after(std::size_t line, const Touch& earlier) {
    if (earlier.line == line) return;
    switch (pick(4)) {
      case 0:
        streams_[line].wait_stream(streams_[earlier.line]);
        break;
      case 1:
        earlier.event.synchronize();
        break;
      default:
        streams_[line].wait_event(earlier.event);
    }
  }

  void step() {
    const std::size_t line = pick(lines), to = pick(cells), from = pick(cells);
    const Stream& stream = streams_[line];
    if (touches_[from].writer) order_after(line, *touches_[from].writer);
    if (touches_[to].writer) order_after(line, *touches_[to].writer);
    for (const Touch& reader : touches_[to].readers) order_after(line, reader);

    std::uint64_t* const target = memory_.data() + to;
    const std::uint64_t* const source = memory_.data() + from;
    switch (pick(4)) {
      case 0:
        copy_bytes(stream, target, source, sizeof *target);
        expected_[to] = expected_[from];
        break;
      case 1:
        fill_bytes(stream, target, 0x5a, sizeof *target);
        expected_[to] = 0x5a5a5a5a5a5a5a5a;
        break;
      default:
        stream.launch_host_func([target, source] { *target = mix(*target, *source); });
        expected_[to] = mix(expected_[to], expected_[from]);
    }
    touches_[to].writer = Touch{line, stream.record_event()};
    touches_[to].readers.clear();
    if (from != to) touches_[from].readers.push_back({line, stream.record_event()});
  }

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    return (a ^ (b >> 7)) * 0x9e3779b97f4a7c15 + b;
  }

  std::mt19937 random_;
  PinnedBuffer<std::uint64_t> memory_{cells};
  std::uint64_t expected_[cells] = {};
  Stream streams_[lines];
  Cell touches_[cells];
};

TEST_F(Stress, RandomGraphsAgreeWithASequentialRun) {
  const char* given = std::getenv("RUNNEL_SEED");
  const std::uint32_t start =
      given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10)) : 1;
  const std::uint32_t graphs = long_tests() ? 10'000 : 2000;
  for (std::uint32_t seed = start; seed < start + graphs; ++seed) {
    SCOPED_TRACE("RUNNEL_SEED=" + std::to_string(seed));
    RandomGraph{seed}.run(40);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Stress, CreateMoveAndDestroyFrom16Threads) {
  const int rounds = long_tests() ? 5000 : 500;
  auto ran = std::make_shared<std::atomic<int>>(0);
  Stream shared;
  on_threads(16, [&](int i) {
    std::mt19937 random{static_cast<std::uint32_t>(i)};
    std::vector<Stream> streams(4);
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
  EXPECT_TRUE(eventually([&] { return *ran == 16 * rounds; })) << *ran;
}

}  // namespace
