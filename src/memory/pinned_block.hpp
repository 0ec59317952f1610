// SPDX-License-Identifier: Apache-2.0
/// A block of pinned memory, and the streams whose work on it must be complete before it is reused.
#pragma once

#include "memory/releaser.hpp"
#include "slot/point.hpp"

#include <runnel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

struct PinnedShelf;
struct PinnedBlock : Deferred {
  std::uintptr_t begin;
  std::size_t bytes;
  PinnedShelf* shelf;
  bool is_in_use = true;  // Else it is in a list of its shelf, or a thread is moving it.
  std::vector<Point> users{};
};

}}}  // namespace runnel::RUNNEL_ABI::detail
