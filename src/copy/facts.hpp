// SPDX-License-Identifier: Apache-2.0
/// What choose_route() and run() know about the stream and the memory. Most questions cost a
/// runtime call, so they are asked only if the choice needs the answer, and the answers are kept.
#pragma once

#include "base/process.hpp"
#include "copy/request.hpp"
#include "copy/transfer.hpp"
#include "device/scoped_device.hpp"
#include "memory/memory_facts.hpp"
#include "stream/enter_stream.hpp"
#include "stream/slots.hpp"
#include "stream/stream_device.hpp"
#include "stream/uses.hpp"

#include <runnel/config.hpp>
#include <runnel/detail/access.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

enum class Route;

/// One call of the interface: a copy, a batch of copies, or a fill. While it lives, the stream's
/// device is current, because memory that a stream allocated can be reached only then (CUDA,
/// stream-ordered allocator). What is known of the stream is shared by all operations of a batch.
struct CopyCall {
  /// `doing` must be a literal. @throws if the stream is gone, is another thread's default stream,
  /// or the runtime must not be called now
  CopyCall(StreamRef stream, const char* doing)
      : operation{doing},
        slot{enter_and_find(stream, doing)},
        use{&slot, stream.id()},
        device{slot.device, doing},
        ahead{work_ahead(slot)} {}

  [[nodiscard]] StreamRef stream() const noexcept { return Access::ref(&slot, use.id); }

  const char* operation;
  Slot& slot;
  StreamUse use;
  ScopedDevice device;
  AheadScope ahead;
  std::optional<bool> is_capturing{};
  std::optional<bool> is_idle{};
  bool are_sources_kept = false;  // by keep_source_for_later()

 private:
  [[nodiscard]] static Slot& enter_and_find(StreamRef stream, const char* operation) {
    Slot& slot = enter_stream(stream, operation);
    require_own_thread(slot, operation);
    return slot;
  }
};

/// What is known of one request. To ask what kind of memory a side is also counts a use of it by
/// the stream.
class Facts {
 public:
  struct Memory {
    Range range;
    std::optional<MemoryKind> known;
  };
  Facts(CopyCall& call, const CopyRequest& request) noexcept;
  Facts(CopyCall& call, const FillRequest& request) noexcept;

  [[nodiscard]] bool runtime_takes_any_memory() const noexcept;
  [[nodiscard]] MemoryKind to_kind();
  [[nodiscard]] MemoryKind from_kind();
  /// The device whose memory that side is; -1 if it is no device's, or there is only one device.
  [[nodiscard]] int to_owner();
  [[nodiscard]] int from_owner();
  [[nodiscard]] bool are_on_two_devices();
  [[nodiscard]] bool device_reads_pageable();
  [[nodiscard]] bool is_capturing();
  /// Whether the stream takes part in a capture that was not begun with the library, or is broken:
  /// then no Graph would own a host function.
  [[nodiscard]] bool is_captured_elsewhere();
  [[nodiscard]] bool is_idle();
  /// Whether the source may be read at once: the caller says so, or nothing ahead in the stream
  /// writes memory of the host.
  [[nodiscard]] bool may_read_now();
  [[nodiscard]] bool direct_failed() const noexcept { return direct_failed_; }
  [[nodiscard]] bool short_copy_failed() const noexcept { return short_copy_failed_; }

  /// Whether pinned memory may consist of several registrations, or have gaps: the runtime answers
  /// for single addresses only.
  [[nodiscard]] bool may_be_pinned_in_parts() const noexcept;
  /// Whether a side is known to be pageable: the runtime's call for batches takes no such memory.
  /// On a backend whose calls take any memory no kind is asked.
  [[nodiscard]] bool has_pageable_side() const noexcept;
  /// Counts a use of both sides, except of a side whose kind was asked, which has counted it.
  void note_uses();
  /// What run() has found.
  void note_direct_failed() noexcept { direct_failed_ = true; }
  void note_short_copy_failed() noexcept { short_copy_failed_ = true; }
  void note_idle(bool idle) noexcept { call_.is_idle = idle; }
  /// The request has been enqueued, by that route.
  void note_enqueued(Route route);

  [[nodiscard]] CopyCall& call() const noexcept { return call_; }
  [[nodiscard]] Slot& slot() const noexcept { return call_.slot; }
  [[nodiscard]] const char* operation() const noexcept { return call_.operation; }

 private:
  [[nodiscard]] MemoryFacts& facts_of_side(const Memory& memory, std::optional<MemoryFacts>& facts);
  [[nodiscard]] int owner_of_side(const Memory& memory, std::optional<MemoryFacts>& facts);

  CopyCall& call_;
  Memory to_;
  Memory from_;
  SourceAccess source_ = SourceAccess::stream_order;
  std::optional<MemoryFacts> to_facts_{};
  std::optional<MemoryFacts> from_facts_{};
  bool direct_failed_ = false;
  bool short_copy_failed_ = false;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
