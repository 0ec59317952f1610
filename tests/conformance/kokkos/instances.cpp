// SPDX-License-Identifier: Apache-2.0
// The execution space instance of a stream.

#include "support.hpp"

namespace {
using namespace kokkos_tests;
using kokkos::fenced_exec_space;

TEST(KokkosInstances, AStreamKeepsOneInstance) {
  Stream s, t;
  const Space first = fenced_exec_space<Space>(s);
  EXPECT_EQ(first, fenced_exec_space<Space>(s));
  EXPECT_NE(first, fenced_exec_space<Space>(t));
  EXPECT_NE(first, Space{}) << "all streams would share the lock of the default instance";
}

TEST(KokkosInstances, AStreamKeepsOneInstancePerSpace) {
  Stream s;
  const Space first = fenced_exec_space<Space>(s);
  drop(fenced_exec_space<kokkos::HostSpace>(s));
  EXPECT_EQ(first, fenced_exec_space<Space>(s));
}

TEST(KokkosInstances, ConcurrentThreadsGetTheSameInstance) {
  Stream s;
  std::array<std::optional<Space>, 8> got;
  on_threads(8, [&](int i) { got[static_cast<size_t>(i)] = fenced_exec_space<Space>(s); });
  for (const auto& each : got) EXPECT_EQ(*each, fenced_exec_space<Space>(s));
}

TEST(KokkosInstances, DestroyedStreamIsRefused) {
  std::optional<Stream> s{std::in_place};
  const StreamRef view = *s;
  drop(fenced_exec_space<Space>(view));
  s.reset();
  EXPECT_ERROR(invalid_handle, fenced_exec_space<Space>(view));
  EXPECT_ERROR(invalid_handle, kokkos::launch<Space>(view, [](const Space&) { FAIL(); }));
  Stream from, to{std::move(from)};
  EXPECT_ERROR(invalid_handle, fenced_exec_space<Space>(from));
  drop(fenced_exec_space<Space>(to));
}

TEST(KokkosInstances, ANewStreamInAReusedSlotGetsANewInstance) {
  repeat(50, [&] {
    Stream s;
    const Space exec = fenced_exec_space<Space>(s);
    EXPECT_EQ(exec, fenced_exec_space<Space>(s));
    enqueue_spin(s, 0ms);
  });
}

TEST(KokkosInstances, MovesWithItsStream) {
  Stream s;
  const Space exec = fenced_exec_space<Space>(s);
  Stream t{std::move(s)};
  EXPECT_EQ(exec, fenced_exec_space<Space>(t));
}

/// The depth of the calling thread's stack of CUDA contexts; 0 without CUDA.
size_t contexts() {
  size_t count = 0;
#ifdef KOKKOS_ENABLE_CUDA
  std::vector<CUcontext> stack;
  for (CUcontext top{}; cuCtxPopCurrent(&top) == CUDA_SUCCESS && top != nullptr;)
    stack.push_back(top);
  count = stack.size();
  for (; !stack.empty(); stack.pop_back()) cuCtxPushCurrent(stack.back());
#endif
  return count;
}

TEST(KokkosInstances, LeavesDeviceAndContextsAsTheyWere) {
  const Device before = Device::current();
  const size_t found = contexts();
  {
    const Stream s{Device{Device::count() - 1}};
    drop(fenced_exec_space<Space>(s));
    enqueue_spin(s, 0ms);
    s.synchronize();
    EXPECT_EQ(Device::current(), before);
    EXPECT_EQ(contexts(), found);
  }
  EXPECT_EQ(Device::current(), before) << "the instance's end";
  EXPECT_EQ(contexts(), found);
}

TEST(KokkosInstances, PrioritiesCanBeReadBack) {
  const PriorityRange range = Device::current().priority_range();
  for (const Priority asked :
       {Priority::high, range.greatest, Priority::normal, range.least, Priority::low}) {
    const auto made = kokkos::make_instances<Space>(2, {.priority = asked});
    ASSERT_EQ(made.size(), 2U);
    for (const auto& each : made) {
      EXPECT_EQ(each.priority(), range.clamp(asked));
      EXPECT_FALSE(each.is_blocking());
      EXPECT_NE(each.fenced_exec(), Space{});
    }
    EXPECT_NE(made[0].fenced_exec(), made[1].fenced_exec());
  }
  EXPECT_TRUE(kokkos::make_instances<Space>(0).empty());
  EXPECT_ERROR(invalid_argument, kokkos::make_instances<Space>(1, {}, 0));
}

TEST(KokkosInstances, TheDefaultStreamHasAnInstanceToo) {
  const StreamRef stream = Device::current().default_stream();
  Data<int*> x("x", 4);
  enqueue_affine(stream, x, 0, 7);
  EXPECT_EQ(values(stream, x), Ints(4, 7));
  EXPECT_EQ(fenced_exec_space<Space>(stream), kokkos::fenced_current_exec_space<Space>());
}

TEST(KokkosInstances, CurrentStream) {
  Stream s;
  {
    const StreamGuard with{s};
    EXPECT_EQ(kokkos::fenced_current_exec_space<Space>(), fenced_exec_space<Space>(s));
  }
  EXPECT_NE(kokkos::fenced_current_exec_space<Space>(), fenced_exec_space<Space>(s));
  Stream t;
  {
    const kokkos::ExecGuard with{fenced_exec_space<Space>(t)};
    EXPECT_EQ(current_stream(), t);
    EXPECT_EQ(kokkos::fenced_current_exec_space<Space>(), fenced_exec_space<Space>(t));
  }
  {
    const Space own{};  // Kokkos' own instance
    const kokkos::ExecGuard with{own};
    EXPECT_EQ(kokkos::fenced_current_exec_space<Space>(), own);
  }
  EXPECT_EQ(current_stream(), Device::current().default_stream());
}

/// The number of threads that run a kernel of that instance. In Kokkos 4.7, concurrency() returns
/// the default instance's number.
template <class E>
size_t threads_of(const E& exec) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  Kokkos::parallel_for(Kokkos::RangePolicy<E>(exec, 0, 1000), [&](int) {
    const std::lock_guard lock{mutex};
    seen.insert(std::this_thread::get_id());
  });
  return seen.size();
}
template <class E>
size_t threads_in_a_graph(StreamRef stream) {
  size_t threads = 0;
  const Graph graph = capture(stream, [&] {
    kokkos::launch<E>(stream, [&](const E& exec) { threads = threads_of(exec); });
  });
  graph.launch(stream);
  stream.synchronize();
  return threads;
}
template <class E>
void set_threads() {
  if constexpr (std::constructible_from<E, int>) {
    Stream s, t;
    kokkos::set_host_threads<E>(s, 2);
    EXPECT_EQ(threads_of(fenced_exec_space<E>(s)), 2U);
    EXPECT_EQ(threads_of(fenced_exec_space<E>(t)), 1U);
    EXPECT_EQ(threads_in_a_graph<E>(s), 2U);
    EXPECT_EQ(threads_in_a_graph<E>(t), 1U);
    EXPECT_ERROR(not_permitted, kokkos::set_host_threads<E>(s, 1));
    EXPECT_ERROR(invalid_argument, kokkos::set_host_threads<E>(t, 0));
    const Data<int*> x("x", 1000);
    enqueue_affine(s, x, 1, 3);
    EXPECT_EQ(values(s, x), Ints(1000, 3));
  } else {
    GTEST_SKIP() << "only OpenMP's instances have a number of threads";
  }
}
TEST(KokkosInstances, ThreadsOfOpenMP) { set_threads<Space>(); }

