// SPDX-License-Identifier: Apache-2.0
#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/device_call.hpp"
#include "device/device_table.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "memory/block_free.hpp"
#include "memory/recorded_uses.hpp"
#include "memory/releaser.hpp"
#include "memory/resource_calls.hpp"
#include "slot/capture.hpp"
#include "slot/operations.hpp"
#include "slot/slots.hpp"
#include "slot/stream_call.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/device_resource.hpp>
#include <runnel/event.hpp>
#include <runnel/memory.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI {

using namespace std::chrono_literals;

namespace detail {
namespace {

constexpr const char* operation = "allocate device memory";

constexpr size_t no_limit = std::numeric_limits<size_t>::max();

struct Usage {
  sync::Atomic<size_t> in_use{0};
  sync::Atomic<size_t> peak{0};
  sync::Atomic<size_t> limit{no_limit};
};
constinit Usage usage[max_devices];

[[noreturn]] void refuse_beyond_limit(size_t bytes, size_t used, size_t limit) {
  if (limit == no_limit)
    throw_error(errc::out_of_memory, operation, "the size is beyond any device's memory");
  throw_formatted(errc::out_of_memory, operation, backend::ok,
                  "%zu bytes were asked for, %zu are in use, and the limit that "
                  "DeviceResource::set_limit() has set is %zu",
                  bytes, used, limit);
}

/// Says how much was asked for and how much is free.
[[noreturn]] void throw_no_room(backend::status refusal, size_t bytes, int device) {
  size_t free = 0, total = 0;
  const backend::status asked =
      internal_call([&] { return backend::memory_info(free, total, device); }, any_capture_seen());
  if (backend::classify(refusal) != errc::out_of_memory || asked != backend::ok)
    throw_status(refusal, operation);
  backend::forget_error(refusal);
  throw_formatted(
      errc::out_of_memory, operation, refusal,
      "%zu bytes were asked for, and %zu of %zu are free on device %d: use smaller pieces", bytes,
      free, total, device);
}

/// Adds to the bytes in use before the allocation, so that concurrent allocations together do not
/// exceed the limit.
void reserve(int device, size_t bytes) {
  Usage& u = usage[device];
  const size_t limit = u.limit.load(std::memory_order_relaxed);
  size_t used = u.in_use.load(std::memory_order_relaxed);
  do {
    if (used > limit || bytes > limit - used) refuse_beyond_limit(bytes, used, limit);
  } while (!u.in_use.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
}
void cancel_reservation(int device, size_t bytes) noexcept {
  usage[device].in_use.fetch_sub(bytes, std::memory_order_relaxed);
}

/// Counts a block whose bytes were reserved.
void count_in(int device) noexcept {
  Usage& u = usage[device];
  count_up(counters.device_blocks[device]);
  const size_t now = u.in_use.load(std::memory_order_relaxed);
  for (size_t peak = u.peak.load(std::memory_order_relaxed); now > peak;)
    if (u.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) break;
}
void count_out(int device, size_t bytes) noexcept {
  count_down(counters.device_blocks[device]);
  cancel_reservation(device, bytes);
}

/// Whether memory was freed since `made` frees were made, or a free is deferred.
bool may_come(size_t made) noexcept {
  return has_deferred_frees() || frees_made.load(std::memory_order_acquire) != made;
}

/// Allocates in stream order if the device has memory pools. If there is no memory, makes deferred
/// frees and tries again, for a second at most. Then it waits for all devices, and tries once more.
[[nodiscard]] void* allocate_on(native::stream stream, int device, size_t bytes) {
  void* block = nullptr;
  const bool has_pools = has_memory_pools(device);
  const ScopedDevice on{device, operation};
  std::optional<sync::Clock::time_point> deadline;
  for (bool is_last = false;;) {
    const size_t made = frees_made.load(std::memory_order_acquire);
    const backend::status s =
        has_pools
            ? internal_call([&] { return backend::malloc_async(block, bytes, device, stream); },
                            any_capture_seen())
            : allocate_behind_releases(operation,
                                       [&] { return backend::malloc_device(block, bytes); });
    if (s == backend::ok) return block;
    if (is_last || backend::classify(s) != errc::out_of_memory || !may_come(made))
      throw_no_room(s, bytes, device);
    backend::forget_error(s);
    const ScopedWait wait{operation, {.device = device}};
    if (!deadline) deadline = sync::Clock::now() + release_timeout;
    is_last = !wait_for_deferred_free(made, *deadline) || sync::Clock::now() >= *deadline;
    if (is_last && complete_deferred_work()) try_for(short_timeout, make_frees);
  }
}

/// The same within the device's limit; counts the block.
[[nodiscard]] void* allocate_reserved(native::stream stream, int device, size_t bytes) {
  reserve(device, bytes);
  try {
    void* const block = allocate_on(stream, device, bytes);
    count_in(device);
    return block;
  } catch (...) {
    cancel_reservation(device, bytes);
    throw;
  }
}

/// Allocates from the resource. If the resource has no memory, waits for a short time until
/// deferred frees are deallocated to resources, and tries again: a block that was freed on an idle
/// stream can be deallocated once its event is complete, which takes the device some microseconds.
[[nodiscard]] void* allocate_with_retry(AnyResource& resource, StreamRef stream, size_t bytes) {
  const size_t made = frees_made.load(std::memory_order_acquire);
  try {
    return allocate_from_resource(resource, stream, bytes, operation);
  } catch (const std::bad_alloc&) {
    if (!may_come(made) || is_in_resource()) throw;
  }
  const ScopedWait wait{operation, {.stream = stream.id()}};
  mark_own_default_streams();
  try_for(short_timeout, make_frees);
  return allocate_from_resource(resource, stream, bytes, operation);
}

Operation about_allocation_in_order(const Slot& slot, size_t bytes) {
  const ScopedDevice on{slot.device, operation};
  Operation allocation = about(slot, OperationKind::allocation, operation);
  allocation.bytes = bytes;
  allocation.to_kind = MemoryKind::device;
  return allocation;
}

Operation about_free(const BlockFree& block, bool is_now) noexcept {
  const ScopedDevice on{block.device, ScopedDevice::no_throw, is_now};
  return {.kind = OperationKind::deallocation,
          .captured = is_now && is_captured(HandleLock{block.own.stream()}),
          .is_of_program = static_cast<bool>(block.resource),
          .name = "free device memory",
          .stream = block.own.stream(),
          .to = block.pointer,
          .bytes = block.bytes,
          .to_kind = MemoryKind::device,
          .users = &block.others};
}

}  // namespace

void* allocate_device(StreamRef stream, size_t bytes, AnyResource* resource) {
  enter(operation);
  Slot& slot = live_slot(stream);
  require_own_thread(slot, operation);
  if (bytes == 0) return nullptr;
  refuse_beside_capture(slot, operation);
  watch_main_thread();
  mark_if_asked(slot);
  const int device = slot.device;
  // Creates the slot of the default stream, so that freeing the block later allocates nothing.
  if (resource != nullptr) default_stream_of(device);
  live_point(stream);
  ScopedEvent event{[&] { return about_allocation_in_order(slot, bytes); }};
  void* const block = resource == nullptr ? allocate_reserved(slot.handle, device, bytes)
                                          : allocate_with_retry(*resource, stream, bytes);
  event.allocated(block);
  return block;
}

BlockFree* OwnedExtras::make(const SharedResource& resource) {
  auto* const made = new BlockFree;
  made->resource = resource;
  return made;
}
SharedResource OwnedExtras::resource_of(const BlockFree& extras) noexcept {
  return extras.resource;
}
void OwnedExtras::drop() const noexcept { delete extras_; }

namespace {

/// Returns false if the stream has ended.
bool add_user(OwnedExtras& extras, StreamRef stream) {
  BlockFree* const known = extras.get();
  BlockFree& block = known != nullptr ? *known : extras.made();
  if (block.last_user.load(std::memory_order_relaxed) == stream.id()) return true;
  const std::lock_guard lock{block.adding};
  if (!add_open_point(block.others, key_of(stream))) return false;
  block.last_user.store(stream.id(), std::memory_order_relaxed);
  return true;
}

/// Makes the stream wait for the last work of one that has ended. False if that is not known.
[[nodiscard]] bool wait_for_end(StreamRef stream, const Point& ended, const char* waiting) {
  const StreamCall call{stream, waiting};
  refuse_in_capture(call.slot(), waiting, refusal::value);
  if (!ended.make_wait(call.handle(), InCapture::never)) return false;
  call.emit_wait({}, ended.stream().id);
  return true;
}

/// The points of all streams that use the block.
[[nodiscard]] std::list<Point> users_of(const void* pointer, size_t bytes,
                                        const OwnedExtras& extras, StreamRef owner) {
  std::list<Point> users = recorded_uses(pointer, bytes);
  users.push_back(Point::of(key_of(owner)));
  if (BlockFree* const block = extras.get()) {
    const std::lock_guard lock{block->adding};
    users.insert(users.end(), block->others.begin(), block->others.end());
  }
  return users;
}

}  // namespace

BlockFree& OwnedExtras::made() {
  const std::atomic_ref<BlockFree*> extras{extras_};
  BlockFree* found = extras.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  std::unique_ptr<BlockFree> fresh{make({})};
  return extras.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)
             ? *fresh.release()
             : *found;
}

void add_device_use(OwnedExtras& extras, StreamRef owner, StreamRef stream) {
  constexpr const char* recording = "record a use of device memory";
  enter(recording);
  live_slot(stream);
  if (stream != owner && !add_user(extras, stream)) throw_dead_stream(stream.id());
}

void add_copy_use(OwnedExtras& extras, StreamRef stream) {
  if (release_mode() == Release::now) static_cast<void>(add_user(extras, stream));
}

void wait_for_device_uses(const StreamRef* waiting, const void* pointer, size_t bytes,
                          const OwnedExtras& extras, StreamRef owner) {
  constexpr const char* of_uses = "wait for the uses of memory";
  enter(of_uses);
  for (Point& each : users_of(pointer, bytes, extras, owner)) {
    if (!has_ended(each.stream())) try {
        if (waiting != nullptr)
          waiting->wait_stream(view_of(each.stream()));
        else
          view_of(each.stream()).record_event().synchronize();
        continue;
      } catch (const Error& error) {
        if (error.code() != errc::invalid_handle || !has_ended(each.stream())) throw;
      }
    const bool is_ordered = waiting != nullptr && wait_for_end(*waiting, each, of_uses);
    if (!is_ordered && !is_passed(each, of_uses))
      throw_error(errc::not_supported, of_uses,
                  "a stream that used the memory has ended, and its last work is not known");
  }
}

void change_owner(StreamRef& owner, int device, OwnedExtras& extras, StreamRef stream) {
  constexpr const char* changing = "change the stream of device memory";
  enter(changing);
  Slot& slot = live_slot(stream);
  require_own_thread(slot, changing);
  if (slot.device != device)
    throw_invalid_argument(changing, "the stream belongs to another device than the memory");
  if (stream == owner) return;
  std::list<Point>& others = extras.made().others;
  live_point(stream);
  const auto named = std::ranges::find_if(
      others, [&](const Point& user) { return user.stream() == key_of(stream); });
  (named != others.end() ? *named : others.emplace_back()) = Point::of(key_of(owner));
  owner = stream;
}

void release_device() { refuse_in_child("release device memory"); }

void free_device(void* pointer, size_t bytes, StreamRef stream, int device,
                 OwnedExtras extras) noexcept {
  BlockFree without_extras;
  BlockFree& block = extras.get() != nullptr ? *extras.get() : without_extras;
  if (!block.resource) [[likely]]
    count_out(device, bytes);
  const Release mode = release_mode();
  if (mode == Release::never) return;
  block.pointer = pointer;
  block.device = device;
  block.bytes = bytes;
  block.own = Point::of(key_of(stream));
  block.others.splice(block.others.end(), take_recorded_uses(pointer, bytes, key_of(stream)));
  const bool is_now = mode == Release::now;
  emit([&] { return about_free(block, is_now); });
  if (is_now && free_block(block)) return;
  extras.get() != nullptr ? defer_free(*extras.release()) : defer_copy(block);
}

namespace {

/// @throws errc::forked and errc::invalid_device
[[nodiscard]] Usage& usage_of(Device device, const char* attempted) {
  refuse_in_child(attempted);
  require_device(device.ordinal(), attempted);
  return usage[device.ordinal()];
}

void require_resource(StreamRef stream, Device device, size_t alignment, const char* attempted) {
  enter(attempted);
  if (live_slot(stream).device != device.ordinal())
    throw_invalid_argument(attempted, "the stream belongs to another device than the resource");
  if (!std::has_single_bit(alignment) || alignment > DeviceResource::max_alignment)
    throw_invalid_argument(attempted, "the alignment is not a power of 2 up to 256");
}

}  // namespace
}  // namespace detail

