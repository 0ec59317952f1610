// SPDX-License-Identifier: Apache-2.0
#include "base/announce.hpp"
#include "base/counters.hpp"
#include "capture.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::backend {

using host::catch_bad_alloc;

namespace {

using host::enqueue;

/// All accesses of copies and fills to user memory go through these two functions.
void move(void* to, const void* from, std::size_t bytes) noexcept {
  const detail::UserAccess access;
  if (!access.is_allowed()) return;
  sync::reads(from, bytes);
  sync::writes(to, bytes);
  std::memcpy(to, from, bytes);
}
template <class T>
void set(void* to, T value, std::size_t count) noexcept {
  const detail::UserAccess access;
  if (!access.is_allowed()) return;
  sync::writes(to, count * sizeof(T));
  std::fill_n(static_cast<T*>(to), count, value);
}

[[nodiscard]] unsigned char* bytes_of(void* pointer) noexcept {
  return static_cast<unsigned char*>(pointer);
}
[[nodiscard]] const unsigned char* bytes_of(const void* pointer) noexcept {
  return static_cast<const unsigned char*>(pointer);
}

}  // namespace

bool copies_pageable_asynchronously() noexcept { return true; }
bool copies_to_pageable_are_complete() noexcept { return false; }

status copy_async(void* to, const void* from, std::size_t bytes, native::stream stream) noexcept {
  return enqueue(stream, NodeKind::copy, [=] { move(to, from, bytes); });
}

status copy_2d_async(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                     std::size_t width, std::size_t height, native::stream stream) noexcept {
  return enqueue(stream, NodeKind::copy, [=] {
    for (std::size_t row = 0; row < height; ++row)
      move(bytes_of(to) + row * to_pitch, bytes_of(from) + row * from_pitch, width);
  });
}

status copy_batch_async(void* const* to, const void* const* from, const std::size_t* bytes,
                        std::size_t count, native::stream stream) noexcept {
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  return catch_bad_alloc([&] {
    std::vector<Copy> copies(count);
    for (std::size_t i = 0; i < count; ++i) copies[i] = {to[i], from[i], bytes[i]};
    return enqueue(stream, NodeKind::copy, [all = std::move(copies)] {
      for (const Copy& copy : all) move(copy.to, copy.from, copy.bytes);
    });
  });
}

// All devices share the machine's memory, so a copy between devices is a plain copy.
status copy_peer_async(void* to, int, const void* from, int, std::size_t bytes,
                       native::stream stream) noexcept {
  return copy_async(to, from, bytes, stream);
}

status fill_async(void* to, std::uint32_t value, std::size_t width, std::size_t count,
                  native::stream stream) noexcept {
  switch (width) {
    case 1:
      return enqueue(stream, NodeKind::fill,
                     [=] { set(to, static_cast<unsigned char>(value), count); });
    case 2:
      return enqueue(stream, NodeKind::fill,
                     [=] { set(to, static_cast<std::uint16_t>(value), count); });
    case 4:
      return enqueue(stream, NodeKind::fill, [=] { set(to, value, count); });
    default:
      return host::invalid_argument;
  }
}

status fill_2d_async(void* to, std::size_t pitch, unsigned char value, std::size_t width,
                     std::size_t height, native::stream stream) noexcept {
  return enqueue(stream, NodeKind::fill, [=] {
    for (std::size_t row = 0; row < height; ++row) set(bytes_of(to) + row * pitch, value, width);
  });
}

}  // namespace runnel::inline RUNNEL_ABI::backend
