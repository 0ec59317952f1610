// SPDX-License-Identifier: Apache-2.0
/// What copies and fills know about the stream and the memory.
#pragma once

#include "base/process.hpp"
#include "copy/request.hpp"
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
  /// The runtime is asked once.
  [[nodiscard]] bool is_capturing();
  /// Whether the stream takes part in a capture that was not begun with the library, or is broken:
  /// then no Graph would own a host function.
  [[nodiscard]] bool is_captured_elsewhere();
  /// Whether the source of a copy may be read at once: the caller says so, or nothing ahead in the
  /// stream writes memory of the host. `is_busy`: the stream has been found to have work ahead, so
  /// that the runtime need not be asked. Requires: the stream is not being captured.
  [[nodiscard]] bool may_read_now(SourceAccess source, bool is_busy = false);

  const char* operation;
  Slot& slot;
  StreamUse use;
  ScopedDevice device;
  AheadScope ahead;
  bool are_sources_kept = false;  // by keep_source_for_later()

 private:
  [[nodiscard]] static Slot& enter_and_find(StreamRef stream, const char* operation) {
    Slot& slot = enter_stream(stream, operation);
    require_own_thread(slot, operation);
    return slot;
  }
  std::optional<bool> is_capturing_{};
};

[[nodiscard]] inline bool is_host(MemoryKind kind) noexcept {
  return kind == MemoryKind::pageable || kind == MemoryKind::pinned;
}

/// What is known of a request's memory. It does not change once resolve() has found it.
struct CopyFacts {
  /// The sides are not looked at where they do not matter: if there is nothing to do, or the
  /// runtime takes any memory and no policy says otherwise.
  MemoryFacts to{MemoryKind::device, true};
  MemoryFacts from{MemoryKind::device, true};
  bool runtime_takes_any_memory = false;
  bool device_reads_pageable = false;  // pageable memory, through the host's page tables

  [[nodiscard]] bool has_pageable_side() const noexcept {
    return to.kind == MemoryKind::pageable || from.kind == MemoryKind::pageable;
  }
  [[nodiscard]] bool are_both_host() const noexcept {
    return is_host(to.kind) && is_host(from.kind);
  }
  [[nodiscard]] bool are_on_two_devices() const noexcept {
    const int to_owner = to.owner.value_or(-1), from_owner = from.owner.value_or(-1);
    return to_owner >= 0 && from_owner >= 0 && to_owner != from_owner;
  }
  /// Whether pinned memory may consist of several registrations, or have gaps: the runtime answers
  /// for single addresses only.
  [[nodiscard]] bool may_be_pinned_in_parts() const noexcept {
    const auto may_be = [](const MemoryFacts& side) {
      return side.kind == MemoryKind::pinned && !side.in_one_block;
    };
    return may_be(to) || may_be(from);
  }
};
/// Asks the runtime about the memory where that matters, and counts a use of each side by the
/// stream. Requires: the request is valid.
[[nodiscard]] CopyFacts resolve(CopyCall& call, const CopyRequest& request);
[[nodiscard]] CopyFacts resolve(CopyCall& call, const FillRequest& request);

}  // namespace runnel::inline RUNNEL_ABI::detail
