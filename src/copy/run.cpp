// SPDX-License-Identifier: Apache-2.0
#include "copy/run.hpp"

#include "base/check.hpp"
#include "base/counters.hpp"
#include "copy/short_copy.hpp"
#include "copy/staging/stage.hpp"
#include "device/device_table.hpp"
#include "function/host_writers.hpp"
#include "slot/capture.hpp"
#include "slot/operations.hpp"

#include <runnel/event.hpp>

#include <optional>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Returns false if the runtime refused the memory: runtimes refuse a range that begins in one
/// registration and ends outside it.
[[nodiscard]] bool try_direct(const CopyCall& call, const PlannedCopy& copy) {
  const backend::status s = enqueue_transfer(copy.request.transfer, call.slot.handle);
  if (!copy.facts.runtime_takes_any_memory && failed_with(s, errc::invalid_argument)) return false;
  check(s, call.operation);
  return true;
}

[[nodiscard]] std::optional<CopyResult> run_direct(CopyCall& call, const PlannedCopy& copy) {
  const Transfer& t = copy.request.transfer;
  if (!copy.facts.runtime_takes_any_memory && copy.facts.from.kind == MemoryKind::pinned)
    protect_source(call, t.to, t.bytes());
  if (!copy.facts.may_be_pinned_in_parts())
    check(enqueue_transfer(t, call.slot.handle), call.operation);
  else if (!try_direct(call, copy))
    return std::nullopt;
  return CopyResult::direct;
}

[[nodiscard]] CopyResult run_peer(const CopyCall& call, const PlannedCopy& copy) {
  const Transfer& t = copy.request.transfer;
  for (size_t row = 0; row < t.height; ++row)
    check(backend::copy_peer_async(t.to + row * t.to_pitch, *copy.facts.to.owner,
                                   t.from + row * t.from_pitch, *copy.facts.from.owner, t.width,
                                   call.slot.handle),
          call.operation);
  return CopyResult::direct;
}

/// A copy through pinned memory: by the caller if it `is_short` and that is possible, else staged.
[[nodiscard]] CopyResult run_through_pinned(CopyCall& call, const PlannedCopy& copy,
                                            bool is_short) {
  const Direction direction = copy.direction();
  const bool may_read_now = direction == Direction::to_device &&
                            call.may_read_now(copy.request.source, may_be_written(copy));
  if (is_short && (may_read_now || direction == Direction::to_host) &&
      try_short_copy(call, copy.request.transfer, direction))
    return CopyResult::inlined;
  stage(call.slot, {direction, copy.request.transfer}, may_read_now, call.operation);
  return CopyResult::staged;
}

/// Runtimes may read a pageable source during the call, even if earlier work of the stream has not
/// written it yet.
void wait_until_source_is_written(CopyCall& call, const PlannedCopy& copy) {
  const bool is_read_in_order = copy.facts.runtime_takes_any_memory ||
                                copy.facts.from.kind != MemoryKind::pageable ||
                                copy.facts.device_reads_pageable;
  if (is_read_in_order || call.is_capturing() ||
      call.may_read_now(copy.request.source, may_be_written(copy)))
    return;
  Event{call.stream()}.synchronize();
}

[[nodiscard]] std::optional<CopyResult> run_blocked(CopyCall& call, const PlannedCopy& copy) {
  wait_until_source_is_written(call, copy);
  const ScopedWait wait{call.operation, {.stream = call.key.id}};
  if (!try_direct(call, copy)) return std::nullopt;
  // If the device or the backend reads pageable memory itself, the call does not block. In a
  // capture nothing runs yet.
  const bool returns_early =
      (copy.facts.runtime_takes_any_memory || copy.facts.device_reads_pageable) &&
      !call.is_capturing();
  if (returns_early) {
    check(backend::stream_synchronize(call.slot.handle), call.operation);
    emit_complete(call.slot);
  }
  return CopyResult::blocked;
}

/// Throws the error of a refused route.
[[noreturn]] void refuse(Route route, const CopyCall& call, const CopyFacts& facts) {
  if (route == Route::refused_by_policy)
    throw_error(
        errc::not_permitted, call.operation,
        facts.may_be_pinned_in_parts()
            ? "the policy refuses memory that is pinned in parts, which the runtime cannot "
              "copy at once: use the policy 'stage'"
            : "one side is pageable memory, which the policy refuses: use pinned memory, or "
              "the policy 'stage'");
  throw_in_capture(call.slot, call.operation,
                   "the host moves the bytes once, at the call, which a graph cannot repeat: use "
                   "PinnedBuffer and device memory, or Pageable::block, with which the driver "
                   "holds whoever launches the graph");
}

