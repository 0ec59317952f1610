// SPDX-License-Identifier: Apache-2.0
#include "memory/block_free.hpp"

#include "backend.hpp"
#include "base/counters.hpp"
#include "base/operation.hpp"
#include "base/polling.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "device/device_table.hpp"
#include "device/internal_calls.hpp"
#include "device/scoped_device.hpp"
#include "memory/releaser.hpp"
#include "memory/resource_calls.hpp"
#include "slot/capture.hpp"

#include <runnel/detail/access.hpp>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

bool is_in_capture(const Point& user, uint64_t capture) noexcept {
  const HandleLock locked{user.stream()};
  return locked.is_usable() && capture_number_of(locked->handle) == capture;
}

/// Makes the captured stream wait for the users in the same capture. A wait for another stream
/// would break the capture, and has no meaning in a graph. False if it cannot wait for one of them.
[[nodiscard]] bool join_users(const HandleLock& own, const BlockFree& block) noexcept {
  const uint64_t capture = capture_number_of(own->handle);
  return std::ranges::none_of(block.others, [&](const Point& user) {
    return (capture == 0 || is_in_capture(user, capture)) &&
           !user.make_wait(own->handle, InCapture::allowed);
  });
}

/// Enqueues the free on the block's own stream, which may be captured. Returns false, and enqueues
/// no free, if that is not possible or not right.
[[nodiscard]] bool free_on_own_stream(BlockFree& block) noexcept {
  const StreamKey owner = block.own.stream();
  HandleLock own{owner};
  if (!own.is_usable()) return false;
  const ScopedDevice on{block.device, ScopedDevice::no_throw, own->is_default};
  // On a default stream the free would break the capture of a blocking stream. During such a
  // capture the runtimes refuse this query.
  if (own->is_default && are_captures_open() && capture_state(own->handle) == CaptureState::unknown)
    return false;
  // A host function has ended the stream: its views have ended, and its capture will be abandoned.
  if (has_ended(owner) && (block.resource || capture_state(own->handle) != CaptureState::none))
    return false;
  if (!block.others.empty() && (!is_captured(own) || !join_users(own, block))) return false;
  if (block.resource) {
    const KeptHandle kept{*owner.slot};
    own.unlock();
    // The view is refused if another thread has ended the stream meanwhile.
    return deallocate_to_resource(*block.resource, view_of(owner), block.pointer, block.bytes) ||
           !has_ended(owner);
  }
  const backend::status s = internal_call(
      [&] { return backend::free_async(block.pointer, own->handle); }, any_capture_seen());
  // Any other error may be one of earlier work, so that the memory is free in spite of it.
  return succeeded_or_note_capture(s) || backend::classify(s) != errc::capture;
}

/// Whether a graph may use the block. A broken capture, which has no number, gives none.
bool has_captured_user(const BlockFree& block) noexcept {
  const auto captures = [](const Point& user) {
    const HandleLock locked{user.stream()};
    uint64_t number = 0;
    return is_captured(locked) &&
           !(succeeded_or_forget(backend::stream_capture_number(locked->handle, number)) &&
             number == 0);
  };
  return captures(block.own) || std::ranges::any_of(block.others, captures);
}

/// A stream of the library, which has no other work than frees. Those of resources also wait for
/// the users, so they have one of their own. Null if it cannot be created.
native::stream stream_for_frees(bool of_resources, int device) noexcept {
  static constinit sync::Atomic<native::stream> streams[2][max_devices]{};
  sync::Atomic<native::stream>& place = streams[of_resources][device];
  native::stream stream = place.load(std::memory_order_acquire);
  if (stream != nullptr) return stream;
  native::stream fresh{};
  if (!call_quietly(device, [&] { return backend::stream_create(fresh, false, 0); }))
    return nullptr;
  if (place.compare_exchange_strong(stream, fresh, std::memory_order_acq_rel)) return fresh;
  call_quietly(device, [&] { return backend::stream_destroy(fresh); });
  return stream;
}

/// Deallocates on the library's stream for it: the block's own may end meanwhile.
[[nodiscard]] bool deallocate(const BlockFree& block, bool waits) noexcept try {
  const native::stream stream = stream_for_frees(true, block.device);
  if (stream == nullptr) return false;
  const auto make_wait = [&](const Point& user) {
    return !user || user.make_wait(stream, InCapture::never);
  };
  if (waits && !(make_wait(block.own) && std::ranges::all_of(block.others, make_wait)))
    return false;
  bool is_new = false;
  Slot* const slot = wrap_handle({stream, block.device, Blocking::no}, Holder::views, is_new);
  deallocate_to_resource(*block.resource, view_of(key_of(*slot)), block.pointer, block.bytes);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

/// Frees memory that no stream uses.
void free_unused(const BlockFree& block) noexcept {
  if (block.resource) {
    if (!deallocate(block, false))
      deallocate_to_resource(*block.resource, default_stream_of(block.device), block.pointer,
                             block.bytes);
    return;
  }
  // Without memory pools the runtime waits for the device.
  const native::stream stream =
      has_memory_pools(block.device) ? stream_for_frees(false, block.device) : nullptr;
  if (stream == nullptr)
    return release_on_thread({backend::free_device, block.pointer, block.device});
  call_quietly(block.device, [&] { return backend::free_async(block.pointer, stream); });
}

void run_deferred(Deferred& deferred) noexcept {
  auto* const block = static_cast<BlockFree*>(&deferred);
  const bool calls_program = block->calls_program;
  if (!block->is_unknown) free_unused(*block);
  delete block;
  if (calls_program) count_ended(Count::ended_completions);
  frees_made.fetch_add(1, std::memory_order_release);
}

}  // namespace

bool is_captured(const HandleLock& stream) noexcept {
  return stream.is_usable() && stream->id.load(std::memory_order_relaxed) != 0 &&
         capture_state(stream->handle) == CaptureState::active;
}

bool free_block(BlockFree& block) noexcept {
  const bool is_in_order = block.resource || has_memory_pools(block.device);
  if ((is_in_order && free_on_own_stream(block)) || has_captured_user(block)) return true;
  // The program may destroy what the resource uses once the buffer has ended.
  return block.resource && deallocate(block, true);
}

void defer_free(BlockFree& block) noexcept {
  block.run = run_deferred;
  block.calls_program = static_cast<bool>(block.resource);
  if (block.calls_program) count_function(Count::made_completions);
  frees_deferred.fetch_add(1, std::memory_order_relaxed);
  run_after(block);
}

void defer_copy(BlockFree& block) noexcept try {
  auto& copy = *new BlockFree;
  static_cast<DeferredWork&>(copy) = std::move(block);
  copy.pointer = block.pointer;
  copy.device = block.device;
  defer_free(copy);
} catch (const std::bad_alloc&) {
  if (in_host_function) return;
  const ScopedWait wait{"free device memory", {.device = block.device}};
  if (complete_deferred_work()) free_unused(block);
}

bool make_frees() noexcept {
  if (has_deferred_frees()) internal_call([] { reclaimer().give_back(); });
  return !has_deferred_frees();
}

bool wait_for_deferred_free(size_t made, std::chrono::steady_clock::time_point deadline) noexcept {
  mark_own_default_streams();
  const auto is_made = [made] { return frees_made.load(std::memory_order_acquire) != made; };
  static_cast<void>(poll_until(deadline, [&] { return make_frees() || is_made(); }));
  return is_made();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
