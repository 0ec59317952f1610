// SPDX-License-Identifier: Apache-2.0
// Copies between views.
#include "support.hpp"

namespace {
using namespace kokkos_tests;
using kokkos::copy_async;

template <class View>
void number(const View& view, int from = 0) {
  int next = from;
  for (std::size_t i = 0; i < view.extent(0); ++i)
    for (std::size_t j = 0; j < view.extent(1); ++j) view(i, j) = next++;
}
template <class A, class B>
void expect_equal(const A& a, const B& b) {
  for (std::size_t i = 0; i < a.extent(0); ++i)
    for (std::size_t j = 0; j < a.extent(1); ++j) ASSERT_EQ(a(i, j), b(i, j)) << "at " << i << ", " << j;
}

TEST(KokkosCopies, PageableCopiesBehindALongKernelReturnAtOnce) {
  Stream s;
  const std::size_t n = std::size_t{4} << 20;
  const Host<int*> from("from", n), to("to", n);
  const Data<int*> x("x", n);
  for (std::size_t i = 0; i < n; ++i) from(i) = static_cast<int>(i);
  copy_async(s, x, from);  // the first copies make the stream's staging ring
  copy_async(s, to, x);
  s.synchronize();
  for (std::size_t i = 0; i < n; ++i) from(i) = static_cast<int>(n - i);
  {
    KernelGate gate;
    gate.close_on(s);
    copy_async(s, x, from);
    copy_async(s, to, x);
    EXPECT_FALSE(s.query());
  }
  s.synchronize();
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(to(i), static_cast<int>(n - i)) << "at " << i;
}

TEST(KokkosCopies, BothLayoutsAsAWhole) {
  Stream s;
  const Host<int**> right("right", 30, 40), right_back("right_back", 30, 40);
  const Kokkos::View<int**, Kokkos::LayoutRight, Space::memory_space> right_device("right_device", 30, 40);
  number(right);
  copy_async(s, right_device, right);
  copy_async(s, right_back, right_device);
  const Host<int**, Kokkos::LayoutLeft> left("left", 30, 40), left_back("left_back", 30, 40);
  const Kokkos::View<int**, Kokkos::LayoutLeft, Space::memory_space> left_device("left_device", 30, 40);
  number(left, 7);
  copy_async(s, left_device, left);
  copy_async(s, left_back, left_device);
  s.synchronize();
  expect_equal(right, right_back);
  expect_equal(left, left_back);
}

TEST(KokkosCopies, RowsColumnsAndBlocks) {
  Stream s;
  const Host<int**> all("all", 20, 30), back("back", 20, 30);
  const Kokkos::View<int**, Kokkos::LayoutRight, Space::memory_space> device("device", 20, 30);
  number(all);
  const auto block = [](const auto& view) { return Kokkos::subview(view, std::pair{3, 11}, std::pair{5, 25}); };
  const auto row = [](const auto& view) { return Kokkos::subview(view, 15, Kokkos::ALL); };
  const auto column = [](const auto& view) { return Kokkos::subview(view, Kokkos::ALL, 2); };
  copy_async(s, block(device), block(all));
  copy_async(s, row(device), row(all));
  copy_async(s, column(device), column(all));
  copy_async(s, back, device);
  s.synchronize();
  for (int i = 0; i < 20; ++i)
    for (int j = 0; j < 30; ++j) {
      const bool copied = (i >= 3 && i < 11 && j >= 5 && j < 25) || i == 15 || j == 2;
      ASSERT_EQ(back(i, j), copied ? all(i, j) : 0) << "at " << i << ", " << j;
    }
  // A column is copied into contiguous memory.
  const Host<int*> line("line", 20);
  copy_async(s, line, column(device));
  s.synchronize();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(line(i), all(i, 2));
}

TEST(KokkosCopies, FaceOfACube) {
  Stream s;
  const Host<int***> cube("cube", 4, 5, 6), back("back", 4, 5, 6);
  const Kokkos::View<int***, Kokkos::LayoutRight, Space::memory_space> device("device", 4, 5, 6);
  for (int i = 0; i < 120; ++i) cube.data()[i] = i + 1;
  const auto slab = [](const auto& view) { return Kokkos::subview(view, Kokkos::ALL, std::pair{1, 3}, Kokkos::ALL); };
  copy_async(s, slab(device), slab(cube));
  copy_async(s, back, device);
  s.synchronize();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 5; ++j)
      for (int k = 0; k < 6; ++k) EXPECT_EQ(back(i, j, k), j == 1 || j == 2 ? cube(i, j, k) : 0);
}

TEST(KokkosCopies, SmallestViews) {
  Stream s;
  const Host<int> one("one"), back("back");
  const Data<int> device("device");
  one() = 42;
  copy_async(s, device, one);
  copy_async(s, back, device);
  s.synchronize();
  EXPECT_EQ(back(), 42);
  EXPECT_EQ(copy_async(s, Data<int*>{}, Host<int*>{}), CopyResult::nothing);
  EXPECT_EQ(copy_async(s, Data<int**>("flat", 0, 5), Host<int**>("flat", 0, 5)), CopyResult::nothing);
}

TEST(KokkosCopies, UnsupportedCopiesAreRefusedUpFront) {
  Stream s;
  const Host<int**> a("a", 4, 5);
  const Host<int**, Kokkos::LayoutLeft> turned("turned", 4, 5);
  number(a);
  EXPECT_EQ(code_of([&] { return copy_async(s, turned, a); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { return copy_async(s, Host<int**>("b", 5, 4), a); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { return copy_async(s, Host<int**>("b", 4, 6), a); }), errc::invalid_argument);
  const Host<int***> cube("cube", 4, 5, 6), other("other", 4, 5, 6);
  const auto inner = [](const auto& view) { return Kokkos::subview(view, Kokkos::ALL, std::pair{1, 3}, std::pair{2, 4}); };
  EXPECT_EQ(code_of([&] { return copy_async(s, inner(cube), inner(other)); }), errc::invalid_argument);
  s.synchronize();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 5; ++j) EXPECT_EQ(turned(i, j), 0);
  try {
    copy_async(s, turned, a);
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("'turned' (4 x 5) from 'a' (4 x 5)"), std::string::npos) << error.what();
  }
}

TEST(KokkosCopies, ViewsOverBuffers) {
  Stream s;
  PinnedBuffer<int> pinned{1000};
  for (int i = 0; i < 1000; ++i) pinned[static_cast<std::size_t>(i)] = i;
  DeviceBuffer<int> buffer{1000, s};
  const Data<int*> x = kokkos::view<Space>(buffer);
  const kokkos::pinned_view<int*> host = kokkos::view(pinned);
  EXPECT_EQ(host.data(), pinned.data());
  EXPECT_EQ(copy_async(s, x, host), CopyResult::direct);
  enqueue_affine(s, x, 3, 1);
  copy_async(s, host, x);
  s.synchronize();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(host(i), 3 * i + 1);
}

// copy() and fill() take contiguous ranges; views may have strides.
static_assert(!runnel::detail::memory_range<Host<int*>> && runnel::detail::memory_range<std::vector<int>>);

TEST(KokkosCopies, ConstSource) {
  Stream s;
  const Host<int*> from("from", 8), to("to", 8);
  from(7) = 9;
  const Host<const int*> read_only = from;
  copy_async(s, to, read_only);
  s.synchronize();
  EXPECT_EQ(to(7), 9);
}

}  // namespace
