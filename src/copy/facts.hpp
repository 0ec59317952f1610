// SPDX-License-Identifier: Apache-2.0
/// What choose_route() and run() know of the stream and of the memory. Each question costs a runtime call, so it is asked at most once, and
/// only if the choice needs the answer.
#pragma once

#include "copy/request.hpp"
#include "copy/transfer.hpp"
#include "memory/facts.hpp"
#include "stream/slots.hpp"
#include "stream/uses.hpp"

#include <runnel/config.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// Of the stream. The operations of a batch share them.
struct StreamFacts {
  Slot& slot;
  StreamUse use;
  const char* operation;
  std::optional<bool> is_capturing{};
  std::optional<bool> is_idle{};

  StreamFacts(Slot& of, const char* doing) noexcept : slot{of}, use{&of, of.id.load(std::memory_order_relaxed)}, operation{doing} {}
};

/// Of one request. To ask what kind of memory a side is also notes that the stream uses it.
/// Requires: the stream's device is current.
class Facts {
 public:
  struct Memory {
    Range range;
    std::optional<MemoryKind> known;
  };
  Facts(StreamFacts& stream, const CopyRequest& request) noexcept;
  Facts(StreamFacts& stream, const FillRequest& request) noexcept;

  [[nodiscard]] bool runtime_takes_any_memory() const noexcept;
  [[nodiscard]] MemoryKind to_kind();
  [[nodiscard]] MemoryKind from_kind();
  [[nodiscard]] bool are_on_two_devices();
  [[nodiscard]] bool device_reads_pageable();
  [[nodiscard]] bool is_capturing();
  [[nodiscard]] bool is_idle();
  [[nodiscard]] bool direct_failed() const noexcept { return direct_failed_; }
  [[nodiscard]] bool short_copy_failed() const noexcept { return short_copy_failed_; }

  /// Whether pinned memory may consist of several registrations, or have gaps: the runtime answers for single addresses only.
  [[nodiscard]] bool may_be_pinned_in_parts() const noexcept;
  /// Notes the stream's use of both sides, where no question has done so.
  void note_uses();
  /// What run() has found.
  void note_direct_failed() noexcept { direct_failed_ = true; }
  void note_short_copy_failed() noexcept { short_copy_failed_ = true; }
  void note_idle(bool idle) noexcept { stream_.is_idle = idle; }

  [[nodiscard]] Slot& slot() const noexcept { return stream_.slot; }
  [[nodiscard]] std::uint64_t stream_id() const noexcept { return stream_.use.id; }
  [[nodiscard]] const char* operation() const noexcept { return stream_.operation; }

 private:
  [[nodiscard]] const MemoryFacts& facts_of_side(const Memory& memory, std::optional<MemoryFacts>& facts);

  StreamFacts& stream_;
  Memory to_;
  Memory from_;
  std::optional<MemoryFacts> to_facts_{};
  std::optional<MemoryFacts> from_facts_{};
  bool direct_failed_ = false;
  bool short_copy_failed_ = false;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
