// SPDX-License-Identifier: Apache-2.0
// Making streams, their priorities and their identity.
#include <climits>
#include <map>
#include <unordered_map>

#include "support.hpp"

namespace conformance::stream_cases {
using Streams = Conformance;

TEST_F(Streams, AStreamIsCreatedAndDestroyed) {
  const auto before = live_objects().streams;
  {
    Stream stream;
    EXPECT_TRUE(stream.is_valid());
    EXPECT_EQ(live_objects().streams, before + 1);
    EXPECT_RUNS(stream);
  }
  EXPECT_EQ(live_objects().streams, before);
}

TEST_F(Streams, BlockingReadsBack) {
  EXPECT_FALSE(Stream{}.is_blocking());
  EXPECT_FALSE(Stream{{.blocking = false}}.is_blocking());
  EXPECT_TRUE(Stream{{.blocking = true}}.is_blocking());
}

TEST_F(Streams, NameReadsBackCutTo31Bytes) {
  const std::string long_name(100, 'n');
  EXPECT_STREQ(Stream{}.name(), "");
  EXPECT_STREQ(Stream{{.name = "upload"}}.name(), "upload");
  EXPECT_EQ(Stream{{.name = long_name.c_str()}}.name(), long_name.substr(0, 31));
}

TEST_F(Streams, DefaultPriorityReadsBack) {
  EXPECT_EQ(Stream{}.priority(), device().priority_range().clamp(0));
}

TEST_F(Streams, EachPriorityInRangeReadsBack) {
  const auto [least, greatest] = device().priority_range();
  for (Priority priority = greatest; priority <= least; ++priority.value) {
    EXPECT_EQ((Stream{{.priority = priority}}.priority()), priority);
    EXPECT_EQ((Stream{{.priority = priority, .blocking = true}}.priority()), priority);
  }
}

TEST_F(Streams, OtherPrioritiesAreClampedWithoutOverflow) {
  const auto [least, greatest] = device().priority_range();
  using Priorities = std::initializer_list<Priority>;
  for (const Priority high : Priorities{greatest.value - 1, -100, INT_MIN, Priority::high})
    EXPECT_EQ(Stream{{.priority = high}}.priority(), greatest);
  for (const Priority low : Priorities{least.value + 1, 100, INT_MAX, Priority::low})
    EXPECT_EQ(Stream{{.priority = low}}.priority(), least);
}

TEST_F(Streams, PriorityRangesContainNormalAndMayHaveOneLevel) {
  const PriorityRange range = device().priority_range();
  EXPECT_LE(range.greatest, range.least);
  EXPECT_TRUE(range.contains(range.clamp(0)));
  EXPECT_EQ(range.has_levels(), range.least != range.greatest);

  constexpr PriorityRange one{0, 0};
  static_assert(!one.has_levels() && one.contains(0) && !one.contains(1) && !one.contains(-1));
  static_assert(one.clamp(INT_MIN) == 0 && one.clamp(INT_MAX) == 0);
  static_assert(std::is_same_v<decltype(Stream{}.priority()), decltype(StreamOptions{}.priority)>);
  static_assert(Priority::high < Priority::normal && Priority::normal < Priority::low &&
                Priority{-3} == -3);
  EXPECT_EQ(to_string(Priority{-3}), "-3");
  constexpr PriorityRange zero_is_least{0, -5};
  static_assert(zero_is_least.clamp(Priority::low) == 0 &&
                zero_is_least.clamp(Priority::high) == -5);
  constexpr PriorityRange zero_is_middle{1, -1};
  static_assert(zero_is_middle.clamp(Priority::low) == 1 &&
                zero_is_middle.clamp(Priority::normal) == 0);
}

TEST_F(Streams, NoPriorityIsStarvedAndEachStreamKeepsItsOrder) {
  constexpr int rounds = 200;
  const Log logs[3];
  const Stream streams[3] = {Stream{{.priority = Priority::low}}, Stream{},
                             Stream{{.priority = Priority::high}}};
  Gate gate;
  for (const Stream& stream : streams) gate.close_on(stream);
  for (int i : range(rounds))
    for (int k : range(3)) logs[k].write(streams[k], std::to_string(i));
  gate.open();
  Entries in_order;
  for (int i : range(rounds)) in_order.push_back(std::to_string(i));
  for (int k : range(3)) {
    streams[k].synchronize();
    EXPECT_EQ(logs[k].entries(), in_order);
  }
}

TEST_F(Streams, NativeHandleIsNeitherNullNorTheDefaultStreams) {
  Stream stream;
  EXPECT_NE(stream.native(), nullptr);
  EXPECT_NE(stream.native(), default_stream().native());
}

TEST_F(Streams, IdsDifferAndAreNeverReused) {
  std::set<uint64_t> ids;
  repeat(100, [&] {
    Stream a, b;
    const auto id = a.id();
    EXPECT_NE(a, b);
    EXPECT_NE(a.native(), b.native());
    EXPECT_RUNS(a);
    EXPECT_EQ(a.id(), id);
    ids.insert({a.id(), b.id()});
  });
  EXPECT_EQ(ids.size(), 200U);
  EXPECT_FALSE(ids.contains(0));
}

TEST_F(Streams, EqualityAndHashAgree) {
  Stream a, b;
  const StreamRef view = a;
  EXPECT_EQ(view, a);
  EXPECT_NE(view, b);
  EXPECT_EQ(std::hash<StreamRef>{}(view), std::hash<Stream>{}(a));
  std::unordered_map<StreamRef, int> map{{a, 1}, {b, 2}};
  EXPECT_EQ(map.size(), 2U);
  EXPECT_EQ(map.at(view), 1);
}

TEST_F(Streams, PrintingCallsNoRuntime) {
  std::optional stream{Stream{}};
  const StreamRef view = *stream;
  const std::string expected = "Stream(id " + std::to_string(view.id()) + ", device " +
                               std::to_string(device().ordinal()) + ")";
  std::ostringstream out;
  out << *stream;
  EXPECT_EQ(out.str(), expected);

  // Printing works where the runtime may not be used: inside a host function, and after the stream
  // is destroyed.
  auto inside = std::make_shared<std::string>();
  stream->launch_host_func([inside, view] { *inside = to_string(view); });
  stream->synchronize();
  EXPECT_EQ(*inside, expected);
  stream.reset();
  EXPECT_FALSE(to_string(view).empty());
}

TEST_F(Streams, AStreamKnowsItsDevice) {
  for (const Device each : all_devices()) {
    Stream stream{each};
    EXPECT_EQ(stream.device(), each);
  }
  EXPECT_EQ(Stream{}.device(), device());
}

TEST_F(Streams, MakingManyLeaksNothing) {
  expect_no_growth(100'000, [] { Stream stream; });
}

TEST_F(Streams, AThousandStreamsCanExistAtOnce) {
  auto count = shared_count();
  std::vector<Stream> streams(1000);
  for (const Stream& stream : streams) stream.launch_host_func([count] { ++*count; });
  for (const Stream& stream : streams) stream.synchronize();
  EXPECT_EQ(*count, 1000);
}

}  // namespace conformance::stream_cases
