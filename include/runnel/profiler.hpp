// SPDX-License-Identifier: Apache-2.0
/// Names in a profiler's timeline. Streams show the name of their `StreamOptions`.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
void push_profiler_range(const char* name) noexcept;
void pop_profiler_range() noexcept;
}  // namespace detail

/// Shows the calling thread's time in a scope under a name, where the library was built with the profiler's header (NVTX) and a
/// profiler is attached; nothing otherwise. Ranges nest.
class [[nodiscard]] ProfilerRange {
 public:
  /// `name` is copied.
  explicit ProfilerRange(const char* name) noexcept { detail::push_profiler_range(name); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() { detail::pop_profiler_range(); }
};

}  // namespace runnel::inline RUNNEL_ABI
