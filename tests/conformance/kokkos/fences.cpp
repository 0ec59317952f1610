// SPDX-License-Identifier: Apache-2.0
// What is written first by somebody who knows Kokkos, and is right on a device: a fence, a
// deep_copy or a kernel in the calling thread after work that was enqueued on a stream. On host
// spaces, it must be right too.

#include "support.hpp"

namespace {
using namespace kokkos_tests;
using kokkos::copy_async;
using kokkos::launch;

#ifdef KOKKOS_ENABLE_THREADS
// the space whose kernels streams run, if the tested space is Threads
using Enqueued = kokkos::HostSpace;
#else
using Enqueued = Space;
#endif
using EnqueuedPolicy = Kokkos::RangePolicy<Enqueued>;

/// A Kokkos with a device, whose fences wait for all of the device also if only kernels of a host
/// space were launched. The device's runtime refuses that inside a host function, and it breaks
/// captures.
#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
constexpr bool fences_wait_for_a_device =
    !kokkos::detail::is_host_backend && !kokkos::device_space<Space>;
#else
constexpr bool fences_wait_for_a_device = false;
#endif
constexpr const char* refused = "the runtime refuses fences inside a host function";

constexpr int rounds = 1000;
constexpr int elements = 20'000;

/// x[i] = value; slow enough to be caught in the middle.
struct Set {
  Data<int*> x;
  int value;
  KOKKOS_FUNCTION void operator()(int i) const { x(i) = value; }
};
struct Sum {
  Data<int*> x;
  KOKKOS_FUNCTION void operator()(int i, int& sum) const { sum += x(i); }
};
/// Launches a kernel for the numbers from `begin` to `end` - 1.
template <class Kernel>
void launch_kernel(StreamRef stream, int begin, int end, Kernel kernel) {
  launch<Enqueued>(stream, [=](const Enqueued& exec) {
    Kokkos::parallel_for(EnqueuedPolicy(exec, begin, end), kernel);
  });
}
/// Calls `pattern(value)` once for each value from 1 to `rounds`, and expects that it returns that
/// value.
void expect_values(const std::function<int(int)>& pattern) {
  int wrong = 0;
  for (int value = 1; value <= rounds; ++value) wrong += pattern(value) == value ? 0 : 1;
  EXPECT_EQ(wrong, 0);
}

class KokkosFirstPatterns : public testing::Test {
 protected:
  void launch_set(int value) { launch_kernel(stream_, 0, elements, Set{x_, value}); }
  int last() {
    if constexpr (!kokkos::device_space<Space>) return x_(elements - 1);
    Kokkos::deep_copy(host_, x_);
    return host_(elements - 1);
  }

