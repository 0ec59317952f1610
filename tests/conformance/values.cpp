// SPDX-License-Identifier: Apache-2.0
// Values in memory that streams wait for and write.

#include "support.hpp"

namespace conformance::values_cases {

using Number = std::atomic_ref<uint32_t>;

class Values : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    SKIP_IF(!device().has_stream_memory_operations(), "the device has no stream memory operations");
    numbers_.emplace(16U);
    std::ranges::fill(*numbers_, 0U);
  }
  void TearDown() override {
    numbers_.reset();
    Conformance::TearDown();
  }
  /// A location in pinned memory, which is 0 at first.
  uint32_t* place(size_t i = 0) { return numbers_->data() + i; }
  Number number(size_t i = 0) { return Number{(*numbers_)[i]}; }

 private:
  std::optional<PinnedBuffer<uint32_t>> numbers_;
};

class ValuesTwo : public Values {
 protected:
  void SetUp() override {
    SKIP_IF(Device::count() < 2, "needs two devices");
    Values::SetUp();
  }
};

TEST_F(Values, WorkWaitsUntilTheHostStoresTheNumber) {
  Stream stream;
  Log log;
  stream.wait_value(place(), 3);
  log.write(stream, "behind the value");
  EXPECT_FALSE(stream.synchronize_for(5ms));
  number().store(2, std::memory_order_release);
  EXPECT_FALSE(stream.synchronize_for(5ms));
  EXPECT_EQ(log.size(), 0U);
  number().store(3, std::memory_order_release);
  EXPECT_COMPLETES(stream);
  EXPECT_EQ(log.size(), 1U);
}

TEST_F(Values, TheDifferenceIsCyclic) {
  Stream stream;
  number().store(0xFFFFFFFFU, std::memory_order_release);
  stream.wait_value(place(), 0xFFFFFFFEU);
  stream.wait_value(place(), 0xFFFFFFFFU);
  EXPECT_COMPLETES(stream);
  stream.wait_value(place(), 1);
  EXPECT_FALSE(stream.synchronize_for(5ms));
  number().store(2, std::memory_order_release);
  EXPECT_COMPLETES(stream);
}

TEST_F(Values, AWriteComesAfterEarlierWorkAndItsBytes) {
  constexpr size_t count = 100'000;
  Stream stream;
  const PinnedInts out{count};
  DeviceInts on_device{count, stream};
  PinnedInts back{count};
  stream.synchronize();
  Gate gate{stream};
  fill(stream, on_device, 6);
  copy(stream, back, on_device);
  stream.write_value(place(), 1);
  EXPECT_EQ(number().load(std::memory_order_acquire), 0U);
  gate.open();
  // A query lets a runtime that works only on demand begin.
  EXPECT_EVENTUALLY(stream.query() || number().load(std::memory_order_acquire) == 1);
  EXPECT_EVENTUALLY(number().load(std::memory_order_acquire) == 1);
  EXPECT_EQ(std::ranges::count(back, 6), std::ptrdiff_t{count});
  stream.synchronize();
}

TEST_F(Values, OneStreamWaitsForWhatAnotherWrites) {
  Stream writes, waits;
  Log log;
  Gate gate{writes};
  log.write(writes, "first");
  writes.write_value(place(1), 9);
  waits.wait_value(place(1), 9);
  log.write(waits, "second");
  EXPECT_PENDING(waits);
  gate.open();
  EXPECT_COMPLETES(writes);
  EXPECT_COMPLETES(waits);
  EXPECT_LOG(log, "first", "second");
}

TEST_F(Values, TheNumberMayBeInRegisteredMemory) {
  alignas(4096) static uint32_t numbers[1024];
  numbers[3] = 0;
  const HostRegistration pinned{numbers, sizeof numbers};
  Stream stream;
  stream.write_value(numbers + 3, 4);
  stream.wait_value(numbers + 3, 4);
  EXPECT_COMPLETES(stream);
  EXPECT_EQ(Number{numbers[3]}.load(std::memory_order_acquire), 4U);
}

TEST_F(Values, DefaultStreamsWaitAndWrite) {
  number().store(1, std::memory_order_release);
  for (const StreamRef stream : {default_stream(), thread_default()}) {
    stream.wait_value(place(), 1);
    stream.write_value(place(2), 8);
    EXPECT_COMPLETES(stream);
    EXPECT_EQ(number(2).exchange(0), 8U);
  }
}

