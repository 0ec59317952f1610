// SPDX-License-Identifier: Apache-2.0
/// The last uses of each byte.
#pragma once

#include "checker/clock.hpp"
#include "checker/stacks.hpp"

#include <runnel/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace runnel::inline RUNNEL_ABI::checker {

/// An operation that used some bytes.
struct Use {
  Epoch epoch;
  const char* operation;  // a literal
  StackId stack;
};

/// Adjacent bytes with the same history.
struct Segment {
  uintptr_t end;
  enum class Last : unsigned char { none, written, freed } last = Last::none;
  Use write{};               // what wrote or freed the bytes, unless `last` is none
  std::vector<Use> reads{};  // since then; one for each stream
};

class Ranges {
 public:
  /// Calls `f(begin, segment)` for segments that together cover exactly the bytes from `begin` to
  /// `end`. Splits and creates segments as needed.
  template <class F>
  void visit(uintptr_t begin, uintptr_t end, F f) {
    auto at = split(begin);
    while (begin < end) {
      if (at == segments_.end() || at->first > begin) {
        const uintptr_t gap_end = at == segments_.end() ? end : std::min(end, at->first);
        at = segments_.emplace_hint(at, begin, Segment{.end = gap_end});
      } else if (at->second.end > end) {
        at = std::prev(split(end));
      }
      f(begin, at->second);
      begin = at->second.end;
      ++at;
    }
  }
  void erase(uintptr_t begin, uintptr_t end) {
    // Fast path for memory that is freed and allocated repeatedly: the segment stays.
    if (const auto same = segments_.find(begin);
        same != segments_.end() && same->second.end == end) {
      same->second.last = Segment::Last::none;
      same->second.reads.clear();
      return;
    }
    const auto first = split(begin);
    segments_.erase(first, split(end));
  }
  /// Removes the uses for which `is_unwanted(use)` is true, except frees. Removes segments without
  /// uses.
  template <class F>
  void forget(F is_unwanted) {
    for (auto at = segments_.begin(); at != segments_.end();) {
      Segment& segment = at->second;
      std::erase_if(segment.reads, is_unwanted);
      if (segment.last == Segment::Last::written && is_unwanted(segment.write))
        segment.last = Segment::Last::none;
      at = segment.last == Segment::Last::none && segment.reads.empty() ? segments_.erase(at)
                                                                        : std::next(at);
    }
  }
  size_t size() const noexcept { return segments_.size(); }
  void clear() noexcept { segments_.clear(); }

 private:
  using Map = std::map<uintptr_t, Segment>;  // by the first byte

  /// Splits the segment that contains `address`, if there is one. Returns the first segment at or
  /// after `address`.
  Map::iterator split(uintptr_t address) {
    const auto next = segments_.lower_bound(address);
    if (next == segments_.begin()) return next;
    Segment& before = std::prev(next)->second;
    if (before.end <= address) return next;
    const auto second = segments_.emplace_hint(next, address, before);
    before.end = address;
    return second;
  }

  Map segments_;
};

}  // namespace runnel::inline RUNNEL_ABI::checker
