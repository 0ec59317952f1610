// SPDX-License-Identifier: Apache-2.0
#include <runnel/copy_batch.hpp>

#include "check.hpp"
#include "memory_ranges.hpp"
#include "process.hpp"
#include "scoped_device.hpp"

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

void enqueue(native::stream stream, const Lists& lists) {
  const std::size_t count = lists.to.size();
  if (count > 1) {
    const driver::status s = driver::copy_batch_async(lists.to.data(), lists.from.data(), lists.bytes.data(), count, stream);
    const errc code = s == driver::ok ? errc{} : driver::classify(s);
    if (code != errc::not_supported && code != errc::driver_too_old) return detail::check(s, operation);
    driver::forget_error(s);
  }
  for (std::size_t i = 0; i < count; ++i) detail::check(driver::copy_async(lists.to[i], lists.from[i], lists.bytes[i], stream), operation);
}

}  // namespace

CopyBatchResult copy_batch(StreamRef stream, std::span<const CopyOperation> operations, Pageable policy) {
  detail::enter(operation);
  detail::Slot& slot = detail::live_slot(stream);
  const detail::StreamUse use{&slot, stream.id()};
  const bool any_memory = driver::copies_pageable_asynchronously() && policy == Pageable::stage;

  CopyBatchResult result;
  Lists direct;
  std::vector<CopyOperation> others;  // which copy_bytes() knows how to do
  for (const CopyOperation& copy : operations) {
    if (copy.bytes == 0 || (copy.to == copy.from && copy.to != nullptr)) {
      ++result.nothing;
      continue;
    }
    require_copyable(copy);
    if (any_memory) {
      detail::note_use(copy.to, copy.bytes, copy.to_kind, use);
      detail::note_use(copy.from, copy.bytes, copy.from_kind, use);
      direct.add(copy);
      continue;
    }
    const MemoryKind to = detail::kind_of(copy.to, copy.bytes, copy.to_kind, use, operation);
    const MemoryKind from = detail::kind_of(copy.from, copy.bytes, copy.from_kind, use, operation);
    const bool pageable = to == MemoryKind::pageable || from == MemoryKind::pageable;
    if (pageable && policy == Pageable::refuse)
      detail::throw_error(errc::not_permitted, operation, "an operation has ordinary (pageable) memory, which the policy refuses");
    if (pageable || (is_host(to) && is_host(from)))
      others.push_back({copy.to, copy.from, copy.bytes, to, from});
    else
      direct.add(copy);
  }
  {
    const detail::ScopedDevice on{slot.device, operation};
    enqueue(slot.handle, direct);
  }
  result.direct = direct.to.size();
  for (const CopyOperation& copy : others)
    ++(detail::copy_known(stream, copy.to, copy.to_kind, copy.from, copy.from_kind, copy.bytes, policy) == CopyResult::direct
           ? result.direct
           : result.carried);
  return result;
}

}  // namespace runnel::inline RUNNEL_ABI
