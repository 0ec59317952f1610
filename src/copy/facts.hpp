// SPDX-License-Identifier: Apache-2.0
/// What copies and fills know about the stream and the memory.
#pragma once

#include "copy/request.hpp"
#include "device/scoped_device.hpp"
#include "memory/memory_facts.hpp"
#include "slot/enter_stream.hpp"
#include "slot/point.hpp"
#include "slot/slots.hpp"

#include <runnel/config.hpp>
#include <runnel/detail/access.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {

/// One call of the interface: a copy, a batch of copies, or a fill. While the object lives, the
/// stream's device is current: CUDA can reach stream-ordered memory only then. All operations of a
/// batch share the object, and so what it knows about the stream.
struct CopyCall {
  /// `doing` must be a literal. @throws if the stream has ended, if it is another thread's default
  /// stream, or if the runtime must not be called now
  CopyCall(StreamRef stream, const char* doing)
      : operation{doing},
        slot{enter_stream(stream, doing)},
        key{key_of(stream)},
        device{slot.device, doing} {
    require_own_thread(slot, doing);
    mark_if_asked(slot);
  }

  StreamRef stream() const noexcept { return view_of(key); }
  /// Queries the runtime the first time only.
  bool is_capturing();
  /// Whether pageable sources may be read at once: the caller allows it, no unfinished work can
  /// write them, or the stream is idle. `may_be_written`: the answer of host_writers(). Requires:
  /// the stream is not being captured.
  bool may_read_now(SourceAccess source, bool may_be_written) const;
  /// Queries the runtime.
  bool is_stream_idle() const;

  const char* operation;
  Slot& slot;
  StreamKey key;
  ScopedDevice device;
  bool are_sources_protected = false;  // by protect_source()

 private:
  std::optional<bool> is_capturing_{};
};

inline bool is_host(MemoryKind kind) noexcept {
  return kind == MemoryKind::pageable || kind == MemoryKind::pinned;
}

/// The facts about a request's memory. They do not change after resolve().
struct CopyFacts {
  /// Both stay as they are here if they do not matter: there is nothing to do, or the runtime
  /// takes any memory and the policy is Pageable::stage.
  MemoryFacts to{MemoryKind::device, true};
  MemoryFacts from{MemoryKind::device, true};
  bool runtime_takes_any_memory = false;
  bool device_reads_pageable = false;  // through the host's page tables

  bool has_pageable_side() const noexcept {
    return to.kind == MemoryKind::pageable || from.kind == MemoryKind::pageable;
  }
  bool are_both_host() const noexcept { return is_host(to.kind) && is_host(from.kind); }
  bool are_on_two_devices() const noexcept {
    const int to_owner = to.owner.value_or(-1), from_owner = from.owner.value_or(-1);
    return to_owner >= 0 && from_owner >= 0 && to_owner != from_owner;
  }
  /// Whether pinned memory may consist of several registrations, or have gaps. The runtime answers
  /// for single addresses only.
  bool may_be_pinned_in_parts() const noexcept {
    const auto may_be = [](const MemoryFacts& side) {
      return side.kind == MemoryKind::pinned && !side.in_one_block;
    };
    return may_be(to) || may_be(from);
  }
};
/// Queries the runtime about the memory if that matters, and counts a use of each side by the
/// stream. Requires: the request is valid.
CopyFacts resolve(CopyCall& call, const CopyRequest& request);
CopyFacts resolve(CopyCall& call, const FillRequest& request);

}  // namespace runnel::inline RUNNEL_ABI::detail
