// SPDX-License-Identifier: Apache-2.0
// Copies between views.

#include "support.hpp"

namespace {
using namespace kokkos_tests;
using kokkos::copy_async;

template <class View>
void number(const View& view, int from = 0) {
  int next = from;
  for (size_t i : range(view.extent(0)))
    for (size_t j : range(view.extent(1))) view(i, j) = next++;
}
template <class A, class B>
void expect_equal(const A& a, const B& b) {
  for (size_t i : range(a.extent(0)))
    for (size_t j : range(a.extent(1))) ASSERT_EQ(a(i, j), b(i, j)) << "at " << i << ", " << j;
}

TEST(KokkosCopies, PageableCopiesBehindALongKernelReturnAtOnce) {
  Stream s;
  const size_t n = size_t{4} << 20;
  const Host<int*> from("from", n), to("to", n);
  const Data<int*> x("x", n);
  for (size_t i : range(n)) from(i) = static_cast<int>(i);
  copy_async(s, x, from);  // the first copies make the stream's staging ring
  copy_async(s, to, x);
  s.synchronize();
  for (size_t i : range(n)) from(i) = static_cast<int>(n - i);
  {
    KernelGate gate{s};
    copy_async(s, x, from);
    copy_async(s, to, x);
    EXPECT_FALSE(s.query());
  }
  s.synchronize();
  for (size_t i : range(n)) ASSERT_EQ(to(i), static_cast<int>(n - i)) << "at " << i;
}

TEST(KokkosCopies, BothLayoutsAsAWhole) {
  Stream s;
  const Host<int**> right("right", 30, 40), right_back("right_back", 30, 40);
  const Kokkos::View<int**, Kokkos::LayoutRight, Space::memory_space> right_device("right_device",
                                                                                   30, 40);
  number(right);
  copy_async(s, right_device, right);
  copy_async(s, right_back, right_device);
  const Host<int**, Kokkos::LayoutLeft> left("left", 30, 40), left_back("left_back", 30, 40);
  const Kokkos::View<int**, Kokkos::LayoutLeft, Space::memory_space> left_device("left_device", 30,
                                                                                 40);
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
  const auto block = [](const auto& view) {
    return Kokkos::subview(view, std::pair{3, 11}, std::pair{5, 25});
  };
  const auto row = [](const auto& view) { return Kokkos::subview(view, 15, Kokkos::ALL); };
  const auto column = [](const auto& view) { return Kokkos::subview(view, Kokkos::ALL, 2); };
  copy_async(s, block(device), block(all));
  copy_async(s, row(device), row(all));
  copy_async(s, column(device), column(all));
  copy_async(s, back, device);
  s.synchronize();
  for (int i : range(20))
    for (int j : range(30)) {
      const bool copied = (i >= 3 && i < 11 && j >= 5 && j < 25) || i == 15 || j == 2;
      ASSERT_EQ(back(i, j), copied ? all(i, j) : 0) << "at " << i << ", " << j;
    }
  // A column is copied into contiguous memory.
  const Host<int*> line("line", 20);
  copy_async(s, line, column(device));
  s.synchronize();
  for (int i : range(20)) EXPECT_EQ(line(i), all(i, 2));
}

TEST(KokkosCopies, FaceOfACube) {
  Stream s;
  const Host<int***> cube("cube", 4, 5, 6), back("back", 4, 5, 6);
  const Kokkos::View<int***, Kokkos::LayoutRight, Space::memory_space> device("device", 4, 5, 6);
  for (int i : range(120)) cube.data()[i] = i + 1;
  const auto slab = [](const auto& view) {
    return Kokkos::subview(view, Kokkos::ALL, std::pair{1, 3}, Kokkos::ALL);
  };
  copy_async(s, slab(device), slab(cube));
  copy_async(s, back, device);
  s.synchronize();
  for (int i : range(4))
    for (int j : range(5))
      for (int k : range(6)) EXPECT_EQ(back(i, j, k), j == 1 || j == 2 ? cube(i, j, k) : 0);
}

template <class Layout>
void copy_blocks_and_faces() {
  Stream s;
  const Host<int***, Layout> cube("cube", 6, 7, 8);
  const Kokkos::View<int***, Layout, typename Space::memory_space> device("device", 6, 7, 8);
  for (int i : range(6 * 7 * 8)) cube.data()[i] = i + 1;
  const std::pair a{1, 5}, b{1, 6}, c{2, 7};
  const auto check = [&](const auto& part) {
    const Host<int***, Layout> back("back", 6, 7, 8);
    copy_async(s, part(device), part(cube));
    copy_async(s, part(back), part(device));
    s.synchronize();
    const auto to = part(back), from = part(cube);
    ASSERT_GT(from.size(), 0U);
    for (size_t i : range(from.extent(0)))
      for (size_t j : range(from.extent(1)))
        for (size_t k : range(from.extent(2)))
          ASSERT_EQ(to.access(i, j, k), from.access(i, j, k)) << i << ", " << j << ", " << k;
    int copied = 0;
    for (size_t i : range(back.size())) copied += back.data()[i] != 0;
    EXPECT_EQ(static_cast<size_t>(copied), from.size()) << "something beside the part was written";
  };
  check([&](const auto& view) { return Kokkos::subview(view, a, b, c); });
  check([&](const auto& view) { return Kokkos::subview(view, std::pair{0, 1}, b, c); });
  check([&](const auto& view) { return Kokkos::subview(view, a, std::pair{6, 7}, c); });
  check([&](const auto& view) { return Kokkos::subview(view, a, b, std::pair{0, 1}); });
}
TEST(KokkosCopies, BlocksAndHalosOfLayoutRight) { copy_blocks_and_faces<Kokkos::LayoutRight>(); }
TEST(KokkosCopies, BlocksAndHalosOfLayoutLeft) { copy_blocks_and_faces<Kokkos::LayoutLeft>(); }

TEST(KokkosCopies, ABlockOfFourDimensions) {
  Stream s;
  const Host<int****> host("host", 4, 5, 6, 7), back("back", 4, 5, 6, 7);
  const Data<int****> device("device", 4, 5, 6, 7);
  for (size_t i : range(host.size())) host.data()[i] = static_cast<int>(i) + 1;
  const auto block = [](const auto& view) {
    return Kokkos::subview(view, Kokkos::ALL, std::pair{1, 3}, std::pair{2, 4}, std::pair{1, 5});
  };
  copy_async(s, block(device), block(host));
  copy_async(s, block(back), block(device));
  s.synchronize();
  for (int i : range(4))
    for (int j : range(5))
      for (int k : range(6))
        for (int l : range(7)) {
          const bool is_in = j >= 1 && j < 3 && k >= 2 && k < 4 && l >= 1 && l < 5;
          ASSERT_EQ(back(i, j, k, l), is_in ? host(i, j, k, l) : 0);
        }
}

TEST(KokkosCopies, VectorsAndVariables) {
  Stream s;
  Ints from(100, 6), to(100);
  const Data<int*> x("x", 100);
  const Data<int> one("one");
  const int value = 8;
  int back = 0;
  copy_async(s, x, from);
  copy_async(s, to, x);
  copy_async(s, one, value);
  copy_async(s, back, one);
  s.synchronize();
  EXPECT_EQ(to, from);
  EXPECT_EQ(back, 8);
  EXPECT_ERROR(invalid_argument, copy_async(s, x, std::span{from}.first(50)));
}

TEST(KokkosCopies, RefusalsNameBothViews) {
  Stream s;
  const auto refusal = [&](const auto& to, const auto& from) -> std::string {
    try {
      copy_async(s, to, from);
    } catch (const Error& error) {
      return error.what();
    }
    return "no refusal";
  };
  const std::string begin = "runnel: could not copy a Kokkos view: ";
  const Host<int*> both("both", 10);
  EXPECT_EQ(
      refusal(Kokkos::subview(both, std::pair{0, 6}), Kokkos::subview(both, std::pair{3, 9})),
      begin + "'both' (6) from 'both' (6): could not copy: source and destination overlap in part");
  EXPECT_EQ(refusal(both, Ints(7)),
            begin + "'both' (10) from unnamed memory (7): the extents differ");
  const std::string hundred(100, 'a');
  EXPECT_EQ(refusal(Host<int*>(hundred, 9), Host<int*>(hundred, 8)),
            begin + "'" + hundred.substr(0, 60) + "...' (9) from '" + hundred.substr(0, 60) +
                "...' (8): the extents differ");
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
  EXPECT_EQ(copy_async(s, Data<int**>("flat", 0, 5), Host<int**>("flat", 0, 5)),
            CopyResult::nothing);
}

TEST(KokkosCopies, UnsupportedCopiesAreRefusedUpFront) {
  Stream s;
  const Host<int**> a("a", 4, 5);
  const Host<int**, Kokkos::LayoutLeft> turned("turned", 4, 5);
  number(a);
  EXPECT_ERROR(invalid_argument, copy_async(s, turned, a));
  EXPECT_ERROR(invalid_argument, copy_async(s, Host<int**>("b", 5, 4), a));
  EXPECT_ERROR(invalid_argument, copy_async(s, Host<int**>("b", 4, 6), a));
  s.synchronize();
  for (int i : range(4))
    for (int j : range(5)) EXPECT_EQ(turned(i, j), 0);
  try {
    copy_async(s, turned, a);
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("'turned' (4 x 5) from 'a' (4 x 5)"),
              std::string::npos)
        << error.what();
  }
}

