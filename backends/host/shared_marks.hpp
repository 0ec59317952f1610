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
#include <new>
#include <utility>

namespace runnel::inline RUNNEL_ABI::host {

/// Numbers the records of all processes, and keeps which are complete. Each pending record has its
/// own place, so that no record waits for another one, whose process may have ended before its
/// work. Completing a record wakes no thread: threads that wait poll.
class SharedMarks {
 public:
  /// @throws std::bad_alloc
  SharedMarks() : memory_{SharedMemory::make(sizeof(Page))} {}
  /// Requires: the memory was made by the other constructor, in this process or another one, and
  /// has at least bytes() bytes.
  explicit SharedMarks(SharedMemory memory) noexcept : memory_{std::move(memory)} {}

  [[nodiscard]] static constexpr std::size_t bytes() noexcept { return sizeof(Page); }
  [[nodiscard]] const SharedMemory& memory() const noexcept { return memory_; }

  /// The number of the last record; 0 if there is none.
  [[nodiscard]] std::uint64_t last() const noexcept {
    return Number{page().recorded}.load(std::memory_order_acquire);
  }
  /// The number of a new record, which complete() must follow. @throws std::bad_alloc if all places
  /// are taken
  [[nodiscard]] std::uint64_t begin() const {
    // Mostly the first place is free: then one page of the memory is used. Else those after the
    // last record are looked at first.
    const std::uint64_t after = last() % places;
    for (std::uint64_t i = 0; i < places; ++i) {
      const std::uint64_t at = i == 0 ? 0 : (after + i) % places;
      std::uint64_t turn = place(at).load(std::memory_order_relaxed);
      if (turn % 2 != 0 ||
          !place(at).compare_exchange_strong(turn, turn + 1, std::memory_order_acq_rel))
        continue;
      const std::uint64_t number = (turn + 1) * places + at;
      Number{page().recorded}.store(number, std::memory_order_release);
      return number;
    }
    throw std::bad_alloc{};
  }
  [[nodiscard]] bool is_complete(std::uint64_t number) const noexcept {
    return number == 0 || place(number % places).load(std::memory_order_acquire) > number / places;
  }
  void complete(std::uint64_t number) const noexcept {
    place(number % places).store(number / places + 1, std::memory_order_release);
  }
  void wait_for(std::uint64_t number) const {
    static_cast<void>(poll_until([&] { return is_complete(number); }, [] { return false; }));
  }

 private:
  using Number = sync::AtomicRef<std::uint64_t>;
  // more than a stream's queue holds tasks
  static constexpr std::size_t places = std::size_t{1} << 17;
  struct Page {
    std::uint64_t recorded;
    std::uint64_t turns[places];  // odd: a record is pending here
  };

  [[nodiscard]] Page& page() const noexcept { return *static_cast<Page*>(memory_.data()); }
  [[nodiscard]] Number place(std::uint64_t at) const noexcept { return Number{page().turns[at]}; }

  SharedMemory memory_;
};

}  // namespace runnel::inline RUNNEL_ABI::host
