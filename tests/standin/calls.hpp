// SPDX-License-Identifier: Apache-2.0
/// What every entry point does around its body: count, fail as asked, refuse inside host functions and in forked children, keep the
/// thread's last error.
#pragma once

#include "engine.hpp"
#include "state.hpp"
#include "vendor.hpp"

namespace standin {

enum class Call {
  plain,
  makes,     ///< gives a handle or memory, or takes a function: one that fails did not, so `executed` is `refused`
  releases,  ///< gives one back: still does so in a sticky state
  anywhere,  ///< works without a device
};

/// The code to answer instead of doing the call, and whether to do it first.
struct Verdict {
  int code = vendor::ok;
  bool execute = true;
};
/// Counts the call; `name` is the entry point's, for the report.
Verdict begin_call(Call kind, const char* name);
vendor::Error end_call(int code);
/// Whether the calling thread's mode forbids what is in no stream's order; the captures for whose sake it does are broken off.
bool breaks_captures();

/// `body(lock)` returns a vendor::Code, and runs with the engine's mutex held.
template <class Body>
vendor::Error call(Call kind, Body&& body, const char* name = __builtin_FUNCTION()) {
  const Verdict verdict = begin_call(kind, name);
  int code = verdict.code;
  if (verdict.execute) {
    Lock lock{engine().mutex};
    const int own = body(lock);
    if (code == vendor::ok) code = own;
  }
  return end_call(code);
}
template <class Body>
vendor::Error call(Body&& body, const char* name = __builtin_FUNCTION()) {
  return call(Call::plain, static_cast<Body&&>(body), name);
}

/// What is in no stream's order, and so is refused where a capture could miss it: that breaks the capture off.
template <class Body>
vendor::Error call_outside_captures(Call kind, Body&& body, const char* name = __builtin_FUNCTION()) {
  return call(
      kind, [&](Lock& lock) -> int { return breaks_captures() ? vendor::capture_unsupported : body(lock); }, name);
}

// With the engine's mutex held; each returns a vendor::Code
int device_of(vendor::StreamHandle handle, int& device);
/// `count` elements of `width` bytes, each set to the bytes at `value`.
int fill_elements(void* to, const void* value, std::size_t width, std::size_t count, vendor::StreamHandle handle);

}  // namespace standin
