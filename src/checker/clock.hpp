// SPDX-License-Identifier: Apache-2.0
/// Vector clocks: which operations of which streams precede something.
#pragma once

#include <runnel/config.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace runnel::inline RUNNEL_ABI::checker {

/// One operation: the stream's number in Order, and the operation's number in the stream, from 1.
struct Epoch {
  uint32_t stream;
  uint64_t number;
};

/// The last preceding operation of each stream; 0 for a stream that is not in the clock.
struct Clock {
  std::vector<Epoch> epochs;  // sorted by stream

  uint64_t number_of(uint32_t stream) const noexcept {
    const auto found = std::ranges::lower_bound(epochs, stream, {}, &Epoch::stream);
    return found != epochs.end() && found->stream == stream ? found->number : 0;
  }
  void add(Epoch epoch) {
    const auto found = std::ranges::lower_bound(epochs, epoch.stream, {}, &Epoch::stream);
    if (found != epochs.end() && found->stream == epoch.stream)
      found->number = std::max(found->number, epoch.number);
    else
      epochs.insert(found, epoch);
  }
};

}  // namespace runnel::inline RUNNEL_ABI::checker
