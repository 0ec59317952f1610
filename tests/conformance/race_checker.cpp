// SPDX-License-Identifier: Apache-2.0
/// Programs with a missing wait, which the checker must find, and correct ones, of which it must
/// report nothing. What it says does not depend on timing: only waits count.
#include <initializer_list>

#include "../support/sanitizers.hpp"
#include "support.hpp"

namespace conformance::race_checker_cases {
using test_support::is_under_thread_sanitizer;

class CheckerTest : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    if (IsSkipped()) return;
    was_on_ = RaceChecker::is_on();
    RaceChecker::stop();
    RaceChecker::set_handler(
        [](const char* report, void* self) {
          static_cast<CheckerTest*>(self)->reports_.emplace_back(report);
        },
        this);
    RaceChecker::start();
    is_set_up_ = true;
  }
  void TearDown() override {
    if (is_set_up_) {
      device().synchronize();
      RaceChecker::stop();
      RaceChecker::set_handler(nullptr);
      if (was_on_) RaceChecker::start();
    }
    Conformance::TearDown();
  }
  /// The only report contains the text.
  void expect_report(const char* text) {
    ASSERT_EQ(reports_.size(), 1U) << all();
    EXPECT_SAYS(reports_[0], text) << all();
    const std::string advice = "\n  Missing, ";
    EXPECT_EQ(reports_[0].find(advice), reports_[0].rfind(advice)) << all();
    reports_.clear();
  }
  void expect_none() {
    EXPECT_EQ(reports_.size(), 0U) << all();
    reports_.clear();
  }

  static constexpr const char* missing_wait = "two streams use the same memory";
  static constexpr const char* host_too_early = "the host uses memory before a stream is done";
  std::vector<std::string> reports_;

 private:
  std::string all() const {
    std::string text;
    for (const std::string& report : reports_) text += report + "\n";
    return text;
  }
  bool is_set_up_ = false;
  bool was_on_ = false;
};
/// Programs that really race.
class MissingWait : public CheckerTest {
 protected:
  void SetUp() override {
    CheckerTest::SetUp();
    SKIP_IF(is_under_thread_sanitizer, "the program races, which ThreadSanitizer would report");
  }
};
using EnoughWaits = CheckerTest;

constexpr size_t size = 4096;

/// A device buffer that every stream may use: its allocation is complete. The free waits for the
/// users.
DeviceBytes ready_buffer(StreamRef stream, const auto&... users) {
  DeviceBytes buffer(size, stream);
  stream.synchronize();
  (buffer.record_stream(users), ...);
  return buffer;
}

TEST_F(MissingWait, ACopyReadsWhatAnotherStreamWrites) {
  Stream a{{.name = "first"}}, b{{.name = "second"}};
  PinnedBytes in(size), out(size);
  auto device = ready_buffer(a, b);
  copy(a, device, in);
  copy(b, out, device);
  ASSERT_EQ(reports_.size(), 1U);
  for (const char* part :
       {"first", "second", "copy writes", "copy reads", "4096 bytes", "wait_stream()",
        testing::UnitTest::GetInstance()->current_test_info()->name()})
    EXPECT_SAYS(reports_[0], part) << "no '" << part << "' in: " << reports_[0];
  reports_.clear();
}

TEST_F(MissingWait, IsReportedToAHandlerThatDoesNotRedirectItsCaller) {
  const Stream a, b;
  auto device = ready_buffer(a, b);
  struct Tried {
    const Stream* stream;
    std::string text{};
  } tried{&a};
  RaceChecker::set_handler(
      [](const char*, void* data) {
        Tried& of = *static_cast<Tried*>(data);
        of.text = TEXT_OF(of.stream->use());
        set_default_pageable(Pageable::block);
      },
      &tried);
  const StreamRef before = current_stream();
  fill(a, device, 1);
  fill(b, device, 2);
  EXPECT_SAYS(tried.text, "must not use the library");
  EXPECT_CURRENT(before);
  EXPECT_EQ(default_pageable(), Pageable::stage);
}