/// Returns the result, or nothing if the runtime refused the memory. In that case no memory of the
/// caller has changed.
[[nodiscard]] std::optional<CopyResult> run(Route route, CopyCall& call, const PlannedCopy& copy) {
  switch (route) {
    case Route::direct:
      return run_direct(call, copy);
    case Route::peer:
      return run_peer(call, copy);
    case Route::short_copy:
      return run_through_pinned(call, copy, true);
    case Route::staged:
      return run_through_pinned(call, copy, false);
    case Route::host_function:
      call.stream().launch_host_func([transfer = copy.request.transfer] {
        if (const UserAccess access; access.is_allowed()) copy_rows(transfer);
      });
      return CopyResult::staged;
    case Route::blocked:
      return run_blocked(call, copy);
    case Route::nothing:  // not enqueued
    case Route::seeded:   // fills only
    case Route::refused_by_policy:
    case Route::refused_in_capture:
      break;
  }
  refuse(route, call, copy.facts);
}

[[nodiscard]] CopyResult copy_each_row(StreamRef stream, CopyRequest request,
                                       const char* operation) {
  const Transfer t = request.transfer;
  CopyResult result = CopyResult::nothing;
  for (size_t row = 0; row < t.height; ++row) {
    request.transfer = single_row(t.to + row * t.to_pitch, t.from + row * t.from_pitch, t.width);
    result = together(result, copy_request(stream, request, operation));
  }
  return result;
}

}  // namespace

PlannedCopy plan_copy(CopyCall& call, const CopyRequest& request) {
  PlannedCopy copy{request, resolve(call, request), Route::nothing};
  copy.request.transfer = flattened(request.transfer);
  copy.route = choose_route(request, copy.facts, call);
  if (is_refused(copy.route)) refuse(copy.route, call, copy.facts);
  return copy;
}

void grant_pool_access(const CopyCall& call, const CopyFacts& facts) {
  grant_pool_access(call.slot.device, facts.to.owner.value_or(-1), call.operation);
  grant_pool_access(call.slot.device, facts.from.owner.value_or(-1), call.operation);
}

bool may_be_written(const PlannedCopy& copy) noexcept {
  // Devices write memory that is pinned in parts.
  if (copy.facts.from.kind != MemoryKind::pageable) return true;
  const Transfer& t = copy.request.transfer;
  const Range from = range_of_rows(t.from, t.from_pitch, t.width, t.height);
  return host_writers().may_write(from.begin, from.bytes) ||
         has_registered_part(from.begin, from.bytes);
}

void protect_source(CopyCall& call, void* to, size_t bytes) {
  if (!may_be_blocking(call.slot) || bytes > read_at_the_call) [[likely]]
    return;
  if (call.are_sources_protected) return;
  if (call.is_capturing() || call.is_stream_idle()) return;
  check(backend::fill_async(to, 0, 1, 1, call.slot.handle), call.operation);
  call.are_sources_protected = true;
}

CopyResult enqueue_copy(CopyCall& call, const PlannedCopy& copy) {
  if (copy.route != Route::peer) grant_pool_access(call, copy.facts);
  std::optional<CopyResult> done = run(copy.route, call, copy);
  if (!done) done = run(choose_fallback(copy.request, copy.facts, call), call, copy);
  return *done;
}

Operation about_copy(const CopyCall& call, const PlannedCopy& copy) noexcept {
  const CopyRequest& request = copy.request;
  Operation operation = about(call.slot, OperationKind::copy, call.operation);
  operation.to = request.transfer.to;
  operation.from = request.transfer.from;
  operation.bytes = request.transfer.bytes();
  operation.to_kind = request.to_kind;
  operation.from_kind = request.from_kind;
  return operation;
}

std::array<MemoryUse, 2> uses_of(const PlannedCopy& copy, CopyResult done) noexcept {
  const bool at_the_call = done == CopyResult::inlined || done == CopyResult::blocked;
  const Transfer& t = copy.request.transfer;
  const size_t width = copy.route == Route::nothing ? 0 : t.width;
  const auto is_done = [&](const MemoryFacts& side) {
    return at_the_call && side.kind == MemoryKind::pageable;
  };
  return {{{MemoryAccess::read,
            {t.from, t.from_pitch, width, t.height},
            copy.request.from_kind,
            is_done(copy.facts.from)},
           {MemoryAccess::write,
            {t.to, t.to_pitch, width, t.height},
            copy.request.to_kind,
            is_done(copy.facts.to)}}};
}

CopyResult together(CopyResult a, CopyResult b) noexcept {
  for (const CopyResult weaker :
       {CopyResult::staged, CopyResult::direct, CopyResult::inlined, CopyResult::blocked})
    if (a == weaker || b == weaker) return weaker;
  return CopyResult::nothing;
}

CopyResult copy_request(StreamRef stream, const CopyRequest& request, const char* operation) {
  CopyCall call{stream, operation};
  validate(request, operation);
  if (!has_nothing_to_do(request) && !fits_one_copy(request.transfer))
    return copy_each_row(stream, request, operation);
  const PlannedCopy copy = plan_copy(call, request);
  return enqueue_observed(call, copy, [&] { return enqueue_copy(call, copy); });
}

}  // namespace runnel::inline RUNNEL_ABI::detail
