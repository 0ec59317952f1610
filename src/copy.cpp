// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>

#include "check.hpp"
#include "process.hpp"
#include "staging.hpp"
#include "stream_device.hpp"

#include <runnel/memory.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

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

void require_rows(const void* pointer, std::size_t pitch, std::size_t width, std::size_t height, const char* operation) {
  if (pointer == nullptr) detail::throw_error(errc::invalid_argument, operation, "a pointer is null but the size is not 0");
  if (pitch < width) detail::throw_error(errc::invalid_argument, operation, "the pitch is smaller than the width of a row");
  std::size_t span = 0;
  std::uintptr_t end = 0;
  if (__builtin_mul_overflow(pitch, height - 1, &span) || __builtin_add_overflow(span, width, &span) ||
      __builtin_add_overflow(reinterpret_cast<std::uintptr_t>(pointer), span, &end))
    detail::throw_error(errc::invalid_argument, operation, "the size runs past the end of the address space");
}

/// What a block of memory is, by both its ends: registered memory need not cover all of it.
[[nodiscard]] MemoryKind kind_of(const void* pointer, std::size_t bytes, const char* operation) {
  PointerInfo info{MemoryKind::pageable, Device{0}};
  detail::check(driver::pointer_info(info, pointer), operation);
  if (info.kind != MemoryKind::pinned) return info.kind;
  detail::check(driver::pointer_info(info, static_cast<const unsigned char*>(pointer) + bytes - 1), operation);
  return info.kind;
}

/// Up to here the driver takes pageable bytes along at the call.
constexpr std::size_t inline_limit = std::size_t{64} << 10;

/// What is common to flat and pitched copies: the checks, the policy, and what to say about it. `enqueue` makes the runtime call.
template <class Enqueue>
CopyResult checked_copy(StreamRef stream, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                        std::size_t height, Pageable policy, Enqueue enqueue) {
  constexpr const char* operation = "copy";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  if (width == 0 || height == 0) return CopyResult::nothing;
  require_rows(to, to_pitch, width, height, operation);
  require_rows(from, from_pitch, width, height, operation);
  if (to == from && to_pitch == from_pitch) return CopyResult::nothing;
  if (overlap({to, to_pitch}, {from, from_pitch}, width, height))
    detail::throw_error(errc::invalid_argument, operation, "source and destination overlap in part");

  const detail::StreamDevice on{slot, operation};
  const auto pass_on = [&](CopyResult result) {
    detail::check(enqueue(slot.handle), operation);
    return result;
  };
  if (driver::copies_pageable_asynchronously() && policy == Pageable::stage) return pass_on(CopyResult::direct);

  const MemoryKind to_kind = kind_of(to, to_pitch * (height - 1) + width, operation);
  const MemoryKind from_kind = kind_of(from, from_pitch * (height - 1) + width, operation);
  const bool pageable = to_kind == MemoryKind::pageable || from_kind == MemoryKind::pageable;
  if (pageable && policy == Pageable::refuse)
    detail::throw_error(errc::not_permitted, operation,
                        "one side is ordinary (pageable) memory, which the policy refuses: use PinnedBuffer, or Pageable::stage");
  if (pageable && policy == Pageable::block) {
    detail::check(enqueue(slot.handle), operation);
    if (driver::copies_pageable_asynchronously()) detail::check(driver::stream_synchronize(slot.handle), operation);
    return CopyResult::blocked;
  }
  const auto is_host = [](MemoryKind kind) { return kind == MemoryKind::pageable || kind == MemoryKind::pinned; };
  if (driver::copies_pageable_asynchronously()) return pass_on(CopyResult::direct);
  const detail::Transfer transfer{
      static_cast<unsigned char*>(to), to_pitch, static_cast<const unsigned char*>(from), from_pitch, width, height};
  if (is_host(to_kind) && is_host(from_kind)) {
    detail::stage_on_host(slot, transfer, operation);
    return CopyResult::staged;
  }
  if (!pageable || detail::reads_host_page_tables(slot.device)) return pass_on(CopyResult::direct);
  // With nothing ahead in the stream the driver's own way is the shortest, and holds the caller no longer than a staged copy's calls.
  if (width * height <= inline_limit && driver::stream_query(slot.handle) == driver::ok) return pass_on(CopyResult::inlined);
  detail::stage(slot, transfer, to_kind == MemoryKind::pageable ? detail::Side::to_host : detail::Side::to_device, operation);
  return CopyResult::staged;
}

}  // namespace

