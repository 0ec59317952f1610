// SPDX-License-Identifier: Apache-2.0
/// Vector clocks: which operations of which streams precede something.
#pragma once

#include <runnel/config.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace runnel { inline namespace RUNNEL_ABI { namespace checker {

/// One operation: the stream's number in Order, and the operation's number in the stream, from 1.
struct Epoch {
  std::uint32_t stream;
  std::uint64_t number;
};

/// The last preceding operation of each stream; 0 for a stream that is not in the clock.
class Clock {
 public:
  [[nodiscard]] std::uint64_t number_of(std::uint32_t stream) const noexcept {
    const auto found = std::ranges::lower_bound(epochs_, stream, {}, &Epoch::stream);
    return found != epochs_.end() && found->stream == stream ? found->number : 0;
  }

  void add(Epoch epoch) {
    const auto found = std::ranges::lower_bound(epochs_, epoch.stream, {}, &Epoch::stream);
    if (found != epochs_.end() && found->stream == epoch.stream)
      found->number = std::max(found->number, epoch.number);
    else
      epochs_.insert(found, epoch);
  }

  /// Adds the epochs of the other clock for which `is_wanted(epoch)` is true.
  template <class F>
  void join(const Clock& other, F is_wanted) {
    for (const Epoch& each : other.epochs_)
      if (is_wanted(each)) add(each);
  }

  void clear() noexcept { epochs_.clear(); }
  template <class F>
  void for_each(F f) const {
    for (const Epoch& each : epochs_) f(each);
  }
  template <class F>
  void erase_if(F is_unwanted) {
    std::erase_if(epochs_, is_unwanted);
  }

 private:
  std::vector<Epoch> epochs_;  // sorted by stream
};

}}}  // namespace runnel::RUNNEL_ABI::checker
