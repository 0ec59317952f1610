// SPDX-License-Identifier: Apache-2.0
/// memcpy with stores that bypass the caches, for bytes that a device reads or that no cache could
/// hold.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace runnel::inline RUNNEL_ABI::detail {

/// How many bytes lie before the first address that is a multiple of a cache line.
inline constexpr size_t streaming_line = 64;
inline size_t bytes_before_line(const unsigned char* to) noexcept {
  return (streaming_line - reinterpret_cast<uintptr_t>(to) % streaming_line) % streaming_line;
}

#if defined __SSE2__

/// Copies one line. Requires: `to` is aligned to a line.
inline void stream_line(unsigned char* to, const unsigned char* from) noexcept {
  const auto* const in = reinterpret_cast<const __m128i*>(from);
  auto* const out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}
/// The stores become visible before the ready flag that the caller publishes next.
inline void end_streaming() noexcept { _mm_sfence(); }

#elif defined __aarch64__

/// Copies one line. The stores hint that the line is not needed soon, as in the kernel's copies of
/// pages. Not measured: no such processor was available.
inline void stream_line(unsigned char* to, const unsigned char* from) noexcept {
  asm volatile(
      "ldp q0, q1, [%1]\n\t"
      "ldp q2, q3, [%1, #32]\n\t"
      "stnp q0, q1, [%0]\n\t"
      "stnp q2, q3, [%0, #32]"
      :
      : "r"(to), "r"(from)
      : "v0", "v1", "v2", "v3", "memory");
}
inline void end_streaming() noexcept {}  // A release orders these stores like all others.

#endif

/// As memcpy, but bypasses the caches. That saves reading the destination first, which is a third
/// of the memory traffic.
inline void copy_streaming(void* destination, const void* source, size_t bytes) noexcept {
#if defined __SSE2__ || defined __aarch64__
  auto* to = static_cast<unsigned char*>(destination);
  const auto* from = static_cast<const unsigned char*>(source);
  const size_t head = bytes_before_line(to);
  if (bytes < head + streaming_line) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= streaming_line;
       to += streaming_line, from += streaming_line, bytes -= streaming_line)
    stream_line(to, from);
  end_streaming();
  std::memcpy(to, from, bytes);
#else
  std::memcpy(destination, source, bytes);
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::detail
