// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>

#include "check.hpp"
#include "process.hpp"
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

[[nodiscard]] bool is_pageable(const void* pointer, const char* operation) {
  PointerInfo info{MemoryKind::pageable, Device{0}};
  detail::check(driver::pointer_info(info, pointer), operation);
  return info.kind == MemoryKind::pageable;
}

/// What is common to flat and pitched copies: the checks, the policy, and what to say about it. `enqueue` makes the runtime call.
template <class Enqueue>
CopyResult checked_copy(StreamRef stream, Rows to, Rows from, std::size_t width, std::size_t height, Pageable policy, Enqueue enqueue) {
  constexpr const char* operation = "copy";
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  if (width == 0 || height == 0) return CopyResult::nothing;
  const auto* const to_pointer = reinterpret_cast<const void*>(to.begin);
  const auto* const from_pointer = reinterpret_cast<const void*>(from.begin);
  require_rows(to_pointer, to.pitch, width, height, operation);
  require_rows(from_pointer, from.pitch, width, height, operation);
  if (to.begin == from.begin && to.pitch == from.pitch) return CopyResult::nothing;
  if (overlap(to, from, width, height)) detail::throw_error(errc::invalid_argument, operation, "source and destination overlap in part");

  const bool asynchronous_anyway = driver::copies_pageable_asynchronously() && policy == Pageable::stage;
  const bool pageable = !asynchronous_anyway && (is_pageable(to_pointer, operation) || is_pageable(from_pointer, operation));
  if (pageable && policy == Pageable::refuse)
    detail::throw_error(errc::not_permitted, operation,
                        "one side is ordinary (pageable) memory, which the policy refuses: use PinnedBuffer, or Pageable::stage");
  const detail::StreamDevice on{slot, operation};
  detail::check(enqueue(slot.handle), operation);
  if (!pageable) return CopyResult::direct;
  if (driver::copies_pageable_asynchronously()) detail::check(driver::stream_synchronize(slot.handle), operation);
  return CopyResult::blocked;
}

}  // namespace

Pageable default_pageable() noexcept { return policy_of_thread; }
void set_default_pageable(Pageable policy) noexcept { policy_of_thread = policy; }

CopyResult copy_bytes(StreamRef stream, void* to, const void* from, std::size_t bytes, Pageable policy) {
  return checked_copy(stream, {to, bytes}, {from, bytes}, bytes, 1, policy,
                      [&](native::stream handle) { return driver::copy_async(to, from, bytes, handle); });
}

CopyResult copy_2d(StreamRef stream, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                   std::size_t height, Pageable policy) {
  return checked_copy(stream, {to, to_pitch}, {from, from_pitch}, width, height, policy,
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
