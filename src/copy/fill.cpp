// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy.hpp>

#include "base/process.hpp"
#include "device/scoped_device.hpp"
#include "memory/facts.hpp"
#include "stream/capture.hpp"
#include "stream/slots.hpp"
#include "stream/stream_device.hpp"

#include <runnel/memory.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

namespace runnel::inline RUNNEL_ABI {
namespace {

constexpr const char* operation = "fill memory";

/// Devices cannot reach ordinary memory: then a host function fills it, in stream order.
[[nodiscard]] bool needs_host(const void* to, std::size_t bytes, std::optional<MemoryKind> kind, detail::StreamUse use) {
  if (backend::copies_pageable_asynchronously()) {
    detail::note_use(to, bytes, kind, use);
    return false;
  }
  return detail::facts_of(to, bytes, kind, use, operation).kind == MemoryKind::pageable;
}

/// Enqueues it where the memory can be reached, and says what is wrong where it was refused because it is another device's.
template <class Enqueue>
void enqueue_fill(const detail::Slot& slot, const void* to, Enqueue enqueue) {
  detail::reach(slot.device, to, operation);
  const detail::ScopedDevice on{slot.device, operation};  // see copy.cpp
  const backend::status s = enqueue(slot.handle);
  if (s == backend::ok) [[likely]]
    return;
  backend::forget_error(s);
  PointerInfo info{MemoryKind::pageable, Device{0}};
  if (backend::pointer_info(info, to) == backend::ok && info.kind == MemoryKind::device && info.device.ordinal() != slot.device)
    detail::throw_error(errc::peer_access, operation,
                        "the memory is on another device than the stream: enable peer access, or use a stream there");
  detail::throw_status(s, operation);
}

void fill_rows(StreamRef stream, void* to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,
               std::optional<MemoryKind> kind) {
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  detail::require_own_thread(slot, operation);
  if (width == 0 || height == 0) return;
  detail::require_rows(to, pitch, width, height, operation);
  if (needs_host(to, pitch * (height - 1) + width, kind, {&slot, stream.id()}))
    return stream.launch_host_func([=] {
      for (std::size_t row = 0; row < height; ++row) std::memset(static_cast<unsigned char*>(to) + row * pitch, value, width);
    });
  enqueue_fill(slot, to, [&](native::stream handle) {
    return height == 1 ? backend::fill_async(to, value, 1, width, handle) : backend::fill_2d_async(to, pitch, value, width, height, handle);
  });
}

/// Writes the pattern again and again.
void repeat(unsigned char* to, const unsigned char* pattern, std::size_t size, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * size, pattern, size);
}

}  // namespace

void fill_bytes(StreamRef stream, void* to, unsigned char value, std::size_t bytes) {
  fill_rows(stream, to, bytes, value, bytes, 1, std::nullopt);
}

void fill_2d(StreamRef stream, void* to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height) {
  fill_rows(stream, to, pitch, value, width, height, std::nullopt);
}

void detail::fill_pattern(StreamRef stream, void* to, std::optional<MemoryKind> kind, const void* value, std::size_t size,
                          std::size_t count) {
  enter(operation);
  Slot& slot = live_slot(stream);
  require_own_thread(slot, operation);
  if (count == 0) return;
  const std::size_t bytes = byte_size(count, size, operation);
  require_rows(to, bytes, bytes, 1, operation);

  const auto* const pattern = static_cast<const unsigned char*>(value);
  if (std::all_of(pattern, pattern + size, [&](unsigned char byte) { return byte == *pattern; }))
    return fill_rows(stream, to, bytes, *pattern, bytes, 1, kind);
  auto* const out = static_cast<unsigned char*>(to);
  if (needs_host(to, bytes, kind, {&slot, stream.id()})) {
    const std::shared_ptr<unsigned char[]> own{new unsigned char[size]};
    std::memcpy(own.get(), pattern, size);
    return stream.launch_host_func([=] { repeat(out, own.get(), size, count); });
  }
  if (size == 2 || size == 4) {
    std::uint32_t number = 0;
    std::memcpy(&number, value, size);
    return enqueue_fill(slot, to, [&](native::stream handle) { return backend::fill_async(to, number, size, count, handle); });
  }
  refuse_in_capture(slot, operation, "elements of this width are filled from memory that does not live as long as a graph");
  // No runtime sets wider elements: seed a few, then double what is there.
  const std::size_t seeded = std::min(count, std::max<std::size_t>(1, 4096 / size));
  PinnedBuffer<unsigned char> seed(seeded * size);  // the pool keeps it until the copy has passed
  repeat(seed.data(), pattern, size, seeded);
  copy_known(stream, out, kind, seed.data(), MemoryKind::pinned, seed.size(), Pageable::stage);
  for (std::size_t done = seed.size(); done < bytes;) {
    const std::size_t next = std::min(done, bytes - done);
    copy_known(stream, out + done, kind, out, kind, next, Pageable::stage);
    done += next;
  }
}

}  // namespace runnel::inline RUNNEL_ABI