TEST_F(MissingWait, AFillOverwritesWhatAnotherStreamReads) {
  Stream a, b;
  PinnedBytes out(size);
  auto device = ready_buffer(a, b);
  copy(b, out, device);
  fill(a, device, 1);
  expect_report(missing_wait);
}

TEST_F(MissingWait, TheHostOverwritesAPinnedSourceInFlight) {
  Stream stream;
  PinnedBytes in(size);
  auto device = ready_buffer(stream);
  copy(stream, device, in);
  RaceChecker::host_writes(in);
  expect_report(host_too_early);
  stream.synchronize();
  RaceChecker::host_writes(in);
  expect_none();
}

TEST_F(MissingWait, AQuestionCountsForWhatWasSubmittedBeforeIt) {
  Stream stream, other;
  PinnedBytes in(size);
  auto device = ready_buffer(stream);
  const auto wait = [&] {
    for (test_support::Pauses pause; !stream.query();) pause();
    EXPECT_DONE(stream);
  };
  for (int i : range(2)) {
    wait();
    copy(stream, device, in);
    RaceChecker::host_writes(in);
    if (i == 0) expect_report(host_too_early);
    wait();
    RaceChecker::host_writes(in);
    expect_none();
  }
  // A wait for another stream's work counts, too.
  copy(other, device, in);
  stream.wait_stream(other);
  wait();
  RaceChecker::host_writes(in);
  expect_none();
}

TEST_F(MissingWait, TheHostReadsADestinationBeforeTheCopyHasPassed) {
  Stream stream;
  PinnedBytes out(size);
  auto device = ready_buffer(stream);
  copy(stream, out, device);
  RaceChecker::host_reads(out);
  expect_report(host_too_early);
}

TEST_F(MissingWait, AnEventIsRecordedTooEarly) {
  Stream a, b;
  PinnedBytes out(size);
  auto device = ready_buffer(a, b);
  fill(a, device, 1);
  const Event event = a.record_event();
  fill(a, device, 2);
  b.wait_event(event);
  copy(b, out, device);
  expect_report("waits for earlier work");
}

TEST_F(MissingWait, AStreamWaitsForAnEventBeforeItIsRecorded) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  Event event;
  b.wait_event(event);
  fill(a, device, 1);
  event.record(a);
  fill(b, device, 2);
  expect_report(missing_wait);
}

TEST_F(MissingWait, TheWaitGoesTheWrongWay) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  fill(a, device, 1);
  a.wait_stream(b);
  fill(b, device, 2);
  expect_report(missing_wait);
}

TEST_F(MissingWait, TheWaitIsForAnotherStream) {
  Stream a, b, c;
  auto device = ready_buffer(a, b);
  fill(a, device, 1);
  b.wait_stream(c);
  fill(b, device, 2);
  expect_report(missing_wait);
}

TEST_F(MissingWait, OneByteIsCommon) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  fill_bytes(a, device.data(), 1, 101);
  fill_bytes(b, device.data() + 100, 2, 100);
  expect_report("Both use 1 bytes");
}

TEST_F(MissingWait, OneRowIsCommon) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  fill_2d(a, device.data(), 64, 1, 32, 10);
  fill_2d(b, device.data() + 9 * 64, 64, 2, 32, 10);
  expect_report("Both use 32 bytes");
}

TEST_F(MissingWait, DeclaredWorkReadsWhatAnotherStreamWrites) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  a.declare_writes(device);
  b.declare_reads(device);
  expect_report("declared work reads");
}

TEST_F(MissingWait, MemoryIsUsedBeforeItsAllocation) {
  Stream a, b;
  DeviceBytes device(size, a);
  fill(b, device, 1);
  expect_report("does not wait for its allocation");
  device.record_stream(b);
}

