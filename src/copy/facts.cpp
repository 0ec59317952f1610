// SPDX-License-Identifier: Apache-2.0
#include "copy/facts.hpp"

#include "base/check.hpp"
#include "base/relaxed_capture.hpp"
#include "copy/user_pages.hpp"
#include "device/device_table.hpp"
#include "slot/capture.hpp"
#include "slot/idle.hpp"

namespace runnel::inline RUNNEL_ABI::detail {

namespace {

/// Whether other code could enqueue a writer of pageable memory that host_writers() does not know:
/// a kernel, or a copy that is not complete when its call returns.
bool may_have_unknown_writers(const Slot& slot) {
  return !backend::copies_to_pageable_are_complete() || accesses_pageable_memory(slot.device);
}

/// The result is a parameter, because returning it takes 5 ns longer: the processor stalls if it
/// copies as a whole what was just written in parts.
void find_facts(MemoryFacts& side, CopyCall& call, Range range, std::optional<MemoryKind> known) {
  side = facts_of(range.begin, range.bytes, known, call.key, call.operation);
  // CUDA reports memory that a capture allocates as unknown, even after the launch of the graph
  // (13.0, driver 580, seen on an H100).
  if (side.kind == MemoryKind::pageable && !known && call.is_capturing() &&
      !is_process_memory(range.begin))
    side = {MemoryKind::device, false, call.slot.device};
  if (side.kind == MemoryKind::device && !side.owner && !single_device()) {
    PointerInfo info{MemoryKind::pageable, Device{0}};
    check(backend::pointer_info(info, range.begin), call.operation);
    side.owner = owner_of(info);
  }
}

/// Counts a use where the runtime takes any memory. Device memory that is none would fail on a GPU
/// only, so that is looked up.
void note_side(const CopyCall& call, Range range, std::optional<MemoryKind> known) {
  if (known == MemoryKind::device) {
    PointerInfo info{MemoryKind::device, Device{0}};
    check(backend::pointer_info(info, range.begin), call.operation);
    if (info.kind == MemoryKind::pageable)
      throw_invalid_argument(
          call.operation,
          "a DeviceSpan, or a kind in the options, says that memory of the host is of a device");
  }
  note_use(range.begin, range.bytes, known, call.key);
}

/// `matters`: the choice of the route depends on the facts.
void resolve_side(MemoryFacts& side, CopyCall& call, Range range, std::optional<MemoryKind> known,
                  bool matters) {
  matters ? find_facts(side, call, range, known) : note_side(call, range, known);
}

}  // namespace

bool CopyCall::is_capturing() {
  if (!is_capturing_) is_capturing_ = detail::is_capturing(slot, operation);
  return *is_capturing_;
}

bool CopyCall::may_read_now(SourceAccess source, bool may_be_written) const {
  if (source == SourceAccess::any_time) return true;
  if (source == SourceAccess::automatic && !may_be_written && !may_have_unknown_writers(slot))
    return true;
  return is_stream_idle();
}

bool CopyCall::is_stream_idle() const {
  return internal_call([&] { return is_idle(slot, operation); });
}

CopyFacts resolve(CopyCall& call, const CopyRequest& request) {
  CopyFacts facts{.runtime_takes_any_memory = backend::copies_pageable_asynchronously()};
  if (has_nothing_to_do(request)) return facts;
  const Transfer& t = request.transfer;
  const bool matters = !facts.runtime_takes_any_memory || request.policy != Pageable::stage;
  resolve_side(facts.to, call, range_of_rows(t.to, t.to_pitch, t.width, t.height), request.to_kind,
               matters);
  resolve_side(facts.from, call, range_of_rows(t.from, t.from_pitch, t.width, t.height),
               request.from_kind, matters);
  facts.device_reads_pageable = !facts.runtime_takes_any_memory && facts.has_pageable_side() &&
                                reads_host_page_tables(call.slot.device);
  return facts;
}

CopyFacts resolve(CopyCall& call, const FillRequest& request) {
  CopyFacts facts{.runtime_takes_any_memory = backend::copies_pageable_asynchronously()};
  if (has_nothing_to_do(request)) return facts;
  resolve_side(facts.to, call,
               range_of_rows(request.to, request.pitch, request.width, request.height),
               request.to_kind, !facts.runtime_takes_any_memory);
  return facts;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
