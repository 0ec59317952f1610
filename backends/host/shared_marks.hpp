// SPDX-License-Identifier: Apache-2.0
/// The records of an interprocess event.
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

/// Numbers the records of all processes, and stores which are complete. Each pending record has its
/// own slot, so that no record waits for another one, whose process may have ended before its work.
/// Completing a record wakes no thread: waiting threads poll.
class SharedMarks {
 public:
  /// @throws std::bad_alloc
  SharedMarks() : memory_{SharedMemory::make(sizeof(Page))} {}
  /// Requires: the memory was created by the other constructor, in this or another process, and has
  /// at least bytes() bytes.
  explicit SharedMarks(SharedMemory memory) noexcept : memory_{std::move(memory)} {}

  [[nodiscard]] static constexpr std::size_t bytes() noexcept { return sizeof(Page); }
  [[nodiscard]] const SharedMemory& memory() const noexcept { return memory_; }

  /// The number of the last record; 0 if there is none.
  [[nodiscard]] std::uint64_t last() const noexcept {
    return Number{page().recorded}.load(std::memory_order_acquire);
  }
  /// The number of a new record. complete() must follow.
  /// @throws std::bad_alloc if no slot is free
  [[nodiscard]] std::uint64_t begin() const {
    // Usually the first slot is free, so that only one page of the memory is used. Otherwise the
    // search begins after the slot of the last record.
    const std::uint64_t after = last() % slot_count;
    for (std::uint64_t i = 0; i < slot_count; ++i) {
      const std::uint64_t at = i == 0 ? 0 : (after + i) % slot_count;
      std::uint64_t state = slot(at).load(std::memory_order_relaxed);
      if (state % 2 != 0 ||
          !slot(at).compare_exchange_strong(state, state + 1, std::memory_order_acq_rel))
        continue;
      const std::uint64_t number = (state + 1) * slot_count + at;
      Number{page().recorded}.store(number, std::memory_order_release);
      return number;
    }
    throw std::bad_alloc{};
  }
  [[nodiscard]] bool is_complete(std::uint64_t number) const noexcept {
    return number == 0 ||
           slot(number % slot_count).load(std::memory_order_acquire) > number / slot_count;
  }
  void complete(std::uint64_t number) const noexcept {
    slot(number % slot_count).store(number / slot_count + 1, std::memory_order_release);
  }
  void wait_for(std::uint64_t number) const {
    static_cast<void>(poll_until([&] { return is_complete(number); }, [] { return false; }));
  }

 private:
  using Number = sync::AtomicRef<std::uint64_t>;
  // More than the number of tasks in a stream's queue.
  static constexpr std::size_t slot_count = std::size_t{1} << 17;
  struct Page {
    std::uint64_t recorded;
    std::uint64_t states[slot_count];  // odd: the record of this slot is pending
  };

  [[nodiscard]] Page& page() const noexcept { return *static_cast<Page*>(memory_.data()); }
  [[nodiscard]] Number slot(std::uint64_t at) const noexcept { return Number{page().states[at]}; }

  SharedMemory memory_;
};

}  // namespace runnel::inline RUNNEL_ABI::host
