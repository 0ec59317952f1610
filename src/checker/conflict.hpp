// SPDX-License-Identifier: Apache-2.0
/// Finds unordered operations that use the same bytes.
#pragma once

#include <runnel/config.hpp>
#include <runnel/detail/checking.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace checker {

/// An operation's access to the bytes from `begin` to `end`.
struct Access {
  std::uintptr_t begin;
  std::uintptr_t end;
  detail::MemoryAccess access;
  std::size_t operation;
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

}}}  // namespace runnel::RUNNEL_ABI::checker