Pageable default_pageable() noexcept { return policy_of_thread; }
void set_default_pageable(Pageable policy) noexcept { policy_of_thread = policy; }

CopyResult copy_bytes(StreamRef stream, void* to, const void* from, std::size_t bytes, Pageable policy) {
  return checked_copy(stream, to, bytes, from, bytes, bytes, 1, policy,
                      [&](native::stream handle) { return driver::copy_async(to, from, bytes, handle); });
}

CopyResult copy_2d(StreamRef stream, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                   std::size_t height, Pageable policy) {
  return checked_copy(stream, to, to_pitch, from, from_pitch, width, height, policy,
                      [&](native::stream handle) { return driver::copy_2d_async(to, to_pitch, from, from_pitch, width, height, handle); });
}

void fill_bytes(StreamRef stream, void* to, unsigned char value, std::size_t bytes) {
  constexpr const char* operation = "fill memory";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  if (bytes == 0) return;
  require_rows(to, bytes, bytes, 1, operation);
  const detail::StreamDevice on{slot, operation};
  detail::check(driver::fill_async(to, value, 1, bytes, slot.handle), operation);
}

void fill_2d(StreamRef stream, void* to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height) {
  constexpr const char* operation = "fill memory";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  if (width == 0 || height == 0) return;
  require_rows(to, pitch, width, height, operation);
  const detail::StreamDevice on{slot, operation};
  detail::check(driver::fill_2d_async(to, pitch, value, width, height, slot.handle), operation);
}

namespace detail {

void require_same_size(std::size_t to, std::size_t from) {
  if (to == from) return;
  char reason[120];
  std::snprintf(reason, sizeof reason, "the source has %zu elements, the destination %zu", from, to);
  throw_error(errc::invalid_argument, "copy", reason);
}

void fill_pattern(StreamRef stream, void* to, const void* value, std::size_t size, std::size_t count) {
  constexpr const char* operation = "fill memory";
  enter(operation);
  Slot& slot = live_slot(stream);
  if (count == 0) return;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(size, count, &bytes))
    throw_error(errc::invalid_argument, operation, "the number of elements times their size does not fit an address");
  require_rows(to, bytes, bytes, 1, operation);

  const auto* const value_bytes = static_cast<const unsigned char*>(value);
  if (std::all_of(value_bytes, value_bytes + size, [&](unsigned char byte) { return byte == *value_bytes; }))
    return fill_bytes(stream, to, *value_bytes, bytes);
  if (size == 2 || size == 4) {
    std::uint32_t number = 0;
    std::memcpy(&number, value, size);
    const StreamDevice on{slot, operation};
    return check(driver::fill_async(to, number, size, count, slot.handle), operation);
  }
  // No runtime sets wider elements: seed a few, then double what is there.
  const std::size_t seeded = std::min(count, std::max<std::size_t>(1, 4096 / size));
  auto seed = std::make_shared<PinnedBuffer<unsigned char>>(seeded * size);
  for (std::size_t i = 0; i < seeded; ++i) std::memcpy(seed->data() + i * size, value, size);
  auto* const out = static_cast<unsigned char*>(to);
  copy_bytes(stream, out, seed->data(), seed->size());
  stream.launch_host_func([seed] {});  // keeps the seed until the copy has passed
  for (std::size_t done = seed->size(); done < bytes;) {
    const std::size_t next = std::min(done, bytes - done);
    copy_bytes(stream, out + done, out, next);
    done += next;
  }
}

}  // namespace detail
}  // namespace runnel::inline RUNNEL_ABI
