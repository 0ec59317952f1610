// SPDX-License-Identifier: Apache-2.0
#include "copy/facts.hpp"

#include "base/check.hpp"
#include "base/relaxed_capture.hpp"
#include "device/device_table.hpp"
#include "stream/capture.hpp"
#include "stream/idle.hpp"

namespace runnel::inline RUNNEL_ABI::detail {

Facts::Facts(StreamFacts& stream, const CopyRequest& request) noexcept
    : stream_{stream},
      to_{range_of_rows(request.transfer.to, request.transfer.to_pitch, request.transfer.width, request.transfer.height), request.to_kind},
      from_{range_of_rows(request.transfer.from, request.transfer.from_pitch, request.transfer.width, request.transfer.height),
            request.from_kind} {}

Facts::Facts(StreamFacts& stream, const FillRequest& request) noexcept
    : stream_{stream}, to_{range_of_rows(request.to, request.pitch, request.width, request.height), request.to_kind}, from_{} {}

bool Facts::runtime_takes_any_memory() const noexcept { return backend::copies_pageable_asynchronously(); }

const MemoryFacts& Facts::facts_of_side(const Memory& memory, std::optional<MemoryFacts>& facts) {
  if (!facts) facts = facts_of(memory.range.begin, memory.range.bytes, memory.known, stream_.use, stream_.operation);
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

void Facts::note_uses() {
  if (!to_facts_) note_use(to_.range.begin, to_.range.bytes, to_.known, stream_.use);
  if (!from_facts_ && from_.range.begin != nullptr) note_use(from_.range.begin, from_.range.bytes, from_.known, stream_.use);
}

bool Facts::are_on_two_devices() {
  if (single_device()) return false;
  PointerInfo to{MemoryKind::pageable, Device{0}};
  PointerInfo from = to;
  check(backend::pointer_info(to, to_.range.begin), operation());
  check(backend::pointer_info(from, from_.range.begin), operation());
  return to.kind == MemoryKind::device && from.kind == MemoryKind::device && to.device != from.device;
}

bool Facts::device_reads_pageable() { return reads_host_page_tables(stream_.slot.device); }

bool Facts::is_capturing() {
  if (!stream_.is_capturing) stream_.is_capturing = detail::is_capturing(stream_.slot, stream_.operation);
  return *stream_.is_capturing;
}

bool Facts::is_idle() {
  if (!stream_.is_idle) {
    const RelaxedCapture relaxed;  // the question is the library's own: it must not invalidate a capture of the caller
    stream_.is_idle = detail::is_idle(stream_.slot, stream_.operation);
  }
  return *stream_.is_idle;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