TEST_F(MissingWait, ABufferIsDroppedWhileAStreamUsesIt) {
  Stream a, b;
  {
    auto device = ready_buffer(a);
    b.declare_reads(device);
  }
  ASSERT_EQ(reports_.size(), 1U);
  // record_stream() orders nothing but the free, so that a wait comes first.
  const size_t wait = reports_[0].find("has to wait for"),
               record = reports_[0].find("record_stream(");
  EXPECT_LT(wait, record) << reports_[0];
  EXPECT_SAYS(reports_[0], "only by declare_reads() and declare_writes()");
  expect_report("record_stream(");
}

TEST_F(MissingWait, AResultIsReportedBeforeTheFree) {
  Stream work{{.name = "work"}}, last{{.name = "last"}};
  PinnedBytes result(size);
  {
    auto device = ready_buffer(last);
    work.declare_writes(device);  // a kernel
    copy(last, result, device);
    device.record_stream(work);  // the advice that orders nothing
  }
  expect_report(missing_wait);
}

/// Memory that is freed already.
DeviceSpan<unsigned char> freed_memory(StreamRef stream) {
  auto device = ready_buffer(stream);
  return device;
}

TEST_F(MissingWait, MemoryIsUsedAfterItsFree) {
  Stream a;
  a.declare_writes(freed_memory(a));
  expect_report("use of memory that was freed");
}

TEST_F(MissingWait, AReadAfterAFreeIsCalledARead) {
  Stream a;
  a.declare_reads(freed_memory(a));
  expect_report(" reads in Stream(");
}

TEST_F(MissingWait, ABufferOfAResourceIsUsedOrDroppedTooEarly) {
  Stream a, b;
  {
    DeviceBytes device(size, DeviceResource{}, a);
    fill(b, device, 1);
    expect_report("does not wait for its allocation");
    device.record_stream(b);
  }
  {
    DeviceBytes device(size, DeviceResource{}, a);
    a.synchronize();
    b.declare_reads(device);
  }
  expect_report("record_stream(");
}

TEST_F(MissingWait, MemoryIsUnpinnedInFlight) {
  Stream stream;
  Bytes in(size);
  auto device = ready_buffer(stream);
  {
    const HostRegistration pinned{in};
    copy(stream, device, in);
    stream.wait_stream(stream);
  }
  expect_report("unpinned too early");
}

TEST_F(MissingWait, ABatchWritesWhatAnotherStreamReads) {
  Stream a, b;
  PinnedBytes in(size), out(size);
  auto device = ready_buffer(a, b);
  const std::array operations{
      copy_operation(device.span().subspan(0, 100), std::span<const unsigned char>{in.data(), 100}),
      copy_operation(device.span().subspan(200, 100),
                     std::span<const unsigned char>{in.data(), 100})};
  copy_batch(a, operations);
  copy(b, std::span{out.data(), 10}, DeviceSpan<const unsigned char>{device.data() + 210, 10});
  expect_report("copy a batch writes");
}

/// One block of pinned memory, and operations between parts of it and of a device buffer.
class OneBatch : public MissingWait {
 protected:
  void SetUp() override {
    MissingWait::SetUp();
    if (IsSkipped()) return;
    stream_.emplace(StreamOptions{.name = "batch"});
    host_.emplace(size);
    device_.emplace(ready_buffer(*stream_));
  }
  void TearDown() override {
    device_.reset();
    host_.reset();
    stream_.reset();
    MissingWait::TearDown();
  }
  CopyOperation in(size_t to, size_t from, size_t bytes) {
    return {device_->data() + to, host_->data() + from, bytes};
  }
  CopyOperation out(size_t to, size_t from, size_t bytes) {
    return {host_->data() + to, device_->data() + from, bytes};
  }
  void run(std::initializer_list<CopyOperation> operations) { copy_batch(*stream_, operations); }
  void expect_conflict(std::initializer_list<const char*> parts) {
    ASSERT_EQ(reports_.size(), 1U);
    for (const char* part : parts)
      EXPECT_SAYS(reports_[0], part) << "no '" << part << "' in: " << reports_[0];
    expect_report("two operations of a batch that use the same memory");
  }

