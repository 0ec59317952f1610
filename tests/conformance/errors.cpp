// SPDX-License-Identifier: Apache-2.0
// Errors, and a table of the public functions with each of their invalid arguments.
#include <climits>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <set>
#include <span>
#include <utility>

#include "support.hpp"

namespace {
using namespace runnel;
using namespace conformance;
using Errors = Conformance;

constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();

TEST_F(Errors, EveryCodeHasItsOwnText) {
  std::set<std::string> texts;
  for (int code = static_cast<int>(errc::no_device); code <= static_cast<int>(errc::unknown);
       ++code) {
    const std::error_code made = static_cast<errc>(code);
    EXPECT_EQ(made.value(), code);
    EXPECT_EQ(made.category(), error_category());
    EXPECT_FALSE(made.message().empty()) << code;
    EXPECT_TRUE(texts.insert(made.message()).second) << made.message();
  }
  EXPECT_FALSE(error_category().message(12345).empty());
  EXPECT_STREQ(error_category().name(), "runnel");
}

TEST_F(Errors, EveryCodeHasItsNameAsAnIdentifier) {
  EXPECT_STREQ(name(errc::no_device), "no_device");
  EXPECT_STREQ(name(errc::out_of_memory), "out_of_memory");
  EXPECT_STREQ(name(errc::communicator_broken), "communicator_broken");
  EXPECT_STREQ(name(errc::unknown), "unknown");
  for (const int number : {-1, 0, 22, 1000})
    EXPECT_STREQ(name(static_cast<errc>(number)), "unknown") << number;
  std::set<std::string> names;
  for (int number = 1; number <= static_cast<int>(errc::unknown); ++number)
    names.insert(name(static_cast<errc>(number)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(errc::unknown));
}

TEST_F(Errors, CompareWithTheStandardConditions) {
  const std::pair<errc, std::errc> conditions[] = {
      {errc::no_device, std::errc::no_such_device},
      {errc::invalid_device, std::errc::no_such_device},
      {errc::invalid_argument, std::errc::invalid_argument},
      {errc::invalid_handle, std::errc::invalid_argument},
      {errc::out_of_memory, std::errc::not_enough_memory},
      {errc::not_permitted, std::errc::operation_not_permitted},
      {errc::not_supported, std::errc::operation_not_supported},
      {errc::not_ready, std::errc::resource_unavailable_try_again},
  };
  for (const auto& [code, condition] : conditions) EXPECT_EQ(make_error_code(code), condition);
}

/// The category of another C++ library in the process.
class OtherCategory : public std::error_category {
 public:
  explicit OtherCategory(const char* name) : name_{name} {}
  [[nodiscard]] const char* name() const noexcept override { return name_; }
  [[nodiscard]] std::string message(int) const override { return {}; }

 private:
  const char* name_;
};

TEST_F(Errors, CompareWithTheConditionsOfAnotherCppLibrary) {
  const OtherCategory generic{std::generic_category().name()};
  const OtherCategory system{std::system_category().name()};
  const auto invalid = static_cast<int>(std::errc::invalid_argument);
  EXPECT_EQ(make_error_code(errc::invalid_argument), (std::error_condition{invalid, generic}));
  EXPECT_NE(make_error_code(errc::out_of_memory), (std::error_condition{invalid, generic}));
  EXPECT_NE(make_error_code(errc::invalid_argument), (std::error_condition{invalid, system}));
  EXPECT_EQ(make_error_code(errc::capture),
            (std::error_condition{static_cast<int>(errc::capture), error_category()}));
  EXPECT_NE(make_error_code(errc::capture),
            (std::error_condition{static_cast<int>(errc::capture), generic}));
}

template <class Exception, class F>
[[nodiscard]] bool throws(F&& f) {
  try {
    f();
  } catch (const Exception&) {
    return true;
  }
  return false;
}

TEST_F(Errors, OutOfMemoryIsABadAllocAndARunnelError) {
  const auto pinned = [] { PinnedBuffer<unsigned char> buffer(huge / 2); };
  const auto on_device = [] { DeviceBuffer<unsigned char> buffer(huge / 2); };
  const auto overflow = [] { PinnedBuffer<double> buffer(huge); };
  const auto device_overflow = [] { DeviceBuffer<double> buffer(huge / 8 + 1); };
  for (const std::function<void()>& allocate :
       {std::function<void()>{pinned}, {on_device}, {overflow}, {device_overflow}}) {
    EXPECT_TRUE(throws<std::bad_alloc>(allocate));
    EXPECT_TRUE(throws<runnel::Error>(allocate));
    EXPECT_TRUE(throws<std::exception>(allocate));
    EXPECT_EQ(code_of(allocate), errc::out_of_memory);
  }
  PinnedBuffer<int> pinned_works(16);
  DeviceBuffer<int> device_works(16);
  EXPECT_TRUE(runs(device_works.stream()));
}

TEST_F(Errors, TheRuntimesNameOfAnErrorIsItsOwn) {
  try {
    DeviceBuffer<unsigned char> buffer(huge / 2);
    FAIL() << "nothing was thrown";
  } catch (const runnel::Error& error) {
    EXPECT_NE(error.native_code(), 0);
    EXPECT_NE(std::strstr(error.native_name(), "emory"), nullptr) << error.native_name();
  }
}

TEST_F(Errors, OtherErrorsAreSystemErrors) {
  const auto refused = [] { Device{-1}.use(); };
  EXPECT_TRUE(throws<std::system_error>(refused));
  EXPECT_TRUE(throws<runnel::Error>(refused));
  EXPECT_TRUE(throws<std::exception>(refused));
  try {
    refused();
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), errc::invalid_device);
    EXPECT_NE(std::strstr(error.what(), "-1"), nullptr) << error.what();
  }
}

