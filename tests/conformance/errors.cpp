// SPDX-License-Identifier: Apache-2.0
// Errors, and a table of the public functions with each of their invalid arguments.
#include <climits>
#include <new>

#include "support.hpp"

namespace conformance::errors_cases {
using Errors = Conformance;

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
  EXPECT_EQ(names.size(), static_cast<size_t>(errc::unknown));
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
  const char* name() const noexcept override { return name_; }
  std::string message(int) const override { return {}; }

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
  const auto pinned = [] { PinnedBytes buffer(huge / 2); };
  const auto on_device = [] { DeviceBytes buffer(huge / 2); };
  const auto overflow = [] { PinnedBuffer<double> buffer(huge); };
  const auto device_overflow = [] { DeviceBuffer<double> buffer(huge / 8 + 1); };
  for (const std::function<void()>& allocate :
       {std::function<void()>{pinned}, {on_device}, {overflow}, {device_overflow}}) {
    EXPECT_TRUE(throws<std::bad_alloc>(allocate));
    EXPECT_TRUE(throws<runnel::Error>(allocate));
    EXPECT_TRUE(throws<std::exception>(allocate));
    EXPECT_EQ(code_of(allocate), errc::out_of_memory);
  }
  PinnedInts pinned_works(16);
  DeviceInts device_works(16);
  EXPECT_RUNS(device_works.stream());
}