using namespace detail;

void* DeviceResource::allocate(StreamRef stream, size_t bytes, size_t alignment) const {
  require_resource(stream, device_, alignment, operation);
  return allocate_device(stream, bytes);
}

void DeviceResource::deallocate(StreamRef stream, void* pointer, size_t bytes,
                                size_t alignment) const {
  constexpr const char* freeing = "free device memory";
  const Release mode = release_mode();
  if (mode == Release::now) require_resource(stream, device_, alignment, freeing);
  if (pointer == nullptr || mode == Release::never) return;
  live_point(stream);
  free_device(pointer, bytes, stream, device_.ordinal(), {});
}

DeviceStatistics DeviceResource::statistics() const {
  const Usage& u = usage_of(device_, "ask for the use of device memory");
  return {.in_use = read_count(u.in_use),
          .peak = read_count(u.peak),
          .blocks = read_count(counters.device_blocks[device_.ordinal()])};
}

void DeviceResource::reset_peak() const {
  Usage& u = usage_of(device_, "forget the peak of device memory");
  u.peak.store(read_count(u.in_use), std::memory_order_relaxed);
}

void DeviceResource::set_limit(size_t bytes) const {
  usage_of(device_, "limit device memory").limit.store(bytes, std::memory_order_relaxed);
}

size_t DeviceResource::limit() const {
  return read_count(usage_of(device_, "ask for the limit of device memory").limit);
}

static void require_pools(const InternalDeviceCall& call) {
  if (!has_memory_pools(call.device()))
    throw_error(errc::not_supported, call.operation(), "the device has no memory pools");
}

size_t DeviceResource::reserved() const {
  const InternalDeviceCall call{device_.ordinal(), "ask what a memory pool holds"};
  require_pools(call);
  size_t bytes = 0;
  call.check(backend::pool_reserved(call.device(), bytes));
  return bytes;
}

void DeviceResource::set_release_threshold(size_t bytes) const {
  const InternalDeviceCall call{device_.ordinal(), "set what a memory pool keeps"};
  require_pools(call);
  call.check(backend::set_release_threshold(call.device(), bytes));
}

void DeviceResource::trim() const {
  const InternalDeviceCall call{device_.ordinal(), "give unused device memory back"};
  try_for(1ms, make_frees);
  if (has_memory_pools(call.device())) call.check(backend::trim_pool(call.device()));
}

}  // namespace runnel::inline RUNNEL_ABI