  std::optional<Stream> stream_;
  std::optional<PinnedBytes> host_;
  std::optional<DeviceBytes> device_;
};

TEST_F(OneBatch, TwoOperationsWriteTheSameBytes) {
  run({in(0, 0, 100), in(1000, 200, 100), in(90, 400, 100)});
  expect_conflict({"copy a batch, operations[0], writes in Stream(", "batch), submitted by",
                   "copy a batch, operations[2], writes", "Both use 10 bytes", "a call of its own",
                   testing::UnitTest::GetInstance()->current_test_info()->name()});
}

TEST_F(OneBatch, OneOperationReadsWhatALaterOneWrites) {
  run({out(0, 0, 100), in(50, 1000, 1)});
  expect_conflict({"operations[0], reads", "operations[1], writes", "Both use 1 bytes"});
}

TEST_F(OneBatch, OneOperationReadsWhatAnEarlierOneWrites) {
  run({in(0, 1000, 100), out(0, 0, 0), out(0, 99, 100)});
  expect_conflict({"operations[0], writes", "operations[2], reads", "Both use 1 bytes"});
}

TEST_F(OneBatch, ALongRangeContainsShortOnesOfOthers) {
  run({in(0, 0, 1000), out(2000, 1500, 10), out(3000, 500, 10)});
  expect_conflict({"operations[0], writes", "operations[2], reads", "Both use 10 bytes"});
}

TEST_F(OneBatch, NeighboursAndSharedSourcesAreAllowed) {
  run({in(0, 0, 100), in(100, 0, 100), in(200, 50, 100), out(1000, 300, 100), out(1100, 300, 100),
       out(1200, 350, 10)});
  run({in(0, 0, 0), in(0, 0, 10), in(0, 5, 0),
       CopyOperation{device_->data(), device_->data(), 10}});
  run({});
  expect_none();
}

TEST_F(OneBatch, TheNextBatchIsInOrder) {
  run({in(0, 0, 100), in(100, 100, 100)});
  run({in(0, 0, 100), out(1000, 100, 100)});
  expect_none();
}

TEST_F(OneBatch, TheTwoOfManyOperationsAreFound) {
  constexpr size_t count = 100'000;
  PinnedBytes host(count);
  DeviceBytes device(count, *stream_);
  std::vector<CopyOperation> operations;
  for (size_t i : range(count))
    operations.push_back(
        {device.data() + i, host.data() + i, 1, MemoryKind::device, MemoryKind::pinned});
  copy_batch(*stream_, operations);
  expect_none();
  operations.back().to = device.data() + 7;
  copy_batch(*stream_, operations);
  expect_conflict({"operations[7], writes", "operations[99999], writes", "Both use 1 bytes"});
}

TEST_F(MissingWait, AHostFunctionWritesWhatAnotherStreamReads) {
  Stream a, b;
  PinnedBytes shared(size);
  auto device = ready_buffer(b);
  a.declare_writes(shared);
  a.launch_host_func([to = shared.data()] { std::memset(to, 1, size); });
  copy(b, device, std::as_const(shared));
  expect_report(missing_wait);
  Device::current().synchronize();
}

TEST_F(MissingWait, AFunctionSaysThatItWritesWhatAnotherStreamReads) {
  Stream a, b;
  PinnedBytes shared(size);
  const auto device = ready_buffer(b);
  a.launch_host_func([&] { RaceChecker::host_writes(shared); });
  a.synchronize();
  enqueue_nothing(a);
  copy(b, shared, device);
  a.launch_host_func([&] { RaceChecker::host_writes(shared); });
  a.synchronize();
  expect_report(missing_wait);
  Device::current().synchronize();
}

