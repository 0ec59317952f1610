// SPDX-License-Identifier: Apache-2.0
// docs/thread-safety.md: several threads use one object at a time. Memory has its cases in
// thread_safety_memory.cpp.
#include <barrier>
#include <runnel/hooks.hpp>

#include "support.hpp"

namespace conformance::thread_safety_cases {
constexpr int threads = 4;

/// Threads that begin each round together.
using Rounds = std::barrier<>;

using ThreadSafety = Conformance;
using ThreadSafetyTwo = TwoDevices;

/// What one thread does with a stream that the others use too.
class Visitor {
 public:
  Visitor(StreamRef stream, int number)
      : stream_{stream}, first_{pattern(size, static_cast<unsigned>(number + 1))} {}

  void visit(const Stream& other, int round) {
    copy(stream_, there_, first_);
    stream_.launch_host_func([this] { ++ran_; });
    const Event event = stream_.record_event();
    stream_.record_event(mark_);
    copy(stream_, back_, there_);
    stream_.on_complete([this](const Outcome& outcome) { told_ += outcome.is_ok() ? 1 : 1000; });
    other.wait_stream(stream_);
    stream_.wait_event(event);
    stream_.wait_event(mark_);
    EXPECT_TRUE(stream_.is_valid() && stream_.id() != 0 && stream_.native() != nullptr &&
                !stream_.is_capturing());
    if (round % 8 == 0)
      stream_.synchronize();
    else if (round % 8 == 4)
      EXPECT_COMPLETES(stream_);
    else
      drop(stream_.query());
  }
  void expect_all(int rounds) const {
    stream_.future().get();
    EXPECT_EQ(ran_, rounds);
    EXPECT_EQ(back_, first_);
    EXPECT_EVENTUALLY(told_ == rounds) << told_;
  }

