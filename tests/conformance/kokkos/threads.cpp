// SPDX-License-Identifier: Apache-2.0
// Kokkos::Threads. Its kernels can be launched only from the thread that initialized Kokkos.

#include "support.hpp"

namespace {
using namespace kokkos_tests;

TEST(KokkosThreads, LaunchComesAfterTheStreamsWork) {
  Stream s;
  const Data<int*> x("x", 100);
  int seen = -1;
  s.launch_host_func([&] {
    std::this_thread::sleep_for(20ms);
    for (int i : range(100)) x(i) = 4;
  });
  enqueue_affine(s, x, 2, 1);
  EXPECT_EQ(x(99), 9) << "the kernel runs within the call";
  s.launch_host_func([&] { seen = x(0); });
  s.synchronize();
  EXPECT_EQ(seen, 9);
}

TEST(KokkosThreads, OtherThreadsAreRefused) {
  Stream s;
  on_thread(
      [&] { EXPECT_ERROR(not_supported, kokkos::launch<Space>(s, [](const Space&) { FAIL(); })); });
}

TEST(KokkosThreads, StreamsHaveOtherSpaces) {
  EXPECT_TRUE((std::is_same_v<kokkos::HostSpace, kokkos::DefaultSpace>));
  EXPECT_FALSE((std::is_same_v<kokkos::DefaultSpace, Space>));
  Stream s;
  int ran = 0;
  kokkos::launch(s, [&](const kokkos::DefaultSpace&) { ++ran; });
  s.synchronize();
  EXPECT_EQ(ran, 1);
}

TEST(KokkosThreads, AllStreamsShareOneInstance) {
  Stream s;
  EXPECT_EQ(kokkos::fenced_exec_space<Space>(s), Space{});
  const kokkos::ExecStream instance{Space{}};
  s.wait_stream(instance.stream());
  instance.wait_stream(s);
  kokkos::wait(Space{}, Space{});
  const Stream gone{std::move(s)};
  EXPECT_ERROR(invalid_handle, kokkos::fenced_exec_space<Space>(s));
}

}  // namespace
