// SPDX-License-Identifier: Apache-2.0
// Views of device memory, for spaces whose kernels can use it.
#include "support.hpp"

namespace {
using namespace kokkos_tests;
using kokkos::copy_async;

TEST(KokkosBuffers, ViewsOfSpansAndConstBuffers) {
  Stream s;
  DeviceInts device{100, s};
  const DeviceInts& read_only = device;
  const PinnedInts pinned{100};
  static_assert(std::is_same_v<decltype(kokkos::view<Space>(read_only))::value_type, const int>);
  static_assert(std::is_same_v<decltype(kokkos::view(pinned))::value_type, const int>);
  EXPECT_EQ(kokkos::view(pinned).data(), pinned.data());
  const Data<int*> part = kokkos::view<Space>(device.span().subspan(40, 20));
  EXPECT_EQ(part.data(), device.data() + 40);
  enqueue_affine(s, part, 0, 3);
  Ints back(20);
  copy_async(s, back, kokkos::view<Space>(read_only.span().subspan(40, 20)));
  s.synchronize();
  EXPECT_EQ(back, Ints(20, 3));
}

TEST(KokkosBuffers, ViewsOverBuffers) {
  Stream s;
  PinnedInts pinned{1000};
  for (int i : range(1000)) pinned[static_cast<size_t>(i)] = i;
  DeviceInts buffer{1000, s};
  const Data<int*> x = kokkos::view<Space>(buffer);
  const kokkos::pinned_view<int*> host = kokkos::view(pinned);
  EXPECT_EQ(host.data(), pinned.data());
  EXPECT_EQ(copy_async(s, x, host), CopyResult::direct);
  enqueue_affine(s, x, 3, 1);
  copy_async(s, host, x);
  s.synchronize();
  for (int i : range(1000)) ASSERT_EQ(host(i), 3 * i + 1);
}

}  // namespace
