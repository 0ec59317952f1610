// SPDX-License-Identifier: Apache-2.0
// Kernels, copies and events in the order of their streams.
#include <Kokkos_Random.hpp>

#include "support.hpp"

namespace {
using namespace kokkos_tests;
using kokkos::launch;

TEST(KokkosOrder, LaunchReturnsWhileTheStreamIsHeld) {
  Stream s;
  const Data<int*> x("x", 100);
  drop(kokkos::fenced_exec_space<Space>(s));
  {
    Gate gate{s};
    enqueue_affine(s, x, 1, 5);
    EXPECT_FALSE(s.query());
  }
  EXPECT_EQ(values(s, x), Ints(100, 5));
}

TEST(KokkosOrder, AnInstanceOfAHostSpaceWaitsForCopies) {
  SKIP_IF(kokkos::device_space<Space>, "the space's kernels are enqueued");
  Stream s;
  const Host<int*> from("from", 1000), to("to", 1000);
  Kokkos::deep_copy(from, 3);
  Gate gate{s};
  kokkos::copy_async(s, to, from);
  EXPECT_HELD(gate, drop(kokkos::fenced_exec_space<Space>(s)));
  EXPECT_EQ(to(999), 3);
}

TEST(KokkosOrder, AnInstanceOfAHostSpaceWaitsForOtherStreams) {
  SKIP_IF(kokkos::device_space<Space>, "the space's kernels are enqueued");
  Stream s, other;
  drop(kokkos::fenced_exec_space<Space>(s));
  Gate gate{other};
  s.wait_stream(other);
  EXPECT_HELD(gate, drop(kokkos::fenced_exec_space<Space>(s)));
}

TEST(KokkosOrder, KernelCopyKernelAcrossStreams) {
  Stream up, run, down;
  const int n = 1 << 18;
  const Host<int*> from("from", n), to("to", n);
  const Data<int*> x("x", n);
  for (int i : range(n)) from(i) = i;
  for (const Stream* each : {&up, &run, &down}) drop(kokkos::fenced_exec_space<Space>(*each));
  {
    Gate gate{up};
    kokkos::copy_async(up, x, from);
    run.wait_event(up.record_event());
    enqueue_affine(run, x, 2, 0);
    const Event doubled = run.record_event();
    up.wait_event(doubled);
    enqueue_affine(up, x, 1, 1);
    down.wait_stream(up);
    kokkos::copy_async(down, to, x);
    EXPECT_FALSE(down.query());
  }
  down.synchronize();
  for (int i : range(n)) ASSERT_EQ(to(i), 2 * i + 1) << "at " << i;
}

/// On a GPU's backend, kernels of a host space are host functions.
constexpr bool kernels_may_run_one_at_a_time =
    !kokkos::detail::is_host_backend && !kokkos::device_space<Space>;
constexpr const char* one_at_a_time = "the runtime may run one host function at a time";

TEST(KokkosOrder, AKernelDoesNotBlockOtherStreams) {
  SKIP_IF(kernels_may_run_one_at_a_time, one_at_a_time);
  Stream held, free;
  const Data<int*> x("x", 10);
  const Host<int*> host("host", 10);
  enqueue_affine(free, x, 0, 0);  // first use, which may have to wait until no kernel runs
  kokkos::copy_async(free, host, x);
  enqueue_affine(free, x, 0, 0);
  kokkos::copy_async(free, host, x);
  free.synchronize();
  KernelGate gate{held};
  ASSERT_TRUE(gate.reached());
  enqueue_affine(free, x, 1, 2);
  kokkos::copy_async(free, host, x);
  EXPECT_COMPLETES(free) << "the stream waits for the lock of the other stream's instance";
  EXPECT_EQ(host(9), 2);
  EXPECT_FALSE(held.query());
  gate.open();
  held.synchronize();
}

TEST(KokkosOrder, TwoLongKernelsOverlap) {
  SKIP_IF(kernels_may_run_one_at_a_time, one_at_a_time);
  SKIP_IF(std::thread::hardware_concurrency() < 2, "one processor");
  const auto instances = kokkos::make_instances<Space>(2);
  double best = 1e9, launched = 1e9;
  for (int attempt = 0; attempt < 5 && best > 210; ++attempt) {
    const auto start = Clock::now();
    for (const auto& each : instances) enqueue_spin(each, 200ms);
    launched = std::min(launched, milliseconds_since(start));
    for (const auto& each : instances) each.synchronize();
    best = std::min(best, milliseconds_since(start));
  }
  EXPECT_LT(launched, 150) << "launch() blocked";
  EXPECT_LT(best, 300) << "one kernel after the other takes 400 ms";
  std::printf("two kernels of 200 ms took %.1f ms\n", best);
}

TEST(KokkosOrder, StreamWaitsForInstance) {
  const Space own{};
  const kokkos::ExecStream instance{own};
  EXPECT_EQ(instance.fenced_exec(), own);
  Stream s;
  const Data<int*> x("x", 1000);
  for (int round = 1; round <= 20; ++round) {
    Kokkos::parallel_for(Policy(own, 0, 1000), Affine{x, 1, 1});
    s.wait_stream(instance.stream());
    enqueue_affine(s, x, 2, 0);
    instance.wait_stream(s);
    Kokkos::parallel_for(Policy(own, 0, 1000), Affine{x, 0, round});
    s.wait_event(instance.record_event());
  }
  EXPECT_EQ(values(s, x), Ints(1000, 20));
}

TEST(KokkosOrder, InstanceWaitsForEvent) {
  Stream s;
  const Space own{};
  const kokkos::ExecStream instance{own};
  const Data<int*> x("x", 1000);
  enqueue_spin(s, 5ms);
  enqueue_affine(s, x, 0, 3);
  instance.wait_event(s.record_event());
  Kokkos::parallel_for(Policy(own, 0, 1000), Affine{x, 2, 0});
  instance.synchronize();
  EXPECT_EQ(values(instance.stream(), x), Ints(1000, 6));
}

TEST(KokkosOrder, InstanceWaitsForInstance) {
  const auto made = kokkos::make_instances<Space>(2);
  const Space a = made[0].fenced_exec(), b = made[1].fenced_exec();
  const Data<int*> x("x", 1000);
  repeat(20, [&] {
    Kokkos::parallel_for(Policy(a, 0, 1000), Affine{x, 1, 1});
    kokkos::wait(b, a);
    Kokkos::parallel_for(Policy(b, 0, 1000), Affine{x, 2, 0});
    kokkos::wait(a, b);
  });
  kokkos::wait(a, Space{});
  EXPECT_EQ(values(made[0], x), Ints(1000, 2 * ((1 << 20) - 1)));
}

TEST(KokkosOrder, InstanceWaitsForWhatWasLaunchedOnAStream) {
  const auto made = kokkos::make_instances<Space>(2);
  const Space a = made[0].fenced_exec(), b = made[1].fenced_exec();
  const Data<int*> x("x", 1000);
  // first use, which may have to wait until no kernel runs
  Kokkos::parallel_for(Policy(b, 0, 1000), Affine{x, 0, 0});
  enqueue_affine(made[0], x, 0, 0);
  made[1].synchronize();
  made[0].synchronize();
  Gate gate{made[0]};
  enqueue_affine(made[0], x, 0, 3);
  const bool held = held_by(gate, [&] {
    kokkos::wait(b, a);
    Kokkos::parallel_for(Policy(b, 0, 1000), Affine{x, 2, 1});
  });
  EXPECT_EQ(held, kokkos::host_space<Space>) << "wait() blocks the caller on a host space only";
  EXPECT_EQ(values(made[1], x), Ints(1000, 7));
}

TEST(KokkosOrder, RoundTrips) {
  Stream s;
  const Space exec = kokkos::fenced_exec_space<Space>(s);
  EXPECT_EQ(kokkos::as_stream(exec).unfenced_stream(), s);
  const Space own{};
  const auto instance = kokkos::as_stream(own);
  EXPECT_EQ(kokkos::fenced_exec_space<Space>(instance.unfenced_stream()), own);
  EXPECT_EQ(kokkos::as_stream(own).unfenced_stream(), instance.unfenced_stream())
      << "an instance must always give the same stream";
}

TEST(KokkosOrder, AMoveOnlyFunctionRunsAndIsDestroyedOnce) {
  Stream s;
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = token;
  launch<Space>(s, [own = std::make_unique<std::shared_ptr<int>>(std::move(token))](const Space&) {
    ++**own;
  });
  s.synchronize();
  EXPECT_EVENTUALLY(watch.expired());
}

using Pool = Kokkos::Random_XorShift64_Pool<Space>;
struct Draw {
  KOKKOS_FUNCTION void operator()(int i) const {
    auto generator = pool.get_state();
    x(i) = generator.rand(1'000'000);
    pool.free_state(generator);
  }
  Data<int*> x;
  Pool pool;
};
// docs/kokkos.md: one pool for both streams would be a race.
TEST(KokkosOrder, StreamsWithPoolsOfTheirOwnDrawTheSameAsAlone) {
  SKIP_IF(!kokkos::host_space<Space>, "threads of a device draw in any order");
  constexpr int n = 1000, rounds = 50;
  const auto draw = [](const Space& exec, const Pool& pool, const Data<int*>& x) {
    repeat(rounds, [&] { Kokkos::parallel_for(Policy(exec, 0, n), Draw{x, pool}); });
  };
  const std::vector<Stream> streams(2);
  const Pool pools[] = {Pool(1), Pool(2)}, alone[] = {Pool(1), Pool(2)};
  const Data<int*> drawn[] = {Data<int*>("first", n), Data<int*>("second", n)},
                   expected("expected", n);
  for (size_t i : range(2UL))
    kokkos::launch<Space>(
        streams[i], [=, pool = pools[i], x = drawn[i]](const Space& exec) { draw(exec, pool, x); });
  for (size_t i : range(2UL)) {
    Stream s;
    kokkos::launch<Space>(s,
                          [=, pool = alone[i]](const Space& exec) { draw(exec, pool, expected); });
    EXPECT_EQ(values(streams[i], drawn[i]), values(s, expected)) << "stream " << i;
  }
}

TEST(KokkosOrder, ALaunchInAHostFunctionIsRefusedByName) {
  Stream s, other;
  std::string text;
  const auto try_to_launch = [&] {
    try {
      launch<Space>(other, [](const Space&) { FAIL(); });
    } catch (const Error& error) {
      text = error.what();
    }
  };
  s.launch_host_func(try_to_launch);
  s.synchronize();
  EXPECT_NE(text.find("could not launch kernels on a stream: "), std::string::npos) << text;
  // its functions are called by the launch itself
  if constexpr (kokkos::device_space<Space>) return;
  text.clear();
  launch<Space>(s, [&](const Space&) { try_to_launch(); });
  s.synchronize();
  EXPECT_NE(text.find("could not launch kernels on a stream: "), std::string::npos) << text;
}

TEST(KokkosOrder, ExceptionOfALaunch) {
  Stream s;
  const auto throwing = [&] {
    launch<Space>(s, [](const Space&) { throw std::runtime_error{"mine"}; });
    s.synchronize();
  };
  EXPECT_THROW(throwing(), std::runtime_error);
  const Data<int*> x("x", 3);
  enqueue_affine(s, x, 1, 1);
  EXPECT_EQ(values(s, x), Ints(3, 1));
}

}  // namespace
