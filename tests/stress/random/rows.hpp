// SPDX-License-Identifier: Apache-2.0
/// What a row of copies and a list of copies consist of. Both are drawn from a seed, so that a
/// program keeps only the seed and the count, and the first copies of a row stay the same when the
/// shrinker makes it shorter.
#pragma once

#include <algorithm>
#include <utility>

#include "program.hpp"

namespace random_programs {

/// A copy from the operation's `source` to its `buffer`, or back.
struct RowCopy {
  bool back;
  size_t at;         ///< in `buffer`
  size_t source_at;  ///< in `source`
  size_t bytes;
};

/// Copies in stream order, some of which read what earlier ones have written. Requires: size > 0.
inline std::vector<RowCopy> row_copies(unsigned seed, size_t count, size_t size) {
  Random random{seed};
  // bytes of the whole row: many copies of megabytes take long
  size_t budget = size_t{6} << 20;
  const unsigned directions = random.below(5), sizes = random.below(4);
  std::vector<RowCopy> copies;
  repeat(count, [&] {
    // 3 and 4: all in one direction
    const bool turns = directions < 2 ? random.chance(4) : directions == 2 && random.chance(40);
    const bool back = directions < 3 ? (turns != (directions == 1)) : directions == 3;
    const size_t most =
        std::max<size_t>(1, std::min({size, budget, sizes == 0 ? size : size >> (3 * sizes)}));
    const size_t bytes = random.chance(25) ? most : 1 + random.below(most);
    budget -= std::min(budget, bytes);
    copies.push_back({back, random.below(size - bytes + 1), random.below(size - bytes + 1), bytes});
  });
  return copies;
}

/// A copy between a part of `buffer` and a part of `source`, or of `third`. No part occurs twice.
struct ListedCopy {
  bool back;
  bool of_third;
  size_t at;        ///< in `buffer`
  size_t other_at;  ///< in `source` or `third`
  size_t bytes;
};

/// A list without order among its copies: up to `count` blocks, most of them neighbours in
/// `buffer`, in shuffled places of the other side. Requires: size > 0.
inline std::vector<ListedCopy> listed_copies(unsigned seed, size_t count, size_t size) {
  Random random{seed};
  const auto shuffle = [&random](auto& all) {
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  };
  const unsigned directions = random.below(4);
  const size_t equal = std::max<size_t>(1, size / std::max<size_t>(1, count));
  const bool are_equal = random.chance(50);
  std::vector<ListedCopy> blocks;
  for (size_t at = 0; at < size && blocks.size() < count;) {
    const size_t bytes = std::min(size - at, are_equal ? equal : 1 + random.below(2 * equal));
    const bool back = directions < 3 ? directions == 1 : random.chance(50);
    blocks.push_back({back, random.chance(40), at, 0, bytes});
    at += bytes;
  }
  std::vector<ListedCopy*> places;
  for (ListedCopy& each : blocks) places.push_back(&each);
  if (random.chance(70)) shuffle(places);
  size_t other_at = 0;
  for (ListedCopy* const each : places)
    each->other_at = std::exchange(other_at, other_at + each->bytes);
  if (random.chance(70)) shuffle(blocks);
  // gaps
  if (random.chance(50) && blocks.size() > 4) blocks.resize(blocks.size() - blocks.size() / 4);
  return blocks;
}

}  // namespace random_programs