 private:
  static constexpr size_t size = 3000;
  StreamRef stream_;
  Bytes first_, back_ = Bytes(size);
  DeviceBytes there_{size, stream_};
  Event mark_;
  int ran_ = 0;  // not atomic: the stream gives the order
  std::atomic_int told_{0};
};

TEST_F(ThreadSafety, OneStreamTakesAllOperationsAtOnce) {
  constexpr int rounds = 60;
  const Stream stream, other;
  on_threads(threads, [&](int i) {
    Visitor visitor{stream, i};
    for (int round : range(rounds)) visitor.visit(other, round);
    visitor.expect_all(rounds);
  });
  EXPECT_RUNS(stream);
  EXPECT_RUNS(other);
}

TEST_F(ThreadSafety, BatchesAndPatternsOfFourThreadsInOneStream) {
  constexpr size_t size = 512;
  const Stream stream;
  on_threads(threads, [&](int i) {
    Ints in(size, i), out(size), filled(size);
    DeviceInts there{size, stream}, other{size, stream};
    const CopyOperation up[] = {copy_operation(there, in)};
    const CopyOperation down[] = {copy_operation(out, there), copy_operation(filled, other)};
    for (int round : range(50)) {
      std::ranges::fill(in, i * 1000 + round);
      copy_batch(stream, up);
      fill(stream, other, i * 77 + round);
      set(stream, other, 5, round);
      copy_batch(stream, down);
      EXPECT_EQ(get(stream, other, 5), round);
      EXPECT_EQ(out, in);
      EXPECT_EQ(filled[4], i * 77 + round);
    }
  });
}

TEST_F(ThreadSafety, AnExceptionReachesOneOfFourWaits) {
  constexpr int rounds = 20;
  const Stream stream;
  std::atomic_int thrown{0};
  Rounds step{threads};
  on_threads(threads, [&](int i) {
    for (int round : range(rounds)) {
      if (i == 0) stream.launch_host_func([round] { throw round; });
      step.arrive_and_wait();
      try {
        stream.synchronize();
      } catch (const int found) {
        EXPECT_EQ(found, round);
        ++thrown;
      }
      step.arrive_and_wait();
      if (i == 0) {
        EXPECT_EQ(thrown, round + 1);
      }
    }
  });
}

TEST_F(ThreadSafety, AFutureOfFourThreadsThrowsForEach) {
  const Stream stream;
  std::atomic_int thrown{0}, well{0};
  std::optional<Future> fails, succeeds;
  int written = 0;
  Rounds step{threads};
  constexpr int rounds = 20;
  on_threads(threads, [&](int i) {
    for (int round = 1; round <= rounds; ++round) {
      if (i == 0) {
        stream.launch_host_func([&written, round] { written = round; });
        succeeds = stream.future();
        stream.launch_host_func([] { throw 1; });
        fails = stream.future();
      }
      step.arrive_and_wait();
      const Future mine = *succeeds;
      EXPECT_TRUE(mine.wait_for(patience));
      EXPECT_TRUE(mine.is_ready());
      EXPECT_EQ(written, round);
      well += succeeds->outcome().is_ok();
      try {
        fails->get();
      } catch (const int) {
        ++thrown;
      }
      EXPECT_EQ(fails->outcome().code(), errc::function_failed);
      step.arrive_and_wait();
      if (i == 0) {
        EXPECT_THROW(stream.synchronize(), int);
      }
    }
  });
  EXPECT_EQ(thrown, threads * rounds);
  EXPECT_EQ(well, threads * rounds);
}

/// One thread records the event again and again, the others ask and wait. What was recorded before
/// a call began is complete after it.
template <class Kind>
class Recorded {
 public:
  void record(int round) {
    stream_.launch_host_func([this, round] { done_ = round; });
    event_.record(stream_);
    recorded_ = round;
  }
  void wait() {
    const int before = recorded_;
    event_.synchronize();
    EXPECT_GE(done_, before);
  }
  void wait_bounded() {
    const int before = recorded_;
    EXPECT_COMPLETES(event_);
    EXPECT_GE(done_, before);
  }
  void ask() {
    const int before = recorded_;
    const bool is_complete = event_.query();
    EXPECT_TRUE(!is_complete || done_ >= before);
    EXPECT_TRUE(event_.is_valid());
    EXPECT_NE(to_string(event_), "");
  }
  void make_wait(StreamRef waiting) {
    const int before = recorded_;
    waiting.wait_event(event_);
    waiting.launch_host_func([this, before] { late_ += done_ < before ? 1 : 0; });
  }
  void tell() {
    const int before = recorded_;
    ++told_expected_;
    event_.on_complete([this, before](const Outcome& outcome) {
      late_ += !outcome.is_ok() || done_ < before ? 1 : 0;
      ++told_;
    });
  }
  void expect_in_order() {
    EXPECT_EVENTUALLY(told_ == told_expected_) << told_;
    EXPECT_EQ(late_, 0);
    event_.synchronize();
    EXPECT_DONE(event_);
  }