TEST_F(EnoughWaits, AFunctionRunsAfterLaterWorkWasSubmitted) {
  Stream a, b;
  PinnedBytes in(size), out(size);
  auto device = ready_buffer(b), other = ready_buffer(b);
  copy(a, out, other);
  Gate gate{a};
  a.launch_host_func([&] {
    RaceChecker::host_reads(out);
    RaceChecker::host_writes(in);
  });
  b.wait_stream(a);
  copy(b, device, in);
  fill_bytes(b, other.data(), 1, size);
  copy(b, out, other);
  gate.open_and_wait(a);
  copy(b, in, device);  // This, too, waits for the function.
  b.synchronize();
  expect_none();
}

TEST_F(EnoughWaits, APinnedBufferIsDroppedBeforeAFunctionHasRun) {
  Stream stream;
  Gate gate{stream};
  PinnedBytes buffer(size);
  stream.launch_host_func(
      [span = std::span{buffer.data(), size}] { RaceChecker::host_writes(span); });
  buffer.record_stream(stream);
  buffer = {};
  gate.open_and_wait(stream);
  expect_none();
}

TEST_F(MissingWait, TheDefaultStreamDoesNotOrderWithAStreamThatIsNotBlocking) {
  Stream a;
  auto device = ready_buffer(a, default_stream());
  fill(a, device, 1);
  fill_bytes(default_stream(), device.data(), 2, size);
  expect_report(missing_wait);
}

TEST_F(MissingWait, StreamsOfTwoThreads) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  on_thread([&] { fill(a, device, 1); });
  on_thread([&] { fill(b, device, 2); });
  expect_report(missing_wait);
}

TEST_F(MissingWait, IsReportedOnceForEachPairOfPlaces) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  repeat(5, [&] {
    fill(a, device, 1);
    fill(b, device, 2);
    a.wait_stream(b);
  });
  expect_report(missing_wait);
}

TEST_F(EnoughWaits, WaitStream) {
  Stream a, b;
  auto device = ready_buffer(a);
  fill(a, device, 1);
  b.wait_stream(a);
  fill(b, device, 2);
  a.wait_stream(b);
  expect_none();
}

TEST_F(EnoughWaits, AnEventThroughAThirdStream) {
  Stream a, b, c;
  auto device = ready_buffer(a);
  fill(a, device, 1);
  const Event first = a.record_event();
  b.wait_event(first);
  const Event second = b.record_event();
  c.wait_event(second);
  fill(c, device, 2);
  a.wait_stream(c);
  expect_none();
}

TEST_F(EnoughWaits, EachWayOfTheHost) {
  Stream a, b;
  auto device = ready_buffer(a);
  fill(a, device, 1);
  a.synchronize();
  fill(b, device, 2);
  Event event = b.record_event();
  event.synchronize();
  fill(a, device, 3);
  Device::current().synchronize();
  fill(b, device, 4);
  for (test_support::Pauses pause; !b.query();) pause();
  fill(a, device, 5);
  event.record(a);
  for (test_support::Pauses pause; !event.query();) pause();
  fill(b, device, 6);
  EXPECT_COMPLETES(b);
  fill(a, device, 7);
  EXPECT_TRUE(Device::current().synchronize_for(patience));
  fill(b, device, 8);
  event.record(b);
  EXPECT_COMPLETES(event);
  fill(a, device, 9);
  expect_none();
}

TEST_F(EnoughWaits, BlockingStreamsOrderWithTheDefaultStream) {
  Stream a{{.blocking = true}};
  Stream b{{.blocking = true}};
  const StreamRef middle = default_stream();
  auto device = ready_buffer(a, middle, b);
  fill(a, device, 1);
  fill(middle, device, 2);
  fill(b, device, 3);
  expect_none();
}

