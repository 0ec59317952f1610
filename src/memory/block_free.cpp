// SPDX-License-Identifier: Apache-2.0
#include "memory/block_free.hpp"

#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/device_table.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "memory/releaser.hpp"
#include "memory/resource_calls.hpp"
#include "stream/capture.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

[[nodiscard]] StreamRef view_of(StreamUse stream) noexcept {
  return Access::ref(stream.slot, stream.id);
}

[[nodiscard]] bool is_in_capture(const StreamPoint& user, std::uint64_t capture) noexcept {
  const HandleLock locked{user.stream()};
  return locked && locked.is_reachable() && capture_number_of(locked.handle()) == capture;
}

/// Makes the captured stream wait for the users in the same capture. A wait for another stream
/// would break the capture, and has no meaning in a graph. False if it cannot wait for one of them.
[[nodiscard]] bool join_users(const HandleLock& own, const BlockFree& block) noexcept {
  const std::uint64_t capture = capture_number_of(own.handle());
  return std::ranges::none_of(block.others, [&](const StreamPoint& user) {
    return (capture == 0 || is_in_capture(user, capture)) &&
           !user.make_wait(own.handle(), InCapture::allowed);
  });
}

/// Enqueues the free on the block's own stream, which may be captured. Returns false, and enqueues
/// no free, if that is not possible or not right.
[[nodiscard]] bool free_in_stream_order(BlockFree& block) noexcept {
  const StreamUse owner = block.owner;
  const HandleLock own = block.others.empty() ? HandleLock{block.own} : HandleLock{owner};
  if (!own || !own.is_reachable()) return false;
  std::optional<ScopedDevice> on;
  if (own.is_default()) on.emplace(block.device, ScopedDevice::no_throw);
  if (!block.others.empty() && (!is_captured(own) || !join_users(own, block))) return false;
  if (block.resource)
    deallocate_to_resource(*block.resource, view_of(owner), block.pointer, block.bytes);
  else
    succeeded_or_note_capture(internal_call(
        [&] { return backend::free_async(block.pointer, own.handle()); }, any_capture_seen()));
  return true;
}

/// Whether the free would be enqueued on a default stream and would so break the capture of a
/// blocking stream. During such a capture the runtimes refuse the query of the default stream's
/// capture state.
[[nodiscard]] bool would_break_capture(const BlockFree& block) noexcept {
  if (!are_captures_open()) [[likely]]
    return false;
  const HandleLock locked{block.own.stream()};
  if (!locked || !locked.is_default() || !locked.is_reachable()) return false;
  const ScopedDevice on{block.device, ScopedDevice::no_throw};
  return capture_state(locked.handle()) == CaptureState::unknown;
}

[[nodiscard]] bool has_captured_user(const BlockFree& block) noexcept {
  return std::ranges::any_of(
      block.others, [](const StreamPoint& user) { return is_captured(HandleLock{user.stream()}); });
}

/// A stream of the device that has no other work than frees. Null if it cannot be created.
[[nodiscard]] native::stream stream_for_frees(int device) noexcept {
  static constinit std::array<sync::Atomic<native::stream>, max_devices> streams{};
  sync::Atomic<native::stream>& place = streams[static_cast<std::size_t>(device)];
  native::stream stream = place.load(std::memory_order_acquire);
  if (stream != nullptr) return stream;
  native::stream fresh{};
  if (!call_quietly(device, [&] { return backend::stream_create(fresh, false, 0); }))
    return nullptr;
  if (place.compare_exchange_strong(stream, fresh, std::memory_order_acq_rel)) return fresh;
  call_quietly(device, [&] { return backend::stream_destroy(fresh); });
  return stream;
}

/// A view of that stream, or the default stream if there is none.
[[nodiscard]] StreamRef view_or_default(native::stream stream, int device) noexcept try {
  if (stream == nullptr) return default_stream_of(device);
  Slot* const slot = wrap_handle({stream, device, Blocking::no}, Wrap::view).slot;
  return view_of({slot, slot->id.load(std::memory_order_acquire)});
} catch (const std::bad_alloc&) {
  return default_stream_of(device);
}

/// Frees memory that no stream uses.
void free_unused(const BlockFree& block) noexcept {
  // The block's own stream may end meanwhile.
  const native::stream stream =
      block.resource || has_memory_pools(block.device) ? stream_for_frees(block.device) : nullptr;
  if (block.resource)
    return deallocate_to_resource(*block.resource, view_or_default(stream, block.device),
                                  block.pointer, block.bytes);
  // Without memory pools the runtime waits for the device.
  if (stream == nullptr)
    return release_on_thread({backend::free_device, block.pointer, block.device});
  call_quietly(block.device, [&] { return backend::free_async(block.pointer, stream); });
}

void run_deferred(Deferred& deferred) noexcept {
  auto* const block = static_cast<BlockFree*>(&deferred);
  if (!block->is_unknown) free_unused(*block);
  delete block;
  frees_made.fetch_add(1, std::memory_order_release);
}

}  // namespace

bool is_captured(const HandleLock& stream) noexcept {
  return stream && stream.is_reachable() && capture_state(stream.handle()) == CaptureState::active;
}

void free_block(BlockFree& block) noexcept {
  const bool is_in_order =
      (block.resource || has_memory_pools(block.device)) && !would_break_capture(block);
  if ((is_in_order && free_in_stream_order(block)) || has_captured_user(block)) return;
  defer_free(block);
}

void defer_free(BlockFree& block) noexcept {
  block.run = run_deferred;
  if (auto* const deferred = new (std::nothrow) BlockFree{std::move(block)}) {
    frees_deferred.fetch_add(1, std::memory_order_relaxed);
    return run_after(*deferred);
  }
  if (in_host_function) return;
  const ScopedWait wait{"free device memory", {.device = block.device}};
  if (complete_deferred_work()) free_unused(block);
}

bool wait_for_deferred_free(std::size_t made) noexcept {
  const auto wait_for = [made](std::chrono::nanoseconds time) {
    bool is_made = false;
    try_for(time, [&] {
      is_made = frees_made.load(std::memory_order_acquire) != made;
      return is_made || !has_deferred_frees();
    });
    return is_made;
  };
  if (wait_for(release_timeout)) return true;
  if (complete_deferred_work()) static_cast<void>(wait_for(short_timeout));
  return false;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
