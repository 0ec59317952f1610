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

[[nodiscard]] StreamRef view_of(StreamUse stream) noexcept {
  return Access::ref(stream.slot, stream.id);
}

/// A stream to enqueue a free on. Only the call of a resource needs `view`.
struct FreeingStream {
  native::stream handle;
  StreamRef view;
};

[[nodiscard]] bool is_in_capture(StreamUse stream, std::uint64_t capture) noexcept {
  const HandleLock locked{stream};
  return locked && locked.is_reachable() && capture_number_of(locked.handle()) == capture;
}

/// Enqueues the free on the stream.
void enqueue_free(const FreeingStream& stream, const BlockFree& block) noexcept {
  if (block.resource) [[unlikely]]
    return deallocate_to_resource(*block.resource, stream.view, block.pointer, block.bytes);
  succeeded_or_note_capture(internal_call(
      [&] { return backend::free_async(block.pointer, stream.handle); }, any_capture_seen()));
}

/// Enqueues the free on the stream, after the work of the block's other users. Returns false, and
/// enqueues no free, if the stream cannot be made to wait for all of them. In a capture the stream
/// waits only for streams of the same capture: a wait for another stream would break it, and has no
/// meaning in a graph.
[[nodiscard]] bool free_on(const FreeingStream& stream, const BlockFree& block,
                           InCapture in_capture) noexcept {
  const std::uint64_t capture =
      in_capture == InCapture::allowed ? capture_number_of(stream.handle) : 0;
  const auto cannot_wait = [&](const StreamPoint& user) {
    return (capture == 0 || is_in_capture(user.stream(), capture)) &&
           !user.make_wait(stream.handle, in_capture);
  };
  if (std::ranges::any_of(block.others, cannot_wait)) return false;
  enqueue_free(stream, block);
  return true;
}

/// Enqueues the free after the work of all streams that use the memory. If there are other users,
/// one of the library's own streams waits for them, so that the block's stream is not delayed.
/// Returns false if no stream can be made to wait for a user.
[[nodiscard]] bool free_in_stream_order(BlockFree& block) noexcept try {
  const StreamUse owner = block.owner.stream();
  if (const HandleLock locked =
          block.others.empty() ? HandleLock{block.owner} : HandleLock{owner}) {
    std::optional<ScopedDevice> on;
    if (locked.is_default()) on.emplace(block.device, ScopedDevice::no_throw);
    if (!locked.is_reachable()) return false;
    const FreeingStream own{locked.handle(), view_of(owner)};
    if (block.others.empty()) {
      enqueue_free(own, block);
      return true;
    }
    // The allocation may be a node of the graph, if the stream was being captured then. The free
    // must then be a node, too.
    if (is_captured(locked)) return free_on(own, block, InCapture::allowed);
  }
  FreeingStream helper{pick_internal_stream(block.device), view_of(owner)};
  if (helper.handle == nullptr) return false;
  if (block.resource) helper.view = view_internal_stream(helper.handle, block.device);
  return block.owner.make_wait(helper.handle, InCapture::never) &&
         free_on(helper, block, InCapture::never);
} catch (const std::bad_alloc&) {  // Nothing was enqueued yet.
  return false;
}

/// Whether the free would be enqueued on a default stream and would so break the capture of a
/// blocking stream. During such a capture the runtimes refuse the query of the default stream's
/// capture state.
[[nodiscard]] bool would_break_capture(const BlockFree& block) noexcept {
  if (!are_captures_open()) [[likely]]
    return false;
  const HandleLock locked{block.owner.stream()};
  if (!locked || !locked.is_default() || !locked.is_reachable()) return false;
  const ScopedDevice on{block.device, ScopedDevice::no_throw};
  return capture_state(locked.handle()) == CaptureState::unknown;
}

[[nodiscard]] bool has_captured_user(const BlockFree& block) noexcept {
  return std::ranges::any_of(
      block.others, [](const StreamPoint& user) { return is_captured(HandleLock{user.stream()}); });
}

/// Waits for the device, or for all devices. Returns false if work may still be running.
[[nodiscard]] bool wait_for_devices(int device, bool all) noexcept {
  bool is_complete = true;
  for (int i = 0; i < device_count(); ++i)
    if (i == device || all) is_complete = wait_for_device(i) && is_complete;
  return is_complete;
}

/// Waits for the devices of all users and then frees the memory, on a thread of the library; leaks
/// it if work may still be running. backend::free_device() alone is not enough: it waits only for
/// its own device, and not at all if the memory came from a pool. The program's resources are
/// called on the calling thread.
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
    deallocate_to_resource(*block.resource, default_stream_of(block.device), block.pointer,
                           block.bytes);
}

[[nodiscard]] bool has_unreachable_user(const BlockFree& block) noexcept {
  const auto is_unreachable = [](const StreamPoint& user) {
    const HandleLock locked{user.stream()};
    return locked && !locked.is_reachable();
  };
  return is_unreachable(block.owner) || std::ranges::any_of(block.others, is_unreachable);
}

/// Does not call a resource: this thread may already be in a call of the resource that holds a
/// lock.
void run_postponed_free(const Postponed& item) noexcept {
  const std::unique_ptr<BlockFree> block{static_cast<BlockFree*>(item.handle)};
  if (block->resource)
    static_cast<void>(defer_free(*block));
  else
    free_block(*block);
}

}  // namespace

bool is_captured(const HandleLock& stream) noexcept {
  return stream && stream.is_reachable() && capture_state(stream.handle()) == CaptureState::active;
}

void free_block(BlockFree& block) noexcept {
  const bool is_in_order =
      (block.resource || has_memory_pools(block.device)) && !would_break_capture(block);
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
