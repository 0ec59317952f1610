// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>

#include "base/check.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "copy/short_copy.hpp"
#include "copy/staging/stage.hpp"
#include "device/scoped_device.hpp"
#include "memory/facts.hpp"
#include "stream/capture.hpp"
#include "stream/idle.hpp"
#include "stream/stream_device.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace runnel::inline RUNNEL_ABI {
namespace {

thread_local constinit Pageable policy_of_thread = Pageable::stage;

/// Rows of bytes in memory; one row for a plain range.
struct Rows {
  std::uintptr_t begin;
  std::size_t pitch;

  Rows(const void* pointer, std::size_t row_pitch) noexcept : begin{reinterpret_cast<std::uintptr_t>(pointer)}, pitch{row_pitch} {}
  [[nodiscard]] std::uintptr_t end(std::size_t width, std::size_t height) const noexcept { return begin + pitch * (height - 1) + width; }
};

[[nodiscard]] bool overlap(Rows a, Rows b, std::size_t width, std::size_t height) noexcept {
  if (a.end(width, height) <= b.begin || b.end(width, height) <= a.begin) return false;
  // The hulls meet, but the rows may lie beside each other, as two blocks of columns of one matrix do.
  for (std::size_t i = 0, j = 0; i < height && j < height;) {
    const std::uintptr_t row_a = a.begin + i * a.pitch;
    const std::uintptr_t row_b = b.begin + j * b.pitch;
    if (row_a + width <= row_b)
      ++i;
    else if (row_b + width <= row_a)
      ++j;
    else
      return true;
  }
  return false;
}

/// Rows of bytes, and what kind of memory they are in, if that is known.
struct Place {
  const void* pointer;
  std::size_t pitch;
  std::optional<MemoryKind> kind;
};

/// Enqueues a copy between two devices, which needs a call of its own where neither reaches the other's memory. False if it is none.
[[nodiscard]] bool enqueued_between_devices(const detail::Transfer& t, native::stream stream, const char* operation) {
  PointerInfo to{MemoryKind::pageable, Device{0}};
  PointerInfo from = to;
  detail::check(backend::pointer_info(to, t.to), operation);
  detail::check(backend::pointer_info(from, t.from), operation);
  if (to.kind != MemoryKind::device || from.kind != MemoryKind::device || to.device == from.device) return false;
  const bool whole = t.to_pitch == t.width && t.from_pitch == t.width;
  for (std::size_t row = 0; row < (whole ? 1 : t.height); ++row)
    detail::check(backend::copy_peer_async(t.to + row * t.to_pitch, to.device.ordinal(), t.from + row * t.from_pitch, from.device.ordinal(),
                                           whole ? t.width * t.height : t.width, stream),
                  operation);
  return true;
}

/// What is common to flat and pitched copies: the checks, the policy, and what to say about it. `enqueue` makes the runtime call.
template <class Enqueue>
CopyResult checked_copy(StreamRef stream, void* to_pointer, Place to, Place from, std::size_t width, std::size_t height, Pageable policy,
                        Enqueue enqueue) {
  constexpr const char* operation = "copy";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  detail::require_own_thread(slot, operation);
  if (width == 0 || height == 0) return CopyResult::nothing;
  detail::require_rows(to.pointer, to.pitch, width, height, operation);
  detail::require_rows(from.pointer, from.pitch, width, height, operation);
  if (to.pointer == from.pointer && to.pitch == from.pitch) return CopyResult::nothing;
  if (overlap({to.pointer, to.pitch}, {from.pointer, from.pitch}, width, height))
    detail::throw_error(errc::invalid_argument, operation, "source and destination overlap in part");

  // Memory that a stream allocated is reached only with that stream's device current (CUDA, stream-ordered allocator).
  const detail::ScopedDevice on{slot.device, operation};
  const auto pass_on = [&](CopyResult result) {
    detail::check(enqueue(slot.handle), operation);
    return result;
  };
  const bool any_memory = backend::copies_pageable_asynchronously();
  const detail::StreamUse use{&slot, stream.id()};
  const auto span_of = [&](const Place& place) { return place.pitch * (height - 1) + width; };
  if (any_memory && policy == Pageable::stage) {
    for (const Place& place : {to, from}) detail::note_use(place.pointer, span_of(place), place.kind, use);
    return pass_on(CopyResult::direct);
  }

  std::optional<bool> idle;
  const auto asked_idle = [&] {
    const detail::RelaxedCapture relaxed;  // nobody asked the library to ask
    return detail::is_idle(slot, operation);
  };
  // False for host memory that is not pinned in one piece: runtimes refuse a range that begins in one registration and ends outside it,
  // also in the next one. Workers do not mind.
  const auto enqueue_unless_refused = [&] {
    const backend::status s = enqueue(slot.handle);
    if (s == backend::ok) return true;
    if (backend::classify(s) != errc::invalid_argument) detail::throw_status(s, operation);
    backend::forget_error(s);
    return false;
  };
  const auto inline_by_driver = [&] {
    // To the host the driver holds the caller for as long as other streams' copies take.
    if (width * height > detail::driver_limit) return false;
    if (!idle) idle = asked_idle();
    return *idle && enqueue_unless_refused();
  };

  const auto facts_of = [&](const Place& place) { return detail::facts_of(place.pointer, span_of(place), place.kind, use, operation); };
  const auto [to_kind, to_in_one_block] = facts_of(to);
  const auto [from_kind, from_in_one_block] = facts_of(from);
  const bool pageable = to_kind == MemoryKind::pageable || from_kind == MemoryKind::pageable;
  const auto refuse_pageable = [&] {
    if (policy == Pageable::refuse)
      detail::throw_error(errc::not_permitted, operation,
                          "one side is ordinary (pageable) memory, which the policy refuses: use PinnedBuffer, or Pageable::stage");
  };
  if (pageable) refuse_pageable();
  if (pageable && policy == Pageable::block) {
    detail::check(enqueue(slot.handle), operation);
    if (any_memory) detail::check(backend::stream_synchronize(slot.handle), operation);
    return CopyResult::blocked;
  }
  if (any_memory) return pass_on(CopyResult::direct);
  const detail::Transfer transfer{
      static_cast<unsigned char*>(to_pointer), to.pitch, static_cast<const unsigned char*>(from.pointer), from.pitch, width, height};
  const auto is_host = [](MemoryKind kind) { return kind == MemoryKind::pageable || kind == MemoryKind::pinned; };
  if (is_host(to_kind) && is_host(from_kind)) {  // which the runtimes would do while the caller waits
    stream.launch_host_func([transfer] { detail::move_rows(transfer); });
    return CopyResult::staged;
  }
  const bool on_devices = to_kind == MemoryKind::device && from_kind == MemoryKind::device;
  if (on_devices && !detail::single_device() && enqueued_between_devices(transfer, slot.handle, operation)) return CopyResult::direct;
  if (to_kind == MemoryKind::device) detail::reach(slot.device, to.pointer, operation);
  if (from_kind == MemoryKind::device) detail::reach(slot.device, from.pointer, operation);
  if (from_kind == MemoryKind::pinned) detail::keep_source_for_later(slot, width * height, operation);
  const bool may_be_pinned_in_parts =
      (to_kind == MemoryKind::pinned && !to_in_one_block) || (from_kind == MemoryKind::pinned && !from_in_one_block);
  if ((!pageable && !may_be_pinned_in_parts) || detail::reads_host_page_tables(slot.device)) return pass_on(CopyResult::direct);
  if (!pageable && enqueue_unless_refused()) return CopyResult::direct;
  refuse_pageable();
  const detail::Side side = is_host(to_kind) ? detail::Side::to_host : detail::Side::to_device;
  if (pageable && side == detail::Side::to_device && inline_by_driver()) return CopyResult::inlined;
  if (!idle)
    detail::refuse_in_capture(slot, operation,
                              "ordinary (pageable) memory is carried once, at the call, which a graph cannot repeat: use PinnedBuffer, or "
                              "Pageable::block, with which the driver holds whoever launches the graph");
  if (detail::carried_at_once(slot, transfer, side, idle, operation)) return CopyResult::inlined;
  if (!idle) idle = asked_idle();
  detail::stage(slot, transfer, side, *idle, operation);
  return CopyResult::staged;
}

}  // namespace

