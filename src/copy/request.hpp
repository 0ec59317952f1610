// SPDX-License-Identifier: Apache-2.0
/// The arguments of a copy or a fill, as data. Flat copies, pitched copies, operations of a batch
/// and fills all become a request. validate(), resolve() and choose_route() treat all of them
/// alike.
#pragma once

#include "copy/transfer.hpp"

#include <runnel/copy.hpp>
#include <runnel/memory_kind.hpp>

#include <cstddef>
#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

struct CopyRequest {
  Transfer transfer;
  std::optional<MemoryKind> to_kind;    // if the caller knows it
  std::optional<MemoryKind> from_kind;  // if the caller knows it
  Pageable policy;
  SourceAccess source = SourceAccess::automatic;
};

inline CopyRequest request_of(const Transfer& transfer, const CopyOptions& options) noexcept {
  return {transfer, options.to_kind, options.from_kind, options.pageable, options.source};
}

/// Repeats the element in each of `height` rows of `width` bytes. Requires: width is a multiple of
/// element_bytes.
struct FillRequest {
  unsigned char* to;
  size_t pitch;
  size_t width;
  size_t height;
  const unsigned char* element;
  size_t element_bytes;
  std::optional<MemoryKind> to_kind;  // if the caller knows it
};

/// Whether there are no bytes, or the source and the destination are the same bytes.
inline bool has_nothing_to_do(const CopyRequest& request) noexcept {
  const Transfer& t = request.transfer;
  const bool is_same =
      t.to == t.from && (t.height == 1 || t.to_pitch == t.from_pitch) && t.to != nullptr;
  return t.width == 0 || t.height == 0 || is_same;
}
inline bool has_nothing_to_do(const FillRequest& request) noexcept {
  return request.width == 0 || request.height == 0;
}

/// @throws errc::invalid_argument for a null pointer, a pitch below the width, a range that runs
/// past the end of the address space, or sides that overlap in part
void validate(const CopyRequest& request, const char* operation);
void validate(const FillRequest& request, const char* operation);

}  // namespace runnel::inline RUNNEL_ABI::detail
