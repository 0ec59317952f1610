// SPDX-License-Identifier: Apache-2.0
#include "copy/request.hpp"

#include "base/check.hpp"
#include "memory/memory_facts.hpp"

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Whether any row of one side shares bytes with a row of the other side. Requires: at least one
/// row.
[[nodiscard]] bool sides_overlap(const Transfer& t) noexcept {
  // If the ranges overlap, the rows may be disjoint, as in two blocks of columns of one matrix.
  return do_overlap(range_of_rows(t.to, t.to_pitch, t.width, t.height),
                    range_of_rows(t.from, t.from_pitch, t.width, t.height)) &&
         do_rows_overlap(
             t.height, t.width, [&](size_t row) { return t.to + row * t.to_pitch; },
             [&](size_t row) { return t.from + row * t.from_pitch; });
}

}  // namespace

void validate(const CopyRequest& request, const char* operation) {
  const Transfer& t = request.transfer;
  if (t.width == 0 || t.height == 0) return;
  require_rows(t.to, t.to_pitch, t.width, t.height, operation);
  require_rows(t.from, t.from_pitch, t.width, t.height, operation);
  if (!has_nothing_to_do(request) && sides_overlap(t))
    throw_invalid_argument(operation, "source and destination overlap in part");
}

void validate(const FillRequest& request, const char* operation) {
  if (!has_nothing_to_do(request))
    require_rows(request.to, request.pitch, request.width, request.height, operation);
}

}  // namespace runnel::inline RUNNEL_ABI::detail
