// SPDX-License-Identifier: Apache-2.0
#include "copy/facts.hpp"

#include "base/check.hpp"
#include "base/relaxed_capture.hpp"
#include "copy/route.hpp"
#include "copy/user_pages.hpp"
#include "device/device_table.hpp"
#include "stream/capture.hpp"
#include "stream/graph_functions.hpp"
#include "stream/idle.hpp"

namespace runnel::inline RUNNEL_ABI::detail {

Facts::Facts(CopyCall& call, const CopyRequest& request) noexcept
    : call_{call},
      to_{range_of_rows(request.transfer.to, request.transfer.to_pitch, request.transfer.width,
                        request.transfer.height),
          request.to_kind},
      from_{range_of_rows(request.transfer.from, request.transfer.from_pitch,
                          request.transfer.width, request.transfer.height),
            request.from_kind},
      source_{request.source} {}

Facts::Facts(CopyCall& call, const FillRequest& request) noexcept
    : call_{call},
      to_{range_of_rows(request.to, request.pitch, request.width, request.height), request.to_kind},
      from_{} {}

bool Facts::runtime_takes_any_memory() const noexcept {
  return backend::copies_pageable_asynchronously();
}

MemoryFacts& Facts::facts_of_side(const Memory& memory, std::optional<MemoryFacts>& facts) {
  if (facts) return *facts;
  facts =
      facts_of(memory.range.begin, memory.range.bytes, memory.known, call_.use, call_.operation);
  // CUDA does not know memory that is allocated in a capture, not even after the graph's launch
  // (13.0, driver 580, seen on an H100).
  const bool is_unknown = facts->kind == MemoryKind::pageable && !memory.known;
  if (is_unknown && is_capturing() && !is_process_memory(memory.range.begin))
    facts = {MemoryKind::device, false, call_.slot.device};
  return *facts;
}
MemoryKind Facts::to_kind() { return facts_of_side(to_, to_facts_).kind; }
MemoryKind Facts::from_kind() { return facts_of_side(from_, from_facts_).kind; }

bool Facts::may_be_pinned_in_parts() const noexcept {
  const auto may_be = [](const std::optional<MemoryFacts>& facts) {
    return facts && facts->kind == MemoryKind::pinned && !facts->in_one_block;
  };
  return may_be(to_facts_) || may_be(from_facts_);
}

bool Facts::has_pageable_side() const noexcept {
  const auto is_pageable = [](const std::optional<MemoryFacts>& facts) {
    return facts && facts->kind == MemoryKind::pageable;
  };
  return is_pageable(to_facts_) || is_pageable(from_facts_);
}

void Facts::note_uses() {
  if (!to_facts_) note_use(to_.range.begin, to_.range.bytes, to_.known, call_.use);
  if (!from_facts_ && from_.range.begin != nullptr)
    note_use(from_.range.begin, from_.range.bytes, from_.known, call_.use);
}

int Facts::owner_of_side(const Memory& memory, std::optional<MemoryFacts>& facts) {
  if (single_device()) return -1;
  MemoryFacts& known = facts_of_side(memory, facts);
  if (known.kind != MemoryKind::device) return -1;
  if (!known.owner) {
    PointerInfo info{MemoryKind::pageable, Device{0}};
    check(backend::pointer_info(info, memory.range.begin), operation());
    known.owner = owner_of(info);
  }
  return *known.owner;
}
int Facts::to_owner() { return owner_of_side(to_, to_facts_); }
int Facts::from_owner() { return owner_of_side(from_, from_facts_); }

bool Facts::are_on_two_devices() {
  const int to = to_owner();
  const int from = from_owner();
  return to >= 0 && from >= 0 && to != from;
}

bool Facts::device_reads_pageable() { return reads_host_page_tables(call_.slot.device); }

bool Facts::is_capturing() {
  if (!call_.is_capturing) call_.is_capturing = detail::is_capturing(call_.slot, call_.operation);
  return *call_.is_capturing;
}

bool Facts::is_captured_elsewhere() {
  if (!is_capturing()) return false;
  std::uint64_t number = 0;
  check(backend::stream_capture_number(call_.slot.handle, number), operation());
  return find_capture(number).number == 0;
}

bool Facts::is_idle() {
  if (call_.ahead.known() == Ahead::idle) return true;
  if (!call_.is_idle) {
    call_.is_idle = internal_call([&] { return detail::is_idle(call_.slot, call_.operation); });
    if (*call_.is_idle) call_.ahead.found_idle();
  }
  return *call_.is_idle;
}

bool Facts::may_read_now() {
  return source_ == SourceAccess::any_time || call_.ahead.known() != Ahead::unknown || is_idle();
}

void Facts::note_enqueued(Route route) {
  AheadScope& ahead = call_.ahead;
  switch (route) {
    case Route::nothing:
      return ahead.leaves(ahead.known());
    case Route::direct:
    case Route::driver_reads:
    case Route::short_copy:
    case Route::staged:
      if (runtime_takes_any_memory()) return;
      if (to_kind() == MemoryKind::device)
        return ahead.leaves(ahead.known() == Ahead::unknown ? Ahead::unknown : Ahead::uploads);
      // A short copy to the host has waited until the bytes had come. One to managed memory has
      // not, and writes what the host can read.
      return ahead.leaves(route == Route::short_copy && is_host(to_kind()) ? Ahead::idle
                                                                           : Ahead::unknown);
    default:
      return ahead.leaves(Ahead::unknown);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
