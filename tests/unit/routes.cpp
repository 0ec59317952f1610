// SPDX-License-Identifier: Apache-2.0
/// Tests of choose_route() and choose_fallback(). They are pure functions, so the tests are tables
/// and need no device.
#include "copy/route.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

using std::size_t;

using namespace runnel;
using namespace runnel::detail;

namespace {

using enum Route;
using enum MemoryKind;

/// Fixed answers of a stream, which note the questions that choose_route() asks.
struct KnownStream {
  bool capturing = false;
  bool asked = false;

  bool is_capturing() {
    asked = true;
    return capturing;
  }
};

/// Facts of memory that the runtime takes only as it is.
struct Sides {
  MemoryKind to = device;
  MemoryKind from = device;
  bool any_memory = false;
  bool two_devices = false;
  bool reads_pageable = false;

  CopyFacts facts() const {
    return {{to, false, 0}, {from, false, two_devices ? 1 : 0}, any_memory, reads_pageable};
  }
};

alignas(8) unsigned char source[8], destination[8];  // addresses only

CopyRequest request_of(size_t bytes, Pageable policy = Pageable::stage) {
  return {{destination, bytes, source, bytes, bytes, 1}, std::nullopt, std::nullopt, policy};
}
FillRequest fill_of(size_t element_bytes) {
  const size_t bytes = 32 * element_bytes;
  return {destination, bytes, bytes, 1, source, element_bytes, std::nullopt};
}

constexpr size_t small = 1000, medium = 100'000, large = 1'000'000;
const CopyRequest blocking = request_of(large, Pageable::block),
                  refusing = request_of(small, Pageable::refuse);
constexpr Sides reads_tables{.from = pageable, .reads_pageable = true},
    takes_any{.from = pageable, .any_memory = true};

struct Row {
  const char* what;
  CopyRequest request;
  Sides sides;
  Route expected;
  KnownStream stream{};
};
template <class AnyRow>
Route route_of(AnyRow& row) {
  return choose_route(row.request, row.sides.facts(), row.stream);
}
template <class AnyRow>
void expect_routes(const std::vector<AnyRow>& table) {
  for (AnyRow row : table) EXPECT_EQ(route_of(row), row.expected) << row.what;
}

TEST(Routes, EachKindOfCopyHasItsRoute) {
  expect_routes<Row>({
      {"no bytes", request_of(0), {}, nothing},
      {"one row onto itself, with different pitches",
       {{source, 5, source, 7, 5, 1}, {}, {}, Pageable::stage},
       {},
       nothing},
      {"onto itself", {{source, 5, source, 5, 5, 1}, {}, {}, Pageable::stage}, {}, nothing},
      {"device to device", request_of(large), {device, device}, direct},
      {"device to another device", request_of(large), {.two_devices = true}, peer},
      {"pinned to device", request_of(large), {device, pinned}, direct},
      {"device to pinned", request_of(large), {pinned, device}, direct},
      {"managed to device", request_of(large), {device, managed}, direct},
      {"pinned to managed", request_of(large), {managed, pinned}, direct},
      {"pageable to device", request_of(large), {device, pageable}, staged},
      {"device to pageable", request_of(large), {pageable, device}, staged},
      {"pageable to managed", request_of(large), {managed, pageable}, staged},
      {"pageable to device, medium", request_of(medium), {device, pageable}, short_copy},
      {"device to pageable, medium", request_of(medium), {pageable, device}, short_copy},
      {"device to pageable, small", request_of(small), {pageable, device}, short_copy},
      {"pageable to device, small", request_of(small), {device, pageable}, short_copy},
      {"pageable to managed, small", request_of(small), {managed, pageable}, short_copy},
      {"pageable to pageable", request_of(small), {pageable, pageable}, host_function},
      {"pinned to pageable", request_of(large), {pageable, pinned}, host_function},
      {"pinned to pinned", request_of(small), {pinned, pinned}, host_function},
      {"the device reads page tables", request_of(large), reads_tables, direct},
      {"the runtime takes any memory", request_of(large), takes_any, direct},
  });
}

TEST(Routes, ThePolicyMattersForPageableMemoryOnly) {
  expect_routes<Row>({
      {"block", blocking, {device, pageable}, blocked},
      {"block, between hosts", blocking, {pinned, pageable}, blocked},
      {"block, pinned", blocking, {device, pinned}, direct},
      {"block, between pinned", blocking, {pinned, pinned}, host_function},
      {"block, any memory", blocking, takes_any, blocked},
      {"refuse", refusing, {device, pageable}, refused_by_policy},
      {"refuse, any memory",
       refusing,
       {.to = pageable, .from = device, .any_memory = true},
       refused_by_policy},
      {"refuse, pinned", refusing, {pinned, device}, direct},
      {"refuse, any memory, pinned",
       refusing,
       {.to = pinned, .from = device, .any_memory = true},
       direct},
  });
}

TEST(Routes, CopiesThatAGraphCannotRepeatAreRefused) {
  constexpr KnownStream captured{.capturing = true};
  constexpr Sides up{device, pageable}, down{pageable, device};
  constexpr Sides pinned_hosts{pinned, pinned};
  constexpr Sides pageable_hosts{pageable, pageable};
  for (const size_t bytes : {small, medium, large}) {
    expect_routes<Row>({
        {"up", request_of(bytes), up, refused_in_capture, captured},
        {"down", request_of(bytes), down, refused_in_capture, captured},
        {"a host function is a node", request_of(bytes), pinned_hosts, host_function, captured},
        {"between pageable memories", request_of(bytes), pageable_hosts, host_function, captured},
        {"pinned", request_of(bytes), {device, pinned}, direct, captured},
        {"two devices", request_of(bytes), {.two_devices = true}, direct, captured},
        {"block", request_of(bytes, Pageable::block), up, blocked, captured},
    });
  }
}

TEST(Routes, ACopyThatTheRuntimeRefusesTakesAnother) {
  const std::vector<Row> table{
      {"pinned in parts", request_of(large), {device, pinned}, staged},
      {"medium", request_of(medium), {device, pinned}, short_copy},
      {"small", request_of(small), {device, pinned}, short_copy},
      {"in a capture",
       request_of(large),
       {device, pinned},
       refused_in_capture,
       {.capturing = true}},
      {"the device reads page tables",
       request_of(large),
       {.to = device, .from = pinned, .reads_pageable = true},
       staged},
      {"policy block", blocking, {device, pinned}, staged},
      {"policy refuse", request_of(large, Pageable::refuse), {device, pinned}, refused_by_policy},
      {"pinned at its beginning, policy block", blocking, {device, pageable}, staged},
      {"pinned at its beginning, between hosts, policy block",
       blocking,
       {pageable, pinned},
       host_function},
      {"pinned at its beginning, policy block, in a capture",
       blocking,
       {device, pageable},
       refused_in_capture,
       {.capturing = true}},
      {"the driver refused to read", request_of(small), {device, pageable}, short_copy},
  };
  for (Row row : table)
    EXPECT_EQ(choose_fallback(row.request, row.sides.facts(), row.stream), row.expected)
        << row.what;
}

TEST(Routes, AStreamIsAskedOnlyIfTheAnswerMatters) {
  const auto asks = [](Pageable policy, const Sides& sides) {
    Row row{"", request_of(large, policy), sides, nothing};
    static_cast<void>(route_of(row));
    return row.stream.asked;
  };
  EXPECT_FALSE(asks(Pageable::stage, takes_any));
  EXPECT_FALSE(asks(Pageable::stage, {device, pinned}));
  EXPECT_FALSE(asks(Pageable::stage, {device, device}));
  EXPECT_FALSE(asks(Pageable::block, {device, pageable}));
  EXPECT_FALSE(asks(Pageable::stage, reads_tables));
  EXPECT_TRUE(asks(Pageable::stage, {pageable, device}));
}

TEST(Routes, EachKindOfFillHasItsRoute) {
  struct FillRow {
    const char* what;
    FillRequest request;
    Sides sides;
    Route expected;
    KnownStream stream{};
  };
  expect_routes<FillRow>({
      {"no bytes", {destination, 0, 0, 1, source, 1, {}}, {}, nothing},
      {"one byte", fill_of(1), {device}, direct},
      {"two bytes", fill_of(2), {managed}, direct},
      {"four bytes", fill_of(4), {pinned}, direct},
      {"four bytes in a capture", fill_of(4), {device}, direct, {.capturing = true}},
      {"three bytes", fill_of(3), {device}, seeded},
      {"eight bytes", fill_of(8), {pinned}, seeded},
      {"eight bytes in a capture", fill_of(8), {device}, refused_in_capture, {.capturing = true}},
      {"four bytes, not aligned", {destination + 1, 128, 128, 1, source, 4, {}}, {device}, seeded},
      {"pageable", fill_of(1), {pageable}, host_function},
      {"pageable, eight bytes", fill_of(8), {pageable}, host_function},
      {"pageable in a capture", fill_of(1), {pageable}, host_function, {.capturing = true}},
      {"pageable in a capture, eight bytes",
       fill_of(8),
       {pageable},
       host_function,
       {.capturing = true}},
      {"the runtime takes any memory", fill_of(1), {.any_memory = true}, direct},
      {"the runtime takes any memory, eight bytes", fill_of(8), {.any_memory = true}, seeded},
  });
}

}  // namespace
