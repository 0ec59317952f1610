// SPDX-License-Identifier: Apache-2.0
/// Checks of staged copies: the hand-over between the thread that enqueues, the workers and the
/// device, by counters and values alone. User memory, buffers and device memory are plain data:
/// bytes that are touched too early, or after an exception, are a race.
#include "copy/staging/stage.hpp"

#include "base/never_destroyed.hpp"
#include "copy/staging/cut.hpp"
#include "copy/staging/rings.hpp"
#include "copy/staging/workers.hpp"
#include "device.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace checks {
/// The ring that a stream's copies get, by its number.
runnel::detail::Ring* rings_of[4];
}  // namespace checks

namespace runnel::inline RUNNEL_ABI::detail {

Ring& StagingRings::ring_for(const Slot& slot, const Work& work, const char*) {
  Ring& ring = *checks::rings_of[slot.id.load(std::memory_order_relaxed)];
  ring.row.store(ring.row.load(std::memory_order_relaxed) + work.bytes(),
                 std::memory_order_relaxed);
  ring.active.fetch_add(1, std::memory_order_acq_rel);
  return ring;
}
StagingRings& staging_rings() { return never_destroyed<StagingRings>(); }

}  // namespace runnel::inline RUNNEL_ABI::detail

namespace {

using namespace checks;
using model::expect;
using runnel::detail::Direction;
using runnel::detail::Ring;
using runnel::detail::Slot;
using runnel::detail::Transfer;

constexpr size_t part = size_t{64} << 10;

/// A stream with its ring, and memory to copy.
struct Lane {
  Lane(uint64_t id, size_t piece, size_t all) : bytes{all}, slot{make_slot(id)} {
    const size_t size = piece * runnel::detail::pieces_per_ring;
    ring.set_memory(new unsigned char[size], size);
    rings_of[id] = &ring;
    for (const size_t at : {size_t{0}, bytes - 1}) user[at] = 1, device[at] = 2;
  }
  void copy(Direction direction, bool may_read_now = false) {
    const bool to_device = direction == Direction::to_device;
    const Transfer all{
        to_device ? device : user, bytes, to_device ? user : device, bytes, bytes, 1};
    stage(slot, {direction, all}, may_read_now, "copy");
  }
  /// Both halves as a list, the second one first.
  void copy_list(Direction direction) {
    const size_t half = bytes / 2;
    runnel::detail::Segments segments{{device + half, user + half, half}, {device, user, half}};
    runnel::detail::sort_segments(segments);
    stage(slot, {direction, {}, std::move(segments)}, direction == Direction::to_device, "copy");
  }
  void expect_copied() {
    synchronize(slot.handle);
    expect(user[0] == device[0] && user[bytes - 1] == device[bytes - 1], "other bytes arrived");
  }
  /// The user's memory is the user's again.
  void overwrite() { user[0] = user[bytes - 1] = 9; }
  void finish() {
    expect_copied();
    overwrite();
  }
  void expect_failure(Direction direction) {
    bool failed = false;
    try {
      copy(direction);
    } catch (backend::status) {
      failed = true;
    }
    expect(failed, "a failure was not reported");
  }
  /// The ring stays active once, so that it is never used again.
  void expect_given_up() {
    synchronize(slot.handle);
    while (ring.active.load(std::memory_order_acquire) != 1) sync::yield();
  }

