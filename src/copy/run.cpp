// SPDX-License-Identifier: Apache-2.0
#include "copy/run.hpp"

#include "base/check.hpp"
#include "base/relaxed_capture.hpp"
#include "copy/short_copy.hpp"
#include "copy/staging/stage.hpp"
#include "device/device_table.hpp"
#include "stream/capture.hpp"
#include "stream/idle.hpp"
#include "stream/operations.hpp"

#include <runnel/event.hpp>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

[[nodiscard]] Direction direction_of(Facts& facts) {
  return is_host(facts.to_kind()) ? Direction::to_host : Direction::to_device;
}

/// False if the runtime refused the memory. Runtimes refuse a range that begins in one registration
/// and ends outside it.
[[nodiscard]] bool try_direct(const CopyRequest& request, Facts& facts) {
  const backend::status s = enqueue_transfer(request.transfer, facts.slot().handle);
  if (s == backend::ok) return true;
  if (backend::classify(s) != errc::invalid_argument) throw_status(s, facts.operation());
  backend::forget_error(s);
  facts.note_direct_failed();
  return false;
}

[[nodiscard]] std::optional<CopyResult> run_direct(const CopyRequest& request, Facts& facts) {
  if (facts.runtime_takes_any_memory()) {
    facts.note_uses();
  } else {
    reach_devices(facts);
    if (facts.from_kind() == MemoryKind::pinned)
      keep_source_for_later(facts.call(), request.transfer.to, request.transfer.bytes());
    if (facts.may_be_pinned_in_parts())
      return try_direct(request, facts) ? std::optional{CopyResult::direct} : std::nullopt;
  }
  check(enqueue_transfer(request.transfer, facts.slot().handle), facts.operation());
  return CopyResult::direct;
}

[[nodiscard]] CopyResult run_peer(const CopyRequest& request, Facts& facts) {
  const Transfer& t = request.transfer;
  for (std::size_t row = 0; row < t.height; ++row)
    check(backend::copy_peer_async(t.to + row * t.to_pitch, facts.to_owner(),
                                   t.from + row * t.from_pitch, facts.from_owner(), t.width,
                                   facts.slot().handle),
          facts.operation());
  return CopyResult::direct;
}

[[nodiscard]] std::optional<CopyResult> run_short(const CopyRequest& request, Facts& facts) {
  reach_devices(facts);
  const ShortCopy outcome = try_short_copy(facts.call(), request.transfer, direction_of(facts));
  if (outcome == ShortCopy::done) return CopyResult::inlined;
  if (outcome == ShortCopy::stream_is_busy) facts.note_idle(false);
  facts.note_short_copy_failed();
  return std::nullopt;
}

[[nodiscard]] CopyResult run_staged(const CopyRequest& request, Facts& facts) {
  reach_devices(facts);
  const Direction direction = direction_of(facts);
  const bool may_read_now = direction == Direction::to_device && facts.may_read_now();
  stage(facts.slot(), {direction, flattened(request.transfer)}, may_read_now, facts.operation());
  return CopyResult::staged;
}

/// Runtimes may read a pageable source within the call, even if earlier work of the stream is yet
/// to write it.
void wait_until_source_is_written(Facts& facts) {
  const bool is_read_in_order = facts.runtime_takes_any_memory() ||
                                facts.from_kind() != MemoryKind::pageable ||
                                facts.device_reads_pageable();
  if (is_read_in_order || facts.is_capturing() || facts.may_read_now()) return;
  Event{facts.call().stream()}.synchronize();
}

[[nodiscard]] std::optional<CopyResult> run_blocked(const CopyRequest& request, Facts& facts) {
  wait_until_source_is_written(facts);
  const ScopedWait wait{facts.operation(), {.stream = facts.call().use.id}};
  if (!try_direct(request, facts)) return std::nullopt;
  // Where the device or the backend reads pageable memory itself, the call does not hold the
  // caller. In a capture nothing runs yet.
  const bool returns_early =
      (facts.runtime_takes_any_memory() || facts.device_reads_pageable()) && !facts.is_capturing();
  if (returns_early) {
    check(backend::stream_synchronize(facts.slot().handle), facts.operation());
    emit_complete(facts.slot());
  }
  return CopyResult::blocked;
}

}  // namespace

void refuse(Route route, Facts& facts) {
  if (route == Route::refused_by_policy)
    throw_error(errc::not_permitted, facts.operation(),
                facts.may_be_pinned_in_parts()
                    ? "the policy refuses memory that is pinned in parts, which the runtime cannot "
                      "copy at once: use Pageable::stage"
                    : "one side is pageable memory, which the policy refuses: use PinnedBuffer, or "
                      "Pageable::stage");
  throw_in_capture(facts.slot(), facts.operation(),
                   is_host(facts.to_kind()) && is_host(facts.from_kind())
                       ? "a host function moves the bytes, and the capture was not begun by "
                         "runnel::capture(), so that no Graph would own it"
                       : "the host moves the bytes once, at the call, which a graph cannot repeat: "
                         "use PinnedBuffer and device memory, or "
                         "Pageable::block, with which the driver holds whoever launches the graph");
}