TEST_F(EnoughWaits, WorkThatUsesNoMemoryOrdersBlockingStreams) {
  const Stream first{{.blocking = true}}, second{{.blocking = true}};
  const StreamRef middle = first.device().default_stream();
  DeviceBytes buffer = ready_buffer(first);
  PinnedBuffer<uint32_t> number(1);
  const auto through = [&](auto work) {
    fill(first, buffer, 1);
    work();
    fill(second, buffer, 2);
    expect_none();
    second.synchronize();
  };
  through([&] { enqueue_nothing(middle); });
  if (first.device().has_stream_memory_operations())
    through([&] { middle.write_value(number.data(), 1); });
  const Graph graph = capture(first, [&] { enqueue_nothing(first); });
  through([&] { graph.launch(middle); });
}

TEST_F(MissingWait, TwoBlockingStreamsDoNotOrderWithEachOther) {
  Stream a{{.blocking = true}};
  Stream b{{.blocking = true}};
  auto device = ready_buffer(a, b);
  fill(a, device, 1);
  fill(b, device, 2);
  expect_report(missing_wait);
}

TEST_F(EnoughWaits, BytesThatDoNotMeet) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  fill_bytes(a, device.data(), 1, 100);
  fill_bytes(b, device.data() + 100, 2, 100);
  fill_2d(a, device.data() + 1024, 64, 1, 32, 10);
  fill_2d(b, device.data() + 1024 + 32, 64, 2, 32, 10);
  expect_none();
}

TEST_F(EnoughWaits, TwoStreamsRead) {
  Stream a, b;
  PinnedBytes first(size), second(size);
  auto device = ready_buffer(a, b);
  copy(a, first, device);
  copy(b, second, device);
  expect_none();
}

TEST_F(EnoughWaits, MemoryThatIsAllocatedAgain) {
  Stream a, b;
  for (int i : range(20)) {
    DeviceBytes device(size, i % 2 == 0 ? a : b);
    fill_bytes(device.stream(), device.data(), 1, size);
    const PinnedBytes out(size);
    PinnedBytes in(size);
    copy(device.stream(), device, in);
  }
  expect_none();
}

/// One block, which it hands out again and again in an order of its own.
struct OneBlock {
  void* block;
  Event* last;
  void* allocate(StreamRef stream, size_t, size_t) {
    stream.wait_event(*last);
    return block;
  }
  void deallocate(StreamRef stream, void*, size_t, size_t) { stream.record_event(*last); }
};
TEST_F(EnoughWaits, AResourceUsesItsMemoryForSomethingElse) {
  Stream a, b;
  auto pool = ready_buffer(a);
  Event last;
  for (int i : range(6)) {
    DeviceBytes device(size, OneBlock{pool.data(), &last}, i % 2 == 0 ? a : b);
    fill_bytes(device.stream(), device.data(), 1, size);
    if (i % 3 == 0) device.record_stream(i % 2 == 0 ? b : a);
  }
  a.wait_event(last);
  fill(a, pool, 2);  // by the owner of the memory
  expect_none();
}

TEST_F(EnoughWaits, PageableMemoryOfASmallCopyIsReused) {
  Stream a, b;
  Bytes in(size);
  auto device = ready_buffer(a);
  const CopyResult done = copy(a, device, in);
  if (done != CopyResult::inlined) {
    a.synchronize();
    GTEST_SKIP() << "the copy was not done at the call";
  }
  RaceChecker::host_writes(in);
  expect_none();
}

TEST_F(EnoughWaits, WrappersOfOneHandleAreOneStream) {
  Stream owner;
  Stream other;
  auto device = ready_buffer(owner);
  fill_bytes(borrow(owner.native()), device.data(), 1, size);
  fill(owner, device, 2);
  const native::stream foreign = other.release();
  auto again = ready_buffer(owner);
  fill_bytes(borrow(foreign), again.data(), 1, size);
  Stream last = take(foreign);
  fill(last, again, 2);
  again.record_stream(last);
  expect_none();
}

