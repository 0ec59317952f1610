// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_observing
/// A trace of a whole program: a file in the Trace Event Format, which ui.perfetto.dev and
/// chrome://tracing display. docs/tracing.md says what is in it. `runnel.hpp` does not include this
/// header.
#pragma once

#include <runnel/current.hpp>
#include <runnel/detail/observers.hpp>

namespace runnel::inline RUNNEL_ABI {

/// The environment variable `RUNNEL_TRACE=file.json` switches the trace on from the first use of
/// the library.
class Trace {
 public:
  Trace() = delete;  ///< there is one trace; its functions are static

  /// Whether the trace is on.
  [[nodiscard]] static bool is_on() noexcept;
  /// Switches the trace on. The file is written by `write()`, and when the process exits. `%p` in
  /// the name stands for the process id. Returns false, after one line on stderr, if the file
  /// cannot be written. Does nothing if the trace is on already.
  static bool start(const char* file);
  /// Writes what was recorded so far, and replaces the contents of the file. It waits for no
  /// stream: work that is not complete has no end yet. Returns false if the trace is off, in a
  /// forked child, or if the file cannot be written, which is reported once on stderr.
  static bool write();
};

/// Shows the work that is submitted to a stream in a scope as one interval of the stream, for
/// example kernels, which the library does not see otherwise. It measures work of a stream, for
/// runnel's trace and hook. A ProfilerRange (profiler.hpp) shows the time of the calling thread, in
/// a vendor's profiler.
class [[nodiscard]] TraceRange {
 public:
  /// `name` must live as long as this object. Null is treated as "".
  [[nodiscard]] TraceRange(StreamRef stream, const char* name) : stream_{stream}, name_{name} {
    if (detail::has_observers(detail::observer_hook | detail::observer_trace)) [[unlikely]]
      begin();
  }
  /// @cond
  template <detail::TemporaryStream S>
  TraceRange RUNNEL_REFUSED_TEMPORARY_STREAM(S&&, const char*);
  /// @endcond
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
  ~TraceRange() {
    if (number_ != 0) [[unlikely]]
      end();
  }

 private:
  void begin();
  void end() noexcept;

  StreamRef stream_;
  const char* name_;
  std::uint64_t number_ = 0;
};

}  // namespace runnel::inline RUNNEL_ABI
