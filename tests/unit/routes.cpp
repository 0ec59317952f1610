// SPDX-License-Identifier: Apache-2.0
/// Tests of choose_route(). It is a pure function, so the tests are tables and need no device.
#include "copy/route.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

using namespace runnel;
using namespace runnel::detail;

namespace {

constexpr MemoryKind pageable = MemoryKind::pageable;
constexpr MemoryKind pinned = MemoryKind::pinned;
constexpr MemoryKind device = MemoryKind::device;
constexpr MemoryKind managed = MemoryKind::managed;

/// Fixed facts, which note the questions that choose_route() asks.
struct KnownFacts {
  MemoryKind to = device;
  MemoryKind from = device;
  bool any_memory = false;
  bool two_devices = false;
  bool reads_pageable = false;
  bool capturing = false;
  bool elsewhere = false;
  bool idle = false;
  bool refused = false;
  bool short_failed = false;
  std::string asked{};

  [[nodiscard]] bool runtime_takes_any_memory() const { return any_memory; }
  [[nodiscard]] MemoryKind to_kind() { return ask("kind ", to); }
  [[nodiscard]] MemoryKind from_kind() { return ask("kind ", from); }
  [[nodiscard]] bool are_on_two_devices() { return ask("devices ", two_devices); }
  [[nodiscard]] bool device_reads_pageable() { return ask("page tables ", reads_pageable); }
  [[nodiscard]] bool is_capturing() { return ask("capturing ", capturing); }
  [[nodiscard]] bool may_read_now() { return ask("idle ", idle); }
  [[nodiscard]] bool is_captured_elsewhere() { return is_capturing() && elsewhere; }
  [[nodiscard]] bool direct_failed() const { return refused; }
  [[nodiscard]] bool short_copy_failed() const { return short_failed; }

