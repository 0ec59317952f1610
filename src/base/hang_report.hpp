// SPDX-License-Identifier: Apache-2.0
/// RUNNEL_HANG_REPORT=seconds: a wait of the host that lasts longer is reported once to stderr, with what each stream does, and goes on.
#pragma once

#include "base/hooks.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>

namespace runnel::inline RUNNEL_ABI::detail {

/// How long a wait may last, in nanoseconds; 0: nothing is reported.
extern constinit sync::Atomic<std::int64_t> hang_limit;
[[nodiscard]] inline bool are_hangs_reported() noexcept { return hang_limit.load(std::memory_order_relaxed) != 0; }

/// Reads the variable. Called once, before the runtime is used.
void read_hang_limit() noexcept;
/// Sets the function that writes what each stream does; src/stream/hang_report.cpp has it. There is one.
void set_stream_report(void (*write)(std::FILE*) noexcept) noexcept;

/// A wait of the calling thread, for as long as this object lives. A hook and the trace are told of it. Costs one load while all are off.
class WatchedWait {
 public:
  /// `operation` must be a literal. `id` is that of the awaited stream, or -1 - n for device n, or 0.
  explicit WatchedWait(const char* operation, std::int64_t id = 0) noexcept {
    if (has_observers(observer_hangs | observer_hook | observer_trace)) [[unlikely]]
      begin(operation, id);
  }
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;
  ~WatchedWait() {
    if (is_begun_) [[unlikely]]
      end();
  }

 private:
  friend class HangReporter;
  void begin(const char* operation, std::int64_t id) noexcept;
  void end() noexcept;

  bool is_begun_ = false;
  bool is_listed_ = false;
  bool is_reported_;
  int thread_;
  const char* operation_;
  std::int64_t id_;
  sync::Clock::time_point since_;
  WatchedWait* next_;
  WatchedWait** link_;
  ToldOperation told_;
};

/// "3.2 s", for a report.
struct Age {
  explicit Age(sync::Clock::duration age) noexcept {
    std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>{age}.count());
  }
  char text[32];
};

}  // namespace runnel::inline RUNNEL_ABI::detail
