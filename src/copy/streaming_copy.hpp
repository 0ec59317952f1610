// SPDX-License-Identifier: Apache-2.0
/// memcpy with stores that go past the caches, for bytes that a device reads or that no cache could keep.
#pragma once

#include <runnel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace runnel::inline RUNNEL_ABI::detail {

/// As memcpy, but past the caches: without reading what is overwritten first, which is a third of the memory's work.
inline void copy_streaming(void* destination, const void* source, std::size_t bytes) noexcept {
#ifdef __SSE2__
  constexpr std::size_t line = 64;
  auto* to = static_cast<unsigned char*>(destination);
  const auto* from = static_cast<const unsigned char*>(source);
  const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  if (bytes < head + line) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= line; to += line, from += line, bytes -= line) {
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    auto* const out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();  // before anybody is told
  std::memcpy(to, from, bytes);
#else
  std::memcpy(destination, source, bytes);
#endif
}

}  // namespace runnel::inline RUNNEL_ABI::detail
