// SPDX-License-Identifier: Apache-2.0
/// What copies and fills ask of the memory that they are given.
#pragma once

#include "check.hpp"
#include "pinned_pool.hpp"

#include <runnel/memory_kind.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// @throws errc::invalid_argument for what cannot be `height` (at least 1) rows of `width` (at least 1) bytes
inline void require_rows(const void* pointer, std::size_t pitch, std::size_t width, std::size_t height, const char* operation) {
  if (pointer == nullptr) throw_error(errc::invalid_argument, operation, "a pointer is null but the size is not 0");
  if (pitch < width) throw_error(errc::invalid_argument, operation, "the pitch is smaller than the width of a row");
  std::size_t span = 0;
  std::uintptr_t end = 0;
  if (__builtin_mul_overflow(pitch, height - 1, &span) || __builtin_add_overflow(span, width, &span) ||
      __builtin_add_overflow(reinterpret_cast<std::uintptr_t>(pointer), span, &end))
    throw_error(errc::invalid_argument, operation, "the size runs past the end of the address space");
}

/// Notes that the stream uses the memory, if it is pinned by runnel: it is then handed out to nobody else before the stream has passed.
inline bool note_use(const void* pointer, std::size_t bytes, std::optional<MemoryKind> known, StreamUse use) {
  return (!known || *known == MemoryKind::pinned) && note_pinned_use(pointer, bytes, use);
}

/// The same, and what the memory is, by both its ends: registered memory need not cover all of it.
[[nodiscard]] inline MemoryKind kind_of(const void* pointer, std::size_t bytes, std::optional<MemoryKind> known, StreamUse use,
                                        const char* operation) {
  if (note_use(pointer, bytes, known, use)) return MemoryKind::pinned;
  if (known) return *known;
  PointerInfo info{MemoryKind::pageable, Device{0}};
  check(driver::pointer_info(info, pointer), operation);
  if (info.kind != MemoryKind::pinned) return info.kind;
  check(driver::pointer_info(info, static_cast<const unsigned char*>(pointer) + bytes - 1), operation);
  return info.kind;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
