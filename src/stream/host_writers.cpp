// SPDX-License-Identifier: Apache-2.0
#include "stream/host_writers.hpp"

#include "backend.hpp"
#include "base/never_destroyed.hpp"

#include <algorithm>
#include <mutex>

namespace runnel { inline namespace RUNNEL_ABI { namespace detail {
namespace {

/// Runtimes that read pageable memory in stream order ask no one.
[[nodiscard]] bool is_needed() noexcept { return !backend::copies_pageable_asynchronously(); }

[[nodiscard]] std::uintptr_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

HostWriters& host_writers() noexcept { return never_destroyed<HostWriters>(); }

void HostWriters::begin_functions(std::size_t count) noexcept {
  if (is_needed()) unfinished_.fetch_add(count * one_function, std::memory_order_relaxed);
}
void HostWriters::end_functions(std::size_t count) noexcept {
  if (is_needed()) unfinished_.fetch_sub(count * one_function, std::memory_order_release);
}

HostWriters::Range* HostWriters::begin_range(const void* begin, std::size_t bytes) noexcept {
  const std::lock_guard lock{lock_};
  const auto unused = std::find_if(ranges_.begin(), ranges_.end(),
                                   [](const Range& each) { return each.begin == each.end; });
  if (unused == ranges_.end()) {
    unfinished_.fetch_add(one_function, std::memory_order_relaxed);
    return nullptr;
  }
  *unused = {address_of(begin), address_of(begin) + bytes};
  unfinished_.fetch_add(one_listed, std::memory_order_relaxed);
  return &*unused;
}

void HostWriters::end_range(Range* range) noexcept {
  if (range == nullptr) return end_functions(1);
  const std::lock_guard lock{lock_};
  *range = {};
  unfinished_.fetch_sub(one_listed, std::memory_order_release);
}

void HostWriters::note_outside_wait() noexcept {
  if (!has_outside_waits_.exchange(true, std::memory_order_relaxed)) begin_functions(1);
}

bool HostWriters::look(const void* pointer, std::size_t bytes) noexcept {
  if (unfinished_.load(std::memory_order_acquire) % one_listed != 0) return true;
  const std::uintptr_t begin = address_of(pointer), end = begin + bytes;
  const std::lock_guard lock{lock_};
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [=](const Range& each) { return each.begin < end && begin < each.end; });
}

RangeWriter::RangeWriter(const void* begin, std::size_t bytes, HostWriters& of) noexcept {
  if (!is_needed()) return;
  of_ = &of;
  range_ = of.begin_range(begin, bytes);
}

void RangeWriter::end() noexcept {
  if (HostWriters* const of = std::exchange(of_, nullptr)) of->end_range(range_);
}

}}}  // namespace runnel::RUNNEL_ABI::detail