  size_t bytes;
  unsigned char* user = new unsigned char[bytes];
  unsigned char* device = new unsigned char[bytes];
  uint32_t* values = new uint32_t[Ring::values_bytes / sizeof(uint32_t)]{};
  Ring ring{values};
  Slot& slot;
};

Lane& make_lane(uint64_t id, size_t buffer, size_t bytes) {
  const model::Calm calm;
  return *new Lane{id, buffer, bytes};
}
void start_workers() {
  const model::Calm calm;
  expect(runnel::detail::staging_workers().start(2), "there are no workers");
}

Lane& start(size_t buffer = part, size_t bytes = part) {
  start_workers();
  return make_lane(1, buffer, bytes);
}

void copy_there(size_t buffer, size_t bytes, bool may_read_now) {
  Lane& lane = start(buffer, bytes);
  lane.copy(Direction::to_device, may_read_now);
  lane.finish();
}
void to_device() { copy_there(part, 2 * part, model::any_of(2) == 0); }
void to_device_in_parts() { copy_there(2 * part, 2 * part, model::any_of(2) == 0); }
void to_device_around_the_ring() { copy_there(part, 10 * part, false); }

void copy_back(size_t buffer, size_t bytes) {
  Lane& lane = start(buffer, bytes);
  lane.copy(Direction::to_host);
  lane.finish();
}
void to_host() { copy_back(part, 2 * part); }
void to_host_in_parts() { copy_back(2 * part, 2 * part); }
void to_host_around_the_ring() { copy_back(part, 10 * part); }

/// Workers that were idle for long sleep.
void after_a_pause() {
  Lane& lane = start();
  {
    const model::Calm calm;
    sync::sleep_for(std::chrono::milliseconds{10});
  }
  lane.copy(Direction::to_device);
  lane.expect_copied();
  lane.copy(Direction::to_host);
  lane.expect_copied();
}

/// Pieces that may be in the ring at the same time lie beside each other, and are so few that the
/// ring can count their parts.
void places() {
  const model::Calm calm;
  constexpr size_t most = 256, bytes = part * runnel::detail::pieces_per_ring;
  Ring ring{nullptr};
  ring.set_memory(nullptr, bytes);
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> all;
  for (size_t i : range(most + 40)) {
    const bool is_tiny = i < most + 4;
    const size_t size = is_tiny ? 1 + i % 3 : i % 5 == 0 ? part : 1 + i * 9973 % part;
    const Ring::Allocation allocation = ring.allocate(size);
    all.push_back({allocation.offset, allocation.offset + size});
    expect(all[i].end <= bytes, "a piece reaches over the end of the ring");
    expect(allocation.emptied <= i && i - allocation.emptied < most,
           "too many pieces at the same time");
    for (size_t other = is_tiny && i > 0 ? i - 1 : allocation.emptied; other < i; ++other)
      expect(all[i].end <= all[other].begin || all[other].end <= all[i].begin,
             "two pieces share bytes of the ring");
  }
}

/// Copies that follow each other: the later one's piece may be filled while the earlier one
/// travels.
void row_to_device() {
  Lane& lane = start();
  repeat(3, [&] { lane.copy(Direction::to_device, true); });
  lane.finish();
}
/// Smaller pieces share the write of a value. When the stream has passed them, another stream may
/// have the ring.
void row_of_small_copies() {
  Lane& lane = start(part, part / 4);
  repeat(2, [&] { lane.copy(Direction::to_device, true); });
  lane.expect_copied();
  while (!lane.ring.is_unused()) sync::yield();
}
/// The second copy to the host must not come before the first one has left the ring, and the last
/// copy starts when the stream comes to it.
void there_and_back() {
  Lane& lane = start();
  lane.copy(Direction::to_device, true);
  lane.copy(Direction::to_host);
  lane.copy(Direction::to_host);
  lane.copy(Direction::to_device);
  lane.finish();
}
void list(Direction direction) {
  Lane& lane = start();
  lane.copy_list(direction);
  lane.finish();
}
void list_to_device() { list(Direction::to_device); }
void list_to_host() { list(Direction::to_host); }

void two_streams() {
  start_workers();
  Lane& a = make_lane(1, part, part);
  Lane& b = make_lane(2, part, part);
  together([&] { a.copy(Direction::to_device); }, [&] { b.copy(Direction::to_host); });
  a.expect_copied();
  b.expect_copied();
}

/// A runtime call fails half way. The exception reaches the user, who frees the memory at once; the
/// stream does not wait for ever. The workers are done with the job in the end.
void fail_half_way(Direction direction) {
  Lane& lane = start(part, 3 * part);
  failing_copy = 1 + model::any_of(3);
  lane.expect_failure(direction);
  lane.overwrite();
  lane.expect_given_up();
}
/// The copy that fails has no piece yet that workers may claim, while they may still have to claim
/// that of the copy before it.
void fail_behind_another() {
  Lane& lane = start();
  failing_copy = 2;
  lane.copy(Direction::to_device, true);
  lane.expect_failure(Direction::to_host);
  lane.expect_given_up();
  expect(lane.ring.unclaimed.empty(), "a job that failed stays with the workers");
}
void fail_to_device() { fail_half_way(Direction::to_device); }
void fail_to_host() { fail_half_way(Direction::to_host); }

}  // namespace

MODEL_CHECKS(CHECK(to_device), CHECK(to_device_in_parts), CHECK(to_device_around_the_ring),
             CHECK(to_host), CHECK(to_host_in_parts), CHECK(to_host_around_the_ring),
             CHECK(after_a_pause), CHECK(places), CHECK(row_to_device), CHECK(row_of_small_copies),
             CHECK(there_and_back), CHECK(list_to_device), CHECK(list_to_host), CHECK(two_streams),
             CHECK(fail_to_device), CHECK(fail_to_host), CHECK(fail_behind_another))
