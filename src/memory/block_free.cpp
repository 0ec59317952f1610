// SPDX-License-Identifier: Apache-2.0
#include "memory/block_free.hpp"

#include "base/exit_notice.hpp"
#include "base/operation.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/device_table.hpp"
#include "device/scoped_device.hpp"
#include "memory/deferred_frees.hpp"
#include "memory/releaser.hpp"
#include "memory/resource_calls.hpp"
#include "stream/capture.hpp"
#include "stream/internal_streams.hpp"
#include "stream/open_captures.hpp"

#include <runnel/detail/access.hpp>
#include <runnel/detail/backend.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

[[nodiscard]] bool is_captured(const HandleLock& stream) noexcept {
  return capture_state(stream.handle()) == CaptureState::active;
}

[[nodiscard]] StreamRef view_of(StreamUse stream) noexcept {
  return Access::ref(stream.slot, stream.id);
}

/// A stream to enqueue a free on. The view is for a resource only.
struct FreeingStream {
  native::stream handle;
  StreamRef view;
};

[[nodiscard]] bool takes_part(StreamUse stream, std::uint64_t capture) noexcept {
  const HandleLock locked{stream};
  return locked && locked.is_reachable() && capture_number_of(locked.handle()) == capture;
}

/// Enqueues the free on that stream.
void enqueue_free(const FreeingStream& stream, const BlockFree& block) noexcept {
  if (block.resource) [[unlikely]]
    return give_back_to(*block.resource, stream.view, block.pointer, block.bytes);
  succeeded_or_note_capture(internal_call(
      [&] { return backend::free_async(block.pointer, stream.handle); }, any_capture_seen()));
}

/// The same, behind the work of the other users. False if the stream cannot be made to wait for all
/// of them. In a capture only its own streams are waited for: a wait for another one would break
/// it, and has no meaning in a graph.
[[nodiscard]] bool free_on(const FreeingStream& stream, const BlockFree& block,
                           InCapture in_capture) noexcept {
  const std::uint64_t capture =
      in_capture == InCapture::allowed ? capture_number_of(stream.handle) : 0;
  const auto cannot_wait = [&](const StreamPoint& user) {
    return (capture == 0 || takes_part(user.stream(), capture)) &&
           !user.make_wait(stream.handle, in_capture);
  };
  if (std::ranges::any_of(block.others, cannot_wait)) return false;
  enqueue_free(stream, block);
  return true;
}

/// Enqueues the free behind the work of all streams that use the memory. If there are other users,
/// the library's own stream waits for them, so that the block's stream goes on at once. False if a
/// stream cannot be waited for.
[[nodiscard]] bool free_in_stream_order(BlockFree& block) noexcept try {
  const StreamUse owner = block.own.stream();
  if (const HandleLock locked = block.others.empty() ? HandleLock{block.own} : HandleLock{owner}) {
    std::optional<ScopedDevice> on;
    if (locked.is_default()) on.emplace(block.device, ScopedDevice::no_throw);
    if (!locked.is_reachable()) return false;
    const FreeingStream own{locked.handle(), view_of(owner)};
    if (block.others.empty()) {
      enqueue_free(own, block);
      return true;
    }
    // Memory that was allocated on a stream while that is captured may be a node of the graph. Then
    // its free must be a node, too.
    if (is_captured(locked)) return free_on(own, block, InCapture::allowed);
  }
  FreeingStream between{pick_internal_stream(block.device), view_of(owner)};
  if (between.handle == nullptr) return false;
  if (block.resource) between.view = view_internal_stream(between.handle, block.device);
  return block.own.make_wait(between.handle, InCapture::never) &&
         free_on(between, block, InCapture::never);
} catch (const std::bad_alloc&) {  // before anything is enqueued
  return false;
}

/// Whether the free would break the capture of a blocking stream: it would go to a default stream.
/// The runtimes refuse to answer then.
[[nodiscard]] bool is_beside_capture(const BlockFree& block) noexcept {
  if (!are_captures_open()) [[likely]]
    return false;
  const HandleLock locked{block.own.stream()};
  if (!locked || !locked.is_default() || !locked.is_reachable()) return false;
  const ScopedDevice on{block.device, ScopedDevice::no_throw};
  return capture_state(locked.handle()) == CaptureState::unknown;
}

[[nodiscard]] bool has_captured_user(const BlockFree& block) noexcept {
  return std::ranges::any_of(block.others, [](const StreamPoint& user) {
    const HandleLock locked{user.stream()};
    return locked && locked.is_reachable() && is_captured(locked);
  });
}

/// Waits for that device, or for all. False if work may still run.
[[nodiscard]] bool wait_for_devices(int device, bool all) noexcept {
  bool is_complete = true;
  for (int i = 0; i < device_count(); ++i)
    if (i == device || all) is_complete = wait_for_device(i) && is_complete;
  return is_complete;
}

/// Waits for the devices of all users, and frees the memory then, on the library's thread; leaks it
/// if work may still run. The plain free would wait for its own device if the memory came from a
/// plain allocation, and for nothing if the memory came from a pool. A resource is the program's,
/// and is called here.
void free_after_wait(const BlockFree& block) noexcept {
  if (!block.resource) {
    const auto free_behind = [](const Postponed& item) noexcept {
      if (!wait_for_devices(item.device, item.id != 0)) return;
      const ScopedDevice on{item.device, ScopedDevice::no_throw};
      succeeded_or_note_capture(backend::free_device(item.handle));
    };
    return release_on_thread(
        Postponed{free_behind, block.pointer, block.device, block.others.empty() ? 0U : 1U});
  }
  if (release_mode_of_wait() != Release::now) return;
  const ScopedWait wait{"free device memory", {.device = block.device}};
  if (wait_for_devices(block.device, !block.others.empty()))
    give_back_to(*block.resource, default_stream_of(block.device), block.pointer, block.bytes);
}

[[nodiscard]] bool has_unreachable_user(const BlockFree& block) noexcept {
  const auto is_unreachable = [](const StreamPoint& user) {
    const HandleLock locked{user.stream()};
    return locked && !locked.is_reachable();
  };
  return is_unreachable(block.own) || std::ranges::any_of(block.others, is_unreachable);
}

/// A resource is not called here: the thread may be in a call of the resource that holds a lock.
void run_postponed_free(const Postponed& item) noexcept {
  const std::unique_ptr<BlockFree> block{static_cast<BlockFree*>(item.handle)};
  if (block->resource)
    static_cast<void>(defer_free(*block));
  else
    free_block(*block);
}

}  // namespace

void free_block(BlockFree& block) noexcept {
  const bool is_in_order =
      (block.resource || has_memory_pools(block.device)) && !is_beside_capture(block);
  if ((is_in_order && free_in_stream_order(block)) || has_captured_user(block)) return;
  if ((any_capture_seen() || has_unreachable_user(block)) && defer_free(block))
    return run_complete_frees();
  free_after_wait(block);
}

void free_block_later(BlockFree& block) noexcept try {
  const int device = block.device;
  postpone({run_postponed_free, new BlockFree{std::move(block)}, device});
} catch (const std::bad_alloc&) {
}

}  // namespace runnel::inline RUNNEL_ABI::detail
