// SPDX-License-Identifier: Apache-2.0
/// Copies between mdspans: every element at its index, gaps untouched, for layouts with gaps and
/// many dimensions, against plain loops.
#include "support.hpp"

#include <runnel/mdspan.hpp>

#if __has_include(<mdspan>) && __cplusplus > 202002L
#include <mdspan>
#define HAS_STD_MDSPAN 1
#endif

namespace conformance::mdspan_cases {

/// The members of an mdspan that a copy asks for.
template <class T, size_t N>
struct View {
  using element_type = T;
  using layout_type = void;
  T* data;
  std::array<size_t, N> extents, strides;
  bool strided = true;

  static constexpr size_t rank() { return N; }
  size_t extent(size_t i) const { return extents[i]; }
  size_t stride(size_t i) const { return strides[i]; }
  bool is_strided() const { return strided; }
  T* data_handle() const { return data; }
};
static_assert(detail::Mdspan<View<int, 3>>);
static_assert(!detail::Mdspan<Ints>);
static_assert(!detail::MdspanCopiedTo<View<int, 1>, View<const int, 1>>);
static_assert(!detail::MdspanCopiedTo<View<float, 1>, View<int, 1>>);
static_assert(!detail::MdspanCopiedTo<View<int, 2>, View<int, 1>>);

/// The offset of each element, the last index first.
template <class T, size_t N>
std::vector<size_t> offsets_of(const View<T, N>& view) {
  std::vector<size_t> offsets{0};
  for (size_t i : range(N)) {
    std::vector<size_t> next;
    for (const size_t offset : offsets)
      for (size_t k : range(view.extents[i])) next.push_back(offset + k * view.strides[i]);
    offsets = next;
  }
  return offsets;
}

/// Strides of a layout in which the dimensions follow each other in the given order, the innermost
/// first, with gaps between them.
template <size_t N>
std::array<size_t, N> strides_of(const std::array<size_t, N>& extents,
                                 const std::array<size_t, N>& order,
                                 const std::array<size_t, N>& gaps) {
  std::array<size_t, N> strides{};
  size_t span = 1;
  for (size_t i : range(N)) {
    strides[order[i]] = span + gaps[i];
    span = strides[order[i]] * (extents[order[i]] - 1) + span;
    if (gaps[i] == 0) span = strides[order[i]] * extents[order[i]];
  }
  return strides;
}
template <size_t N>
size_t span_of(const std::array<size_t, N>& extents, const std::array<size_t, N>& strides) {
  size_t span = 1;
  for (size_t i : range(N)) span += strides[i] * (extents[i] - 1);
  return span;
}

class Mdspan : public Conformance {
 protected:
  /// Host to device and back, through three layouts of the same order.
  template <size_t N>
  static void round_trip(const std::array<size_t, N>& extents,
                         const std::array<std::array<size_t, N>, 3>& strides) {
    Stream stream;
    Ints source(span_of(extents, strides[0])), back(span_of(extents, strides[2]), -1);
    count_from(source, 0);
    DeviceInts there{span_of(extents, strides[1]), stream};
    const View<const int, N> from{source.data(), extents, strides[0]};
    const View<int, N> device{there.data(), extents, strides[1]},
        to{back.data(), extents, strides[2]};
    copy(stream, device, from);
    copy(stream, to, View<const int, N>{there.data(), extents, strides[1]},
         {.pageable = Pageable::stage});
    stream.synchronize();
    Ints expected(back.size(), -1);
    const auto from_at = offsets_of(from);
    const auto to_at = offsets_of(to);
    for (size_t i : range(from_at.size())) expected[to_at[i]] = source[from_at[i]];
    ASSERT_EQ(back, expected);
  }
};

TEST_F(Mdspan, RandomLayoutsOfOneOrderKeepEveryElement) {
  std::mt19937 random{11};
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round : range(60)) {
    std::array<size_t, 4> extents{1 + below(5), 1 + below(6), 1 + below(4), 1 + below(7)},
        order{0, 1, 2, 3};
    std::ranges::shuffle(order, random);
    std::array<std::array<size_t, 4>, 3> strides;
    for (auto& each : strides) {
      std::array<size_t, 4> gaps{};
      for (size_t& gap : gaps) gap = below(2) == 0 ? 0 : below(4);
      each = strides_of(extents, order, gaps);
    }
    ASSERT_NO_FATAL_FAILURE(round_trip(extents, strides)) << "round " << round;
  }
}

TEST_F(Mdspan, ExtentsWithoutGapsAreOneCopy) {
  Stream stream;
  PinnedInts host{24};
  DeviceInts there{24, stream};
  EXPECT_EQ(copy(stream, View<int, 3>{there.data(), {2, 3, 4}, {12, 4, 1}},
                 View<int, 3>{host.data(), {2, 3, 4}, {12, 4, 1}}),
            CopyResult::direct);
  stream.synchronize();
}