Pageable default_pageable() noexcept { return policy_of_thread; }
void set_default_pageable(Pageable policy) noexcept { policy_of_thread = policy; }

CopyResult copy_bytes(StreamRef stream, void* to, const void* from, std::size_t bytes, Pageable policy) {
  return detail::copy_known(stream, to, std::nullopt, from, std::nullopt, bytes, policy);
}

CopyResult copy_2d(StreamRef stream, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                   std::size_t height, Pageable policy) {
  return checked_copy(stream, to, {to, to_pitch, std::nullopt}, {from, from_pitch, std::nullopt}, width, height, policy,
                      [&](native::stream handle) { return backend::copy_2d_async(to, to_pitch, from, from_pitch, width, height, handle); });
}

namespace detail {

CopyResult copy_known(StreamRef stream, void* to, std::optional<MemoryKind> to_kind, const void* from, std::optional<MemoryKind> from_kind,
                      std::size_t bytes, Pageable policy) {
  return checked_copy(stream, to, {to, bytes, to_kind}, {from, bytes, from_kind}, bytes, 1, policy,
                      [&](native::stream handle) { return backend::copy_async(to, from, bytes, handle); });
}

void require_same_size(std::size_t to, std::size_t from) {
  if (to == from) return;
  char reason[120];
  std::snprintf(reason, sizeof reason, "the source has %zu elements, the destination %zu", from, to);
  throw_error(errc::invalid_argument, "copy", reason);
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
