// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_observing
/// Named ranges in a profiler's timeline. A profiler shows a stream under its name in
/// `StreamOptions`.
#pragma once

#include <runnel/config.hpp>

namespace runnel::inline RUNNEL_ABI {

namespace detail {
void push_profiler_range(const char* name) noexcept;
void pop_profiler_range() noexcept;
}  // namespace detail

/// Shows the calling thread's time in a scope as a named range in a profiler's timeline. Does
/// nothing if the library was built without the profiler's header (NVTX) or no profiler is
/// attached. Ranges nest. It shows only the calls of the thread. For the work of a stream, which
/// runs later, use a TraceRange (trace.hpp).
class [[nodiscard]] ProfilerRange {
 public:
  /// Begins a range. `name` is copied.
  [[nodiscard]] explicit ProfilerRange(const char* name) noexcept {
    detail::push_profiler_range(name);
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange() { detail::pop_profiler_range(); }
};

}  // namespace runnel::inline RUNNEL_ABI
