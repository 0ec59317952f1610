// SPDX-License-Identifier: Apache-2.0
/// What every entry point does around its body: it counts the call, makes it fail if STANDIN_FAULT
/// says so, refuses it inside host functions, ends a forked child that makes it, and sets the
/// thread's last error.
#pragma once

#include <type_traits>

#include "engine.hpp"
#include "settings.hpp"
#include "state.hpp"
#include "vendor.hpp"

namespace standin {

enum class Call {
  plain,
  makes,     ///< makes a handle or memory, or takes a function; a failed call makes nothing, so
             ///< `executed` means `refused`
  releases,  ///< destroys a handle or frees memory; works in a sticky state too
  anywhere,  ///< works without a device
};

inline bool exists(int device) { return 0 <= device && device < settings().devices; }

/// The code that the call returns, and whether the call is executed first.
struct Verdict {
  int code = ok;
  bool execute = true;
};
/// Counts the call. `name` is the name of the entry point, for the report.
Verdict begin_call(Call kind, const char* name);
Error end_call(int code);
/// Whether a capture forbids calls outside of stream order, given the capture mode of the calling
/// thread. Breaks those captures.
bool breaks_captures();

/// Calls `body`, which returns a Code, with the lock too if it takes that.
template <class Body, class... Given>
int run_body(Body& body, Lock& lock, Given&... given) {
  if constexpr (std::is_invocable_v<Body&, Given&..., Lock&>)
    return body(given..., lock);
  else
    return body(given...);
}

/// Locks the engine's mutex, and runs `body`.
template <class Body>
Error call(Call kind, Body&& body, const char* name = __builtin_FUNCTION()) {
  const Verdict verdict = begin_call(kind, name);
  int code = verdict.code;
  if (verdict.execute) {
    Lock lock{engine().mutex};
    const int own = run_body(body, lock);
    if (code == ok) code = own;
  }
  return end_call(code);
}
template <class Body>
Error call(Body&& body, const char* name = __builtin_FUNCTION()) {
  return call(Call::plain, static_cast<Body&&>(body), name);
}

/// The same for a call outside of stream order. A capture would miss such a call, so it is refused
/// and breaks the capture.
template <class Body>
Error call_outside_captures(Call kind, Body&& body, const char* name = __builtin_FUNCTION()) {
  return call(
      kind,
      [&](Lock& lock) { return breaks_captures() ? capture_unsupported : run_body(body, lock); },
      name);
}

/// A body for the two above: `body(stream)` or `body(stream, lock)`, if there is such a stream.
template <class Body>
auto on_stream(StreamHandle handle, Body body) {
  return [=](Lock& lock) {
    const StreamPtr stream = state().stream(handle);
    if (stream == nullptr) return invalid_handle;
    return run_body(body, lock, *stream);
  };
}
/// The same for a body that enqueues work.
template <class Body>
auto work_on(StreamHandle handle, Body body) {
  return on_stream(handle, [=](Stream& stream, Lock& lock) {
    if (const Code code = refusal(stream)) return code;
    return run_body(body, lock, stream);
  });
}

/// NVIDIA's driver 580 crashes if a stream is queried while another thread begins or ends to
/// capture it. The program ends where that happens.
class Queried {
 public:
  explicit Queried(StreamHandle stream);
  Queried(const Queried&) = delete;
  Queried& operator=(const Queried&) = delete;
  ~Queried();
  static void refuse(StreamHandle stream);

 private:
  StreamHandle stream_;
};

// Requires: the calling thread has locked the engine's mutex.
/// What is destroyed with a stream that takes part in a capture: the capture, if the stream began
/// it, or if its work is not joined.
void break_capture_without(const Stream& stream);
/// Overwrites the destination of a copy or a fill, but for bytes that pending work may still use.
void poison_if_unused(const Work& work);
/// Enqueues a fill of `count` elements of `width` bytes with the bytes at `value`.
int fill_elements(Stream& stream, void* to, const void* value, size_t width, size_t count);

}  // namespace standin
