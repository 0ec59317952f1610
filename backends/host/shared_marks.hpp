// SPDX-License-Identifier: Apache-2.0
/// The records of an event that several processes share.
#pragma once

#include "shared_memory.hpp"
#include "spin.hpp"

#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace runnel::inline RUNNEL_ABI::host {

/// Numbers the records of all processes from 1, and keeps which are complete. Completing a record wakes no thread: threads that wait poll.
class SharedMarks {
 public:
  /// @throws std::bad_alloc
  SharedMarks() : memory_{SharedMemory::make(sizeof(Page))} {}
  /// Requires: the memory was made by the other constructor, in this process or another one, and has at least bytes() bytes.
  explicit SharedMarks(SharedMemory memory) noexcept : memory_{std::move(memory)} {}

  [[nodiscard]] static constexpr std::size_t bytes() noexcept { return sizeof(Page); }
  [[nodiscard]] const SharedMemory& memory() const noexcept { return memory_; }

  /// The number of the last record; 0 if there is none.
  [[nodiscard]] std::uint64_t last() const noexcept { return Number{page().recorded}.load(std::memory_order_acquire); }
  /// The number of a new record, which complete() must follow.
  [[nodiscard]] std::uint64_t begin() const noexcept { return Number{page().recorded}.fetch_add(1, std::memory_order_acq_rel) + 1; }
  [[nodiscard]] bool is_complete(std::uint64_t number) const noexcept {
    return number == 0 || place_of(number).load(std::memory_order_acquire) >= number;
  }
  /// Waits for the record that had the same place before, if that is not complete yet.
  void complete(std::uint64_t number) const {
    if (number > places) wait_for(number - places);
    place_of(number).store(number, std::memory_order_release);
  }
  void wait_for(std::uint64_t number) const {
    static_cast<void>(poll_until([&] { return is_complete(number); }, [] { return false; }));
  }

 private:
  using Number = sync::AtomicRef<std::uint64_t>;
  static constexpr std::size_t places = 511;
  struct Page {
    std::uint64_t recorded;
    std::uint64_t complete[places];  // by number % places: the last such number that is complete
  };

  [[nodiscard]] Page& page() const noexcept { return *static_cast<Page*>(memory_.data()); }
  [[nodiscard]] Number place_of(std::uint64_t number) const noexcept { return Number{page().complete[number % places]}; }

  SharedMemory memory_;
};

}  // namespace runnel::inline RUNNEL_ABI::host
