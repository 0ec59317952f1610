// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy_batch.hpp>

#include "base/check.hpp"
#include "copy/copy_calls.hpp"
#include "copy/run.hpp"
#include "copy/staging/stage.hpp"
#include "memory/recorded_uses.hpp"
#include "slot/operations.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <new>
#include <utility>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace detail { namespace {

constexpr const char* operation = "copy a batch";

using Plan = std::vector<PlannedCopy>;

/// Calls `f(i)` for each operation. An error names the operation that has failed.
template <class F>
void for_each_operation(size_t count, F f) {
  for (size_t i = 0; i < count; ++i) try {
      f(i);
    } catch (const Error& error) {
      char part[60];
      std::snprintf(part, sizeof part, "operations[%zu] of %zu", i, count);
      throw_again(error, part);
    }
}

/// Whether the runtime's call for several copies accepts it: that call takes no pageable memory.
bool fits_one_call(const PlannedCopy& copy) noexcept {
  return copy.route == Route::direct && !copy.facts.has_pageable_side();
}
/// Whether it can be staged together with others, as one job.
bool fits_list(const PlannedCopy& copy) noexcept {
  return copy.route == Route::staged || copy.route == Route::short_copy;
}

/// Plans each operation, and enqueues nothing. @throws if any operation is invalid or refused
[[nodiscard]] Plan plan_batch(CopyCall& call, std::span<const CopyOperation> operations,
                              const CopyOptions& options) {
  Plan plan;
  plan.reserve(operations.size());
  for_each_operation(operations.size(), [&](size_t i) {
    const CopyOperation& copy = operations[i];
    const Transfer row = single_row(copy.to, copy.from, copy.bytes);
    CopyRequest request = request_of(row, options);
    if (copy.to_kind) request.to_kind = copy.to_kind;
    if (copy.from_kind) request.from_kind = copy.from_kind;
    validate(request, operation);
    const auto record = [&](uint64_t owner, const void* memory) {
      const StreamRef stream = call.stream();
      if (owner != 0 && owner != stream.id() && copy.bytes > 0) add_recorded_use(memory, stream);
    };
    record(copy.to_stream, copy.to);
    record(copy.from_stream, copy.from);
    plan.push_back(plan_copy(call, request));
  });
  return plan;
}

/// Enqueues all direct operations in few runtime calls. Returns false if they are too few, or if
/// the runtime refused some memory. It may have enqueued other operations in that case. They may be
/// enqueued again, since no operation writes what another one reads or writes.
[[nodiscard]] bool try_one_call(const Plan& plan, CopyCall& call) {
  void* target_of_pinned = nullptr;
  std::vector<const PlannedCopy*> copies;
  for (const PlannedCopy& copy : plan) {
    if (!fits_one_call(copy)) continue;
    copies.push_back(&copy);
    if (copy.facts.runtime_takes_any_memory) continue;
    grant_pool_access(call, copy.facts);
    if (copy.facts.from.kind == MemoryKind::pinned) target_of_pinned = copy.request.transfer.to;
  }
  // A capture cannot record the call.
  if (copies.size() < 2 || call.is_capturing()) return false;
  // 0 bytes, because some of the sources may be small.
  if (target_of_pinned != nullptr) protect_source(call, target_of_pinned, 0);
  // In a call, a source that is read at once waits for what is before it. Only pinned ones of up to
  // some size are, which differs between drivers.
  const auto place = [](const PlannedCopy* copy) {
    return copy->facts.from.kind == MemoryKind::pinned
               ? std::min(copy->request.transfer.width, read_at_the_call + 1)
               : read_at_the_call + 1;
  };
  if (!std::ranges::is_sorted(copies, {}, place)) std::ranges::stable_sort(copies, {}, place);
  CopyCalls calls{call.slot.handle};
  for (const PlannedCopy* const copy : copies) {
    const Transfer& t = copy->request.transfer;
    if (calls.add(t.to, t.from, t.width) != backend::ok) break;
  }
  const backend::status s = calls.finish();
  if (failed_with(s, errc::invalid_argument)) return false;
  check(s, operation);
  return true;
}

/// Stages all operations of that direction that need it, as one job. Returns false, and does
/// nothing, if they are too few to gain from it.
[[nodiscard]] bool try_list(const Plan& plan, CopyCall& call, Direction direction) {
  constexpr size_t few = 8;
  Work work{direction};
  bool is_written = false;
  for (const PlannedCopy& copy : plan) {
    if (!fits_list(copy) || copy.direction() != direction) continue;
    const Transfer& t = copy.request.transfer;
    auto* const from = const_cast<unsigned char*>(t.from);  // It is only read.
    work.segments.push_back(direction == Direction::to_device ? Segment{t.to, from, t.width}
                                                              : Segment{from, t.to, t.width});
    is_written = is_written || may_be_written(copy);
    grant_pool_access(call, copy.facts);
  }
  const size_t count = work.segments.size();
  sort_segments(work.segments);
  if (count < 2 || (count < few && work.bytes() <= short_copy_up_to)) return false;
  const bool may_read_now = direction == Direction::to_device &&
                            call.may_read_now(plan.front().request.source, is_written);
  stage(call.slot, std::move(work), may_read_now, operation);
  return true;
}

size_t& count_of(CopyBatchResult& counts, CopyResult done) noexcept {
  using Counts = CopyBatchResult;
  constexpr size_t Counts::* of_results[] = {&Counts::nothing, &Counts::direct, &Counts::staged,
                                             &Counts::inlined, &Counts::blocked};
  return counts.*of_results[static_cast<size_t>(done)];
}

/// What the operations read and write: two uses each. Empty if there is no memory for the list.
[[nodiscard]] std::vector<MemoryUse> uses_of(const Plan& plan) noexcept try {
  std::vector<MemoryUse> uses;
  uses.reserve(2 * plan.size());
  for (const PlannedCopy& copy : plan) {
    const std::array<MemoryUse, 2> both = uses_of(copy, CopyResult::direct);
    uses.insert(uses.end(), both.begin(), both.end());
  }
  return uses;
} catch (const std::bad_alloc&) {
  return {};
}

}}  // namespace detail

CopyBatchResult copy_batch(StreamRef stream, std::span<const CopyOperation> operations,
                           const CopyOptions& options) {
  using namespace detail;
  CopyCall call{stream, detail::operation};
  const Plan plan = plan_batch(call, operations, options);
  std::vector<MemoryUse> uses;
  ScopedEvent event{[&] {
    Operation batch = about(call.slot, OperationKind::copy, call.operation);
    for (const CopyOperation& each : operations) batch.bytes += each.bytes;
    return batch;
  }};
  const bool in_one_call = try_one_call(plan, call);
  const std::array in_list{try_list(plan, call, Direction::to_device),
                           try_list(plan, call, Direction::to_host)};
  CopyBatchResult counts;
  for_each_operation(plan.size(), [&](size_t i) {
    const PlannedCopy& copy = plan[i];
    const CopyResult done = enqueue_observed(call, copy, [&] {
      if (fits_one_call(copy) && in_one_call) return CopyResult::direct;
      if (fits_list(copy) && in_list[copy.direction() == Direction::to_host])
        return CopyResult::staged;
      return enqueue_copy(call, copy);
    });
    ++count_of(counts, done);
  });
  if (Operation* const batch = event.operation()) [[unlikely]] {
    uses = uses_of(plan);
    batch->unordered = uses;
  }
  return counts;
}

}  // namespace runnel::inline RUNNEL_ABI
