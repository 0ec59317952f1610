// SPDX-License-Identifier: Apache-2.0
/// Whether operations that have no order among each other use the same bytes.
#pragma once

#include <runnel/config.hpp>
#include <runnel/detail/checking.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace runnel::inline RUNNEL_ABI::checker {

/// What one of the operations reads or writes: the bytes from `begin` to `end`.
struct Access {
  std::uintptr_t begin;
  std::uintptr_t end;
  detail::MemoryAccess access;
  std::size_t operation;
};

/// Two operations that share bytes, at least one of which writes.
struct Conflict {
  Access first;
  Access second;
};

/// Of the accesses seen so far, those that end last: of one operation, and of any other one. An
/// access that begins later meets an access of another operation if and only if it meets one of
/// these two.
class LastEnds {
 public:
  void add(const Access& access) noexcept {
    if (last_ && last_->operation != access.operation && access.end > last_->end) {
      other_ = last_;
      last_ = access;
    } else if (!last_ || last_->operation == access.operation) {
      if (!last_ || access.end > last_->end) last_ = access;
    } else if (!other_ || access.end > other_->end) {
      other_ = access;
    }
  }
  [[nodiscard]] const Access* find(const Access& later) const noexcept {
    for (const std::optional<Access>* each : {&last_, &other_})
      if (*each && (*each)->operation != later.operation && (*each)->end > later.begin)
        return &**each;
    return nullptr;
  }

 private:
  std::optional<Access> last_, other_;
};

/// The first conflict in the order of addresses, if there is any; n log n for n accesses.
[[nodiscard]] inline std::optional<Conflict> find_conflict(std::vector<Access> accesses) {
  std::sort(accesses.begin(), accesses.end(),
            [](const Access& a, const Access& b) { return a.begin < b.begin; });
  LastEnds writes, all;
  for (const Access& each : accesses) {
    const bool is_write = each.access == detail::MemoryAccess::write;
    if (const Access* const met = (is_write ? all : writes).find(each))
      return met->operation < each.operation ? Conflict{*met, each} : Conflict{each, *met};
    all.add(each);
    if (is_write) writes.add(each);
  }
  return std::nullopt;
}

}  // namespace runnel::inline RUNNEL_ABI::checker
