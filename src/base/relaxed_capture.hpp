// SPDX-License-Identifier: Apache-2.0
/// Runtime calls that the library makes for itself, to manage memory and handles or to query a
/// stream, must not invalidate a capture on any thread.
#pragma once

#include "base/check.hpp"
#include "base/not_copied.hpp"
#include "base/process.hpp"
#include "base/sync.hpp"

#include <runnel/config.hpp>

#include <atomic>

namespace runnel::inline RUNNEL_ABI::detail {

/// Whether this process is known to have captured streams, and whether a capture is open that was
/// begun through the library.
enum class CaptureHistory : unsigned char { none, seen, open };
inline constinit sync::Atomic<CaptureHistory> capture_history{CaptureHistory::none};
inline void note_capture() noexcept {
  CaptureHistory none = capture_history.load(std::memory_order_relaxed);
  if (none != CaptureHistory::none) return;
  capture_history.compare_exchange_strong(none, CaptureHistory::seen, std::memory_order_relaxed);
}
/// For calls that relaxing would make a fifth slower: `RelaxedCapture{any_capture_seen()}`.
inline bool any_capture_seen() noexcept {
  return capture_history.load(std::memory_order_relaxed) != CaptureHistory::none;
}
inline bool are_captures_open() noexcept {
  return capture_history.load(std::memory_order_relaxed) == CaptureHistory::open;
}

/// As succeeded_or_forget(). A failure may also be the first sign that this process captures
/// streams.
inline bool succeeded_or_note_capture(backend::status status) noexcept {
  if (status != backend::ok && backend::classify(status) == errc::capture) note_capture();
  return succeeded_or_forget(status);
}

/// In this scope, no call of this thread invalidates a capture. Costs two runtime calls, or none
/// inside another such scope.
class RelaxedCapture : NotCopied {
 public:
  // A failed call is tried once more. It may have taken effect in spite of the failure; the
  // previous mode that the second call returns shows that.
  explicit RelaxedCapture(bool needed = true) noexcept {
    for (int attempt = 0; needed && !is_relaxed && attempt < 2; ++attempt) {
      is_outermost_ = exchange(found_) || found_ != backend::CaptureMode::relaxed;
      is_relaxed = is_outermost_;
    }
  }
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

/// Calls `f()` in a RelaxedCapture scope, and returns its result. For calls that the library makes
/// for itself.
template <class F>
decltype(auto) internal_call(F f, bool needed = true) {
  const RelaxedCapture relaxed{needed};
  return f();
}
/// The same for calls that the user requested: relaxed only if this process captures streams.
template <class F>
decltype(auto) call_beside_captures(F f) {
  return internal_call(f, any_capture_seen());
}

}  // namespace runnel::inline RUNNEL_ABI::detail
