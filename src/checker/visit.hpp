// SPDX-License-Identifier: Apache-2.0
/// Compares the uses of an operation with the earlier ones.
#pragma once

#include "backend.hpp"
#include "base/operation.hpp"
#include "checker/order.hpp"
#include "checker/ranges.hpp"
#include "checker/report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace runnel::inline RUNNEL_ABI::checker {

using namespace detail;

inline constexpr size_t max_rows = 4096;  // of a pitched copy; further rows are not checked

/// What the checker knows.
struct History {
  Order order;
  Ranges ranges;
  std::optional<Finding> found;  // The first one of the present operation.
};

[[nodiscard]] inline uintptr_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<uintptr_t>(pointer);
}

/// An operation that uses memory, of a stream or of the host.
struct CheckedOperation {
  std::optional<uint32_t> stream;
  Use use;
  // Uses of operations that were submitted after it may have been noted already.
  bool is_running_function = false;

  bool is_before(const Use& noted, const Order& order) const {
    return is_running_function && order.is_awaited(use.epoch, noted.epoch);
  }
  bool is_ordered(const Use& noted, const Order& order) const {
    return (stream ? order.is_before(noted.epoch, *stream) : order.is_complete(noted.epoch)) ||
           is_before(noted, order);
  }
};

inline constexpr const char* allocating = "allocate device memory";

[[nodiscard]] inline Fault fault_of(const CheckedOperation& operation,
                                    const Use& earlier) noexcept {
  if (!operation.stream) return Fault::host_too_early;
  return earlier.operation == allocating ? Fault::allocated_later : Fault::unordered;
}

class Visit {
 public:
  Visit(History& history, const CheckedOperation& operation) noexcept
      : history_{history}, operation_{operation} {}

  void use(const MemoryUse& side) {
    const size_t rows = std::min(side.rows.height, max_rows);
    for (size_t row = 0; row < rows; ++row) {
      const uintptr_t begin = address_of(side.rows.begin) + row * side.rows.pitch;
      history_.ranges.visit(begin, begin + side.rows.width,
                            [&](uintptr_t at, Segment& segment) { use(side, at, segment); });
    }
  }
  /// For a free or an unpin: reports unfinished uses of the bytes.
  template <class F>
  void require_unused(uintptr_t begin, uintptr_t end, Fault fault, F is_done) {
    history_.ranges.visit(begin, end, [&](uintptr_t at, Segment& segment) {
      compare(MemoryAccess::write, at, segment, is_done, [&](const Use&) { return fault; });
    });
  }

 private:
  void add(Fault fault, const Use& earlier, MemoryAccess earlier_access, MemoryAccess later_access,
           uintptr_t at, const Segment& segment) {
    if (!history_.found)
      history_.found = {fault,        earlier, earlier_access, operation_.stream, operation_.use,
                        later_access, at,      segment.end};
  }

  /// Reports the earlier uses that conflict with the access, unless `is_ordered(use)`.
  template <class F, class G>
  void compare(MemoryAccess access, uintptr_t at, const Segment& segment, F is_ordered, G fault) {
    const auto compare_with = [&](const Use& earlier, MemoryAccess earlier_access) {
      if (!is_ordered(earlier)) add(fault(earlier), earlier, earlier_access, access, at, segment);
    };
    if (segment.last == Segment::Last::written) compare_with(segment.write, MemoryAccess::write);
    if (access == MemoryAccess::write)
      for (const Use& read : segment.reads) compare_with(read, MemoryAccess::read);
  }

  void use(const MemoryUse& side, uintptr_t at, Segment& segment) {
    if (segment.last == Segment::Last::freed) {
      // The memory may have been freed behind the function, which is then allowed.
      if (operation_.is_running_function) return;
      if (!may_be_reused(side, at))
        return add(Fault::used_after_free, segment.write, MemoryAccess::write, side.access, at,
                   segment);
      segment.last = Segment::Last::none;
    }
    compare(
        side.access, at, segment,
        [&](const Use& earlier) { return operation_.is_ordered(earlier, history_.order); },
        [&](const Use& earlier) { return fault_of(operation_, earlier); });
    if (operation_.stream && !side.is_done) note(side.access, segment);
  }

  /// Whether an allocation that the checker has not seen may have the address of freed memory.
  static bool may_be_reused(const MemoryUse& side, uintptr_t at) noexcept {
    if (side.kind && *side.kind != MemoryKind::pageable) return false;
    PointerInfo info{MemoryKind::pageable, Device{0}};
    return backend::pointer_info(info, reinterpret_cast<const void*>(at)) != backend::ok ||
           info.kind == MemoryKind::pageable;
  }

  void note(MemoryAccess access, Segment& segment) {
    const auto is_later = [&](const Use& noted) {
      return operation_.is_before(noted, history_.order);
    };
    if (segment.last == Segment::Last::written && is_later(segment.write)) return;
    if (access == MemoryAccess::write) {
      segment.last = Segment::Last::written;
      segment.write = operation_.use;
      std::erase_if(segment.reads, std::not_fn(is_later));
      return;
    }
    for (Use& read : segment.reads)
      if (read.epoch.stream == operation_.use.epoch.stream) {
        if (!is_later(read)) read = operation_.use;
        return;
      }
    segment.reads.push_back(operation_.use);
  }

  History& history_;
  const CheckedOperation& operation_;
};

}  // namespace runnel::inline RUNNEL_ABI::checker