void reach_devices(Facts& facts) {
  grant_pool_access(facts.slot().device, facts.to_owner(), facts.operation());
  grant_pool_access(facts.slot().device, facts.from_owner(), facts.operation());
}

void keep_source_for_later(CopyCall& call, void* to, std::size_t bytes) {
  if (!call.slot.blocking || bytes > driver_reads_up_to) [[likely]]
    return;
  if (call.are_sources_kept) return;
  if (is_capturing(call.slot, call.operation) ||
      internal_call([&] { return is_idle(call.slot, call.operation); }))
    return;
  check(backend::fill_async(to, 0, 1, 1, call.slot.handle), call.operation);
  call.are_sources_kept = true;
}

std::optional<CopyResult> run(Route route, const CopyRequest& request, Facts& facts) {
  switch (route) {
    case Route::nothing:
      return CopyResult::nothing;
    case Route::direct:
      return run_direct(request, facts);
    case Route::peer:
      return run_peer(request, facts);
    case Route::driver_reads:
      reach_devices(facts);
      return try_direct(request, facts) ? std::optional{CopyResult::inlined} : std::nullopt;
    case Route::short_copy:
      return run_short(request, facts);
    case Route::staged:
      return run_staged(request, facts);
    case Route::host_function:
      facts.call().stream().launch_host_func(
          [transfer = request.transfer] { copy_rows(transfer); });
      return CopyResult::staged;
    case Route::blocked:
      return run_blocked(request, facts);
    case Route::seeded:  // fills only
    case Route::refused_by_policy:
    case Route::refused_in_capture:
      break;
  }
  refuse(route, facts);
}

CopyResult enqueue_copy(const CopyRequest& request, Facts& facts) {
  facts.call().ahead.begins_to_enqueue();
  for (;;) {
    const Route route = choose_route(request, facts);
    const std::optional<CopyResult> done = run(route, request, facts);
    if (!done) continue;
    facts.note_enqueued(route);
    return *done;
  }
}

namespace {

[[nodiscard]] Operation about_copy(const CopyRequest& request, const Facts& facts) noexcept {
  Operation copy = about(facts.slot(), OperationKind::copy, facts.operation());
  const Transfer& t = request.transfer;
  copy.to = t.to;
  copy.from = t.from;
  copy.bytes = t.bytes();
  copy.to_kind = request.to_kind;
  copy.from_kind = request.from_kind;
  return copy;
}

}  // namespace

void CopyEvent::begin(const CopyRequest& request, Facts& facts) {
  const Route route = choose_route(request, facts);
  if (is_refused(route)) refuse(route, facts);
  if (!has_nothing_to_do(request)) event_.begin(about_copy(request, facts));
}

void CopyEvent::add_uses(Operation& copy, const CopyRequest& request, CopyResult done,
                         Facts& facts) {
  const bool at_the_call = done == CopyResult::inlined || done == CopyResult::blocked;
  const bool to_done = at_the_call && facts.to_kind() == MemoryKind::pageable;
  const bool from_done = at_the_call && facts.from_kind() == MemoryKind::pageable;
  const Transfer& t = request.transfer;
  copy.uses = {
      MemoryUse{MemoryAccess::read,
                {t.from, t.from_pitch, t.width, t.height},
                request.from_kind,
                from_done},
      MemoryUse{
          MemoryAccess::write, {t.to, t.to_pitch, t.width, t.height}, request.to_kind, to_done}};
  copy.use_count = 2;
}

CopyResult together(CopyResult a, CopyResult b) noexcept {
  for (const CopyResult weaker :
       {CopyResult::staged, CopyResult::direct, CopyResult::inlined, CopyResult::blocked})
    if (a == weaker || b == weaker) return weaker;
  return CopyResult::nothing;
}

namespace {

[[nodiscard]] CopyResult copy_each_row(StreamRef stream, CopyRequest request,
                                       const char* operation) {
  const Transfer t = request.transfer;
  CopyResult result = CopyResult::nothing;
  for (std::size_t row = 0; row < t.height; ++row) {
    request.transfer = {
        t.to + row * t.to_pitch, t.width, t.from + row * t.from_pitch, t.width, t.width, 1};
    result = together(result, copy_request(stream, request, operation));
  }
  return result;
}

}  // namespace

CopyResult copy_request(StreamRef stream, const CopyRequest& request, const char* operation) {
  CopyCall call{stream, operation};
  validate(request, operation);
  if (!has_nothing_to_do(request) && !fits_one_copy(request.transfer))
    return copy_each_row(stream, request, operation);
  CopyRequest valid = request;
  valid.transfer = flattened(request.transfer);
  Facts facts{call, valid};
  CopyEvent event{valid, facts};
  const CopyResult done = enqueue_copy(valid, facts);
  event.enqueued(valid, done, facts);
  return done;
}

}  // namespace runnel::inline RUNNEL_ABI::detail