TEST_F(Errors, TheRuntimesNameOfAnErrorIsItsOwn) {
  try {
    DeviceBytes buffer(huge / 2);
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
  EXPECT_TRUE(throws<std::bad_alloc>([&] { DeviceBytes buffer(huge / 2, stream); }));
  EXPECT_TRUE(throws<runnel::Error>([] { Device{INT_MAX}.use(); }));
  EXPECT_DONE(stream);
  EXPECT_RUNS(stream);
  EXPECT_NO_THROW(device().synchronize());
}

TEST_F(Errors, ErrorsStayOnTheirThread) {
  Stream stream;
  on_threads(4, [&](int i) {
    repeat(200, [&] {
      if (i % 2 == 0)
        EXPECT_ERROR(invalid_device, Device{-1}.use());
      else
        EXPECT_NO_THROW(drop(stream.query()));
    });
  });
}

TEST_F(Errors, TextsOfSizesHaveTheNumbersAndTheStream) {
  Stream stream{device(), {.name = "named"}};
  const Ints five(5);
  Ints six(6);
  const std::string mismatch = TEXT_OF(copy(stream, six, five));
  EXPECT_SAYS(mismatch, "the source has 5 elements, the destination 6");
  EXPECT_SAYS(mismatch, to_string(stream));
  const size_t more = device().memory_info().total + 4096;
  EXPECT_SAYS(TEXT_OF(DeviceBytes(more, stream)), std::to_string(more) + " bytes were asked for");
  EXPECT_SAYS(TEXT_OF(PinnedBytes(1UL << 46)), "bytes were asked for");
}

TEST_F(Errors, TheTextNamesTheOperationAndTheReason) {
  Stream stream;
  Stream moved{std::move(stream)};
  const std::function<void()> failures[] = {
      [&] { stream.synchronize(); },
      [&] { copy_bytes(moved, nullptr, nullptr, 1); },
      [] { Device{-1}.use(); },
      [] { PinnedBytes buffer(huge / 2); },
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
  Ints host = Ints(16, 5);
  Ints other = Ints(16, 6);
  PinnedInts pinned{16};
  DeviceInts there{16, stream};
  Event recorded{stream};
  std::span<int> null{static_cast<int*>(nullptr), 2};
};

struct BadCall {
  std::string name;
  std::function<void(Things&)> call;
  errc expected = errc::invalid_argument;
};
void PrintTo(const BadCall& bad, std::ostream* out) { *out << bad.name; }

/// A call of a device that does not exist, and its name.
#define OF(name, ...) {#name, [](Device d) { static_cast<void>(__VA_ARGS__); }}
const std::pair<const char*, void (*)(Device)> of_devices[] = {
    OF(use, d.use()),
    OF(name, d.name()),
    OF(memory_info, d.memory_info()),
    OF(priority_range, d.priority_range()),
    OF(async_engine_count, d.async_engine_count()),
    OF(multiprocessor_count, d.multiprocessor_count()),
    OF(hardware_queues, d.hardware_queues()),
    OF(can_map_host_memory, d.can_map_host_memory()),
    OF(can_pin_read_only_memory, d.can_pin_read_only_memory()),
    OF(has_pageable_memory_access, d.has_pageable_memory_access()),
    OF(can_use_host_page_tables, d.can_use_host_page_tables()),
    OF(has_partitions, d.has_partitions()),
    OF(has_stream_memory_operations, d.has_stream_memory_operations()),
    OF(has_memory_pools, d.has_memory_pools()),
    OF(can_access_peer, d.can_access_peer(Device{0})),
    OF(can_access_peer_as_peer, Device{0}.can_access_peer(d)),
    OF(enable_peer_access, d.enable_peer_access(Device{0})),
    OF(enable_peer_access_as_peer, Device{0}.enable_peer_access(d)),
    OF(disable_peer_access, d.disable_peer_access(Device{0})),
    OF(disable_peer_access_as_peer, Device{0}.disable_peer_access(d)),
    OF(synchronize, d.synchronize()),
    OF(synchronize_for, d.synchronize_for(1s)),
    OF(default_stream, d.default_stream()),
    OF(per_thread_default, StreamRef::per_thread_default(d)),
    OF(DeviceGuard, DeviceGuard{d}),
    OF(current_stream, current_stream(d)),
    OF(Stream, Stream{d}),
    OF(StreamPool, StreamPool{d}),
    OF(DeviceResource_set_limit, DeviceResource{d}.set_limit(1)),
    OF(DeviceResource_limit, DeviceResource{d}.limit()),
    OF(DeviceResource_reserved, DeviceResource{d}.reserved()),
    OF(DeviceResource_reset_peak, DeviceResource{d}.reset_peak()),
    OF(DeviceResource_trim, DeviceResource{d}.trim()),
    OF(DeviceResource_set_release_threshold, DeviceResource{d}.set_release_threshold(0)),
};

/// Each invalid pair of pointers, for each function that takes one.
struct BadRange {
  const char* name;
  std::pair<int*, const int*> (*pointers)(Things&);
  size_t bytes = 8;
};
#define RANGE(name, to, from) \
  {#name, []([[maybe_unused]] Things& on) { return std::pair<int*, const int*>{to, from}; }}
const BadRange ranges[] = {
    RANGE(NullTo, nullptr, on.host.data()),
    RANGE(NullFrom, on.host.data(), nullptr),
    RANGE(NullBoth, nullptr, nullptr),
    RANGE(NullPinned, nullptr, on.pinned.data()),
    RANGE(Overlap, on.host.data(), on.host.data() + 1),
    RANGE(OverlapPinned, on.pinned.data() + 1, on.pinned.data()),
    RANGE(OverlapOnDevice, on.there.data() + 1, on.there.data()),
    {"Huge",
     [](Things& on) { return std::pair<int*, const int*>{on.host.data(), on.other.data()}; }, huge},
};

#define BAD(...) []([[maybe_unused]] Things& on) { static_cast<void>(__VA_ARGS__); }
#define ROWS(name, to_pitch, from_pitch, width, height) \
  {"copy_2d_" #name,                                    \
   BAD(copy_2d(on.stream, on.host.data(), to_pitch, on.other.data(), from_pitch, width, height))}
const BadCall single_calls[] = {
    {"copy_bytes_current_Null", BAD(copy_bytes(nullptr, nullptr, 8))},
    ROWS(PitchTo, 7, 8, 8, 2),
    ROWS(PitchFrom, 8, 7, 8, 2),
    ROWS(HugeHeight, 8, 8, 8, huge),
    ROWS(HugePitch, huge, 8, 8, 2),
    ROWS(HugePitchFrom, 8, huge, 8, 2),
    ROWS(HugePitches, huge / 2, huge / 2, 8, 3),
    ROWS(HugeWidth, huge / 2, huge / 2, huge / 2, 4),
    {"copy_Null", BAD(copy(on.stream, on.null, on.host))},
    {"copy_Sizes", BAD(copy(on.stream, std::span{on.host}.first(3), on.other))},
    {"copy_SizesFrom", BAD(copy(on.stream, on.host, std::span{on.other}.first(3)))},
    {"copy_SizesToDevice", BAD(copy(on.stream, on.there, std::span{on.other}.first(3)))},
    {"copy_SizesFromDevice", BAD(copy(on.stream, on.host, on.there.first(3)))},
    {"copy_current_Sizes", BAD(copy(std::span{on.host}.first(3), on.other))},
    {"fill_bytes_Null", BAD(fill_bytes(on.stream, nullptr, 1, 1))},
    {"fill_bytes_Huge", BAD(fill_bytes(on.stream, on.host.data(), 1, huge))},
    {"fill_2d_Null", BAD(fill_2d(on.stream, nullptr, 8, 1, 8, 2))},
    {"fill_2d_Pitch", BAD(fill_2d(on.stream, on.host.data(), 7, 1, 8, 2))},
    {"fill_2d_Huge", BAD(fill_2d(on.stream, on.host.data(), huge / 2, 1, 8, 4))},
    {"fill_Null", BAD(fill(on.stream, on.null, 1))},
    {"fill_current_Null", BAD(fill(on.null, 1))},
    {"launch_host_func_Null", BAD(on.stream.launch_host_func(static_cast<void (*)()>(nullptr)))},
    {"launch_host_func_Empty", BAD(on.stream.launch_host_func(std::function<void()>{}))},
    {"on_complete_Empty", BAD(on.stream.on_complete(std::function<void(const Outcome&)>{}))},
    {"Stream_from_native_Null",
     BAD(Stream::from_native(native::stream{}, on.stream.device(), Ownership::take))},
    {"Stream_from_native_NullBorrow",
     BAD(Stream::from_native(native::stream{}, on.stream.device(), Ownership::borrow))},
    {"Stream_from_native_NullAlone", BAD(Stream::from_native(native::stream{}, Ownership::borrow))},
    {"Event_from_native_Null",
     BAD(Event::from_native(native::event{}, on.stream.device(), Ownership::take))},
    {"TimedEvent_Interprocess", BAD(TimedEvent{EventOptions{.interprocess = true}})},
    {"TimedEvent_Difference_NeverRecorded", BAD(TimedEvent{} - TimedEvent{})},
    {"Event_device_NeverRecorded", BAD(Event{}.device())},
    {"StreamPool_SizeZero", BAD(StreamPool{on.stream.device(), {.size = 0}})},
    {"StreamPool_SizeAboveMax", BAD(StreamPool{on.stream.device(), {.size = 3, .max = 2}})},
    {"PinnedBuffer_Huge", BAD(PinnedInts(huge / 8)), errc::out_of_memory},
    {"PinnedBuffer_Overflow", BAD(PinnedInts(huge)), errc::out_of_memory},
    {"DeviceBuffer_Huge", BAD(DeviceInts(huge / 8, on.stream)), errc::out_of_memory},
    {"DeviceBuffer_Overflow", BAD(DeviceInts(huge, on.stream)), errc::out_of_memory},
};

std::vector<BadCall> bad_calls() {
  std::vector<BadCall> table(std::begin(single_calls), std::end(single_calls));
  const auto add = [&](std::string name, std::function<void(Things&)> call,
                       errc expected = errc::invalid_argument) {
    table.push_back({std::move(name), std::move(call), expected});
  };
  constexpr int past_the_last = 0;
  for (const auto& [name, ordinal] :
       {std::pair{"Minus1", -1}, {"Count", past_the_last}, {"Max", INT_MAX}, {"Min", INT_MIN}}) {
    const auto bad = [number = ordinal] {
      return Device{number == past_the_last ? Device::count() : number};
    };
    const auto add_bad = [&, suffix = std::string{"_Device"} + name](
                             const std::string& function, std::function<void(Things&)> call) {
      add(function + suffix, std::move(call), errc::invalid_device);
    };
    for (const auto& [function, call] : of_devices)
      add_bad(function, [f = call, bad](Things&) { f(bad()); });
    add_bad("Stream_from_native", [bad](Things& on) {
      drop(Stream::from_native(on.stream.native(), bad(), Ownership::borrow));
    });
    add_bad("Event_from_native", [bad](Things& on) {
      drop(Event::from_native(on.recorded.native(), bad(), Ownership::borrow));
    });
  }
  for (const auto& range : ranges)
    for (const auto& [policy_name, policy] : {std::pair{"Stage", Pageable::stage},
                                              {"Block", Pageable::block},
                                              {"Refuse", Pageable::refuse}}) {
      add(std::string{"copy_bytes_"} + range.name + policy_name,
          [range, pageable = policy](Things& on) {
            const auto [to, from] = range.pointers(on);
            copy_bytes(on.stream, to, from, range.bytes, {pageable});
          });
      add(std::string{"copy_2d_"} + range.name + policy_name,
          [range, pageable = policy](Things& on) {
            const auto [to, from] = range.pointers(on);
            copy_2d(on.stream, to, range.bytes, from, range.bytes, range.bytes, 2, {pageable});
          });
    }
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
  EXPECT_CURRENT_DEVICE(device_before);
  EXPECT_CURRENT(stream_before);
  EXPECT_EQ(owned_objects(), objects_before);
  EXPECT_DONE(on.stream) << "a refused call enqueued work";
  EXPECT_RUNS(on.stream);
  EXPECT_EQ(on.host, Ints(16, 5));
  EXPECT_EQ(on.pinned[0], 7);
}

INSTANTIATE_TEST_SUITE_P(Errors, BadArguments, testing::ValuesIn(bad_calls()),
                         [](const testing::TestParamInfo<BadCall>& bad) { return bad.param.name; });

}  // namespace conformance::errors_cases
