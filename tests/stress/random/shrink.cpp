// SPDX-License-Identifier: Apache-2.0
#include "shrink.hpp"

#include <algorithm>
#include <initializer_list>

namespace random_programs {
namespace {

/// Removes groups of `size` neighbours where the rest still fails. Returns whether something was
/// removed.
bool remove_groups(Program& program, size_t size,
                   const std::function<bool(const Program&)>& fails) {
  bool removed = false;
  for (size_t end = program.operations.size(); end > 0;) {
    const size_t begin = end > size ? end - size : 0;
    Program candidate = program;
    candidate.operations.erase(candidate.operations.begin() + static_cast<long>(begin),
                               candidate.operations.begin() + static_cast<long>(end));
    if (fails(candidate)) {
      program = std::move(candidate);
      removed = true;
    }
    end = std::min(begin, program.operations.size());
  }
  return removed;
}

/// Applies a change to each operation where the program still fails.
template <class Change>
void simplify(Program& program, const std::function<bool(const Program&)>& fails, Change change) {
  for (size_t i : range(program.operations.size())) {
    Program candidate = program;
    if (!change(candidate.operations[i]) || !fails(candidate)) continue;
    program = std::move(candidate);
  }
}

}  // namespace

Program shrink(Program program, const std::function<bool(const Program&)>& fails) {
  for (size_t size = program.operations.size() / 2; size > 1; size /= 2)
    remove_groups(program, size, fails);
  while (remove_groups(program, 1, fails)) {
  }
  if (program.threads > 1) {
    Program candidate = program;
    candidate.threads = 1;
    for (Operation& o : candidate.operations) o.thread = 0;
    if (fails(candidate)) program = std::move(candidate);
  }
  simplify(program, fails, [](Operation& o) {
    const bool visits = o.visit != 0;
    o.visit = 0;
    return visits;
  });
  for (unsigned part = 1; part < all_parts; part *= 2)
    simplify(program, fails, [part](Operation& o) {
      const bool has_part = (o.parts & part) != 0;
      o.parts &= ~part;
      return has_part;
    });
  const auto shorten = [&](size_t divisor) {
    simplify(program, fails, [divisor](Operation& o) {
      if ((o.verb != Verb::row && o.verb != Verb::list) || o.height < 2) return false;
      o.height -= std::max<size_t>(1, o.height / divisor);
      return true;
    });
  };
  const std::initializer_list<size_t> divisors{2, 2, 2, 2, 2, 2, 2, 4, 4, 4, 8, 8, 16, 32};
  for (const size_t divisor : divisors) shorten(divisor);
  return program;
}

}  // namespace random_programs
