// SPDX-License-Identifier: Apache-2.0
/// Operations of several communicators that are enqueued as one unit.
#pragma once

#include "comm/ccl_state.hpp"

#include <runnel/communicator.hpp>

#include <memory>
#include <span>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {

struct Together::Operations {
  /// Those of the calling thread's together(); null if it is not in one.
  static thread_local constinit Operations* of_this_thread;

  struct Item {
    std::shared_ptr<CclState> state;
    StreamRef stream;
    std::vector<Exchange> steps;
    bool is_captured = false;  // Into a graph.
  };
  void add(std::shared_ptr<CclState> state, StreamRef stream, std::span<const Exchange> steps) {
    items.push_back({std::move(state), stream, {steps.begin(), steps.end()}});
  }

  std::vector<Item> items;
};

}}}  // namespace runnel::RUNNEL_ABI::detail
