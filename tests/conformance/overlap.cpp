// SPDX-License-Identifier: Apache-2.0
/// overlap(): for all sizes, strategies and shapes it gives the result of a sequential run, in
/// bounded memory. When it throws, nothing is left in flight. The computations here are copies
/// within the device, so that every backend can run them.
#include "support.hpp"

#include <sys/mman.h>

namespace conformance::overlap_cases {

using Numbers = Ints;
using In = DeviceSpan<const int>;
using Out = DeviceSpan<int>;
constexpr OverlapStrategy strategies[] = {OverlapStrategy::automatic,
                                          OverlapStrategy::stream_per_chunk,
                                          OverlapStrategy::copy_compute_copy};

constexpr auto same = copy_chunk;

Numbers numbered(size_t size) {
  Numbers numbers(size);
  count_from(numbers, 1);
  return numbers;
}

/// A source of the numbers 1 to `size`, and a sink that appends all numbers to `all`.
auto counting(size_t size) {
  return from_source<int>([next = 0, left = size](std::span<int> to) mutable {
    const size_t count = std::min(left, to.size());
    for (size_t i : range(count)) to[i] = ++next;
    left -= count;
    return count;
  });
}
auto keeping(Numbers& all) {
  return to_sink<int>([&all](std::span<const int> numbers) {
    all.insert(all.end(), numbers.begin(), numbers.end());
  });
}

class Overlap : public Conformance {};
class OverlapStrategies : public Conformance, public testing::WithParamInterface<OverlapStrategy> {
 protected:
  static OverlapOptions by(size_t chunk, size_t in_flight = 0) {
    return {.chunk = chunk, .in_flight = in_flight, .strategy = GetParam()};
  }
};
std::string name_of(const testing::TestParamInfo<OverlapStrategy>& tested) {
  constexpr const char* names[] = {"Automatic", "StreamPerChunk", "CopyComputeCopy"};
  return names[static_cast<size_t>(tested.param)];
}
INSTANTIATE_TEST_SUITE_P(All, OverlapStrategies, testing::ValuesIn(strategies), name_of);

TEST_P(OverlapStrategies, GivesTheBytesOfTheSequentialResult) {
  std::mt19937 random{7};
  for (const auto& [size, chunk, in_flight] : std::vector<std::array<size_t, 3>>{{1, 1, 1},
                                                                                 {1, 100, 4},
                                                                                 {1000, 1000, 3},
                                                                                 {1000, 1001, 2},
                                                                                 {1001, 1000, 2},
                                                                                 {999, 1000, 1},
                                                                                 {5000, 7, 5},
                                                                                 {5000, 64, 1},
                                                                                 {0, 10, 3},
                                                                                 {100'000, 0, 0}}) {
    const Numbers in = numbered(size);
    Numbers out(size, -1);
    const OverlapResult result = overlap(in, out, by(chunk, in_flight), same);
    EXPECT_EQ(out, in) << size << " in chunks of " << chunk << ", " << in_flight << " in flight";
    EXPECT_EQ(result.items, size);
    EXPECT_EQ(result.written, size);
    EXPECT_EQ(result.chunks, (size + result.chunk - 1) / result.chunk);
    EXPECT_FALSE(result.stopped);
    EXPECT_NE(result.strategy, OverlapStrategy::automatic);
  }
  for (int round : range(20)) {
    const size_t size = random() % 30'000;
    const Numbers in = numbered(size);
    Numbers out(size, -1);
    overlap(in, out,
            {.chunk = 1 + random() % 3000,
             .in_flight = 1 + random() % 6,
             .strategy = GetParam(),
             .streams = random() % 5},
            same);
    EXPECT_EQ(out, in) << "round " << round;
  }
}

TEST_P(OverlapStrategies, TheStrategyIsReported) {
  const Numbers in = numbered(100);
  const OverlapStrategy used = overlap(in, no_output, by(10), [](StreamRef, In) {}).strategy;
  if (GetParam() == OverlapStrategy::automatic)
    EXPECT_NE(used, OverlapStrategy::automatic);
  else
    EXPECT_EQ(used, GetParam());
}

TEST_P(OverlapStrategies, AcceptPinnedMemory) {
  PinnedInts in(10'007), out(in.size());
  count_from(in, 0);
  overlap(in, out, by(1000), same);
  EXPECT_SAME(in, out);
}

TEST_P(OverlapStrategies, WorkInPlace) {
  Numbers all = numbered(10'007);
  overlap(all, all, by(1000), [](StreamRef stream, In, Out out, const OverlapChunk& chunk) {
    fill(stream, out, static_cast<int>(chunk.index));
  });
  for (size_t i : range(all.size())) ASSERT_EQ(all[i], static_cast<int>(i / 1000));
}

TEST_P(OverlapStrategies, AcceptInputsOfDifferentTypesAndWidths) {
  const size_t rows_there = 1003;
  const Numbers a = numbered(rows_there);
  std::vector<std::int64_t> b(2 * rows_there);
  count_from(b, 5'000'000'000);
  // an item of a, then the bytes of two items of b
  std::vector<std::array<int, 5>> out(rows_there);
  overlap(zipped(a, by_rows(b, 2)), out, by(100, 3),
          [](StreamRef stream, In x, DeviceSpan<const std::int64_t> y,
             DeviceSpan<std::array<int, 5>> z) {
            EXPECT_EQ(y.size(), 2 * x.size());
            EXPECT_EQ(z.size(), x.size());
            copy_2d(stream, z.data(), sizeof(z.data()[0]), x.data(), sizeof(int), sizeof(int),
                    z.size());
            copy_2d(stream, &z.data()->at(1), sizeof(z.data()[0]), y.data(), 16, 16, z.size());
          });
  for (size_t i : range(rows_there)) {
    std::int64_t back[2];
    std::memcpy(back, &out[i][1], sizeof back);
    ASSERT_EQ(out[i][0], a[i]);
    ASSERT_EQ(back[0], b[2 * i]);
    ASSERT_EQ(back[1], b[2 * i + 1]);
  }
}

TEST_P(OverlapStrategies, ReduceEachRowAndEachChunk) {
  const Numbers table = numbered(3 * 1001);
  Numbers first(1001);
  overlap(by_rows(table, 3), first, by(64), [](StreamRef stream, In in, Out out) {
    EXPECT_EQ(in.size(), 3 * out.size());
    copy_2d(stream, out.data(), sizeof(int), in.data(), 3 * sizeof(int), sizeof(int), out.size());
  });
  for (size_t i : range(first.size())) ASSERT_EQ(first[i], table[3 * i]);

  Numbers of_chunks(20, -1);
  const OverlapResult result =
      overlap(table, per_chunk(of_chunks, 2), by(400), [](StreamRef stream, In in, Out out) {
        EXPECT_EQ(out.size(), 2U);
        copy(stream, out, in.subspan(0, 2));
      });
  EXPECT_EQ(result.written, 16U);
  for (size_t i : range(8UL)) EXPECT_EQ(of_chunks[2 * i + 1], table[400 * i + 1]);
  EXPECT_EQ(of_chunks[16], -1);
}

TEST_P(OverlapStrategies, WorkWithoutOutput) {
  const Numbers in = numbered(1000);
  DeviceInts there(in.size());
  current_stream().synchronize();
  const OverlapResult result =
      overlap(in, no_output, by(64), [&](StreamRef stream, In x, const OverlapChunk& chunk) {
        copy(stream, there.span().subspan(chunk.first, chunk.count), x);
      });
  EXPECT_EQ(result.written, 0U);
  Numbers back(in.size());
  copy(back, there);
  synchronize();
  EXPECT_EQ(back, in);
}

/// Writes each number together with its two neighbours on either side, and -1 for a neighbour that
/// does not exist.
const auto with_neighbours = [](StreamRef stream, In in, Out out, const OverlapChunk& chunk) {
  EXPECT_EQ(in.size(), chunk.before + chunk.count + chunk.after);
  fill(stream, out, -1);
  for (int side = -2; side <= 2; ++side) {
    const auto missing_before =
        static_cast<size_t>(std::max(0, -side - static_cast<int>(chunk.before)));
    const auto missing_after =
        static_cast<size_t>(std::max(0, side - static_cast<int>(chunk.after)));
    if (missing_before + missing_after >= chunk.count) continue;
    copy_2d(stream, out.data() + 5 * missing_before + (side + 2), 5 * sizeof(int),
            in.data() + chunk.before + missing_before + side, sizeof(int), sizeof(int),
            chunk.count - missing_before - missing_after);
  }
};
void expect_neighbours(const Numbers& out, size_t size) {
  ASSERT_EQ(out.size(), 5 * size);
  for (size_t i : range(size))
    for (int side = -2; side <= 2; ++side) {
      const int number = static_cast<int>(i) + 1 + side;
      ASSERT_EQ(out[5 * i + static_cast<size_t>(side + 2)],
                number >= 1 && number <= static_cast<int>(size) ? number : -1)
          << i << " of " << size;
    }
}

TEST_P(OverlapStrategies, PassNeighboursToStencils) {
  for (const auto& [size, chunk, in_flight] : std::vector<std::array<size_t, 3>>{{1000, 100, 4},
                                                                                 {1001, 100, 2},
                                                                                 {101, 100, 3},
                                                                                 {7, 1, 2},
                                                                                 {3, 100, 1},
                                                                                 {1, 1, 1},
                                                                                 {200, 100, 1},
                                                                                 {0, 5, 2}}) {
    const OverlapOptions options{
        .chunk = chunk, .in_flight = in_flight, .strategy = GetParam(), .halo = 2};
    const Numbers in = numbered(size);
    Numbers out(5 * size);
    overlap(in, out, options, with_neighbours);
    expect_neighbours(out, size);

    Numbers streamed;
    auto to = to_sink<int>(
        [&](std::span<const int> numbers) {
          streamed.insert(streamed.end(), numbers.begin(), numbers.end());
        },
        5);
    overlap(counting(size), to, options, with_neighbours);
    expect_neighbours(streamed, size);
  }
}

TEST_P(OverlapStrategies, StreamFromSourcesToSinks) {
  for (const size_t size : {0UL, 1UL, 999UL, 1000UL, 1001UL, 12'345UL}) {
    for (const size_t in_flight : {1UL, 3UL}) {
      Numbers out;
      const OverlapResult result = overlap(counting(size), keeping(out), by(1000, in_flight), same);
      EXPECT_EQ(out, numbered(size));
      EXPECT_EQ(result.items, size);
      EXPECT_EQ(result.chunks, (size + 999) / 1000);
    }
  }
  // From memory to a sink, from a source to memory, and from a source together with memory.
  Numbers out;
  overlap(numbered(5000), keeping(out), by(512), same);
  EXPECT_EQ(out, numbered(5000));
  Numbers room(6000, -1);
  EXPECT_EQ(overlap(counting(5000), room, by(512), same).written, 5000U);
  EXPECT_EQ(room[4999], 5000);
  EXPECT_EQ(room[5000], -1);
  const Numbers beside = numbered(5000);
  Numbers both(10'000);
  overlap(zipped(counting(5000), beside), both, by(512), [](StreamRef stream, In a, In b, Out c) {
    copy(stream, c.subspan(0, a.size()), a);
    copy(stream, c.subspan(a.size()), b);
  });
  EXPECT_EQ(both[9], 10);
  EXPECT_EQ(both[512 + 9], 10);
}

TEST_P(OverlapStrategies, KeepWhatAFilterSelects) {
  // Keeps the first i % 7 numbers of chunk i. The counts come from a table, because the
  // computations here are only copies.
  constexpr size_t chunk = 100;
  PinnedBuffer<size_t> table(100);
  for (size_t i : range(table.size())) table[i] = i % 7;
  const auto first_few = [&](StreamRef stream, In in, Out out, DeviceSpan<size_t> count,
                             const OverlapChunk& here) {
    EXPECT_EQ(out.size(), in.size());
    copy(stream, out, in);
    if (here.index % 7 != 0) copy_bytes(stream, count.data(), &table[here.index], sizeof(size_t));
  };
  const Numbers in = numbered(5050);
  Numbers expected;
  for (size_t i : range(in.size()))
    if (i % chunk < i / chunk % 7) expected.push_back(in[i]);
  for (const size_t in_flight : {1UL, 2UL, 5UL}) {
    const OverlapOptions options = by(chunk, in_flight);
    Numbers out(in.size());
    const OverlapResult result = overlap(in, filtered(out), options, first_few);
    out.resize(result.written);
    EXPECT_EQ(out, expected);
    Numbers streamed;
    overlap(counting(in.size()), filtered(keeping(streamed)), options, first_few);
    EXPECT_EQ(streamed, expected);

    Numbers small(expected.size() - 1);
    EXPECT_ERROR(invalid_argument, overlap(in, filtered(small), options, first_few));
  }
  table[1] = 101;
  Numbers out(in.size());
  const auto keep_too_many = [&] { overlap(in, filtered(out), by(chunk), first_few); };
  EXPECT_EQ(code_of(keep_too_many), errc::invalid_argument);
  EXPECT_SAYS(text_of(keep_too_many),
              "chunk 1, computing: the function says that it wrote 101 elements");
}

TEST_P(OverlapStrategies, HoldNoMoreMemoryThanChunksInFlight) {
  constexpr size_t chunk = 50'000;
  const size_t before = DeviceResource{device()}.statistics().in_use;
  for (const size_t in_flight : {1UL, 3UL, 6UL}) {
    const Numbers in = numbered(20 * chunk);
    Numbers out(in.size());
    std::set<const void*> seen;
    size_t most = 0;
    overlap(in, out, by(chunk, in_flight),
            [&](StreamRef stream, In x, Out y, const OverlapChunk& here) {
              most = std::max(most, DeviceResource{device()}.statistics().in_use - before);
              seen.insert(x.data());
              EXPECT_LT(here.buffer, in_flight);
              copy(stream, y, x);
            });
    EXPECT_EQ(out, in);
    EXPECT_EQ(most, in_flight * chunk * 2 * sizeof(int));
    EXPECT_EQ(seen.size(), in_flight) << "chunks in the same slot must use the same memory";
  }
  EXPECT_EQ(DeviceResource{device()}.statistics().in_use, before);
  // A short input uses memory for its own chunks only.
  const Numbers in = numbered(150);
  Numbers out(150);
  overlap(in, out, by(100, 50), [&](StreamRef, In, Out) {
    EXPECT_EQ(DeviceResource{device()}.statistics().in_use - before, 2 * 100 * 2 * sizeof(int));
  });
}

struct Mine : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The chunk that the OverlapError names. Checks that the nested exception is Mine.
template <class F>
size_t failed_chunk(F f) {
  try {
    f();
  } catch (const OverlapError& error) {
    EXPECT_EQ(error.code(), errc::function_failed);
    EXPECT_SAYS(error.what(), "chunk " + std::to_string(error.chunk()));
    EXPECT_SAYS(error.what(), "too bad");
    EXPECT_THROW(std::rethrow_if_nested(error), Mine);
    return error.chunk();
  }
  ADD_FAILURE() << "nothing was thrown";
  return 0;
}

TEST_P(OverlapStrategies, ReportTheChunkOfAGraphThatThrows) {
  const Stream stream;
  const Graph graph =
      capture(stream, [&] { stream.launch_host_func([] { throw Mine{"too bad"}; }); });
  const Numbers in = numbered(1000);
  Numbers out(in.size());
  EXPECT_EQ(failed_chunk([&] {
              overlap(in, out, by(100, 3),
                      [&](StreamRef on, In x, Out y, const OverlapChunk& chunk) {
                        copy(on, y, x);
                        if (chunk.index == 4) graph.launch(on);
                      });
            }),
            4U);
}

TEST_F(Overlap, IsRefusedOnAThreadThatCaptures) {
  const Stream stream;
  DeviceInts buffer{10, stream};
  const Numbers in = numbered(100);
  Numbers out(in.size());
  const auto run = [&] { overlap(in, out, {.chunk = 10}, same); };
  stream.synchronize();
  std::string text;
  const Graph graph = capture(stream, [&] {
    text = text_of(run);
    std::thread{run}.join();  // the capture is none of this thread's
    fill(stream, buffer, 3);
  });
  EXPECT_SAYS(text, "the calling thread is capturing a stream");
  EXPECT_EQ(out, in);
  graph.launch(stream);
  EXPECT_EQ(read_back(stream, buffer), Numbers(10, 3));
  run();
}

TEST_F(Overlap, ACompletionFunctionThatThrowsLaterHarmsNoLaterRun) {
  const Numbers in = numbered(100);
  Numbers out(in.size());
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future();
  std::atomic_int thrown{0};
  overlap(in, out, {.chunk = 50}, [&](StreamRef stream, In x, Out y) {
    copy(stream, y, x);
    stream.on_complete([is_over, &thrown](const Outcome&) {
      is_over.wait();
      ++thrown;
      throw Mine{"too bad"};
    });
  });
  over.set_value();
  ASSERT_TRUE(eventually([&] { return thrown == 2; }));
  ASSERT_TRUE(eventually([&] { return live_objects().host_functions == 0; }));
  out.assign(in.size(), 0);
  overlap(in, out, {.chunk = 50}, same);
  EXPECT_EQ(out, in);
}

TEST_P(OverlapStrategies, StopAtAnExceptionAndReportItsChunk) {
  const Numbers in = numbered(10'000);
  const OverlapOptions options = by(100, 3);
  for (const size_t bad : {0UL, 5UL, 99UL}) {
    Numbers out(in.size(), -1);
    size_t calls = 0;
    EXPECT_EQ(failed_chunk([&] {
                overlap(in, out, options,
                        [&](StreamRef stream, In x, Out y, const OverlapChunk& chunk) {
                          ++calls;
                          copy(stream, y, x);
                          if (chunk.index == bad) throw Mine{"too bad"};
                        });
              }),
              bad);
    EXPECT_EQ(calls, bad + 1);
    for (size_t i : range(in.size()))
      ASSERT_EQ(out[i], i < bad * 100 ? in[i] : -1)
          << "exactly the chunks before the failed one must be complete";

    // The exception is thrown in a host function, which runs later.
    EXPECT_EQ(failed_chunk([&] {
                overlap(in, out, options,
                        [&](StreamRef stream, In, Out, const OverlapChunk& chunk) {
                          stream.launch_host_func([index = chunk.index, bad] {
                            if (index >= bad) throw Mine{"too bad"};
                          });
                        });
              }),
              bad);

    size_t read = 0;
    EXPECT_EQ(failed_chunk([&] {
                overlap(from_source<int>([&](std::span<int> to) {
                          if (read++ == bad) throw Mine{"too bad"};
                          return to.size();
                        }),
                        no_output, options, [](StreamRef, In) {});
              }),
              bad);

    size_t written = 0;
    EXPECT_EQ(failed_chunk([&] {
                overlap(in, to_sink<int>([&](std::span<const int>) {
                          if (written++ == bad) throw Mine{"too bad"};
                        }),
                        options, same);
              }),
              bad);
    EXPECT_EQ(written, bad + 1);
  }
}

/// As files, pipes and sockets do.
TEST_P(OverlapStrategies, GoOnWhereAFunctionReadsOrWritesAPart) {
  const Numbers in = numbered(1000);
  Numbers out;
  const auto sink = [&](long most) {
    return to_sink<int>([&out, most](std::span<const int> part) {
      const long taken = std::min(most, static_cast<long>(part.size()));
      out.insert(out.end(), part.begin(), part.begin() + std::max(taken, 0L));
      return taken;
    });
  };
  auto source = from_source<int>([at = in.begin(), &in](std::span<int> to) mutable {
    const auto count = std::min({std::ptrdiff_t{7}, std::ssize(to), in.end() - at});
    std::copy_n(at, count, to.begin());
    at += count;
    return static_cast<size_t>(count);
  });
  const OverlapOptions options = by(64, 3);
  const OverlapResult result = overlap(source, sink(5), options, same);
  EXPECT_EQ(out, in);
  EXPECT_EQ(result.written, in.size());
  EXPECT_ERROR(invalid_argument, overlap(in, sink(0), options, same));
  EXPECT_ERROR(invalid_argument, overlap(in, sink(-1), options, same));
}

TEST_P(OverlapStrategies, ReportErrorsOfTheLibrary) {
  const Numbers in = numbered(1000);
  Numbers out(in.size());
  EXPECT_EQ(code_of([&] {
              const PageableGuard refusing{Pageable::refuse};
              overlap(in, out, by(100), same);
            }),
            errc::not_permitted);
  EXPECT_ERROR(invalid_argument, overlap(in, out, by(100), [](StreamRef stream, In x, Out y) {
                 copy(stream, y, x.subspan(1));
               }));
}

/// Memory from mmap(), so that the test can change the permissions of a page.
class Pages {
 public:
  // large, because a runtime may do small copies within the call
  static constexpr size_t count = 8, bytes = 256 * kib;
  Pages()
      : begin_{mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                    0)} {
    if (begin_ == MAP_FAILED) throw std::bad_alloc{};
    std::memset(begin_, 1, count * bytes);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(begin_, count * bytes); }
  std::span<char> span() const { return {static_cast<char*>(begin_), count * bytes}; }
  void forbid(size_t page, int protection) const {
    ASSERT_EQ(mprotect(span().data() + page * bytes, 4096, protection), 0);
  }

 private:
  void* begin_;
};

TEST_P(OverlapStrategies, ReportPagesThatCannotBeAccessed) {
  SKIP_IF(!pages_can_be_asked_about(),
          "copies are not staged here, or the system is older than Linux 6.11");
  constexpr size_t bad = 5;
  std::vector<char> ordinary(Pages::count * Pages::bytes);
  const OverlapOptions options = by(Pages::bytes, 2);
  const auto same_bytes = [](StreamRef stream, DeviceSpan<const char> in, DeviceSpan<char> out) {
    copy(stream, out, in);
  };
  const auto expect_error = [&](errc expected, auto in, auto out) {
    try {
      overlap(in, out, options, same_bytes);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const OverlapError& error) {
      EXPECT_EQ(error.code(), expected) << error.what();
      EXPECT_EQ(error.chunk(), bad);
    }
  };
  const Pages from, to;
  from.forbid(bad, PROT_NONE);
  expect_error(errc::unreadable_source, from.span(), std::span{ordinary});
  to.forbid(bad, PROT_READ);
  expect_error(errc::unwritable_destination, std::span{ordinary}, to.span());
}

TEST_P(OverlapStrategies, StopBetweenChunksOnRequest) {
  const Numbers in = numbered(10'000);
  for (const size_t enough : {0UL, 1UL, 20UL}) {
    std::stop_source stopping;
    if (enough == 0) stopping.request_stop();
    Numbers out(in.size(), -1);
    std::vector<size_t> reported;
    const OverlapResult result = overlap(in, out,
                                         {.chunk = 100,
                                          .in_flight = 2,
                                          .strategy = GetParam(),
                                          .stop = stopping.get_token(),
                                          .progress =
                                              [&](const OverlapProgress& progress) {
                                                reported.push_back(progress.chunks);
                                                EXPECT_EQ(progress.items, progress.chunks * 100);
                                                EXPECT_EQ(progress.total, in.size());
                                                if (progress.chunks == enough)
                                                  stopping.request_stop();
                                              }},
                                         same);
    EXPECT_TRUE(result.stopped);
    EXPECT_GE(result.chunks, enough);
    EXPECT_LE(result.chunks, enough == 0 ? 0 : enough + 4)
        << "at most the chunks in flight, and those enqueued behind them, may follow";
    EXPECT_EQ(reported.size(), result.chunks);
    EXPECT_TRUE(std::ranges::is_sorted(reported));
    for (size_t i : range(in.size())) ASSERT_EQ(out[i], i < result.items ? in[i] : -1);
  }
  // A request after the source has ended does not count as a stop.
  std::stop_source at_end;
  Numbers kept;
  EXPECT_FALSE(overlap(counting(250), keeping(kept),
                       {.chunk = 100,
                        .in_flight = 1,
                        .strategy = GetParam(),
                        .stop = at_end.get_token(),
                        .progress =
                            [&](const OverlapProgress& progress) {
                              drop(progress.chunks == 3 && at_end.request_stop());
                            }},
                       same)
                   .stopped);
  EXPECT_EQ(kept, numbered(250));
  // A request after the last chunk has begun does not count as a stop.
  std::stop_source late;
  Numbers out(in.size());
  const OverlapResult result =
      overlap(in, out, {.chunk = in.size(), .strategy = GetParam(), .stop = late.get_token()},
              [&](StreamRef stream, In x, Out y) {
                copy(stream, y, x);
                late.request_stop();
              });
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(out, in);
}

TEST_F(Overlap, AnEmptyFunctionForProgressIsNotCalled) {
  const Numbers in = numbered(1000);
  Numbers out(in.size());
  overlap(in, out, {.progress = std::function<void(const OverlapProgress&)>{}}, same);
  EXPECT_EQ(out, in);
}

TEST_P(OverlapStrategies, RecordTimes) {
  const Numbers in = numbered(10'000);
  Numbers out;
  const OverlapResult result =
      overlap(counting(in.size()), keeping(out),
              {.chunk = 1000, .strategy = GetParam(), .record_times = true}, same);
  ASSERT_EQ(result.times.size(), 10U);
  // times of the host and of the device are compared
  const std::chrono::nanoseconds slack = 5ms;
  for (size_t i : range(result.times.size())) {
    const OverlapChunkTimes& t = result.times[i];
    EXPECT_EQ(t.chunk, i);
    EXPECT_EQ(t.buffer, i % result.in_flight);
    EXPECT_EQ(t.device, device().ordinal());
    for (const OverlapInterval& step : {t.read, t.copy_in, t.compute, t.copy_out, t.write})
      EXPECT_LE(step.start, step.stop);
    EXPECT_LE(t.copy_in.stop, t.compute.start);
    EXPECT_LE(t.compute.stop, t.copy_out.start);
    EXPECT_LE(t.read.stop, t.copy_in.stop + slack);
    EXPECT_LE(t.copy_out.stop, t.write.start + slack);
    EXPECT_LE(t.write.stop, result.time);
  }
  EXPECT_TRUE(overlap(in, no_output, {.strategy = GetParam()}, [](StreamRef, In) {}).times.empty());
}

TEST_P(OverlapStrategies, RunTheFunctionWithItsStreamCurrent) {
  const StreamRef found = current_stream();
  const std::thread::id here = std::this_thread::get_id();
  const Numbers in = numbered(300);
  Numbers out(in.size());
  overlap(in, out, by(100), [&](StreamRef stream, In x, Out y, const OverlapChunk& chunk) {
    EXPECT_CURRENT(stream);
    EXPECT_EQ(stream.device(), chunk.device);
    EXPECT_EQ(std::this_thread::get_id(), here);
    copy(y, x);
  });
  EXPECT_EQ(out, in);
  EXPECT_CURRENT(found);
}

TEST_F(Overlap, TheNextChunkContinuesWhileOneIsBlocked) {
  PinnedInts in(2000), out(2000);
  count_from(in, 0);
  bool moved = false;
  Gate gate;
  overlap(in, out, {.chunk = 1000, .in_flight = 2, .strategy = OverlapStrategy::stream_per_chunk},
          [&](StreamRef stream, In x, Out y, const OverlapChunk& chunk) {
            copy(stream, y, x);
            if (chunk.index == 0) return gate.close_on(stream);
            moved = stream.record_event().synchronize_for(patience) && !gate.is_open();
            gate.open();
          });
  EXPECT_TRUE(moved);
  EXPECT_SAME(in, out);
}

TEST_F(Overlap, ChoosesByCopyEnginesSizesAndMemory) {
  constexpr size_t large = 16 * mib;
  constexpr OverlapStrategy a = OverlapStrategy::stream_per_chunk;
  const OverlapStrategy b =
      device().async_engine_count() > 1 ? OverlapStrategy::copy_compute_copy : a;
  EXPECT_EQ(choose_overlap_strategy(device(), large, 4, false), b);
  EXPECT_EQ(choose_overlap_strategy(device(), large, 4, true), a);
  EXPECT_EQ(choose_overlap_strategy(device(), 4 * large, 4, true), b);
  EXPECT_EQ(choose_overlap_strategy(device(), large, 1, false), a);
  EXPECT_EQ(choose_overlap_strategy(device(), 1000, 4, false), a);
  const std::vector<char> ordinary(large);
  const PinnedBuffer<char> pinned(large);
  const auto chosen = [&](const auto& in) {
    return overlap(in, no_output, [](StreamRef, DeviceSpan<const char>) {}).strategy;
  };
  constexpr size_t chunk = large / 16;
  EXPECT_EQ(chosen(ordinary),
            choose_overlap_strategy(device(), chunk, 4, !device().can_use_host_page_tables()));
  EXPECT_EQ(chosen(pinned), choose_overlap_strategy(device(), chunk, 4, false));
}

TEST_F(Overlap, RefusesInvalidArgumentsBeforeTheFunctionIsCalled) {
  const Numbers in = numbered(100);
  Numbers out(100);
  const auto never = [](StreamRef, auto...) { ADD_FAILURE() << "the function was called"; };
  const auto refused = [&](auto&& from, auto&& to, const OverlapOptions& options = {}) {
    return code_of([&] { overlap(from, to, options, never); }) == errc::invalid_argument;
  };
  EXPECT_TRUE(refused(in, Numbers(99)));
  EXPECT_TRUE(refused(in, Numbers(150)));
  EXPECT_TRUE(refused(in, Numbers{}));
  EXPECT_TRUE(refused(Numbers{}, out));
  EXPECT_TRUE(refused(by_rows(in, 3), out));
  EXPECT_TRUE(refused(by_rows(in, 0), out));
  EXPECT_TRUE(refused(by_rows(in, 10), by_rows(out, 3)));
  EXPECT_TRUE(refused(in, by_rows(out, 2)));
  EXPECT_TRUE(refused(zipped(in, by_rows(out, 2)), no_output));
  EXPECT_TRUE(refused(in, per_chunk(out), {.chunk = 0, .devices = {Device{0}, Device{0}}}));
  EXPECT_TRUE(refused(in, per_chunk(out, 0)));
  EXPECT_TRUE(refused(in, per_chunk(out, 51), {.chunk = 50}));
  EXPECT_TRUE(refused(std::span<const int>{static_cast<const int*>(nullptr), 5}, no_output));
  EXPECT_TRUE(refused(in, std::span<int>{static_cast<int*>(nullptr), 100}));
  EXPECT_TRUE(refused(std::span{out}.first(60), std::span{out}.last(60)));
  EXPECT_TRUE(refused(out, out, {.halo = 1}));
  EXPECT_TRUE(refused(out, filtered(out)));
  EXPECT_TRUE(refused(from_source<int>([](std::span<int> to) { return to.size(); }, 0), no_output));
  EXPECT_ERROR(invalid_device, overlap(in, out, {.devices = {Device{1000}}}, never));
  EXPECT_ERROR(out_of_memory, overlap(counting(1), no_output, {.chunk = huge / 8}, never));
  EXPECT_ERROR(out_of_memory, overlap(counting(1), no_output, {.chunk = huge}, never));
  EXPECT_THROW(overlap(counting(1), no_output, {.chunk = 1000, .in_flight = huge}, never),
               std::bad_alloc);
}

TEST_F(Overlap, RefusalsNameTheSizesAndTheDevice) {
  const Numbers in = numbered(123);
  Numbers out(97);
  const auto never = [](StreamRef, auto...) {};
  EXPECT_SAYS(TEXT_OF(overlap(in, out, never)), "the output has 97 elements for 123 items");
  const auto there = [&] { overlap(in, no_output, {.devices = {Device{Device::count()}}}, never); };
  EXPECT_EQ(code_of(there), errc::invalid_device);
  EXPECT_SAYS(text_of(there), "could not overlap: there is no device");
}

TEST_F(Overlap, RefusesSourcesThatReturnWrongCounts) {
  const Numbers in = numbered(100);
  const auto nothing = [](StreamRef, auto...) {};
  EXPECT_ERROR(invalid_argument,
               overlap(from_source<int>([](std::span<int> to) { return to.size() + 1; }), no_output,
                       {.chunk = 10}, nothing));
  EXPECT_ERROR(invalid_argument, overlap(from_source<int>([](std::span<int>) { return 3UL; }, 2),
                                         no_output, {.chunk = 10}, nothing));
  EXPECT_ERROR(invalid_argument,
               overlap(zipped(in, counting(99)), no_output, {.chunk = 10}, nothing));
  EXPECT_ERROR(invalid_argument,
               overlap(zipped(counting(25), counting(24)), no_output, {.chunk = 10}, nothing));
  Numbers small(99);
  EXPECT_ERROR(invalid_argument, overlap(counting(100), small, {.chunk = 10}, same));
  EXPECT_NO_ERROR(overlap(zipped(counting(25), counting(25)), no_output, {.chunk = 10}, nothing));
}

TEST_F(Overlap, IsRefusedInsideAHostFunction) {
  const Numbers in = numbered(100);
  std::error_code code;
  const Stream stream;
  stream.launch_host_func(
      [&] { code = code_of([&] { overlap(in, no_output, [](StreamRef, In) {}); }); });
  stream.synchronize();
  EXPECT_EQ(code, errc::not_permitted);
}

TEST_F(Overlap, OutOfMemoryIsAlsoABadAlloc) {
  const Numbers in = numbered(100);
  const auto failing = [&](auto fail) {
    overlap(in, no_output, [&](StreamRef stream, In) { fail(stream); });
  };
  const auto used_up = [](StreamRef stream) { const DeviceBuffer<char> all(huge / 4, stream); };
  const auto on_the_host = [](StreamRef) { throw std::bad_alloc{}; };
  EXPECT_THROW(failing(used_up), std::bad_alloc);
  EXPECT_THROW(failing(used_up), OverlapError);
  EXPECT_THROW(failing(used_up), std::exception);
  EXPECT_THROW(failing(on_the_host), OverlapError);
  EXPECT_ERROR(out_of_memory, failing(used_up));
  EXPECT_ERROR(out_of_memory, failing(on_the_host));
  try {
    failing(used_up);
  } catch (const std::bad_alloc& error) {
    EXPECT_SAYS(error.what(), "chunk 0, enqueueing: ");
    EXPECT_THROW(std::rethrow_if_nested(error), std::bad_alloc) << "the cause";
    const auto* const ours = dynamic_cast<const OverlapError*>(&error);
    ASSERT_NE(ours, nullptr);
    EXPECT_EQ(ours->chunk(), 0U);
  }
  EXPECT_THROW(failing([](StreamRef) { throw Mine{"too bad"}; }), std::system_error);
}

TEST_F(Overlap, KeepsTheNameOfItsStreams) {
  const Numbers in = numbered(1000);
  for (int run : range(3))
    overlap(in, no_output, {.chunk = 100}, [&](StreamRef stream, In) {
      EXPECT_SAYS(to_string(stream), "overlap") << to_string(stream) << " in run " << run;
    });
}

TEST_F(Overlap, EndsItsStreams) {
  const PinnedInts in(1200);
  Streams wrappers;
  overlap(in, no_output,
          {.chunk = 100, .in_flight = 12, .strategy = OverlapStrategy::stream_per_chunk},
          [&](StreamRef stream, In) { wrappers.push_back(borrow(stream)); });
  EXPECT_EQ(wrappers.size(), 12U);
  EXPECT_TRUE(std::ranges::none_of(wrappers, &Stream::is_valid));
}

TEST_F(Overlap, AcceptsFunctionsAndMoveOnlyObjects) {
  const Numbers in = numbered(100);
  Numbers out(100), again(100);
  overlap(in, out, copy_chunk);
  EXPECT_EQ(out, in);
  overlap(in, again, [owned = std::make_unique<int>(0)](StreamRef stream, In x, Out y) mutable {
    ++*owned;
    copy(stream, y, x);
  });
  EXPECT_EQ(again, in);
}

TEST_F(Overlap, MeasuresHiddenTransfers) {
  using std::chrono::nanoseconds;
  const auto interval = [](int start, int stop) {
    return OverlapInterval{nanoseconds{start}, nanoseconds{stop}};
  };
  const OverlapChunkTimes chunks[] = {
      {.chunk = 0,
       .copy_in = interval(0, 10),
       .compute = interval(10, 30),
       .copy_out = interval(30, 40)},
      {.chunk = 1,
       .copy_in = interval(5, 20),
       .compute = interval(30, 50),
       .copy_out = interval(50, 60)},
  };
  const OverlapMeasure measured = measure_overlap(chunks);
  EXPECT_EQ(measured.transfer, nanoseconds{40});
  EXPECT_EQ(measured.compute, nanoseconds{40});
  EXPECT_EQ(measured.hidden, nanoseconds{20});
  EXPECT_DOUBLE_EQ(measured.hidden_share(), 0.5);
  EXPECT_EQ(measure_overlap({}).hidden_share(), 0);
}

/// Runs only if the device's memory is so small that a test can use it up.
class OverlapInLittleMemory : public Conformance {
 protected:
  using Bytes = std::vector<char>;

  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    memory = device().memory_info().total;
    SKIP_IF(memory > 256 * mib, "the device has more than 256 MiB of memory");
    SKIP_IF(!device().has_memory_pools(), "memory is not allocated in stream order");
  }
  /// Sizes that need three quarters of the device's memory, for input and output together.
  OverlapOptions most_of_it() const { return {.chunk = memory / 16, .in_flight = 6}; }
  Bytes bytes(size_t size) const {
    Bytes all(size);
    for (size_t i : range(size)) all[i] = static_cast<char>(i % 251);
    return all;
  }
  static void same_bytes(StreamRef stream, DeviceSpan<const char> in, DeviceSpan<char> out) {
    copy(stream, out, in);
  }

  size_t memory = 0;
};

TEST_F(OverlapInLittleMemory, TakesDataLargerThanTheDevice) {
  Bytes all = bytes(3 * memory);
  overlap(all, all, [](StreamRef stream, DeviceSpan<const char>, DeviceSpan<char> out) {
    fill(stream, out, 'x');
  });
  EXPECT_ALL(all, 'x');

  size_t left = 3 * memory, written = 0;
  bool right = true;
  const OverlapResult result =
      overlap(from_source<char>([&](std::span<char> to) {
                const size_t count = std::min(left, to.size());
                std::fill_n(to.begin(), count, 'y');
                left -= count;
                return count;
              }),
              to_sink<char>([&](std::span<const char> from) {
                written += from.size();
                right = right && std::ranges::all_of(from, [](char c) { return c == 'y'; });
              }),
              same_bytes);
  EXPECT_TRUE(right);
  EXPECT_EQ(written, 3 * memory);
  EXPECT_LE(2 * result.chunk * result.in_flight, memory / 2)
      << "the other half is for allocations of the function";
}

TEST_F(OverlapInLittleMemory, ReusesMemoryOfEarlierRunsAndDestroyedBuffers) {
  const Bytes in = bytes(memory / 2);
  Bytes out(in.size());
  const Stream other;
  repeat(10, [&] {
    overlap(in, out, most_of_it(), same_bytes);
    EXPECT_EQ(out, in);
    overlap(in, out, most_of_it(), same_bytes);
    // gives the buffer room; the next overlap() must reuse the buffer's pending free
    device().synchronize();
    drop(DeviceBuffer<char>{memory / 2, other});
  });
}

TEST_F(OverlapInLittleMemory, WaitsForAPendingFree) {
  const Bytes in = bytes(memory / 2);
  Bytes out(in.size());
  const Stream other;
  std::optional dropped{DeviceBuffer<char>{memory / 2, other}};
  other.synchronize();
  Gate gate{other};
  dropped.reset();
  EXPECT_HELD(gate, overlap(in, out, most_of_it(), same_bytes));
  EXPECT_EQ(out, in);
}

TEST_F(OverlapInLittleMemory, WaitsForMemoryThatAHostFunctionFrees) {
  const Bytes in = bytes(memory / 2);
  Bytes out(in.size());
  const Stream other;
  auto buffer = std::make_shared<DeviceBuffer<char>>(memory / 2, other);
  other.synchronize();
  Gate gate{other};
  enqueue_drop(other, std::move(buffer));
  EXPECT_HELD(gate, overlap(in, out, most_of_it(), same_bytes));
  EXPECT_EQ(out, in);
}

TEST_F(OverlapInLittleMemory, ReducesSizesThatTheCallerLeftOpen) {
  const DeviceBuffer<char> in_use(memory - memory / 8);
  const Bytes in = bytes(memory);
  for (const OverlapStrategy strategy : strategies)
    for (const auto& [chunk, in_flight] :
         std::vector<std::array<size_t, 2>>{{0, 0}, {memory / 32, 0}, {0, 2}}) {
      Bytes out(in.size());
      const OverlapResult result = overlap(
          in, out, {.chunk = chunk, .in_flight = in_flight, .strategy = strategy}, same_bytes);
      EXPECT_EQ(out, in);
      EXPECT_LE(2 * result.chunk * result.in_flight, memory / 8);
      EXPECT_TRUE(chunk == 0 || result.chunk == chunk) << result.chunk;
      EXPECT_TRUE(in_flight == 0 || result.in_flight == in_flight) << result.in_flight;
    }
  try {
    Bytes out(in.size());
    overlap(in, out, most_of_it(), same_bytes);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::bad_alloc& error) {
    const std::string chunks = "6 chunks of " + std::to_string(2 * most_of_it().chunk) +
                               " bytes, in and out, have no room: could not ";
    EXPECT_SAYS(error.what(), chunks);
  }
}

TEST_F(OverlapInLittleMemory, KeepsTheNumberOfChunksThatTheResultsHaveRoomFor) {
  const DeviceBuffer<char> in_use(memory - memory / 8);
  const Bytes in = bytes(memory);
  // There is room for one result of each chunk of the default size. Smaller chunks would have more
  // results.
  Bytes results(16);
  const auto first_byte = [](StreamRef stream, DeviceSpan<const char> from, DeviceSpan<char> to) {
    copy(stream, to, from.subspan(0, 1));
  };
  const OverlapResult result = overlap(in, per_chunk(results), first_byte);
  EXPECT_EQ(result.chunks, 16U);
  for (size_t i : range(results.size())) EXPECT_EQ(results[i], in[i * result.chunk]);
}

TEST_F(OverlapInLittleMemory, RefusesAtOnceWhatCannotFit) {
  const Bytes in = bytes(memory);
  Bytes out(in.size());
  const Stream busy;
  Gate gate{busy};
  const auto refused = [&](const OverlapOptions& options) {
    try {
      overlap(in, out, options, same_bytes);
    } catch (const std::bad_alloc& error) {
      return std::string{error.what()}.find("do not fit into the " + std::to_string(memory) +
                                            " bytes") != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused({.chunk = memory / 4, .in_flight = 3}));
  EXPECT_TRUE(refused({.chunk = memory, .in_flight = 1}));
  EXPECT_CLOSED(gate);
}

class OverlapTwo : public TwoDevices {};

TEST_F(OverlapTwo, TwoDevicesShareTheChunks) {
  for (const OverlapStrategy strategy : strategies) {
    const Numbers in = numbered(10'001);
    for (const size_t in_flight : {1UL, 3UL}) {
      const OverlapOptions options{.chunk = 100,
                                   .in_flight = in_flight,
                                   .strategy = strategy,
                                   .devices = {first, second},
                                   .record_times = true};
      Numbers out(in.size());
      std::array<int, 2> chunks{};
      const OverlapResult result =
          overlap(in, out, options, [&](StreamRef stream, In x, Out y, const OverlapChunk& chunk) {
            EXPECT_EQ(chunk.device, Device{static_cast<int>(chunk.index % 2)});
            EXPECT_CURRENT_DEVICE(chunk.device);
            ++chunks[chunk.index % 2];
            copy(stream, y, x);
          });
      EXPECT_EQ(out, in);
      EXPECT_EQ(result.times.size(), 101U);
      EXPECT_EQ(chunks[0] + chunks[1], 101);
      Numbers streamed;
      overlap(counting(in.size()), keeping(streamed), options, same);
      EXPECT_EQ(streamed, in);

      OverlapOptions stencil = options;
      stencil.halo = 2;
      Numbers neighbours(5 * in.size());
      overlap(in, neighbours, stencil, with_neighbours);
      expect_neighbours(neighbours, in.size());
    }
  }
}

TEST_F(OverlapTwo, TheChunkThatFailedIsReported) {
  const Numbers in = numbered(10'000);
  Numbers out(in.size());
  EXPECT_EQ(failed_chunk([&] {
              overlap(in, out, {.chunk = 100, .devices = {first, second}},
                      [](StreamRef stream, In, Out, const OverlapChunk& chunk) {
                        stream.launch_host_func([index = chunk.index] {
                          if (index >= 33) throw Mine{"too bad"};
                        });
                      });
            }),
            33U);
}

}  // namespace conformance::overlap_cases
