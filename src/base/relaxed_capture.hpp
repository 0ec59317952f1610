// SPDX-License-Identifier: Apache-2.0
/// Around what the library asks of the runtime by itself, or to own memory and handles: none of that is part of what a stream is told, so
/// it does not end a capture, neither of the calling thread nor of another. Two runtime calls, so not for where nothing else is called.
#pragma once

#include "base/check.hpp"

#include <runnel/config.hpp>

#include <atomic>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether anything has shown that this process captures streams.
inline constinit std::atomic<bool> captures_met{false};
/// For calls that would be a fifth slower: `RelaxedCapture{if_captures_met()}`.
[[nodiscard]] inline bool if_captures_met() noexcept { return captures_met.load(std::memory_order_relaxed); }

class RelaxedCapture {
 public:
  // A call that fails once may work the next time; that it was done all the same shows in what was found.
  explicit RelaxedCapture(bool needed = true) noexcept {
    for (int attempt = 0; needed && attempt < 2 && found_ == backend::CaptureMode::relaxed; ++attempt)
      if (exchange(found_)) return;
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (found_ == backend::CaptureMode::relaxed) return;
    for (int attempt = 0; attempt < 2; ++attempt) {
      backend::CaptureMode back = found_;
      if (exchange(back)) return;
    }
  }

 private:
  [[nodiscard]] static bool exchange(backend::CaptureMode& mode) noexcept {
    return succeeded_or_forget(backend::exchange_capture_mode(mode));
  }

  backend::CaptureMode found_ = backend::CaptureMode::relaxed;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