  Stream stream_;
  Data<int*> x_{"x", elements};
  Host<int*> host_{"host", elements};
};

TEST_F(KokkosFirstPatterns, CopyThenAKernelOnItsInstance) {
  const Host<int*> from("from", elements);
  const Data<int*> sum("sum", elements);
  expect_values([&](int value) {
    std::fill_n(from.data(), elements, value);
    copy_async(stream_, x_, from);
    const Space exec = kokkos::fenced_exec_space<Space>(stream_);
    Kokkos::parallel_for(Policy(exec, elements - 1, elements), Affine{x_, 2, 1});
    exec.fence();
    return (last() - 1) / 2;
  });
}

TEST_F(KokkosFirstPatterns, LaunchThenFence) {
  expect_values([&](int value) {
    launch_set(value);
    Kokkos::fence();
    return last();
  });
}

TEST_F(KokkosFirstPatterns, LaunchThenFenceOfTheInstance) {
  const Enqueued exec = kokkos::fenced_exec_space<Enqueued>(stream_);
  expect_values([&](int value) {
    launch_set(value);
    exec.fence();
    return last();
  });
}

TEST_F(KokkosFirstPatterns, LaunchThenDeepCopyOnTheInstance) {
  const Enqueued exec = kokkos::fenced_exec_space<Enqueued>(stream_);
  expect_values([&](int value) {
    launch_set(value);
    Kokkos::deep_copy(exec, host_, x_);
    exec.fence();
    return host_(elements - 1);
  });
}

TEST_F(KokkosFirstPatterns, CopyThenFence) {
  const Host<int*> from("from", elements);
  expect_values([&](int value) {
    std::fill_n(from.data(), elements, value);
    copy_async(stream_, x_, from);
    Kokkos::fence();
    return last();
  });
}

// A device's instance waits for nothing here: its kernel is enqueued.
TEST_F(KokkosFirstPatterns, CopyOfTheLibraryThenAKernelOnExec) {
  const auto instances = kokkos::make_instances<Enqueued>(1);
  Ints from(elements);
  expect_values([&](int value) {
    from.back() = value;
    copy_bytes(instances[0], x_.data(), from.data(), elements * sizeof(int));
    const Enqueued exec = instances[0].fenced_exec();
    Kokkos::parallel_for(EnqueuedPolicy(exec, elements - 1, elements), Affine{x_, 2, 1});
    exec.fence();
    return (last() - 1) / 2;
  });
}

TEST_F(KokkosFirstPatterns, LaunchOnAStreamThatEndsThenFence) {
  expect_values([&](int value) {
    {
      Stream ends;
      launch_kernel(ends, 0, elements, Set{x_, value});
    }
    Kokkos::fence();
    return last();
  });
}

TEST_F(KokkosFirstPatterns, LaunchOnAnotherThreadThenFence) {
  expect_values([&](int value) {
    on_thread([&] { launch_set(value); });
    Kokkos::fence();
    return last();
  });
}

TEST(KokkosFences, InALaunchedFunctionAFenceWaitsForNoStream) {
  SKIP_IF(fences_wait_for_a_device, refused);
  Stream s, other;
  const Data<int*> x("x", 10);
  launch<Enqueued>(s, [x](const Enqueued& exec) {
    Kokkos::parallel_for(EnqueuedPolicy(exec, 0, 10), Set{x, 5});
    exec.fence();
    Kokkos::fence();
    const Data<int*> mine("mine", 10);
    Kokkos::deep_copy(exec, mine, x);
    Kokkos::parallel_for(EnqueuedPolicy(exec, 0, 10), Affine{mine, 1, 1});
    Kokkos::deep_copy(exec, x, mine);
  });
  // a fence that waited for `other` inside the function would wait for itself
  other.wait_stream(s);
  launch_kernel(other, 0, 10, Affine{x, 2, 0});
  EXPECT_COMPLETES(other);
  EXPECT_EQ(values(other, x), Ints(10, 12));
}

TEST(KokkosFences, AViewThatALaunchedFunctionEndsWaitsForNoStream) {
  SKIP_IF(fences_wait_for_a_device, refused);
  Stream s;
  auto held = std::make_unique<Host<int*>>("held", 1000);
  const int* const first = held->data();
  int seen = -1;
  launch<Enqueued>(s, [&seen, first, held = std::move(held)](const Enqueued&) { seen = *first; });
  EXPECT_COMPLETES(s);
  EXPECT_EQ(seen, 0);
}

// Each fence here would hang if it waited for what is held. On a device they wait for the whole
// device.
TEST(KokkosFences, WithoutLaunchedWorkAFenceWaitsForNoStream) {
  SKIP_IF(kokkos::device_space<Space> || fences_wait_for_a_device, "fences wait for the device");
  Stream s;
  const Data<int*> x("x", 10), y("y", 10);
  launch_kernel(s, 0, 10, Set{x, 5});
  s.synchronize();
  Gate gate{s};
  Kokkos::fence();
  Kokkos::deep_copy(y, x);
  EXPECT_CLOSED(gate);
  EXPECT_EQ(y(9), 5);
}

TEST(KokkosFences, NewViewsAndReductionsOfTheCallerWaitForNoStream) {
  SKIP_IF(kokkos::device_space<Space>, "a device's allocations may wait for the device");
  Stream s;
  // freed after the gate is open, because freeing a view waits as on a device
  std::optional<Data<int*>> x;
  Gate gate{s};
  launch<Enqueued>(s, [](const Enqueued&) {});
  x.emplace("x", 100'000);
  int sum = 1;
  Kokkos::parallel_reduce(Policy(Space{}, 0, 10), Sum{*x}, sum);
  EXPECT_EQ(sum, 0);
  EXPECT_CLOSED(gate);
}

TEST(KokkosFences, AStreamThatIsBeingCapturedIsLeftAlone) {
  SKIP_IF(kokkos::device_space<Space> || fences_wait_for_a_device,
          "a device's fence breaks a capture");
  Stream s;
  const Data<int*> x("x", 10);
  Gate gate{s};
  launch_kernel(s, 0, 10, Set{x, 5});
  const Graph graph = capture(s, [&] {
    launch_kernel(s, 0, 10, Affine{x, 2, 0});
    EXPECT_HELD(gate, Kokkos::fence()) << "it waits for what was launched before the capture";
    EXPECT_EQ(x(9), 5);
  });
  EXPECT_EQ(graph.node_count(), 1U);
  for (int value = 10; value <= 40; value *= 2) {
    graph.launch(s);
    Kokkos::fence();
    EXPECT_EQ(x(9), value);
  }
}

TEST(KokkosFences, AKernelThatIsLaunchedInACaptureIsANode) {
  const Stream s, other;
  const Data<int*> x("x", 10);
  // a device's instance cannot be made in a capture
  drop(kokkos::fenced_exec_space<Enqueued>(s));
  const Graph graph = capture(s, [&] { launch_kernel(s, 0, 10, Affine{x, 2, 1}); });
  EXPECT_EQ(graph.node_count(), 1U);
  EXPECT_EQ(values(other, x), Ints(10, 0)) << "nothing runs before the launch";
  repeat(3, [&] { graph.launch(s); });
  s.synchronize();
  EXPECT_EQ(values(other, x), Ints(10, 7));
}

TEST(KokkosFences, ThreadsLaunchWhileOthersFence) {
  const Data<int*> sums("sums", 4);
  std::vector<std::thread> threads;
  for (int t : range(4))
    threads.emplace_back([&sums, t] {
      Stream s;
      for (int round = 1; round <= 200; ++round) {
        launch_kernel(s, t, t + 1, Affine{sums, 1, 1});
        if (round % 2 == 0) Kokkos::fence();
        EXPECT_TRUE(kokkos::device_space<Space> || round % 2 == 1 || sums(t) == round);
      }
      s.synchronize();
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(values(Stream{}, sums), Ints(4, 200));
}

namespace tools = Kokkos::Tools::Experimental;
std::atomic<int> fences_of_tool{0}, copies_of_tool{0};
decltype(tools::EventSet::begin_fence) fence_before_tool = nullptr;
void tool_fence(const char* name, std::uint32_t device, uint64_t* handle) {
  ++fences_of_tool;
  if (fence_before_tool != nullptr) fence_before_tool(name, device, handle);
}
void tool_copy(Kokkos::Tools::SpaceHandle, const char*, const void*, Kokkos::Tools::SpaceHandle,
               const char*, const void*, uint64_t) {
  ++copies_of_tool;
}

// A tool may take the place of runnel's callbacks. The next instance puts them back in front of it,
// also if the tool calls what it found.
TEST(KokkosFences, AToolThatIsSetLaterIsCalledAndDoesNotEndTheWaiting) {
  SKIP_IF(kokkos::device_space<Space>, "a device's fences need no help");
  const auto as_found = tools::get_callbacks();
  Stream s;
  drop(kokkos::fenced_exec_space<Enqueued>(s));
  const auto with_us = tools::get_callbacks();
  ASSERT_NE(with_us.begin_fence, nullptr);
  for (const auto calls_on : {decltype(with_us.begin_fence){nullptr}, with_us.begin_fence}) {
    fence_before_tool = calls_on;
    tools::set_begin_fence_callback(tool_fence);
    tools::set_begin_deep_copy_callback(tool_copy);
    Stream next;
    drop(kokkos::fenced_exec_space<Enqueued>(next));
    fences_of_tool = copies_of_tool = 0;
    const Data<int*> x("x", elements);
    const Host<int*> host("host", elements);
    int wrong = 0;
    for (int value = 1; value <= 100; ++value) {
      launch_kernel(next, 0, elements, Set{x, value});
      Kokkos::deep_copy(host, x);
      wrong += host(elements - 1) == value ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(copies_of_tool, 100);
    EXPECT_GE(fences_of_tool, 100);
  }
  tools::set_callbacks(as_found);
}

// Tools are not called while they are paused, also if a stream gets its instance meanwhile.
// Afterwards they are.
TEST(KokkosFences, PausedToolsAreCalledAgainOnceTheyAreResumed) {
  SKIP_IF(kokkos::device_space<Space>, "a device's fences need no help");
  const auto as_found = tools::get_callbacks();
  fence_before_tool = nullptr;
  tools::set_begin_fence_callback(tool_fence);
  Stream s;
  drop(kokkos::fenced_exec_space<Enqueued>(s));
  tools::pause_tools();
  Stream during;
  drop(kokkos::fenced_exec_space<Enqueued>(during));
  const Data<int*> x("x", elements);
  const auto is_right_after_fence = [&](int value) {
    launch_kernel(during, 0, elements, Set{x, value});
    Kokkos::fence();
    return x(elements - 1) == value;
  };
  fences_of_tool = 0;
  EXPECT_TRUE(is_right_after_fence(1));
  EXPECT_EQ(fences_of_tool, 0);
  tools::resume_tools();
  EXPECT_TRUE(is_right_after_fence(2));
  EXPECT_GE(fences_of_tool, 1);
  tools::set_callbacks(as_found);
}

}  // namespace