TEST_F(EnoughWaits, AStreamThatIsReleasedAndWrappedAgain) {
  const Stream owner;
  for (const Ownership then : {Ownership::borrow, Ownership::take}) {
    auto device = ready_buffer(owner);
    Stream made;
    fill(made, device, 1);
    const native::stream handle = made.release();
    {
      const Stream wrapped = Stream::from_native(handle, Device::current(), then);
      fill(wrapped, device, 2);
      wrapped.synchronize();
    }
    if (then == Ownership::borrow) drop(take(handle));
  }
  expect_none();
}

TEST_F(EnoughWaits, AStreamEndsButTheOrderStays) {
  Stream b;
  Event event;
  auto device = ready_buffer(b);
  {
    Stream a;
    fill(a, device, 1);
    event.record(a);
  }
  b.wait_event(event);
  fill(b, device, 2);
  expect_none();
}

// Without a handler, a report goes to the standard error output.
TEST_F(EnoughWaits, WaitsForAStreamThatHasEnded) {
  const Stream own, later;
  PinnedInts values(100);
  DeviceInts buffer(100, own);
  const auto use_on_ended = [&] {
    Stream ended;
    ended.wait_stream(own);
    copy(ended, buffer, values);
  };
  use_on_ended();
  later.wait_for_uses(buffer);
  copy(later, values, buffer);
  own.wait_stream(later);
  use_on_ended();
  buffer.wait_for_uses();
  RaceChecker::host_writes(values);
  {
    std::optional<Stream> ended{std::in_place};
    const SynchronizeAtExit waiting{*ended};
    copy(*ended, buffer, values);
    ended.reset();
  }
  RaceChecker::host_writes(values);
  expect_none();
}

TEST_F(MissingWait, AnotherStreamWaitsForAStreamThatHasEnded) {
  const Stream own, later;
  PinnedInts values(100);
  DeviceInts buffer(100, own);
  {
    Stream ended;
    ended.wait_stream(own);
    copy(ended, buffer, values);
  }
  own.wait_for_uses(buffer);
  copy(later, values, buffer);
  expect_report(missing_wait);
}

TEST_F(MissingWait, IsReportedToTheUser) {
  const Stream a, b;
  auto buffer = ready_buffer(a, b);
  RaceChecker::set_handler(nullptr);
  testing::internal::CaptureStderr();
  fill(a, buffer, 1);
  fill(b, buffer, 2);
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_SAYS(printed, missing_wait);
}

TEST_F(MissingWait, OrdinaryMemoryAtAFreedAddress) {
  SKIP_IF(!streams_are_threads(), "pinned memory is never ordinary memory later");
  Stream a, b;
  auto from = ready_buffer(a), to = ready_buffer(b);
  std::vector<PinnedBytes> pinned;
  while (pinned.size() < 50) pinned.emplace_back(size);
  std::vector<const void*> freed;
  for (const auto& each : pinned) freed.push_back(each.data());
  pinned.clear();
  PinnedPool::trim();
  std::vector<std::unique_ptr<unsigned char, decltype(&std::free)>> all;
  unsigned char* ordinary = nullptr;
  while (all.size() < 100 && ordinary == nullptr) {
    all.emplace_back(static_cast<unsigned char*>(std::aligned_alloc(256, size)), &std::free);
    if (std::ranges::find(freed, all.back().get()) != freed.end()) ordinary = all.back().get();
  }
  SKIP_IF(ordinary == nullptr, "no address was given out again");
  copy_bytes(a, to.data(), ordinary, size);
  copy_bytes(b, ordinary, from.data(), size);
  expect_report(missing_wait);
  device().synchronize();
}