 private:
  Stream stream_;
  Kind event_;
  std::atomic_int done_{0}, recorded_{0}, late_{0}, told_{0}, told_expected_{0};
};

template <class Kind>
void record_beside_waits() {
  constexpr int rounds = 500;
  const Stream waiting;
  Recorded<Kind> recorded;
  on_threads(threads, [&](int i) {
    for (int round = 1; round <= rounds; ++round) {
      if (i == 0)
        recorded.record(round);
      else if (i == 1)
        round % 2 == 0 ? recorded.wait() : recorded.ask();
      else if (i == 2)
        round % 2 == 0 ? recorded.wait_bounded() : recorded.ask();
      else
        recorded.make_wait(waiting);
    }
  });
  waiting.synchronize();
  recorded.expect_in_order();
}
TEST_F(ThreadSafety, AnEventIsRecordedBesideWaits) { record_beside_waits<Event>(); }
TEST_F(ThreadSafety, ATimedEventIsRecordedBesideWaits) { record_beside_waits<TimedEvent>(); }

template <class Kind>
void complete_on_four_threads() {
  const Stream waiting;
  Recorded<Kind> recorded;
  Rounds step{threads};
  on_threads(threads, [&](int i) {
    for (int round = 1; round <= 20; ++round) {
      if (i == 0) recorded.record(round);
      step.arrive_and_wait();
      recorded.tell();
      recorded.make_wait(waiting);
      recorded.ask();
      recorded.wait();
      step.arrive_and_wait();
    }
  });
  waiting.synchronize();
  recorded.expect_in_order();
}
TEST_F(ThreadSafety, AnEventIsToldOfByFourThreads) { complete_on_four_threads<Event>(); }
TEST_F(ThreadSafety, ATimedEventIsToldOfByFourThreads) { complete_on_four_threads<TimedEvent>(); }

/// Records that replace the native event, because a completion or another device has the old one,
/// beside all uses. No thread knows which record it meets.
template <class Kind>
void replace_beside_uses(Device second) {
  const Stream here, there{second}, waiting;
  std::atomic_int told{0};
  int asked = 0;
  repeat(10, [&] {
    Kind event;
    on_threads(threads, [&](int i) {
      for (int round : range(100)) {
        if (i == 0) event.record(round % 2 == 0 ? here : there);
        if (i == 1)
          event.on_complete(
              [&told](const Outcome& outcome) { told += outcome.is_ok() ? 1 : 100'000; });
        if (i == 2) waiting.wait_event(event);
        if (i == 3) drop(event.query() || event.synchronize_for(patience));
      }
    });
    asked += 100;
    event.synchronize();
  });
  for (const Stream* stream : {&here, &there, &waiting}) stream->synchronize();
  EXPECT_EVENTUALLY(told == asked) << told;
}
TEST_F(ThreadSafety, AnEventIsReplacedBesideUses) { replace_beside_uses<Event>(device()); }
TEST_F(ThreadSafety, ATimedEventIsReplacedBesideUses) { replace_beside_uses<TimedEvent>(device()); }
TEST_F(ThreadSafetyTwo, AnEventIsReplacedBesideUses) { replace_beside_uses<Event>(this->second); }
TEST_F(ThreadSafetyTwo, ATimedEventIsReplacedBesideUses) {
  replace_beside_uses<TimedEvent>(this->second);
}

TEST_F(ThreadSafety, TimesAreTakenByFourThreads) {
  const Stream stream;
  const TimedEvent start{stream};
  occupy(stream, 2ms);
  const TimedEvent stop{stream};
  stop.synchronize();
  const auto took = stop - start;
  on_threads(threads, [&](int) {
    repeat(100, [&] {
      EXPECT_EQ(stop - start, took);
      EXPECT_DONE(start);
    });
  });
}

TEST_F(ThreadSafetyTwo, AnEventIsRecordedOnTwoDevicesAtOnce) {
  Event event;
  on_threads(4, [&](int thread) {
    const Stream stream{thread % 2 == 0 ? first : second};
    for (int i : range(3000)) {
      event.record(stream);
      EXPECT_TRUE(i % 100 != 0 || event.synchronize_for(patience));
    }
    stream.synchronize();
  });
  EXPECT_COMPLETES(event);
}

TEST_F(ThreadSafety, ASharedEventGivesItsHandleToFourThreads) {
  repeat(10, [&] {
    const Stream stream;
    Event event{EventOptions{.interprocess = true}};
    std::vector<IpcEventHandle> handles(threads);
    on_threads(threads, [&](int i) {
      nth(handles, i) = event.ipc_handle();
      EXPECT_ERROR(invalid_argument, Event::from_ipc_handle(nth(handles, i)));
      event.synchronize();
      stream.wait_event(event);
    });
    for (const IpcEventHandle& handle : handles) EXPECT_EQ(handle, handles[0]);
    event.record(stream);
    EXPECT_COMPLETES(event);
  });
}

/// Leases that one thread takes and another one ends.
class Exchange {
 public:
  void put(StreamLease lease) {
    const std::lock_guard lock{mutex_};
    leases_.push_back(std::move(lease));
  }
  /// Ends the lease that was put first.
  void end_one() {
    std::optional<StreamLease> lease;
    const std::lock_guard lock{mutex_};
    if (leases_.empty()) return;
    lease.emplace(std::move(leases_.front()));
    leases_.erase(leases_.begin());
  }

 private:
  std::mutex mutex_;
  std::vector<StreamLease> leases_;
};

TEST_F(ThreadSafety, LeasesEndOnOtherThreads) {
  constexpr int rounds = 40;
  StreamPool pool{device(), {.size = 2, .max = 3}};
  std::atomic_int ran{0}, taken{0};
  {
    Exchange exchange;
    on_threads(threads, [&](int i) {
      for (int round : range(rounds)) {
        std::optional<StreamLease> lease =
            pool.acquire_for(std::chrono::milliseconds{i == 0 ? 0 : 1});
        if (lease) {
          lease->launch_host_func([&] { ++ran; });
          ++taken;
          exchange.put(std::move(*lease));
        }
        EXPECT_LE(pool.size(), 3U);
        EXPECT_LE(pool.leased(), 3U);
        EXPECT_LE(pool.growth(), 1U);
        if (round % 2 == 1 || !lease) exchange.end_one();
      }
    });
  }
  EXPECT_EQ(pool.leased(), 0U);
  EXPECT_GT(taken, 0);
  device().synchronize();
  EXPECT_EVENTUALLY(ran == taken) << ran << " of " << taken;
  EXPECT_RUNS(pool.acquire());
}

TEST_F(ThreadSafety, AGraphIsLaunchedAndDrawnByFourThreads) {
  constexpr size_t size = 256;
  constexpr int rounds = 60;
  const Stream stream;
  DeviceInts there{size, stream}, other{size, stream};
  int count = 0;  // not atomic: the launches of one graph run one after the other
  fill(stream, there, 9);
  stream.synchronize();
  const Graph graph = capture(stream, [&] {
    copy(stream, other, there);
    stream.launch_host_func([&] { ++count; });
  });
  const std::string drawing = graph.dot();
  on_threads(threads, [&](int) {
    const Stream own;
    repeat(rounds, [&] {
      graph.launch(own);
      EXPECT_NODES(graph, 2U);
      EXPECT_EQ(graph.dot(), drawing);
      EXPECT_EQ(graph.device(), device());
    });
    own.synchronize();
  });
  EXPECT_EQ(get(stream, other, size - 1), 9);
  EXPECT_EQ(count, threads * rounds);
}

TEST_F(ThreadSafety, AGraphIsUpdatedBetweenLaunchesOfFourThreads) {
  constexpr size_t rounds = 40;
  const Stream captured;
  std::array<std::atomic_int, rounds> ran{};
  const auto work_of = [&](size_t round) {
    return [&, round] { captured.launch_host_func([&ran, round] { ++ran[round]; }); };
  };
  Graph graph = capture(captured, work_of(0));
  Rounds step{threads};
  on_threads(threads, [&](int i) {
    const Stream own;
    for (size_t round : range(rounds)) {
      graph.launch(own);  // these may still be under way at the update, and keep the old work
      EXPECT_NODES(graph, 1U);
      step.arrive_and_wait();
      if (i == static_cast<int>(round) % threads && round + 1 < rounds)
        drop(graph.update(captured, work_of(round + 1)));
      step.arrive_and_wait();
    }
    own.synchronize();
  });
  for (const std::atomic_int& each : ran) EXPECT_EQ(each, threads);
}

TEST_F(ThreadSafety, FourThreadsUpdateTheirOwnGraphs) {
  constexpr int rounds = 40;
  const Stream shared;
  on_threads(threads, [&](int i) {
    const Stream own;
    int sum = 0, expected = 0;
    Graph graph = capture(own, [&] { own.launch_host_func([&sum] { ++sum; }); });
    for (int round : range(rounds)) {
      drop(
          graph.update(own, [&] { own.launch_host_func([&sum, i, round] { sum += i + round; }); }));
      graph.launch(round % 2 == 0 ? StreamRef{own} : StreamRef{shared});
      expected += i + round;
    }
    own.synchronize();
    shared.synchronize();
    EXPECT_EQ(sum, expected);
  });
}

TEST_F(ThreadSafety, AGraphsExceptionReachesTheStreamsThatLaunchIt) {
  constexpr int rounds = 40;
  const Stream stream;
  const Graph graph = capture(stream, [&] { stream.launch_host_func([] { throw 1; }); });
  std::atomic_int thrown{0};
  on_threads(threads, [&](int) {
    const Stream own;
    repeat(rounds, [&] {
      graph.launch(own);
      try {
        own.synchronize();
      } catch (const int) {
        ++thrown;
      }
    });
    EXPECT_NO_THROW(own.synchronize());
  });
  EXPECT_EQ(thrown, threads * rounds);
}

TEST_F(ThreadSafety, AGraphEndsBesideCapturesOfTheStreamOfItsLaunch) {
  const Stream stream;
  std::vector<Graph> graphs(200);
  for (Graph& each : graphs) {
    each = capture(stream, [&] { enqueue_nothing(stream); });
    each.launch(stream);
  }
  std::atomic_bool is_over{false};
  std::thread capturing{[&] {
    while (!is_over) drop(capture(stream, [] {}));
  }};
  for (Graph& each : graphs) each = {};
  is_over = true;
  capturing.join();
  stream.synchronize();
}

TEST_F(ThreadSafety, CapturesOfFourThreadsLeaveOtherStreamsAlone) {
  constexpr size_t size = 1000;
  const Stream shared;
  std::atomic_int ran{0}, launched{0};
  on_threads(threads, [&](int i) {
    const Stream own, captured;
    const Bytes in = pattern(size, static_cast<unsigned>(i));
    Bytes back(size);
    PinnedBytes host{size};
    DeviceBytes there{size, own};
    repeat(30, [&] {
      const Graph graph = capture(captured, [&] {
        captured.launch_host_func([&] { ++launched; });
        copy(own, there, in);
        shared.launch_host_func([&] { ++ran; });
        fill(captured, host, static_cast<unsigned char>(i));
        copy(own, back, there);
      });
      own.synchronize();
      EXPECT_EQ(back, in);
      EXPECT_NODES(graph, 2U);
      graph.launch(own);
      own.synchronize();
      EXPECT_EQ(host[size - 1], i);
    });
  });
  shared.synchronize();
  EXPECT_EQ(ran, threads * 30);
  EXPECT_EQ(launched, threads * 30);
}

TEST_F(ThreadSafety, OneContextGuardsFourThreads) {
  const Stream stream;
  std::optional<StreamContext> context;
  {
    const StreamGuard with{stream};
    context.emplace();
  }
  on_threads(threads, [&](int i) {
    const Stream own;
    repeat(100, [&] {
      {
        const StreamContext::Guard with{*context};
        const HookLocation here{"file", "function", static_cast<unsigned>(i)};
        const ProfilerRange range{"range"};
        EXPECT_CURRENT(stream);
        const StreamGuard inner{own};
        EXPECT_CURRENT(own);
      }
      EXPECT_CURRENT(default_stream());
      set_default_pageable(i % 2 == 0 ? Pageable::block : Pageable::refuse);
      EXPECT_EQ(default_pageable(), i % 2 == 0 ? Pageable::block : Pageable::refuse);
    });
  });
  EXPECT_EQ(default_pageable(), Pageable::stage);
}

TEST_F(ThreadSafety, OverlapRunsOnFourThreads) {
  const Ints in(20'000, 5);
  on_threads(threads, [&](int i) {
    Ints out(in.size());
    std::thread::id ran_on;
    size_t finished = 0;
    OverlapOptions options{.chunk = 1500, .in_flight = static_cast<size_t>(1 + i)};
    options.progress = [&](const OverlapProgress& progress) { finished = progress.items; };
    const OverlapResult result = overlap(
        in, out, options, [&](StreamRef stream, DeviceSpan<const int> from, DeviceSpan<int> to) {
          ran_on = std::this_thread::get_id();
          copy(stream, to, from);
        });
    EXPECT_EQ(out, in);
    EXPECT_EQ(result.items, in.size());
    EXPECT_EQ(finished, in.size());
    EXPECT_EQ(ran_on, std::this_thread::get_id());
  });
}

TEST_F(ThreadSafety, DevicesAnswerFourThreads) {
  const Device here = device();
  const std::string name = here.name(), uuid = here.uuid();
  const size_t total = here.memory_info().total;
  on_threads(threads, [&](int i) {
    const Stream own;
    repeat(50, [&] {
      EXPECT_EQ(here.name(), name);
      EXPECT_EQ(Device::from_uuid(uuid), here);
      EXPECT_EQ(here.memory_info().total, total);
      EXPECT_EQ(here.host_wait(), HostWait::automatic);
      here.set_host_wait(HostWait::automatic);
      EXPECT_TRUE(here.priority_range().contains(0));
      EXPECT_EQ(here.default_stream().device(), here);
      EXPECT_GE(live_objects().streams, 1U);
      if (i == 0) here.synchronize();
      if (Device::count() > 1 && here.can_access_peer(Device{1}))
        here.enable_peer_access(Device{1});
    });
  });
  if (Device::count() > 1) here.disable_peer_access(Device{1});
}

TEST_F(ThreadSafety, PartsOfADeviceAreTheSameForFourThreads) {
  SKIP_IF(!device().has_partitions(),
          "streams of this device cannot have a part of its multiprocessors");
  SKIP_IF(device().multiprocessor_count() < 2, "the device cannot be divided");
  std::vector<std::optional<Partition>> parts(threads);
  on_threads(threads, [&](int i) {
    repeat(20, [&] {
      const auto [small, rest] = partition(device(), 1);
      nth(parts, i) = small;
      EXPECT_RUNS(Stream{{.partition = rest}});
    });
  });
  for (const auto& part : parts) EXPECT_EQ(*part, *parts[0]);
}

TEST_F(ThreadSafetyTwo, StreamsOfTwoDevicesWaitForEachOtherOnFourThreads) {
  constexpr size_t size = 500;
  const Stream on_first{first}, on_second{second};
  on_threads(threads, [&](int i) {
    const Bytes in = pattern(size, static_cast<unsigned>(i));
    Bytes back(size);
    DeviceBytes here{size, on_first}, there{size, on_second};
    repeat(40, [&] {
      copy(on_first, here, in);
      on_second.wait_stream(on_first);
      copy(on_second, there, here);
      copy(on_second, back, there);
      on_first.wait_stream(on_second);  // the next copy overwrites what that one reads
      on_second.synchronize();
      EXPECT_EQ(back, in);
    });
    here.record_stream(on_second);
  });
}

TEST_F(ThreadSafetyTwo, GuardsOfFourThreadsAreIndependent) {
  const Stream on_second{second};
  on_threads(threads, [&](int i) {
    repeat(100, [&] {
      const DeviceGuard guard{Device{i % 2}};
      EXPECT_CURRENT_DEVICE(Device{i % 2});
      const StreamGuard with{on_second};
      EXPECT_CURRENT_DEVICE(second);
      EXPECT_CURRENT(on_second);
    });
    EXPECT_CURRENT_DEVICE(first);
  });
}

}  // namespace conformance::thread_safety_cases