TEST(KokkosCopies, ViewsOfManagedBuffers) {
  ManagedBuffer<int> managed{100};
  const ManagedBuffer<int>& seen = managed;
  kokkos::view(managed)(99) = 4;
  EXPECT_EQ(kokkos::view(seen)(99), 4);
}

template <class E>
concept Viewable = requires(DeviceSpan<int> memory) { kokkos::view<E>(memory); };
static_assert(Viewable<Space> ==
              (kokkos::device_space<Space> || RUNNEL_BACKEND == std::string_view{"host"}));

TEST(KokkosCopies, SpansOfViews) {
  Stream s;
  const Host<int**> host("host", 4, 5);
  number(host);
  static_assert(std::is_same_v<decltype(kokkos::span(host)), std::span<int>>);
  static_assert(
      std::is_same_v<decltype(kokkos::span(Host<const int**>{host})), std::span<const int>>);
  EXPECT_EQ(kokkos::span(host).data(), host.data());
  const Data<int**> data("data", 4, 5);
  Ints back(20);
  copy(s, kokkos::span(data), kokkos::span(host));
  copy(s, back, kokkos::span(data));
  s.synchronize();
  EXPECT_TRUE(std::equal(back.begin(), back.end(), host.data()));
  EXPECT_TRUE(kokkos::span(Host<int*>{}).empty());
}

TEST(KokkosCopies, SpansOfViewsWithGapsAreRefused) {
  const Host<int**> wide("wide", 4, 5);
  EXPECT_EQ(kokkos::span(Kokkos::subview(wide, 1, Kokkos::ALL)).size(), 5U);
  try {
    static_cast<void>(kokkos::span(Kokkos::subview(wide, Kokkos::ALL, 1)));
    FAIL() << "the elements are not contiguous";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), errc::invalid_argument);
    EXPECT_NE(std::string{error.what()}.find("'wide' are not contiguous"), std::string::npos)
        << error.what();
  }
}

// copy() and fill() take contiguous ranges; views may have strides.
static_assert(!runnel::detail::memory_range<Host<int*>> && runnel::detail::memory_range<Ints>);

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