TEST_F(EnoughWaits, AThreadsDefaultStreamAndAnEvent) {
  Stream b;
  Event event;
  auto device = ready_buffer(b);
  on_thread([&] {
    const StreamRef mine = thread_default();
    fill(mine, device, 1);
    event.record(mine);
  });
  b.wait_event(event);
  fill(b, device, 2);
  expect_none();
}

TEST_F(EnoughWaits, WhatTheProgramDeclares) {
  Stream a, b;
  auto device = ready_buffer(a);
  a.declare_writes(device);
  RaceChecker::assume_wait(b, a);
  b.declare_writes(device);
  RaceChecker::assume_complete(b);
  a.declare_writes(device);
  expect_none();
}

TEST_F(EnoughWaits, Overlap) {
  Ints in(100000, 1), out(100000);
  overlap(in, out, {.chunk = 10000}, copy_chunk);
  EXPECT_EQ(in, out);
  RaceChecker::host_reads(out);
  expect_none();
}

/// The kernels of the chunk's function are taken to read each of its inputs.
TEST_F(MissingWait, AnotherStreamOverwritesAnInputOfOverlap) {
  const Ints first(1000, 1), second(1000, 2);
  Ints out(1000);
  const Stream other;
  for (const bool is_first : {true, false}) {
    overlap(zipped(first, second), out,
            [&](StreamRef stream, DeviceSpan<const int> x, DeviceSpan<const int> y,
                DeviceSpan<int> to) {
              copy(stream, to, x);
              other.wait_stream(stream);
              fill_bytes(other, const_cast<int*>((is_first ? x : y).data()), 0, sizeof(int));
              // The checker does not see this wait, which keeps the fill within the life of the
              // chunk's memory.
              std::atomic_bool is_filled{false};
              other.launch_host_func([&] { is_filled = true; });
              EXPECT_EVENTUALLY(is_filled.load());
            });
    ASSERT_FALSE(reports_.empty());
    reports_.resize(1);  // a second one says that the memory is freed too early
    expect_report(missing_wait);
    other.synchronize();
    RaceChecker::stop();  // it forgets which places it has reported
    RaceChecker::start();
  }
}

/// From pageable memory it goes by strategy A, tries B, finds it slower here, and goes on by A. At
/// each change a chunk's memory comes from another stream.
TEST_F(EnoughWaits, ALongRunOfOverlap) {
  SKIP_IF(Device::current().can_use_host_page_tables(),
          "copies of pageable memory are not staged here");
  constexpr size_t chunk = 512 * kib;  // 1 MiB, in and out
  constexpr size_t in_flight = 2, period = 2 * in_flight;
  std::vector<char> in(32 * period * chunk, 1), out(in.size());
  overlap(in, out, {.chunk = chunk, .in_flight = in_flight},
          [](StreamRef stream, DeviceSpan<const char> from, DeviceSpan<char> to,
             const OverlapChunk& here) {
            if (here.index >= 2 * period && here.index < 5 * period)
              std::this_thread::sleep_for(5ms);
            copy(stream, to, from);
          });
  EXPECT_TRUE(in == out);
  RaceChecker::host_reads(out);
  expect_none();
}

TEST_F(EnoughWaits, AnEventOfOtherCodeMayStandForAnything) {
  Stream a, b;
  auto device = ready_buffer(a, b);
  Event event = a.record_event();
  a.declare_writes(device);
  Event wrapped = Event::from_native(event.native(), Device::current(), Ownership::borrow);
  b.wait_event(wrapped);
  b.declare_writes(device);
  expect_none();
}

TEST_F(EnoughWaits, ManyStreamsThatEndLeaveNothingBehind) {
  Stream a;
  auto device = ready_buffer(a);
  for (int i : range(3000)) {
    Stream each;
    each.wait_stream(a);
    fill_bytes(each, device.data() + i, 1, 1);
    a.wait_stream(each);
    if (i % 100 == 0) a.synchronize();
  }
  fill(a, device, 2);
  expect_none();
}

}  // namespace conformance::race_checker_cases