struct Count {
  KOKKOS_FUNCTION void operator()(int i, long& sum) const { sum += i; }
};
struct Running {
  Data<long*> to;
  KOKKOS_FUNCTION void operator()(int i, long& sum, bool last) const {
    sum += i;
    if (last) to(i) = sum;
  }
};

TEST(KokkosInstances, EightThreadsUseTheirOwnInstances) {
  constexpr int n = 10000;
  on_threads(8, [&](int) {
    const Stream s;
    const Data<long*> running(Kokkos::view_alloc(fenced_exec_space<Space>(s), "running"), n);
    const Data<long> sum(Kokkos::view_alloc(fenced_exec_space<Space>(s), "sum"));
    const Host<long*> got("got", n);
    const Host<long> total("total");
    for (int round = 0; round < 20; ++round) {
      kokkos::launch<Space>(s, [=](const Space& exec) {
        Kokkos::parallel_reduce(Policy(exec, 0, n), Count{}, sum);
        Kokkos::parallel_scan(Policy(exec, 0, n), Running{running});
      });
      kokkos::copy_async(s, total, sum);
      kokkos::copy_async(s, got, running);
      s.synchronize();
      EXPECT_EQ(total(), long{n} * (n - 1) / 2);
      for (int i : range(n)) ASSERT_EQ(got(i), long{i} * (i + 1) / 2) << "at " << i;
    }
  });
}

}  // namespace