TEST_F(Errors, AThrownErrorLeavesNoStateBehind) {
  Stream stream;
  EXPECT_TRUE(
      throws<std::bad_alloc>([&] { DeviceBuffer<unsigned char> buffer(huge / 2, stream); }));
  EXPECT_TRUE(throws<runnel::Error>([] { Device{INT_MAX}.use(); }));
  EXPECT_TRUE(stream.query());
  EXPECT_TRUE(runs(stream));
  EXPECT_NO_THROW(device().synchronize());
}

TEST_F(Errors, ErrorsStayOnTheirThread) {
  Stream stream;
  on_threads(4, [&](int i) {
    for (int k = 0; k < 200; ++k) {
      if (i % 2 == 0)
        EXPECT_ERROR(invalid_device, Device{-1}.use());
      else
        EXPECT_NO_THROW(static_cast<void>(stream.query()));
    }
  });
}

TEST_F(Errors, TextsOfSizesHaveTheNumbersAndTheStream) {
  Stream stream{device(), {.name = "named"}};
  const std::vector<int> five(5);
  std::vector<int> six(6);
  const auto text_of = [](const std::function<void()>& fail) -> std::string {
    try {
      fail();
    } catch (const runnel::Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const std::string mismatch = text_of([&] { copy(stream, six, five); });
  EXPECT_NE(mismatch.find("the source has 5 elements, the destination 6"), std::string::npos);
  EXPECT_NE(mismatch.find(to_string(stream)), std::string::npos) << mismatch;
  const std::size_t more = device().memory_info().total + 4096;
  const std::string device_text =
      text_of([&] { DeviceBuffer<unsigned char> buffer(more, stream); });
  EXPECT_NE(device_text.find(std::to_string(more) + " bytes were asked for"), std::string::npos)
      << device_text;
  const std::string pinned_text =
      text_of([] { PinnedBuffer<unsigned char> buffer(std::size_t{1} << 46); });
  EXPECT_NE(pinned_text.find("bytes were asked for"), std::string::npos) << pinned_text;
}

TEST_F(Errors, TheTextNamesTheOperationAndTheReason) {
  Stream stream;
  Stream moved{std::move(stream)};
  const std::function<void()> failures[] = {
      [&] { stream.synchronize(); },
      [&] { copy_bytes(moved, nullptr, nullptr, 1); },
      [] { Device{-1}.use(); },
      [] { PinnedBuffer<unsigned char> buffer(huge / 2); },
      [&] { StreamPool pool{device(), {.size = 0}}; },
  };
  for (const auto& fail : failures) {
    try {
      fail();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const runnel::Error& error) {
      EXPECT_NE(std::strstr(error.what(), error.operation()), nullptr) << error.what();
      EXPECT_GT(std::strlen(error.what()), std::strlen(error.operation()) + 5) << error.what();
      EXPECT_EQ(std::strchr(error.what(), '\n'), nullptr) << error.what();
      EXPECT_EQ(error.native_code() == 0, std::strlen(error.native_name()) == 0) << error.what();
      if (error.native_code() != 0) {
        EXPECT_NE(std::strstr(error.what(), error.native_name()), nullptr) << error.what();
        EXPECT_NE(std::strstr(error.what(), std::to_string(error.native_code()).c_str()), nullptr)
            << error.what();
      }
    }
  }
}

/// The arguments of invalid calls. An invalid call must leave them unchanged.
struct Things {
  Stream stream;
  std::vector<int> host = std::vector<int>(16, 5);
  std::vector<int> other = std::vector<int>(16, 6);
  PinnedBuffer<int> pinned{16};
  Event recorded{stream};
};

struct BadCall {
  std::string name;
  errc expected;
  std::function<void(Things&)> call;
};
void PrintTo(const BadCall& bad, std::ostream* out) { *out << bad.name; }

std::vector<BadCall> bad_calls() {
  std::vector<BadCall> table;
  const auto add = [&](std::string name, errc expected, std::function<void(Things&)> call) {
    table.push_back({std::move(name), expected, std::move(call)});
  };

  const std::pair<const char*, int> ordinals[] = {
      {"Minus1", -1}, {"4096", 4096}, {"Max", INT_MAX}, {"Min", INT_MIN}};
  const std::pair<const char*, void (*)(Device)> of_devices[] = {
      {"use", [](Device d) { d.use(); }},
      {"name", [](Device d) { static_cast<void>(d.name()); }},
      {"memory_info", [](Device d) { static_cast<void>(d.memory_info()); }},
      {"priority_range", [](Device d) { static_cast<void>(d.priority_range()); }},
      {"async_engine_count", [](Device d) { static_cast<void>(d.async_engine_count()); }},
      {"multiprocessor_count", [](Device d) { static_cast<void>(d.multiprocessor_count()); }},
      {"hardware_queues", [](Device d) { static_cast<void>(d.hardware_queues()); }},
      {"can_map_host_memory", [](Device d) { static_cast<void>(d.can_map_host_memory()); }},
      {"can_pin_read_only_memory",
       [](Device d) { static_cast<void>(d.can_pin_read_only_memory()); }},
      {"has_pageable_memory_access",
       [](Device d) { static_cast<void>(d.has_pageable_memory_access()); }},
      {"can_use_host_page_tables",
       [](Device d) { static_cast<void>(d.can_use_host_page_tables()); }},
      {"has_partitions", [](Device d) { static_cast<void>(d.has_partitions()); }},
      {"has_stream_memory_operations",
       [](Device d) { static_cast<void>(d.has_stream_memory_operations()); }},
      {"has_memory_pools", [](Device d) { static_cast<void>(d.has_memory_pools()); }},
      {"can_access_peer", [](Device d) { static_cast<void>(d.can_access_peer(Device{0})); }},
      {"can_access_peer_as_peer",
       [](Device d) { static_cast<void>(Device{0}.can_access_peer(d)); }},
      {"enable_peer_access", [](Device d) { d.enable_peer_access(Device{0}); }},
      {"enable_peer_access_as_peer", [](Device d) { Device{0}.enable_peer_access(d); }},
      {"disable_peer_access", [](Device d) { d.disable_peer_access(Device{0}); }},
      {"disable_peer_access_as_peer", [](Device d) { Device{0}.disable_peer_access(d); }},
      {"synchronize", [](Device d) { d.synchronize(); }},
      {"default_stream", [](Device d) { static_cast<void>(d.default_stream()); }},
      {"per_thread_default", [](Device d) { static_cast<void>(StreamRef::per_thread_default(d)); }},
      {"DeviceGuard", [](Device d) { const DeviceGuard with{d}; }},
      {"current_stream", [](Device d) { static_cast<void>(current_stream(d)); }},
      {"Stream", [](Device d) { const Stream stream{d}; }},
      {"StreamPool", [](Device d) { const StreamPool pool{d}; }},
  };
  for (const auto& [function, call] : of_devices)
    for (const auto& [name, ordinal] : ordinals)
      add(std::string{function} + "_Device" + name, errc::invalid_device,
          [f = call, bad = Device{ordinal}](Things&) { f(bad); });
  for (const auto& [name, ordinal] : ordinals) {
    add(std::string{"Stream_from_native_Device"} + name, errc::invalid_device,
        [bad = Device{ordinal}](Things& on) {
          static_cast<void>(Stream::from_native(on.stream.native(), bad, Ownership::borrow));
        });
    add(std::string{"Event_from_native_Device"} + name, errc::invalid_device,
        [bad = Device{ordinal}](Things& on) {
          static_cast<void>(Event::from_native(on.recorded.native(), bad, Ownership::borrow));
        });
  }

  // Each invalid pair of pointers, for each function that takes one.
  struct BadRange {
    const char* name;
    std::function<std::pair<int*, const int*>(Things&)> pointers;
    std::size_t bytes;
  };
  const BadRange ranges[] = {
      {"NullTo", [](Things& on) { return std::pair<int*, const int*>{nullptr, on.host.data()}; },
       8},
      {"NullFrom", [](Things& on) { return std::pair<int*, const int*>{on.host.data(), nullptr}; },
       8},
      {"NullBoth", [](Things&) { return std::pair<int*, const int*>{nullptr, nullptr}; }, 8},
      {"NullPinned",
       [](Things& on) { return std::pair<int*, const int*>{nullptr, on.pinned.data()}; }, 8},
      {"Huge",
       [](Things& on) { return std::pair<int*, const int*>{on.host.data(), on.other.data()}; },
       huge},
      {"Overlap",
       [](Things& on) { return std::pair<int*, const int*>{on.host.data(), on.host.data() + 1}; },
       8},
      {"OverlapPinned",
       [](Things& on) {
         return std::pair<int*, const int*>{on.pinned.data() + 1, on.pinned.data()};
       },
       8},
  };
  const std::pair<const char*, Pageable> policies[] = {
      {"Stage", Pageable::stage}, {"Block", Pageable::block}, {"Refuse", Pageable::refuse}};
  for (const auto& range : ranges)
    for (const auto& [policy_name, policy] : policies) {
      add(std::string{"copy_bytes_"} + range.name + policy_name, errc::invalid_argument,
          [range, pageable = policy](Things& on) {
            const auto [to, from] = range.pointers(on);
            copy_bytes(on.stream, to, from, range.bytes, {pageable});
          });
      add(std::string{"copy_2d_"} + range.name + policy_name, errc::invalid_argument,
          [range, pageable = policy](Things& on) {
            const auto [to, from] = range.pointers(on);
            copy_2d(on.stream, to, range.bytes, from, range.bytes, range.bytes, 2, {pageable});
          });
    }
  add("copy_bytes_current_Null", errc::invalid_argument,
      [](Things&) { copy_bytes(nullptr, nullptr, 8); });
  add("copy_2d_PitchTo", errc::invalid_argument,
      [](Things& on) { copy_2d(on.stream, on.host.data(), 7, on.other.data(), 8, 8, 2); });
  add("copy_2d_PitchFrom", errc::invalid_argument,
      [](Things& on) { copy_2d(on.stream, on.host.data(), 8, on.other.data(), 7, 8, 2); });
  add("copy_2d_HugeHeight", errc::invalid_argument,
      [](Things& on) { copy_2d(on.stream, on.host.data(), 8, on.other.data(), 8, 8, huge); });
  add("copy_2d_HugePitch", errc::invalid_argument,
      [](Things& on) { copy_2d(on.stream, on.host.data(), huge, on.other.data(), 8, 8, 2); });
  add("copy_Sizes", errc::invalid_argument,
      [](Things& on) { copy(on.stream, std::span{on.host}.first(3), on.other); });
  add("copy_current_Sizes", errc::invalid_argument,
      [](Things& on) { copy(std::span{on.host}.first(3), on.other); });
  add("fill_bytes_Null", errc::invalid_argument,
      [](Things& on) { fill_bytes(on.stream, nullptr, 1, 1); });
  add("fill_bytes_Huge", errc::invalid_argument,
      [](Things& on) { fill_bytes(on.stream, on.host.data(), 1, huge); });
  add("fill_2d_Null", errc::invalid_argument,
      [](Things& on) { fill_2d(on.stream, nullptr, 8, 1, 8, 2); });
  add("fill_2d_Pitch", errc::invalid_argument,
      [](Things& on) { fill_2d(on.stream, on.host.data(), 7, 1, 8, 2); });
  add("fill_2d_Huge", errc::invalid_argument,
      [](Things& on) { fill_2d(on.stream, on.host.data(), huge / 2, 1, 8, 4); });
  add("fill_Null", errc::invalid_argument,
      [](Things& on) { fill(on.stream, std::span<int>{static_cast<int*>(nullptr), 2}, 1); });
  add("fill_current_Null", errc::invalid_argument,
      [](Things&) { fill(std::span<int>{static_cast<int*>(nullptr), 2}, 1); });

  add("launch_host_func_Null", errc::invalid_argument,
      [](Things& on) { on.stream.launch_host_func(static_cast<void (*)()>(nullptr)); });
  add("launch_host_func_Empty", errc::invalid_argument,
      [](Things& on) { on.stream.launch_host_func(std::function<void()>{}); });
  add("Stream_from_native_Null", errc::invalid_argument, [](Things& on) {
    static_cast<void>(Stream::from_native(native::stream{}, on.stream.device(), Ownership::take));
  });
  add("Event_from_native_Null", errc::invalid_argument, [](Things& on) {
    static_cast<void>(Event::from_native(native::event{}, on.stream.device(), Ownership::take));
  });
  add("TimedEvent_Interprocess", errc::invalid_argument,
      [](Things&) { const TimedEvent event{EventOptions{.interprocess = true}}; });
  add("TimedEvent_Difference_NeverRecorded", errc::invalid_argument,
      [](Things&) { static_cast<void>(TimedEvent{} - TimedEvent{}); });
  add("Event_device_NeverRecorded", errc::invalid_argument,
      [](Things&) { static_cast<void>(Event{}.device()); });
  add("StreamPool_SizeZero", errc::invalid_argument,
      [](Things& on) { const StreamPool pool{on.stream.device(), {.size = 0}}; });
  add("StreamPool_SizeAboveMax", errc::invalid_argument,
      [](Things& on) { const StreamPool pool{on.stream.device(), {.size = 2, .max = 1}}; });
  add("PinnedBuffer_Huge", errc::out_of_memory,
      [](Things&) { const PinnedBuffer<int> buffer(huge / 8); });
  add("PinnedBuffer_Overflow", errc::out_of_memory,
      [](Things&) { const PinnedBuffer<int> buffer(huge); });
  add("DeviceBuffer_Huge", errc::out_of_memory,
      [](Things& on) { const DeviceBuffer<int> buffer(huge / 8, on.stream); });
  add("DeviceBuffer_Overflow", errc::out_of_memory,
      [](Things& on) { const DeviceBuffer<int> buffer(huge, on.stream); });
  return table;
}

class BadArguments : public Conformance, public testing::WithParamInterface<BadCall> {};

TEST_P(BadArguments, AreRefusedWithoutSideEffects) {
  Things on;
  on.pinned[0] = 7;
  on.stream.synchronize();
  const Device device_before = device();
  const StreamRef stream_before = current_stream();
  const std::string objects_before = owned_objects();
  EXPECT_EQ(code_of([&] { GetParam().call(on); }), GetParam().expected);
  EXPECT_EQ(Device::current(), device_before);
  EXPECT_EQ(current_stream(), stream_before);
  EXPECT_EQ(owned_objects(), objects_before);
  EXPECT_TRUE(on.stream.query()) << "a refused call enqueued work";
  EXPECT_TRUE(runs(on.stream));
  EXPECT_EQ(on.host, std::vector<int>(16, 5));
  EXPECT_EQ(on.pinned[0], 7);
}

INSTANTIATE_TEST_SUITE_P(Errors, BadArguments, testing::ValuesIn(bad_calls()),
                         [](const testing::TestParamInfo<BadCall>& bad) { return bad.param.name; });

}  // namespace
