// SPDX-License-Identifier: Apache-2.0
/// Properties of memory ranges that copies and fills need.
#pragma once

#include "base/check.hpp"
#include "memory/pinned_pool.hpp"
#include "slot/point.hpp"

#include <runnel/memory_kind.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// @throws errc::invalid_argument unless the memory can be `height` (at least 1) rows of `width`
/// (at least 1) bytes
inline void require_rows(const void* pointer, size_t pitch, size_t width, size_t height,
                         const char* operation) {
  if (pointer == nullptr)
    throw_invalid_argument(operation, "a pointer is null but the size is not 0");
  if (pitch < width)
    throw_invalid_argument(operation, "the pitch is smaller than the width of a row");
  size_t span = 0;
  uintptr_t end = 0;
  if (__builtin_mul_overflow(pitch, height - 1, &span) ||
      __builtin_add_overflow(span, width, &span) ||
      __builtin_add_overflow(reinterpret_cast<uintptr_t>(pointer), span, &end))
    throw_invalid_argument(operation, "the size runs past the end of the address space");
}

/// If the memory belongs to the pinned pool, records a use by the stream: the block is not reused
/// before the stream's work on it is complete. Returns whether all of the bytes are in one block.
/// Requires: the stream's device is current if its handle needs that.
inline bool note_use(const void* pointer, size_t bytes, std::optional<MemoryKind> known,
                     StreamKey use) {
  return (!known || *known == MemoryKind::pinned) && note_pinned_use(pointer, bytes, use);
}

/// Whether a HostRegistration covers any of the bytes. Devices may write those.
bool has_registered_part(const void* pointer, size_t bytes) noexcept;

/// Properties of a range of memory. It is treated as pinned only if its first and last byte are,
/// because a registration may cover only a part of it.
struct MemoryFacts {
  MemoryKind kind;
  /// False if the kind comes from the runtime, which can be queried only for single addresses.
  /// Memory that is pinned at both ends may then have a gap, or span two registrations, and the
  /// runtime may refuse to copy it.
  bool in_one_block;
  /// The device that the memory belongs to; -1 for host and managed memory; empty if it was not
  /// queried.
  std::optional<int> owner{};
};

inline int owner_of(const PointerInfo& info) noexcept {
  return info.kind == MemoryKind::device ? info.device.ordinal() : -1;
}

/// As note_use(), and determines the kind of the memory.
inline MemoryFacts facts_of(const void* pointer, size_t bytes, std::optional<MemoryKind> known,
                            StreamKey use, const char* operation) {
  if (note_use(pointer, bytes, known, use)) return {MemoryKind::pinned, true};
  if (known) return {*known, true};
  PointerInfo info{MemoryKind::pageable, Device{0}};
  check(backend::pointer_info(info, pointer), operation);
  if (info.kind == MemoryKind::pinned)
    check(backend::pointer_info(info, static_cast<const unsigned char*>(pointer) + bytes - 1),
          operation);
  return {info.kind, false, owner_of(info)};
}

}  // namespace runnel::inline RUNNEL_ABI::detail