 private:
  template <class T>
  T ask(const char* what, T answer) {
    if (asked.find(what) == std::string::npos) asked += what;
    return answer;
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
  KnownFacts facts;
  Route expected;
};

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
      {"pageable to device",
       request_of(large),
       {.to = device, .from = pageable, .idle = true},
       Route::staged},
      {"device to pageable",
       request_of(large),
       {.to = pageable, .from = device, .idle = true},
       Route::staged},
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
      {"pageable to device, small, idle",
       request_of(small),
       {.to = device, .from = pageable, .idle = true},
       Route::driver_reads},
      {"pageable to device, small, busy",
       request_of(small),
       {.to = device, .from = pageable},
       Route::staged},
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
  for (Row row : table) EXPECT_EQ(choose_route(row.request, row.facts), row.expected) << row.what;
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
  for (Row row : table) EXPECT_EQ(choose_route(row.request, row.facts), row.expected) << row.what;
}

TEST(Routes, CopiesThatAGraphCannotRepeatAreRefused) {
  for (const std::size_t bytes : {small, medium, large}) {
    KnownFacts up{.to = device, .from = pageable, .capturing = true, .idle = true};
    EXPECT_EQ(choose_route(request_of(bytes), up), Route::refused_in_capture);
    EXPECT_EQ(up.asked.find("idle"), std::string::npos)
        << "querying a captured stream would end its capture";
    KnownFacts down{.to = pageable, .from = device, .capturing = true};
    EXPECT_EQ(choose_route(request_of(bytes), down), Route::refused_in_capture);
    KnownFacts hosts{.to = pinned, .from = pinned, .capturing = true};
    EXPECT_EQ(choose_route(request_of(bytes), hosts), Route::host_function)
        << "a host function is a node";
    KnownFacts pageable_hosts{.to = pageable, .from = pageable, .capturing = true};
    EXPECT_EQ(choose_route(request_of(bytes), pageable_hosts), Route::host_function);
    KnownFacts unowned{.to = pinned, .from = pinned, .capturing = true, .elsewhere = true};
    EXPECT_EQ(choose_route(request_of(bytes), unowned), Route::refused_in_capture)
        << "no graph would own the function";
    KnownFacts direct{.to = device, .from = pinned, .capturing = true};
    EXPECT_EQ(choose_route(request_of(bytes), direct), Route::direct);
    KnownFacts peer{.two_devices = true, .capturing = true};
    EXPECT_EQ(choose_route(request_of(bytes), peer), Route::direct);
    KnownFacts blocked{.to = device, .from = pageable, .capturing = true};
    EXPECT_EQ(choose_route(request_of(bytes, Pageable::block), blocked), Route::blocked);
  }
}

TEST(Routes, AFailedRouteIsReplacedByAnother) {
  const std::vector<Row> table{
      {"pinned in parts",
       request_of(large),
       {.to = device, .from = pinned, .refused = true},
       Route::staged},
      {"pinned in parts, medium",
       request_of(medium),
       {.to = device, .from = pinned, .refused = true},
       Route::short_copy},
      {"pinned in parts, small",
       request_of(small),
       {.to = device, .from = pinned, .idle = true, .refused = true},
       Route::short_copy},
      {"pinned in parts, policy block",
       request_of(large, Pageable::block),
       {.to = device, .from = pinned, .refused = true},
       Route::staged},
      {"pinned at its beginning, policy block",
       request_of(large, Pageable::block),
       {.to = device, .from = pageable, .refused = true},
       Route::staged},
      {"pinned at its beginning, between hosts, policy block",
       request_of(large, Pageable::block),
       {.to = pageable, .from = pinned, .refused = true},
       Route::host_function},
      {"pinned at its beginning, policy block, in a capture",
       request_of(large, Pageable::block),
       {.to = device, .from = pageable, .capturing = true, .refused = true},
       Route::refused_in_capture},
      {"pinned in parts, and the device reads page tables",
       request_of(large),
       {.to = device, .from = pinned, .reads_pageable = true, .refused = true},
       Route::staged},
      {"pinned in parts, policy refuse",
       request_of(large, Pageable::refuse),
       {.to = device, .from = pinned, .refused = true},
       Route::refused_by_policy},
      {"the driver refused to read",
       request_of(small),
       {.to = device, .from = pageable, .idle = true, .refused = true},
       Route::short_copy},
      {"no short copy up",
       request_of(medium),
       {.to = device, .from = pageable, .short_failed = true},
       Route::staged},
      {"no short copy down",
       request_of(small),
       {.to = pageable, .from = device, .short_failed = true},
       Route::staged},
  };
  for (Row row : table) EXPECT_EQ(choose_route(row.request, row.facts), row.expected) << row.what;
}

TEST(Routes, OnlyTheNeededFactsAreAsked) {
  KnownFacts any{.to = device, .from = pageable, .any_memory = true};
  static_cast<void>(choose_route(request_of(large), any));
  EXPECT_EQ(any.asked, "");
  KnownFacts direct{.to = device, .from = pinned};
  static_cast<void>(choose_route(request_of(large), direct));
  EXPECT_EQ(direct.asked, "kind ");
  KnownFacts staged{.to = pageable, .from = device};
  static_cast<void>(choose_route(request_of(large), staged));
  EXPECT_EQ(staged.asked, "kind page tables capturing ");
}

TEST(Routes, EachKindOfFillHasItsRoute) {
  struct FillRow {
    const char* what;
    FillRequest request;
    KnownFacts facts;
    Route expected;
  };
  const std::vector<FillRow> table{
      {"no bytes", {destination, 0, 0, 1, source, 1, {}}, {}, Route::nothing},
      {"one byte", fill_of(1), {.to = device}, Route::direct},
      {"two bytes", fill_of(2), {.to = managed}, Route::direct},
      {"four bytes", fill_of(4), {.to = pinned}, Route::direct},
      {"four bytes in a capture", fill_of(4), {.to = device, .capturing = true}, Route::direct},
      {"three bytes", fill_of(3), {.to = device}, Route::seeded},
      {"eight bytes", fill_of(8), {.to = pinned}, Route::seeded},
      {"eight bytes in a capture",
       fill_of(8),
       {.to = device, .capturing = true},
       Route::refused_in_capture},
      {"four bytes, not aligned",
       {destination + 1, 128, 128, 1, source, 4, {}},
       {.to = device},
       Route::seeded},
      {"pageable", fill_of(1), {.to = pageable}, Route::host_function},
      {"pageable, eight bytes", fill_of(8), {.to = pageable}, Route::host_function},
      {"pageable in a capture",
       fill_of(1),
       {.to = pageable, .capturing = true},
       Route::host_function},
      {"pageable in another's capture",
       fill_of(1),
       {.to = pageable, .capturing = true, .elsewhere = true},
       Route::refused_in_capture},
      {"pageable in a capture, eight bytes",
       fill_of(8),
       {.to = pageable, .capturing = true},
       Route::host_function},
      {"the runtime takes any memory",
       fill_of(1),
       {.to = pageable, .any_memory = true},
       Route::direct},
      {"the runtime takes any memory, eight bytes",
       fill_of(8),
       {.to = pageable, .any_memory = true},
       Route::seeded},
  };
  for (FillRow row : table)
    EXPECT_EQ(choose_route(row.request, row.facts), row.expected) << row.what;
}

}  // namespace