TEST_F(Values, AStreamThatWaitsMayBeDestroyed) {
  Event done;
  {
    Stream stream;
    stream.wait_value(place(), 1);
    stream.write_value(place(1), 2);
    stream.record_event(done);
  }
  EXPECT_PENDING(done);
  number().store(1, std::memory_order_release);
  EXPECT_COMPLETES(done);
  EXPECT_EQ(number(1).load(std::memory_order_acquire), 2U);
}

TEST_F(Values, ABlockThatAStreamWaitsOnIsNotHandedOutAgain) {
  Stream stream;
  auto block = std::make_unique<PinnedBuffer<uint32_t>>(1024U);
  uint32_t* const location = block->data();
  *location = 0;
  stream.wait_value(location, 1);
  block.reset();
  const PinnedBuffer<uint32_t> next{1024U};
  EXPECT_NE(next.data(), location);
  Number{*location}.store(1, std::memory_order_release);  // the pool still has the block pinned
  EXPECT_COMPLETES(stream);
}

TEST_F(Values, ManyRoundsBetweenTwoStreamsAndTheHost) {
  Stream there, back;
  for (uint32_t i = 1; i <= 200; ++i) {
    there.wait_value(place(0), i);
    there.write_value(place(1), i);
    back.wait_value(place(1), i);
    back.write_value(place(2), i);
    number(0).store(i, std::memory_order_release);
    if (i % 50 == 0) {
      EXPECT_COMPLETES(back);
      EXPECT_EQ(number(2).load(std::memory_order_acquire), i);
    }
  }
  there.synchronize();
}

TEST_F(Values, WrongLocationsAreRefused) {
  Stream stream;
  uint32_t pageable = 0;
  const ManagedBuffer<uint32_t> managed{4};
  const DeviceBuffer<uint32_t> there{4, stream};
  const auto both = [&](const uint32_t* location) {
    const auto waiting = code_of([&] { stream.wait_value(location, 0); });
    EXPECT_EQ(code_of([&] { stream.write_value(const_cast<uint32_t*>(location), 0); }), waiting);
    return waiting;
  };
  EXPECT_EQ(both(nullptr), errc::invalid_argument);
  EXPECT_EQ(
      both(reinterpret_cast<const uint32_t*>(reinterpret_cast<const std::byte*>(place()) + 2)),
      errc::invalid_argument);
  EXPECT_EQ(both(&pageable), errc::invalid_argument);
  EXPECT_EQ(both(managed.data()), errc::invalid_argument);
  EXPECT_EQ(both(there.data()), errc::invalid_argument);
  EXPECT_RUNS(stream);
}

TEST_F(Values, ACaptureRefusesValuesAndGoesOn) {
  Stream stream;
  int ran = 0;
  const Graph graph = capture(stream, [&] {
    EXPECT_ERROR(capture, stream.wait_value(place(), 1));
    EXPECT_ERROR(capture, stream.write_value(place(), 1));
    stream.launch_host_func([&] { ++ran; });
  });
  graph.launch(stream);
  EXPECT_COMPLETES(stream);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(number().load(std::memory_order_acquire), 0U);
}

TEST_F(Values, AHostFunctionAndAMovedFromStreamAreRefused) {
  Stream stream;
  std::error_code code;
  stream.launch_host_func([&] { code = code_of([&] { stream.wait_value(place(), 0); }); });
  stream.synchronize();
  EXPECT_EQ(code, errc::not_permitted);
  Stream other{std::move(stream)};
  EXPECT_ERROR(invalid_handle, stream.wait_value(place(), 0));
  EXPECT_ERROR(invalid_handle, stream.write_value(place(), 0));
}

TEST_F(ValuesTwo, StreamsOfTwoDevicesMeetInPinnedMemory) {
  Stream here{Device{0}}, there{Device{1}};
  here.wait_value(place(0), 1);
  here.write_value(place(1), 1);
  there.write_value(place(0), 1);
  there.wait_value(place(1), 1);
  EXPECT_COMPLETES(there);
  EXPECT_COMPLETES(here);
  EXPECT_CURRENT_DEVICE(Device{0});
}

using NoValues = Conformance;

TEST_F(NoValues, ADeviceWithoutValuesRefuses) {
  SKIP_IF(device().has_stream_memory_operations(), "the device has stream memory operations");
  Stream stream;
  PinnedBuffer<uint32_t> number{1};
  EXPECT_ERROR(not_supported, stream.wait_value(number.data(), 0));
  EXPECT_ERROR(not_supported, stream.write_value(number.data(), 0));
  EXPECT_RUNS(stream);
}

}  // namespace conformance::values_cases
