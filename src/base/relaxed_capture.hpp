// SPDX-License-Identifier: Apache-2.0
/// Calls that the library makes for itself, to own memory and handles or to ask how far a stream
/// is, must not invalidate a capture on any thread.
#pragma once

#include "base/check.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether anything has shown that this process captures streams.
inline constinit sync::Atomic<bool> captures_met{false};
inline void note_capture() noexcept { captures_met.store(true, std::memory_order_relaxed); }
/// For calls that would be a fifth slower otherwise: `RelaxedCapture{if_captures_met()}`.
[[nodiscard]] inline bool if_captures_met() noexcept {
  return captures_met.load(std::memory_order_relaxed);
}

/// As succeeded_or_forget(). A failure may also be the first sign that this process captures
/// streams.
inline bool succeeded_or_note_capture(backend::status status) noexcept {
  if (status != backend::ok && backend::classify(status) == errc::capture) note_capture();
  return succeeded_or_forget(status);
}

/// Whether captures are open that were begun with the library.
[[nodiscard]] inline bool are_captures_open() noexcept {
  return (attention.load(std::memory_order_relaxed) & attention_captures) != 0;
}

/// While it lives, the calling thread may make any call without invalidating a capture. It costs
/// two runtime calls, and nothing within another one.
class RelaxedCapture {
 public:
  // A call that fails once may work the second time. It may also have taken effect all the same,
  // which the mode that was found shows.
  explicit RelaxedCapture(bool needed = true) noexcept {
    for (int attempt = 0; needed && !is_relaxed && attempt < 2; ++attempt)
      is_relaxed = is_outermost_ = exchange(found_) || found_ != backend::CaptureMode::relaxed;
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (!is_outermost_) return;
    is_relaxed = false;
    for (int attempt = 0; found_ != backend::CaptureMode::relaxed && attempt < 2; ++attempt) {
      backend::CaptureMode back = found_;
      if (exchange(back)) return;
    }
  }

 private:
  [[nodiscard]] static bool exchange(backend::CaptureMode& mode) noexcept {
    return succeeded_or_forget(backend::exchange_capture_mode(mode));
  }
  static inline thread_local constinit bool is_relaxed = false;

  backend::CaptureMode found_ = backend::CaptureMode::relaxed;
  bool is_outermost_ = false;
};

/// Calls `f()`, which calls the runtime for the library itself. Returns what it returns.
template <class F>
decltype(auto) own_call(F f, bool needed = true) {
  const RelaxedCapture relaxed{needed};
  return f();
}
/// The same for what the program asks: no capture that others begin matters to it.
template <class F>
decltype(auto) own_call_beside_captures(F f) {
  return own_call(f, are_captures_open());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
