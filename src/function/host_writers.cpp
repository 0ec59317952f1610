// SPDX-License-Identifier: Apache-2.0
#include "function/host_writers.hpp"

#include "backend.hpp"
#include "base/never_destroyed.hpp"
#include "base/relaxed_capture.hpp"

#include <algorithm>
#include <mutex>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

/// Runtimes that read pageable memory in stream order ask no one.
bool is_needed() noexcept { return !backend::copies_pageable_asynchronously(); }

[[nodiscard]] uintptr_t address_of(const void* pointer) noexcept {
  return reinterpret_cast<uintptr_t>(pointer);
}

}  // namespace

HostWriters& host_writers() noexcept { return never_destroyed<HostWriters>(); }

void HostWriters::begin_functions(size_t count) noexcept {
  if (is_needed()) unfinished_.fetch_add(count * one_function, std::memory_order_relaxed);
}
void HostWriters::end_functions(size_t count) noexcept {
  if (is_needed()) unfinished_.fetch_sub(count * one_function, std::memory_order_release);
}

HostWriters::Range* HostWriters::begin_range(const void* begin, size_t bytes) noexcept {
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

std::list<Point> HostWriters::take_wait() noexcept {
  std::list<Point> taken;
  const std::lock_guard lock{lock_};
  if (!waits_.empty()) taken.splice(taken.end(), waits_, waits_.begin());
  return taken;
}

/// Stops at the first wait that is pending: then the others do not matter.
void HostWriters::end_passed_waits() noexcept {
  for (std::list<Point> wait; !(wait = take_wait()).empty();) {
    const Progress progress = internal_call([&] { return wait.front().poll(); });
    // It counts as long as the process lives.
    if (progress == Progress::unknown || progress == Progress::lost) continue;
    if (progress == Progress::complete) {
      end_functions(1);
      continue;
    }
    const std::lock_guard lock{lock_};
    return waits_.splice(waits_.begin(), wait);
  }
}

bool HostWriters::look(const void* pointer, size_t bytes) noexcept {
  const auto are_functions_left = [this] {
    return unfinished_.load(std::memory_order_acquire) % one_listed != 0;
  };
  if (are_functions_left()) end_passed_waits();
  if (are_functions_left()) return true;
  const uintptr_t begin = address_of(pointer), end = begin + bytes;
  const std::lock_guard lock{lock_};
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [=](const Range& each) { return each.begin < end && begin < each.end; });
}

RangeWriter::RangeWriter(const void* begin, size_t bytes, HostWriters& of) noexcept {
  if (!is_needed()) return;
  of_ = &of;
  range_ = of.begin_range(begin, bytes);
}

void RangeWriter::end() noexcept {
  if (HostWriters* const of = std::exchange(of_, nullptr)) of->end_range(range_);
}

OutsideWait::OutsideWait(StreamRef stream, HostWriters& of) : of_{of} {
  if (!is_needed()) return;
  Point point{key_of(stream)};
  if (!point) return;  // The wait will be refused.
  wait_.push_back(point);
  of_.begin_functions(1);
}

OutsideWait::~OutsideWait() {
  if (wait_.empty()) return;
  // Recorded here, directly behind the wait: a thread that copies may be the one for which a full
  // stream waits.
  internal_call([&] { wait_.front().record(); });
  of_.end_passed_waits();  // In a program that never copies, nothing else ends them.
  const std::lock_guard lock{of_.lock_};
  const auto earlier = std::ranges::find(of_.waits_, wait_.front().slot(), &Point::slot);
  if (earlier == of_.waits_.end()) {
    of_.waits_.splice(of_.waits_.end(), wait_);
  } else {
    *earlier = wait_.front();  // The later point covers the earlier one.
    of_.end_functions(1);
  }
}

}  // namespace runnel::inline RUNNEL_ABI::detail
