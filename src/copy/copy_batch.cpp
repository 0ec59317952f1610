// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy_batch.hpp>

#include "base/check.hpp"
#include "base/process.hpp"
#include "device/scoped_device.hpp"
#include "memory/facts.hpp"
#include "stream/capture.hpp"
#include "stream/idle.hpp"
#include "stream/stream_device.hpp"

#include <cstdint>
#include <vector>

namespace runnel::inline RUNNEL_ABI {
namespace {

constexpr const char* operation = "copy a batch";

/// What one runtime call takes.
struct Lists {
  std::vector<void*> to;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;

  void add(const CopyOperation& copy) {
    to.push_back(copy.to);
    from.push_back(copy.from);
    bytes.push_back(copy.bytes);
  }
};

void require_copyable(const CopyOperation& copy) {
  detail::require_rows(copy.to, copy.bytes, copy.bytes, 1, operation);
  detail::require_rows(copy.from, copy.bytes, copy.bytes, 1, operation);
  const auto to = reinterpret_cast<std::uintptr_t>(copy.to);
  const auto from = reinterpret_cast<std::uintptr_t>(copy.from);
  if (to != from && to < from + copy.bytes && from < to + copy.bytes)
    detail::throw_error(errc::invalid_argument, operation, "source and destination of an operation overlap in part");
}

[[nodiscard]] bool is_host(MemoryKind kind) noexcept { return kind == MemoryKind::pageable || kind == MemoryKind::pinned; }

/// False where the runtime refused them: memory that is pinned in parts is only known then. Some may have been enqueued; since none writes
/// what another one reads or writes, doing them again does no harm.
[[nodiscard]] bool enqueue(native::stream stream, const Lists& lists) {
  const std::size_t count = lists.to.size();
  if (count > 1) {
    const backend::status s = backend::copy_batch_async(lists.to.data(), lists.from.data(), lists.bytes.data(), count, stream);
    if (s == backend::ok) return true;
    const errc code = backend::classify(s);
    if (code != errc::not_supported && code != errc::driver_too_old && code != errc::invalid_argument) detail::throw_status(s, operation);
    backend::forget_error(s);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const backend::status s = backend::copy_async(lists.to[i], lists.from[i], lists.bytes[i], stream);
    if (s == backend::ok) continue;
    if (backend::classify(s) != errc::invalid_argument) detail::throw_status(s, operation);
    backend::forget_error(s);
    return false;
  }
  return true;
}

/// A batch's operations, by what will be done about them.
struct Sorted {
  std::vector<CopyOperation> direct;
  std::vector<CopyOperation> others;  // which copy_known() knows how to do
  bool fit_graphs = true;             // whether `others` can be part of a graph
  bool from_pinned = false;           // whether `direct` has copies from pinned memory
  std::size_t nothing = 0;
};

void sort(const CopyOperation& copy, detail::StreamUse use, Pageable policy, int device, Sorted& sorted) {
  const auto facts_of = [&](const void* pointer, std::optional<MemoryKind> known) {
    return detail::facts_of(pointer, copy.bytes, known, use, operation);
  };
  const MemoryKind to = facts_of(copy.to, copy.to_kind).kind;
  const MemoryKind from = facts_of(copy.from, copy.from_kind).kind;
  const bool pageable = to == MemoryKind::pageable || from == MemoryKind::pageable;
  const bool between_hosts = is_host(to) && is_host(from);
  if (pageable && policy == Pageable::refuse)
    detail::throw_error(errc::not_permitted, operation, "an operation has ordinary (pageable) memory, which the policy refuses");
  if (!pageable && !between_hosts) {
    sorted.from_pinned = sorted.from_pinned || from == MemoryKind::pinned;
    return sorted.direct.push_back(copy);
  }
  if (between_hosts ? policy != Pageable::block || !pageable : policy == Pageable::stage && !detail::reads_host_page_tables(device))
    sorted.fit_graphs = false;
  sorted.others.push_back({copy.to, copy.from, copy.bytes, to, from});
}

[[nodiscard]] Sorted sort_all(const detail::Slot& slot, detail::StreamUse use, std::span<const CopyOperation> operations, Pageable policy) {
  Sorted sorted;
  for (const CopyOperation& copy : operations) {
    if (copy.bytes == 0 || (copy.to == copy.from && copy.to != nullptr)) {
      ++sorted.nothing;
      continue;
    }
    require_copyable(copy);
    if (backend::copies_pageable_asynchronously() && policy == Pageable::stage) {
      detail::note_use(copy.to, copy.bytes, copy.to_kind, use);
      detail::note_use(copy.from, copy.bytes, copy.from_kind, use);
      sorted.direct.push_back(copy);
    } else {
      sort(copy, use, policy, slot.device, sorted);
    }
  }
  return sorted;
}

}  // namespace

CopyBatchResult copy_batch(StreamRef stream, std::span<const CopyOperation> operations, Pageable policy) {
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  detail::require_own_thread(slot, operation);
  Sorted sorted = sort_all(slot, {&slot, stream.id()}, operations, policy);
  if (!sorted.fit_graphs) {
    const detail::StreamDevice on{slot, operation};
    detail::refuse_in_capture(slot, operation,
                              "an operation has ordinary (pageable) memory, or both its sides on the host: that is done once, at the call, "
                              "which a graph cannot repeat");
  }
  CopyBatchResult result{.nothing = sorted.nothing};
  {
    const detail::ScopedDevice on{slot.device, operation};
    if (sorted.from_pinned) detail::keep_source_for_later(slot, 0, operation);  // some of them may be small
    Lists lists;
    for (const CopyOperation& copy : sorted.direct) lists.add(copy);
    if (enqueue(slot.handle, lists))
      result.direct = sorted.direct.size();
    else
      sorted.others.insert(sorted.others.end(), sorted.direct.begin(), sorted.direct.end());
  }
  for (const CopyOperation& copy : sorted.others)
    ++(detail::copy_known(stream, copy.to, copy.to_kind, copy.from, copy.from_kind, copy.bytes, policy) == CopyResult::direct
           ? result.direct
           : result.carried);
  return result;
}

}  // namespace runnel::inline RUNNEL_ABI
