// SPDX-License-Identifier: Apache-2.0
#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/counters.hpp"
#include "base/exit_notice.hpp"
#include "base/hang_report.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "device/call_quietly.hpp"
#include "device/device_call.hpp"
#include "device/device_table.hpp"
#include "device/open_captures.hpp"
#include "device/scoped_device.hpp"
#include "memory/recorded_uses.hpp"
#include "memory/releaser.hpp"
#include "memory/resource_calls.hpp"
#include "memory/waiting_frees.hpp"
#include "stream/capture.hpp"
#include "stream/checked.hpp"
#include "stream/observed.hpp"
#include "stream/own_streams.hpp"
#include "stream/stream_device.hpp"
#include "stream/uses.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/device_resource.hpp>
#include <runnel/memory.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail {
namespace {

constexpr const char* operation = "allocate device memory";

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

struct Usage {
  sync::Atomic<std::size_t> in_use{0};
  sync::Atomic<std::size_t> peak{0};
  sync::Atomic<std::size_t> limit{no_limit};
};
constinit Usage usage[max_devices];

/// Adds to the bytes in use, before they are allocated, so that several threads together do not exceed the limit.
void reserve(int device, std::size_t bytes) {
  Usage& u = usage[device];
  const std::size_t limit = u.limit.load(std::memory_order_relaxed);
  std::size_t used = u.in_use.load(std::memory_order_relaxed);
  do {
    if (used > limit || bytes > limit - used)
      throw_error(errc::out_of_memory, operation,
                  limit == no_limit ? "the size is beyond any device's memory"
                                    : "the limit that DeviceResource::set_limit() has set leaves no room for it");
  } while (!u.in_use.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
}
void cancel_reservation(int device, std::size_t bytes) noexcept { usage[device].in_use.fetch_sub(bytes, std::memory_order_relaxed); }

/// Counts the block whose bytes were reserved.
void count_in(int device) noexcept {
  Usage& u = usage[device];
  count_up(counters.device_blocks[device]);
  const std::size_t now = u.in_use.load(std::memory_order_relaxed);
  for (std::size_t peak = u.peak.load(std::memory_order_relaxed); now > peak;)
    if (u.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) break;
}
void count_out(int device, std::size_t bytes) noexcept {
  count_down(counters.device_blocks[device]);
  usage[device].in_use.fetch_sub(bytes, std::memory_order_relaxed);
}

/// A block to free, and the streams that use it: `own` is the one that it was allocated on.
struct FreeRequest {
  void* pointer;
  int device;
  StreamUse own;
  std::vector<StreamRef>& others;
  RecordedUses& recorded;
  std::size_t bytes;
  const SharedResource& resource;  // null: the device's own memory

  [[nodiscard]] StreamRef owner() const noexcept { return Access::ref(own.slot, own.id); }
  [[nodiscard]] bool has_others() const noexcept { return !others.empty() || !recorded.empty(); }
  /// Whether the predicate holds for one of the other users.
  template <class Predicate>
  [[nodiscard]] bool any_other(Predicate holds) const noexcept {
    return std::any_of(others.begin(), others.end(), holds) ||
           std::any_of(recorded.begin(), recorded.end(), [&](const auto& entry) { return holds(entry.second); });
  }
};

[[nodiscard]] bool is_captured(const HeldStream& stream) noexcept { return capture_state(stream.handle()) == CaptureState::active; }

/// A stream to enqueue a free on. The view is for a resource only.
struct FreeingStream {
  native::stream handle;
  StreamRef view;
};

[[nodiscard]] bool takes_part(StreamRef stream, std::uint64_t capture) noexcept {
  const HeldStream held{use_of(stream)};
  return held && held.is_reachable() && capture_number_of(held.handle()) == capture;
}

/// Enqueues the free on that stream.
void enqueue_free(const FreeingStream& stream, const FreeRequest& request) noexcept {
  if (request.resource) [[unlikely]]
    return give_back_to(*request.resource, stream.view, request.pointer, request.bytes);
  const RelaxedCapture relaxed{if_captures_met()};
  succeeded_or_note_capture(backend::free_async(request.pointer, stream.handle));
}

/// The same, behind the work of the other users. False if the stream cannot be made to wait for all of them. In a capture only its own
/// streams are waited for: a wait for another one would break it, and has no meaning in a graph.
[[nodiscard]] bool free_on(const FreeingStream& stream, const FreeRequest& request, InCapture in_capture) noexcept {
  const std::uint64_t capture = in_capture == InCapture::allowed ? capture_number_of(stream.handle) : 0;
  const auto cannot_wait = [&](StreamRef user) {
    return (capture == 0 || takes_part(user, capture)) && !make_wait(stream.handle, use_of(user), in_capture);
  };
  if (request.any_other(cannot_wait)) return false;
  enqueue_free(stream, request);
  return true;
}

/// Enqueues the free on a stream of the library's own, behind the work of all users.
[[nodiscard]] bool free_on_own_stream(const FreeRequest& request) noexcept try {
  FreeingStream own{take_own_stream(request.device), request.owner()};
  if (own.handle == nullptr) return false;
  if (request.resource) own.view = view_own_stream(own.handle, request.device);
  return make_wait(own.handle, request.own, InCapture::never) && free_on(own, request, InCapture::never);
} catch (const std::bad_alloc&) {
  return false;
}

/// Enqueues the free behind the work of all streams that use the memory, and ends the use of the stream which it was allocated on. If there
/// are other users, the library's own stream waits for them, so that that stream goes on at once. False, and no use has ended, if a stream
/// cannot be waited for.
[[nodiscard]] bool free_in_stream_order(const FreeRequest& request) noexcept {
  if (const HeldStream held{request.own, !request.has_others() ? HeldStream::Use::ends : HeldStream::Use::stays}) {
    std::optional<ScopedDevice> on;
    if (held.is_default()) on.emplace(request.device, ScopedDevice::no_throw);
    if (!held.is_reachable()) return false;
    const FreeingStream own{held.handle(), request.owner()};
    if (!request.has_others()) {
      enqueue_free(own, request);
      return true;
    }
    // Memory that was allocated on a stream while that is captured may be a node of the graph. Then its free must be a node, too.
    if (is_captured(held) ? !free_on(own, request, InCapture::allowed) : !free_on_own_stream(request)) return false;
  } else if (!free_on_own_stream(request)) {
    return false;
  }
  end_use(request.own);
  return true;
}

/// Whether the free would break the capture of a blocking stream: it would go to a default stream. The runtimes refuse to answer then.
[[nodiscard]] bool is_beside_capture(const FreeRequest& request) noexcept {
  if (!are_captures_open()) [[likely]]
    return false;
  const HeldStream held{request.own};
  if (!held || !held.is_default() || !held.is_reachable()) return false;
  const ScopedDevice on{request.device, ScopedDevice::no_throw};
  return capture_state(held.handle()) == CaptureState::unknown;
}

[[nodiscard]] bool has_captured_user(const FreeRequest& request) noexcept {
  return request.any_other([](StreamRef user) {
    const HeldStream held{use_of(user)};
    return held && held.is_reachable() && is_captured(held);
  });
}

/// Waits for that device, or for all. False if work may still run.
[[nodiscard]] bool wait_for_devices(int device, bool all) noexcept {
  bool is_complete = true;
  for (int i = 0; i < device_count(); ++i)
    if (i == device || all) is_complete = wait_for_device(i) && is_complete;
  return is_complete;
}

/// Waits for the devices of all users, and frees the memory then, on the library's thread; leaks it if work may still run. The plain free
/// would wait for its own device if the memory came from a plain allocation, and for nothing if the memory came from a pool. A resource is
/// the program's, and is called here.
void free_after_wait(const FreeRequest& request) noexcept {
  if (!request.resource) {
    const auto free_behind = [](const Postponed& item) noexcept {
      if (!wait_for_devices(item.device, item.id != 0)) return;
      const ScopedDevice on{item.device, ScopedDevice::no_throw};
      succeeded_or_note_capture(backend::free_device(item.handle));
    };
    return release_on_thread(Postponed{free_behind, request.pointer, request.device, request.has_others() ? 1U : 0U});
  }
  if (release_mode_of_wait() != Release::now) return;
  const WatchedWait watched{"free device memory", -1 - request.device};
  if (wait_for_devices(request.device, request.has_others()))
    give_back_to(*request.resource, default_stream_of(request.device), request.pointer, request.bytes);
}

/// The request as one that waits. @throws std::bad_alloc
[[nodiscard]] WaitingFreeList waiting_free(const FreeRequest& request) {
  WaitingFreeList made;
  made.push_back({request.pointer, request.device, {}, request.bytes, request.resource});
  std::vector<StreamPoint>& uses = made.front().uses;
  uses.reserve(1 + request.others.size() + request.recorded.size());
  uses.push_back(StreamPoint::adopt(request.own));  // from here on nothing fails
  for (const StreamRef user : request.others) uses.push_back(StreamPoint::adopt(use_of(user)));
  for (const auto& entry : request.recorded) uses.push_back(StreamPoint::adopt(use_of(entry.second)));
  return made;
}

/// Frees the memory at a later call. False, and no use has ended, if there is no memory to note it.
[[nodiscard]] bool free_later(const FreeRequest& request) noexcept try {
  free_once_complete(waiting_free(request));
  run_complete_frees();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

[[nodiscard]] bool has_unreachable_user(const FreeRequest& request) noexcept {
  const auto is_unreachable = [](StreamUse use) {
    const HeldStream held{use};
    return held && !held.is_reachable();
  };
  return is_unreachable(request.own) || request.any_other([&](StreamRef user) { return is_unreachable(use_of(user)); });
}

void end_uses(const FreeRequest& request) noexcept {
  for (const StreamRef user : request.others) end_use(use_of(user));
  for (const auto& entry : request.recorded) end_use(use_of(entry.second));
}

void free_now(const FreeRequest& request) noexcept {
  const bool is_in_order = (request.resource || has_memory_pools(request.device)) && !is_beside_capture(request);
  if (is_in_order && free_in_stream_order(request)) return end_uses(request);
  // Memory that a capture uses is leaked: to wait for the device would break the capture, and the graph may still run later.
  if (!has_captured_user(request)) {
    if ((if_captures_met() || has_unreachable_user(request)) && free_later(request)) return;
    free_after_wait(request);
  }
  end_use(request.own);
  end_uses(request);
}

/// Removes streams that ended and whose work is complete, so that a buffer which outlives many streams does not keep an event for each.
void forget_complete(std::vector<StreamRef>& others) {
  const RelaxedCapture relaxed;
  std::erase_if(others, end_use_if_complete);
}

/// A free that has to wait until the runtime may be called.
struct DeferredFree {
  StreamUse own;
  std::vector<StreamRef> others;
  RecordedUses recorded;
  void* pointer;
};

/// Allocates in the stream's order, if the device can do that.
[[nodiscard]] void* allocate_on(native::stream stream, int device, std::size_t bytes) {
  void* block = nullptr;
  const bool has_pools = has_memory_pools(device);
  const ScopedDevice on{device, operation};
  const RelaxedCapture relaxed{!has_pools || if_captures_met()};
  const auto allocate = [&] { return has_pools ? backend::malloc_async(block, bytes, stream) : backend::malloc_device(block, bytes); };
  const auto try_allocate = [&] { return has_pools ? allocate() : allocate_behind_releases(operation, allocate); };
  backend::status s = try_allocate();
  while (s != backend::ok && are_frees_waiting() && backend::classify(s) == errc::out_of_memory) {
    backend::forget_error(s);
    const WatchedWait watched{operation, -1 - device};
    const bool is_freed = wait_for_a_free();
    if (!is_freed) run_all_frees();
    s = try_allocate();
    if (!is_freed) break;
  }
  check(s, operation);
  return block;
}

/// The same within the device's limit, and counted.
[[nodiscard]] void* allocate_reserved(native::stream stream, int device, std::size_t bytes) {
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

/// Before a program's resource is called. From now on there is a default stream, so that nothing has to be allocated to free its block.
void prepare_for_resource(int device) {
  if (are_frees_waiting(Whose::resource)) run_complete_resource_frees();
  static_cast<void>(default_stream_of(device));
}

/// Takes a block from the resource. If that has no room, what waits to be given back to a resource gets a while: a block that was freed on
/// an idle stream can be given back once its event has passed, which takes the device some microseconds.
[[nodiscard]] void* take_when_there_is_room(AnyResource& resource, StreamRef stream, std::size_t bytes) {
  try {
    return take_from(resource, stream, bytes, operation);
  } catch (const std::bad_alloc&) {
    if (!are_frees_waiting(Whose::resource) || is_in_resource()) throw;
  }
  const auto gives_all_back = [] {
    run_complete_resource_frees();
    return !are_frees_waiting(Whose::resource);
  };
  try_for(short_patience, gives_all_back);
  return take_from(resource, stream, bytes, operation);
}

[[nodiscard]] HookEvent about_allocation(const Slot& slot, std::size_t bytes) {
  const ScopedDevice on{slot.device, operation};
  HookEvent event = about(slot, HookKind::allocation, operation);
  event.bytes = bytes;
  event.to_kind = MemoryKind::device;
  return event;
}

/// Memory that is allocated in a capture is used when the graph runs, which the checker does not see.
void tell_allocation(const Slot& slot, const void* block, std::size_t bytes) {
  if (!is_checking()) [[likely]]
    return;
  const ScopedDevice on{slot.device, operation};
  if (is_checked(slot))
    checker::allocates_in_order(info_of(slot), block, bytes);
  else
    checker::allocates(block, bytes);
}

void tell_free(StreamRef owner, const FreeRequest& request, std::size_t bytes) noexcept try {
  const auto info = [](StreamRef stream) { return info_of(*use_of(stream).slot, stream.id()); };
  std::vector<checker::StreamInfo> awaited;
  for (const StreamRef other : request.others) awaited.push_back(info(other));
  for (const auto& entry : request.recorded) awaited.push_back(info(entry.second));
  checker::frees_in_order(info(owner), awaited, request.pointer, bytes);
  if (request.resource) checker::allocates(request.pointer, bytes);  // its owner may use it for something else
} catch (const std::bad_alloc&) {
  checker::allocates(request.pointer, bytes);  // forgets the block
}

void observe_free(StreamRef owner, const FreeRequest& request, std::size_t bytes) noexcept {
  if (is_checking()) tell_free(owner, request, bytes);
  if (!is_told()) return;
  HookEvent event = about_unasked(*use_of(owner).slot, owner.id(), HookKind::deallocation, "free device memory");
  if (!owner.valid()) event.stream_name = "";  // another stream may have the slot now
  event.to = request.pointer;
  event.bytes = bytes;
  event.to_kind = MemoryKind::device;
  tell_once(event);
}

void run_deferred_free(const Postponed& item) noexcept {
  const std::unique_ptr<DeferredFree> later{static_cast<DeferredFree*>(item.handle)};
  free_now({later->pointer, item.device, later->own, later->others, later->recorded, 0, {}});
}

/// A resource is not called here: the thread may be in a call of the resource that holds a lock.
void run_deferred_resource_free(const Postponed& item) noexcept {
  const std::unique_ptr<WaitingFreeList> later{static_cast<WaitingFreeList*>(item.handle)};
  free_once_complete(std::move(*later));
}

/// A free within a host function. Leaks the block if there is no memory to postpone its free.
void free_after_function(const FreeRequest& request) noexcept try {
  if (request.resource)
    postpone({run_deferred_resource_free, new WaitingFreeList{waiting_free(request)}, request.device});
  else
    postpone({run_deferred_free, new DeferredFree{request.own, std::move(request.others), std::move(request.recorded), request.pointer},
              request.device});
} catch (const std::bad_alloc&) {
}

}  // namespace

void* allocate_device(StreamRef stream, std::size_t bytes, AnyResource* resource) {
  enter(operation);
  Slot& slot = live_slot(stream);
  require_own_thread(slot, operation);
  if (bytes == 0) return nullptr;
  refuse_beside_capture(slot, operation);
  watch_main_thread();
  if (is_mark_requested(slot)) [[unlikely]]
    record_mark(slot);
  if (are_frees_waiting()) [[unlikely]]
    run_complete_frees();
  const int device = slot.device;
  if (resource != nullptr) prepare_for_resource(device);
  if (!begin_use({&slot, stream.id()})) throw_dead_stream(stream.id());
  ToldOperation told;
  if (is_told()) [[unlikely]]
    told.begin(about_allocation(slot, bytes));
  try {
    void* const block =
        resource == nullptr ? allocate_reserved(slot.handle, device, bytes) : take_when_there_is_room(*resource, stream, bytes);
    if (told.is_begun()) told.event().to = block;
    tell_allocation(slot, block, bytes);
    return block;
  } catch (...) {
    end_use({&slot, stream.id()});
    throw;
  }
}

void OwnedExtras::drop() const noexcept { delete extras_; }

void add_device_use(OwnedExtras& extras, StreamRef owner, StreamRef stream) {
  constexpr const char* recording = "record a use of device memory";
  enter(recording);
  static_cast<void>(live_slot(stream));
  if (stream == owner) return;
  std::vector<StreamRef>& others = extras.made().others;
  if (std::find(others.begin(), others.end(), stream) != others.end()) return;
  if (others.size() >= 16 && std::has_single_bit(others.size())) forget_complete(others);
  others.push_back(stream);
  if (begin_use(use_of(stream))) return;
  others.pop_back();
  throw_dead_stream(stream.id());
}

void change_owner(StreamRef& owner, int device, OwnedExtras& extras, StreamRef stream) {
  constexpr const char* changing = "change the stream of device memory";
  enter(changing);
  Slot& slot = live_slot(stream);
  require_own_thread(slot, changing);
  if (slot.device != device) throw_error(errc::invalid_argument, changing, "the stream belongs to another device than the memory");
  if (stream == owner) return;
  std::vector<StreamRef>& others = extras.made().others;
  if (const auto named = std::find(others.begin(), others.end(), stream); named != others.end()) {
    std::swap(*named, owner);
    return;
  }
  others.push_back(owner);  // its counted use goes on
  if (!begin_use(use_of(stream))) {
    others.pop_back();
    throw_dead_stream(stream.id());
  }
  owner = stream;
}

void release_device(StreamRef owner, const BlockExtras* extras) {
  refuse_in_child("release device memory");
  end_use(use_of(owner));
  if (extras == nullptr) return;
  for (const StreamRef other : extras->others) end_use(use_of(other));
}

void free_device(void* pointer, std::size_t bytes, StreamRef stream, int device, BlockExtras* extras) noexcept {
  BlockExtras none;
  std::vector<StreamRef>& others = extras != nullptr ? extras->others : none.others;
  const SharedResource& resource = extras != nullptr ? extras->resource : none.resource;
  if (!resource) [[likely]]
    count_out(device, bytes);
  const Release mode = release_mode();
  if (mode == Release::never) return;
  RecordedUses recorded = take_recorded_uses(pointer, bytes);
  std::erase_if(recorded, [&](const auto& entry) { return entry.second == stream && (end_use(use_of(stream)), true); });
  const FreeRequest request{pointer, device, use_of(stream), others, recorded, bytes, resource};
  if (is_observed()) [[unlikely]]
    observe_free(stream, request, bytes);
  if (mode == Release::later) return free_after_function(request);
  // This allocates nothing, so that memory can also be freed when there is none left.
  if (are_frees_waiting()) [[unlikely]]
    run_complete_frees();
  free_now(request);
  if (resource && are_frees_waiting(Whose::resource)) [[unlikely]]
    run_complete_resource_frees();
}

namespace {

/// @throws errc::forked and errc::invalid_device
[[nodiscard]] Usage& usage_of(Device device, const char* attempted) {
  refuse_in_child(attempted);
  require_device(device.ordinal(), attempted);
  return usage[device.ordinal()];
}

void require_resource(StreamRef stream, Device device, std::size_t alignment, const char* attempted) {
  enter(attempted);
  if (live_slot(stream).device != device.ordinal())
    throw_error(errc::invalid_argument, attempted, "the stream belongs to another device than the resource");
  if (!std::has_single_bit(alignment) || alignment > DeviceResource::max_alignment)
    throw_error(errc::invalid_argument, attempted, "the alignment is not a power of 2 up to 256");
}

}  // namespace
}  // namespace detail

void* DeviceResource::allocate(StreamRef stream, std::size_t bytes, std::size_t alignment) const {
  detail::require_resource(stream, device_, alignment, detail::operation);
  void* const block = detail::allocate_device(stream, bytes);
  if (block != nullptr) detail::end_use(detail::use_of(stream));  // deallocate() names its stream again
  return block;
}

void DeviceResource::deallocate(StreamRef stream, void* pointer, std::size_t bytes, std::size_t alignment) const {
  constexpr const char* freeing = "free device memory";
  const detail::Release mode = detail::release_mode();
  if (mode == detail::Release::now) detail::require_resource(stream, device_, alignment, freeing);
  if (pointer == nullptr || mode == detail::Release::never) return;
  if (!detail::begin_use(detail::use_of(stream))) detail::throw_dead_stream(stream.id());
  detail::free_device(pointer, bytes, stream, device_.ordinal(), nullptr);
}

DeviceStatistics DeviceResource::statistics() const {
  const detail::Usage& u = detail::usage_of(device_, "ask for the use of device memory");
  return {.in_use = detail::read_count(u.in_use),
          .peak = detail::read_count(u.peak),
          .blocks = detail::read_count(detail::counters.device_blocks[device_.ordinal()])};
}

void DeviceResource::reset_peak() const {
  detail::Usage& u = detail::usage_of(device_, "forget the peak of device memory");
  u.peak.store(detail::read_count(u.in_use), std::memory_order_relaxed);
}

void DeviceResource::set_limit(std::size_t bytes) const {
  detail::usage_of(device_, "limit device memory").limit.store(bytes, std::memory_order_relaxed);
}

std::size_t DeviceResource::limit() const {
  return detail::read_count(detail::usage_of(device_, "ask for the limit of device memory").limit);
}

std::size_t DeviceResource::reserved() const {
  const detail::DeviceCall call{device_.ordinal(), "ask what a memory pool holds"};
  if (!detail::has_memory_pools(call.device()))
    detail::throw_error(errc::not_supported, call.operation(), "the device has no memory pools");
  const detail::RelaxedCapture relaxed;
  std::size_t bytes = 0;
  call.check(backend::pool_reserved(call.device(), bytes));
  return bytes;
}

void DeviceResource::set_release_threshold(std::size_t bytes) const {
  const detail::DeviceCall call{device_.ordinal(), "set what a memory pool keeps"};
  if (!detail::has_memory_pools(call.device()))
    detail::throw_error(errc::not_supported, call.operation(), "the device has no memory pools");
  const detail::RelaxedCapture relaxed;
  call.check(backend::set_release_threshold(call.device(), bytes));
}

void DeviceResource::trim() const {
  const detail::DeviceCall call{device_.ordinal(), "give unused device memory back"};
  if (detail::are_frees_waiting()) detail::run_complete_frees();
  if (detail::are_frees_waiting(detail::Whose::resource)) detail::run_complete_resource_frees();
  const detail::RelaxedCapture relaxed;
  if (detail::has_memory_pools(call.device())) call.check(backend::trim_pool(call.device()));
}

}  // namespace runnel::inline RUNNEL_ABI
