// SPDX-License-Identifier: Apache-2.0
/// Finds unordered operations that use the same bytes.
#pragma once

#include <runnel/config.hpp>
#include <runnel/detail/checking.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI::checker {

/// An operation's access to the bytes from `begin` to `end`.
struct Access {
  uintptr_t begin;
  uintptr_t end;
  detail::MemoryAccess access;
  size_t operation;
};

/// Two operations that share bytes. At least one of them writes.
struct Conflict {
  Access first;
  Access second;
};

/// The two accesses so far with the greatest ends: of one operation, and of any other. Accesses are
/// added in the order of their begins. A later access overlaps an access of another operation if
/// and only if it overlaps one of these two.
class LastEnds {
 public:
  void add(const Access& access) noexcept {
    const bool is_other = last_ && last_->operation != access.operation;
    std::optional<Access>& found = is_other ? other_ : last_;
    if (!found || access.end > found->end) found = access;
    if (other_ && other_->end > last_->end) std::swap(last_, other_);
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

/// The first conflict by address, if there is one. Takes n log n steps for n accesses.
[[nodiscard]] inline std::optional<Conflict> find_conflict(std::vector<Access> accesses) {
  std::ranges::sort(accesses, {}, &Access::begin);
  LastEnds writes, all;
  for (const Access& each : accesses) {
    const bool is_write = each.access == detail::MemoryAccess::write;
    if (const Access* const earlier = (is_write ? all : writes).find(each))
      return earlier->operation < each.operation ? Conflict{*earlier, each}
                                                 : Conflict{each, *earlier};
    all.add(each);
    if (is_write) writes.add(each);
  }
  return std::nullopt;
}

}  // namespace runnel::inline RUNNEL_ABI::checker
