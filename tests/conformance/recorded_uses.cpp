// SPDX-License-Identifier: Apache-2.0
// record_stream(stream, view): uses that are recorded by any view of a block, also by several
// threads at a time.
#include <runnel/copy_batch.hpp>

#include <runnel/graph.hpp>
#include <runnel/resource_adaptors.hpp>

#include "support.hpp"

namespace conformance::recorded_uses_cases {
using RecordedUses = Conformance;
using RecordedUsesTwo = TwoDevices;

constexpr size_t size = mib;
constexpr size_t count = 1000;
using Buffer = DeviceBytes;

/// `record(user, block)` records a use of the middle of the block, which `free(owner)` frees while
/// the user's work waits.
template <class Record, class Free>
void expect_kept(StreamRef owner, StreamRef user, unsigned char* block, bool pools, Record record,
                 Free free) {
  PinnedBytes result{size / 2};
  fill_bytes(owner, block, 5, size);
  user.wait_stream(owner);
  user.synchronize();
  Gate gate;
  if (pools) gate.close_on(user);  // without memory pools a free waits for the device
  copy_bytes(user, result.data(), block + size / 4, size / 2);
  record(block);
  free();
  EXPECT_COMPLETES(owner) << "the free made the block's stream wait for the other stream";
  churn(owner, size);
  owner.synchronize();
  gate.open_and_wait(user);
  EXPECT_ALL(result, 5);
}

/// A buffer of another stream, used by a copy behind a gate, then dropped. Its memory must not be
/// reused before the copy.
template <class Use>
void expect_recorded(Use use) {
  const Stream own, other;
  PinnedInts there(count);
  Gate gate;
  {
    DeviceInts used(count, own);
    fill(own, used, 1);
    other.wait_stream(own);
    own.synchronize();
    gate.close_on(other, {.writes_host_memory = false});
    use(other, used, there);
  }
  DeviceInts next(count, own);
  fill(own, next, 7);
  own.synchronize();
  EXPECT_PENDING(other) << "the drop waited";
  gate.open_and_wait(other);
  EXPECT_EQ(there[0], 1);
  EXPECT_EQ(get(own, next, 0), 7);
}

TEST_F(RecordedUses, CopiesRecordTheirStreamWithABuffer) {
  SKIP_IF(!device().has_memory_pools(), "a free waits for the device");
  using Ints = DeviceInts;
  using Result = PinnedInts;
  expect_recorded([](StreamRef stream, const Ints& from, Result& to) { copy(stream, to, from); });
  expect_recorded([](StreamRef stream, Ints& from, Result& to) {
    copy(stream, to, from);
    const Ints moved = std::move(from);
  });
  expect_recorded([](StreamRef stream, Ints& from, Result& to) {
    copy(stream, to, from);
    from.resize(2 * count);
  });
  expect_recorded([](StreamRef stream, Ints& from, Result& to) {
    const CopyOperation operations[] = {copy_operation(to, from)};
    copy_batch(stream, operations);
  });
  expect_recorded([](StreamRef stream, Ints& from, Result& to) {
    const Ints second{from, stream};
    copy(stream, to, second);
  });
  expect_recorded([](StreamRef stream, Ints& from, Result& to) {
    copy(stream, to, from);
    const Stream next;
    from.set_stream(next);
  });
  expect_recorded([](StreamRef stream, const Ints& from, Result& to) {
    on_threads(4, [&](int i) {
      const Stream own;
      Result result(count);
      repeat(20, [&] { copy(own, result, from); });
      if (i == 0) copy(stream, to, from);
    });
  });
}

TEST_F(RecordedUses, WhatIsWrittenToABufferIsRecorded) {
  SKIP_IF(!device().has_memory_pools(), "a free waits for the device");
  const auto expect_later = [](auto write) {
    expect_recorded([&](StreamRef stream, DeviceInts& used, PinnedInts& there) {
      there[0] = 1;
      write(stream, used, there);
    });
  };
  expect_later([](StreamRef stream, auto& to, auto& from) { copy(stream, to, from); });
  expect_later([](StreamRef stream, auto& to, auto&) { fill(stream, to, 3); });
  expect_later([](StreamRef stream, auto& to, auto&) { set(stream, to, 0, 3); });
}

TEST_F(RecordedUses, AStreamAndTheHostWaitForTheUsesOfABuffer) {
  const Stream own, later;
  std::optional<Stream> first{std::in_place}, second{std::in_place};
  DeviceInts buffer(count, own);
  Gate gates[3];
  gates[0].close_on(own);
  gates[1].close_on(*first);
  fill(*first, buffer, 1);
  gates[2].close_on(*second);
  record_stream(*second, buffer);
  first.reset();  // The uses of a stream that has ended count, too.
  later.wait_for_uses(buffer);
  for (Gate& each : gates) {
    EXPECT_PENDING(later);
    each.open();
  }
  EXPECT_COMPLETES(later);
  Gate last{*second};
  std::atomic_bool has_waited{false};
  std::thread waiting{[&] {
    buffer.wait_for_uses();
    has_waited = true;
  }};
  EXPECT_FALSE(has_waited);
  last.open();
  waiting.join();
  EXPECT_DONE(*second);
  DeviceInts{}.wait_for_uses();
}

TEST_F(RecordedUses, ACompletionWaitsForAStreamThatAHostFunctionHasEnded) {
  const Stream own, later;
  std::optional<Stream> ended{std::in_place};
  DeviceInts buffer(count, own);
  fill(*ended, buffer, 1);
  end_beside_a_completion(ended, [&](auto wait) {
    wait();
    buffer.wait_for_uses();
    later.wait_for_uses(buffer);
  });
}

TEST_F(RecordedUses, WaitsForAStreamThatAHostFunctionHasEndedWaitForNoCompletion) {
  const Stream own, third, later;
  std::optional<Stream> ended{std::in_place};
  const Stream other;
  DeviceInts buffer(count, own);
  fill(*ended, buffer, 1);
  Graph graph = capture(other, [&] { fill(other, buffer, 1); });
  graph.launch(*ended);
  std::promise<void> begun, over;
  third.on_complete([&](const Outcome&) {
    begun.set_value();
    over.get_future().wait();
  });
  begun.get_future().wait();
  own.launch_host_func([&] { ended.reset(); });
  own.synchronize();
  Gate gate{third};
  EXPECT_NO_ERROR(later.wait_for_uses(buffer));
  EXPECT_NO_ERROR(buffer.wait_for_uses());
  graph.update(other, [&] { set(other, buffer, 0, 1), fill(other, buffer, 2); });
  graph.launch(later);
  EXPECT_COMPLETES(later);
  over.set_value();
  gate.open();
  EXPECT_TRUE(quiesce_for(patience));
}

TEST_F(RecordedUses, AnyViewOfABlockStandsForTheBlock) {
  const Stream owner, user;
  const bool pools = device().has_memory_pools();
  std::unique_ptr<Buffer> buffer;
  const auto with = [&](auto record) {
    buffer = std::make_unique<Buffer>(size, owner);
    expect_kept(owner, user, buffer->data(), pools, record, [&] { buffer.reset(); });
  };
  with([&](unsigned char*) {
    for (const Stream* each : {&user, &user, &owner}) buffer->record_stream(*each);
  });
  with([&](unsigned char* block) { record_stream(user, block + size - 1); });
  with([&](unsigned char* block) { record_stream(user, static_cast<const void*>(block)); });
  with([&](unsigned char* block) { record_stream(user, std::span{block + 77, 3}); });
  with([&](unsigned char* block) {
    record_stream(user, DeviceSpan<unsigned char>{block, size}.subspan(size / 2));
  });
  with([&](unsigned char* block) {
    record_stream(owner, block + 1);  // the block's own stream adds nothing
    record_stream(user, block + 1);
    record_stream(user, block + 1);
  });
}

TEST_F(RecordedUses, AUseCoversWorkThatIsSubmittedLater) {
  const Stream owner, user;
  const auto with = [&](auto record) {
    auto buffer = std::make_unique<Buffer>(size, owner);
    record(*buffer);
    expect_kept(
        owner, user, buffer->data(), device().has_memory_pools(), [](unsigned char*) {},
        [&] { buffer.reset(); });
  };
  with([&](Buffer& buffer) { buffer.record_stream(user); });
  with([&](Buffer& buffer) { record_stream(user, buffer); });
}

TEST_F(RecordedUses, BlocksOfAResourceAndReleasedBlocksAreKept) {
  const Stream owner, user;
  const DeviceResource resource{device()};
  const bool pools = device().has_memory_pools();
  const auto record = [&](unsigned char* block) { record_stream(user, block + 1000); };
  auto* const block = static_cast<unsigned char*>(resource.allocate(owner, size));
  expect_kept(owner, user, block, pools, record, [&] { resource.deallocate(owner, block, size); });
  Buffer buffer{size, owner};
  expect_kept(owner, user, buffer.data(), pools, record, [&] {
    const auto released = buffer.release();
    resource.deallocate(owner, released.data(), released.size_bytes());
  });
}

TEST_F(RecordedUses, SeveralThreadsRecordForOneBlock) {
  constexpr int threads = 8;
  constexpr size_t part = size / threads;
  const Stream owner;
  auto buffer = std::make_unique<Buffer>(size, owner);
  fill_bytes(owner, buffer->data(), 5, size);
  owner.synchronize();
  Streams users(threads);
  PinnedBytes result{size};
  Gate gate;
  for (const Stream& user : users)
    if (device().has_memory_pools()) gate.close_on(user);
  const DeviceSpan<unsigned char> all = *buffer;
  on_threads(threads, [&](int i) {
    const Stream& user = nth(users, i);
    const size_t first = static_cast<size_t>(i) * part;
    copy(user, std::span{result.data() + first, part}, all.subspan(first, part));
    for (size_t at : range(100UL)) record_stream(user, all.subspan(at * 1000));
  });
  buffer.reset();
  churn(owner, size);
  owner.synchronize();
  gate.open();
  for (const Stream& user : users) user.synchronize();
  EXPECT_ALL(result, 5);
}

TEST_F(RecordedUses, EndedStreamsLeaveNoUses) {
  const Stream owner;
  std::optional buffer{Buffer{size, owner}};
  owner.synchronize();
  size_t events = 0;
  for (size_t i : range(4000UL)) {
    // Events of earlier work have come back to the pool by then.
    if (i == 2000) events = live_objects().pooled_events;
    const Stream user;
    fill_bytes(user, buffer->data(), 1, 16);
    if (i % 2 == 0)
      record_stream(user, buffer->data() + 300 * (i % 2000));
    else
      buffer->record_stream(user);
    user.synchronize();
  }
  buffer.reset();
  EXPECT_LE(live_objects().pooled_events, events + 64);
}

/// The free is deferred, because only its own thread reaches a thread's default stream.
TEST_F(RecordedUses, ADeferredFreeDoesNotWaitForWorkAfterIt) {
  StatisticsResource<DeviceResource> counted{DeviceResource{device()}};
  const Stream user;
  std::optional<Buffer> buffer;
  std::promise<void> is_made, is_over;
  std::thread owner{[&] {
    const StreamRef own = thread_default();
    buffer.emplace(size, std::ref(counted), own);
    own.synchronize();
    is_made.set_value();
    is_over.get_future().wait();
  }};
  is_made.get_future().wait();
  buffer->record_stream(user);
  buffer.reset();
  Gate gate{user};
  is_over.set_value();
  owner.join();
  EXPECT_TRUE(eventually([&] {
    DeviceResource{device()}.trim();
    return counted.statistics().blocks == 0;
  }));
}

TEST_F(RecordedUses, PageableViewsAreRefusedUnlessTheyAreEmpty) {
  const Stream owner;
  Ints pageable(4);
  EXPECT_ERROR(invalid_argument, record_stream(owner, pageable));
  pageable.clear();
  EXPECT_NO_ERROR(record_stream(owner, pageable));
  Buffer{0, owner}.record_stream(owner);
}

TEST_F(RecordedUsesTwo, AnotherDevicesStreamIsWaitedFor) {
  const Stream owner{first}, user{second};
  auto buffer = std::make_unique<Buffer>(size, owner);
  expect_kept(
      owner, user, buffer->data(), first.has_memory_pools(),
      [&](unsigned char* block) { record_stream(user, block + 9); }, [&] { buffer.reset(); });
}

}  // namespace conformance::recorded_uses_cases
