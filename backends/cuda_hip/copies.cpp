// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include "runtime.hpp"

namespace runnel::inline RUNNEL_ABI::backend {

status copy_async(void* to, const void* from, std::size_t bytes, native::stream stream) noexcept {
  return rt::copy_async(to, from, bytes, stream);
}

status copy_2d_async(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                     std::size_t width, std::size_t height, native::stream stream) noexcept {
  return rt::copy_2d_async(to, to_pitch, from, from_pitch, width, height, rt::copy_default, stream);
}

status copy_batch_async(void* const* to, const void* const* from, const std::size_t* bytes,
                        std::size_t count, native::stream stream) noexcept {
  return rt::copy_batch_async(to, from, bytes, count, stream);
}

status copy_peer_async(void* to, int to_device, const void* from, int from_device,
                       std::size_t bytes, native::stream stream) noexcept {
  return rt::copy_peer_async(to, to_device, from, from_device, bytes, stream);
}

status fill_async(void* to, std::uint32_t value, std::size_t width, std::size_t count,
                  native::stream stream) noexcept {
  switch (width) {
    case 4:
      return rt::fill_32_async(to, value, count, stream);
    case 2:
      return rt::fill_16_async(to, value, count, stream);
    default:
      return rt::fill_async(to, static_cast<unsigned char>(value), count, stream);
  }
}

status fill_2d_async(void* to, std::size_t pitch, unsigned char value, std::size_t width,
                     std::size_t height, native::stream stream) noexcept {
  return rt::fill_2d_async(to, pitch, value, width, height, stream);
}

// According to both vendors' documentation, a copy from or to pageable memory is staged, and blocks
// the calling thread.
bool copies_pageable_asynchronously() noexcept { return false; }
bool copies_to_pageable_are_complete() noexcept { return rt::copies_to_pageable_are_complete; }

}  // namespace runnel::inline RUNNEL_ABI::backend
