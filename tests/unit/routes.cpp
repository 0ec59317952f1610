// SPDX-License-Identifier: Apache-2.0
/// Tests of choose_route() and choose_fallback(). They are pure functions, so the tests are tables
/// and need no device.
#include "copy/route.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

using namespace runnel;
using namespace runnel::detail;

namespace {

constexpr MemoryKind pageable = MemoryKind::pageable;
constexpr MemoryKind pinned = MemoryKind::pinned;
constexpr MemoryKind device = MemoryKind::device;
constexpr MemoryKind managed = MemoryKind::managed;

/// Fixed answers of a stream, which note the questions that choose_route() asks.
struct KnownStream {
  bool capturing = false;
  bool asked = false;

  [[nodiscard]] bool is_capturing() {
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

  [[nodiscard]] CopyFacts facts() const {
    return {{to, false, 0}, {from, false, two_devices ? 1 : 0}, any_memory, reads_pageable};
  }
};

alignas(8) unsigned char source[8], destination[8];  // addresses only

CopyRequest request_of(std::size_t bytes, Pageable policy = Pageable::stage) {
  return {{destination, bytes, source, bytes, bytes, 1}, std::nullopt, std::nullopt, policy};
}
FillRequest fill_of(std::size_t element_bytes) {
  const std::size_t bytes = 32 * element_bytes;
  return {destination, bytes, bytes, 1, source, element_bytes, std::nullopt};
}

constexpr std::size_t small = 1000;
constexpr std::size_t medium = 100'000;
constexpr std::size_t large = 1'000'000;

struct Row {
  const char* what;
  CopyRequest request;
  Sides sides;
  Route expected;
  KnownStream stream{};
};
template <class AnyRow>
[[nodiscard]] Route route_of(AnyRow& row) {
  return choose_route(row.request, row.sides.facts(), row.stream);
}

TEST(Routes, EachKindOfCopyHasItsRoute) {
  const std::vector<Row> table{
      {"no bytes", request_of(0), {}, Route::nothing},
      {"one row onto itself, with different pitches",
       {{source, 5, source, 7, 5, 1}, {}, {}, Pageable::stage},
       {},
       Route::nothing},
      {"onto itself", {{source, 5, source, 5, 5, 1}, {}, {}, Pageable::stage}, {}, Route::nothing},
      {"device to device", request_of(large), {.to = device, .from = device}, Route::direct},
      {"device to another device",
       request_of(large),
       {.to = device, .from = device, .two_devices = true},
       Route::peer},
      {"pinned to device", request_of(large), {.to = device, .from = pinned}, Route::direct},
      {"device to pinned", request_of(large), {.to = pinned, .from = device}, Route::direct},
      {"managed to device", request_of(large), {.to = device, .from = managed}, Route::direct},
      {"pinned to managed", request_of(large), {.to = managed, .from = pinned}, Route::direct},
      {"pageable to device", request_of(large), {.to = device, .from = pageable}, Route::staged},
      {"device to pageable", request_of(large), {.to = pageable, .from = device}, Route::staged},
      {"pageable to managed", request_of(large), {.to = managed, .from = pageable}, Route::staged},
      {"pageable to device, medium",
       request_of(medium),
       {.to = device, .from = pageable},
       Route::short_copy},
      {"device to pageable, medium",
       request_of(medium),
       {.to = pageable, .from = device},
       Route::short_copy},
      {"device to pageable, small",
       request_of(small),
       {.to = pageable, .from = device},
       Route::short_copy},
      {"pageable to device, small",
       request_of(small),
       {.to = device, .from = pageable},
       Route::short_copy},
      {"pageable to managed, small",
       request_of(small),
       {.to = managed, .from = pageable},
       Route::short_copy},
      {"pageable to pageable",
       request_of(small),
       {.to = pageable, .from = pageable},
       Route::host_function},
      {"pinned to pageable",
       request_of(large),
       {.to = pageable, .from = pinned},
       Route::host_function},
      {"pinned to pinned", request_of(small), {.to = pinned, .from = pinned}, Route::host_function},
      {"the device reads page tables",
       request_of(large),
       {.to = device, .from = pageable, .reads_pageable = true},
       Route::direct},
      {"the runtime takes any memory",
       request_of(large),
       {.to = device, .from = pageable, .any_memory = true},
       Route::direct},
  };
  for (Row row : table) EXPECT_EQ(route_of(row), row.expected) << row.what;
}

TEST(Routes, ThePolicyMattersForPageableMemoryOnly) {
  const std::vector<Row> table{
      {"block",
       request_of(large, Pageable::block),
       {.to = device, .from = pageable},
       Route::blocked},
      {"block, between hosts",
       request_of(large, Pageable::block),
       {.to = pinned, .from = pageable},
       Route::blocked},
      {"block, pinned",
       request_of(large, Pageable::block),
       {.to = device, .from = pinned},
       Route::direct},
      {"block, between pinned",
       request_of(large, Pageable::block),
       {.to = pinned, .from = pinned},
       Route::host_function},
      {"block, any memory",
       request_of(large, Pageable::block),
       {.to = device, .from = pageable, .any_memory = true},
       Route::blocked},
      {"refuse",
       request_of(small, Pageable::refuse),
       {.to = device, .from = pageable},
       Route::refused_by_policy},
      {"refuse, any memory",
       request_of(small, Pageable::refuse),
       {.to = pageable, .from = device, .any_memory = true},
       Route::refused_by_policy},
      {"refuse, pinned",
       request_of(small, Pageable::refuse),
       {.to = pinned, .from = device},
       Route::direct},
      {"refuse, any memory, pinned",
       request_of(small, Pageable::refuse),
       {.to = pinned, .from = device, .any_memory = true},
       Route::direct},
  };
  for (Row row : table) EXPECT_EQ(route_of(row), row.expected) << row.what;
}

TEST(Routes, CopiesThatAGraphCannotRepeatAreRefused) {
  constexpr KnownStream captured{.capturing = true};
  constexpr Sides up{.to = device, .from = pageable}, down{.to = pageable, .from = device};
  constexpr Sides pinned_hosts{.to = pinned, .from = pinned};
  constexpr Sides pageable_hosts{.to = pageable, .from = pageable};
  for (const std::size_t bytes : {small, medium, large}) {
    const std::vector<Row> table{
        {"up", request_of(bytes), up, Route::refused_in_capture, captured},
        {"down", request_of(bytes), down, Route::refused_in_capture, captured},
        {"a host function is a node", request_of(bytes), pinned_hosts, Route::host_function,
         captured},
        {"between pageable memories", request_of(bytes), pageable_hosts, Route::host_function,
         captured},
        {"pinned", request_of(bytes), {.to = device, .from = pinned}, Route::direct, captured},
        {"two devices", request_of(bytes), {.two_devices = true}, Route::direct, captured},
        {"block", request_of(bytes, Pageable::block), up, Route::blocked, captured},
    };
    for (Row row : table) EXPECT_EQ(route_of(row), row.expected) << row.what;
  }
}

TEST(Routes, ACopyThatTheRuntimeRefusesTakesAnother) {
  const std::vector<Row> table{
      {"pinned in parts", request_of(large), {.to = device, .from = pinned}, Route::staged},
      {"medium", request_of(medium), {.to = device, .from = pinned}, Route::short_copy},
      {"small", request_of(small), {.to = device, .from = pinned}, Route::short_copy},
      {"in a capture",
       request_of(large),
       {.to = device, .from = pinned},
       Route::refused_in_capture,
       {.capturing = true}},
      {"the device reads page tables",
       request_of(large),
       {.to = device, .from = pinned, .reads_pageable = true},
       Route::staged},
      {"policy block",
       request_of(large, Pageable::block),
       {.to = device, .from = pinned},
       Route::staged},
      {"policy refuse",
       request_of(large, Pageable::refuse),
       {.to = device, .from = pinned},
       Route::refused_by_policy},
      {"pinned at its beginning, policy block",
       request_of(large, Pageable::block),
       {.to = device, .from = pageable},
       Route::staged},
      {"pinned at its beginning, between hosts, policy block",
       request_of(large, Pageable::block),
       {.to = pageable, .from = pinned},
       Route::host_function},
      {"pinned at its beginning, policy block, in a capture",
       request_of(large, Pageable::block),
       {.to = device, .from = pageable},
       Route::refused_in_capture,
       {.capturing = true}},
      {"the driver refused to read",
       request_of(small),
       {.to = device, .from = pageable},
       Route::short_copy},
  };
  for (Row row : table)
    EXPECT_EQ(choose_fallback(row.request, row.sides.facts(), row.stream), row.expected)
        << row.what;
}

TEST(Routes, AStreamIsAskedOnlyIfTheAnswerMatters) {
  const auto asks = [](Pageable policy, const Sides& sides) {
    Row row{"", request_of(large, policy), sides, Route::nothing};
    static_cast<void>(route_of(row));
    return row.stream.asked;
  };
  EXPECT_FALSE(asks(Pageable::stage, {.to = device, .from = pageable, .any_memory = true}));
  EXPECT_FALSE(asks(Pageable::stage, {.to = device, .from = pinned}));
  EXPECT_FALSE(asks(Pageable::stage, {.to = device, .from = device}));
  EXPECT_FALSE(asks(Pageable::block, {.to = device, .from = pageable}));
  EXPECT_FALSE(asks(Pageable::stage, {.to = device, .from = pageable, .reads_pageable = true}));
  EXPECT_TRUE(asks(Pageable::stage, {.to = pageable, .from = device}));
}

TEST(Routes, EachKindOfFillHasItsRoute) {
  struct FillRow {
    const char* what;
    FillRequest request;
    Sides sides;
    Route expected;
    KnownStream stream{};
  };
  const std::vector<FillRow> table{
      {"no bytes", {destination, 0, 0, 1, source, 1, {}}, {}, Route::nothing},
      {"one byte", fill_of(1), {.to = device}, Route::direct},
      {"two bytes", fill_of(2), {.to = managed}, Route::direct},
      {"four bytes", fill_of(4), {.to = pinned}, Route::direct},
      {"four bytes in a capture", fill_of(4), {.to = device}, Route::direct, {.capturing = true}},
      {"three bytes", fill_of(3), {.to = device}, Route::seeded},
      {"eight bytes", fill_of(8), {.to = pinned}, Route::seeded},
      {"eight bytes in a capture",
       fill_of(8),
       {.to = device},
       Route::refused_in_capture,
       {.capturing = true}},
      {"four bytes, not aligned",
       {destination + 1, 128, 128, 1, source, 4, {}},
       {.to = device},
       Route::seeded},
      {"pageable", fill_of(1), {.to = pageable}, Route::host_function},
      {"pageable, eight bytes", fill_of(8), {.to = pageable}, Route::host_function},
      {"pageable in a capture",
       fill_of(1),
       {.to = pageable},
       Route::host_function,
       {.capturing = true}},
      {"pageable in a capture, eight bytes",
       fill_of(8),
       {.to = pageable},
       Route::host_function,
       {.capturing = true}},
      {"the runtime takes any memory",
       fill_of(1),
       {.to = device, .any_memory = true},
       Route::direct},
      {"the runtime takes any memory, eight bytes",
       fill_of(8),
       {.to = device, .any_memory = true},
       Route::seeded},
  };
  for (FillRow row : table) EXPECT_EQ(route_of(row), row.expected) << row.what;
}

}  // namespace