TEST_F(Mdspan, NoDimensionIsOneElementAndNoElementIsNothing) {
  Stream stream;
  int value = 7, back = 0;
  DeviceInts there{1, stream};
  copy(stream, View<int, 0>{there.data(), {}, {}}, View<int, 0>{&value, {}, {}});
  copy(stream, View<int, 0>{&back, {}, {}}, View<int, 0>{there.data(), {}, {}});
  stream.synchronize();
  EXPECT_EQ(back, 7);
  EXPECT_EQ(
      copy(stream, View<int, 2>{nullptr, {3, 0}, {0, 1}}, View<int, 2>{nullptr, {3, 0}, {0, 1}}),
      CopyResult::nothing);
}

TEST_F(Mdspan, RefusalsComeFirstAndSayWhy) {
  Stream stream;
  Ints a(100, 1), b(100, 2);
  const auto refusal = [&](const auto& to, const auto& from) -> std::string {
    try {
      copy(stream, to, from);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), errc::invalid_argument);
      return error.what();
    }
    return "no refusal";
  };
  const std::string begin = "runnel: could not copy an mdspan: ";
  const View<int, 2> rows{a.data(), {4, 5}, {5, 1}};
  EXPECT_EQ(refusal(rows, View<int, 2>{b.data(), {4, 6}, {6, 1}}),
            begin + "the extents differ: 4 x 5 from 4 x 6");
  EXPECT_SAYS(refusal(rows, View<int, 2>{b.data(), {4, 5}, {1, 4}}), "transpose with a kernel");
  EXPECT_SAYS(refusal(rows, View<int, 2>{a.data() + 3, {4, 5}, {5, 1}}), "overlap in part");
  EXPECT_SAYS(refusal(View<int, 2>{a.data(), {4, 5}, {0, 1}}, rows), "elements overlap");
  EXPECT_SAYS(refusal(rows, View<int, 2>{b.data(), {4, 5}, {5, 1}, false}), "no strides");
  EXPECT_NE(refusal(rows, View<int, 2>{nullptr, {4, 5}, {5, 1}}), "no refusal");
  const std::size_t many = (1UL << 62) + 1;  // times 4 this overflows to 4 bytes
  EXPECT_SAYS(refusal(View<int, 1>{a.data(), {many}, {1}}, View<int, 1>{b.data(), {many}, {1}}),
              "address space");
  EXPECT_SAYS(
      refusal(View<int, 2>{a.data(), {many, 4}, {4, 1}}, View<int, 2>{b.data(), {many, 4}, {4, 1}}),
      "address space");
  EXPECT_SAYS(
      refusal(View<int, 2>{a.data(), {many, 4}, {8, 2}}, View<int, 2>{b.data(), {many, 4}, {8, 2}}),
      "address space");
  stream.synchronize();
  EXPECT_EQ(a, Ints(100, 1));
}

TEST_F(Mdspan, InterleavedSidesDoNotOverlap) {
  Stream stream;
  Ints both(2 * 2 * 3 * 4);
  count_from(both, 0);
  const View<int, 3> even{both.data(), {2, 3, 4}, {24, 8, 2}},
      odd{both.data() + 1, {2, 3, 4}, {24, 8, 2}};
  copy(stream, odd, even);
  stream.synchronize();
  for (size_t i : range(both.size())) ASSERT_EQ(both[i], static_cast<int>(i / 2 * 2));
}

TEST_F(Mdspan, InACaptureEachCopyIsANode) {
  Stream stream;
  PinnedInts host{3 * 4 * 5}, back{3 * 4 * 5};
  count_from(host, 1);
  std::ranges::fill(back, 0);
  DeviceInts there{3 * 4 * 5, stream};
  stream.synchronize();
  const auto part = [](auto* data) {
    return View<std::remove_pointer_t<decltype(data)>, 3>{data, {3, 2, 3}, {20, 5, 1}};
  };
  const Graph graph = capture(stream, [&] {
    copy(stream, part(there.data()), part(host.data()));
    copy(stream, part(back.data()), part(there.data()));
  });
  graph.launch(stream);
  stream.synchronize();
  for (size_t i : range(back.size())) {
    const bool is_in = i / 5 % 4 < 2 && i % 5 < 3;
    ASSERT_EQ(back[i], is_in ? static_cast<int>(i) + 1 : 0);
  }
}

#ifdef HAS_STD_MDSPAN
TEST_F(Mdspan, AStandardMdspanIsCopied) {
  Stream stream;
  Ints host(6 * 8), back(4 * 5);
  count_from(host, 0);
  using Strided = std::mdspan<int, std::dextents<size_t, 2>, std::layout_stride>;
  const Strided part{host.data() + 9,
                     {std::dextents<size_t, 2>{4, 5}, std::array<size_t, 2>{8, 1}}};
  copy(stream, std::mdspan{back.data(), 4, 5}, part);
  stream.synchronize();
  for (size_t i : range(4UL))
    for (size_t j : range(5UL)) EXPECT_EQ(back[i * 5 + j], host[9 + i * 8 + j]);
}
#endif

}  // namespace conformance::mdspan_cases
