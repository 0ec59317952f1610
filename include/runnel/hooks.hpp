// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_observing
/// A hook: one function of the program that the library calls for each of its operations on
/// streams, events and memory, as they happen. While no hook is set, there is no cost. `runnel.hpp`
/// does not include this header. docs/tracing.md shows how to use it.
#pragma once

#include <runnel/memory_kind.hpp>
#include <runnel/native.hpp>

#include <cstdint>
#include <exception>
#include <optional>

namespace runnel::inline RUNNEL_ABI {

/// The kind of operation that a hook is called for.
enum class HookKind : unsigned char {
  stream_made,     ///< a stream was created, or a native stream wrapped
  stream_ended,    ///< no Stream owns or wraps it any more; its id is never reused
  event_recorded,  ///< an event was recorded on `stream`
  event_waited,    ///< `stream` waits for an event
  stream_waited,   ///< `stream` waits for `other_stream`
  copy,  ///< a copy of `bytes` bytes from `from` to `to`; a batch is reported as one copy without
         ///< addresses
  fill,  ///< a fill of `bytes` bytes at `to`
  host_function,      ///< a host function was enqueued
  host_function_run,  ///< a host function runs: the hook is called on the same thread as the
                      ///< function, with the number of its `host_function` event
  graph_launch,       ///< a graph was launched
  allocation,         ///< `bytes` bytes of memory of the kind `to_kind` were allocated at `to`
  deallocation,       ///< the memory at `to` was freed
  host_wait,          ///< a host thread waits for a stream, an event or a device
  range,              ///< a TraceRange (trace.hpp)
  lost_exception,     ///< `exception` has left a function of `stream`, which was destroyed: no wait
                      ///< will throw it
};
/// The name of the kind in words, such as "graph launch".
[[nodiscard]] const char* to_string(HookKind kind) noexcept;

/// For copies, fills, host functions and their runs, graph launches, allocations, host waits and
/// ranges, the hook is called before and after the call, with the same number. For all other kinds
/// it is called once, after the operation, with `after`.
enum class HookPhase : unsigned char { before, after };

/// A location in the source. (`std::source_location` is missing in clang 14.)
struct SourcePlace {
  const char* file = "";      ///< as passed to the compiler
  const char* function = "";  ///< the name of the function
  unsigned line = 0;          ///< 0: no location
};

/// Describes an operation. Its texts are valid during the call of the hook; the text of `operation`
/// is valid until the process ends, except for ranges.
struct HookEvent {
  HookKind kind{};                     ///< the kind of operation
  HookPhase phase = HookPhase::after;  ///< before the call or after it
  bool failed = false;         ///< with `after`: the call, or the host function, threw an exception
  bool captured = false;       ///< the work is recorded into a graph, and does not run now
  std::uint64_t number = 0;    ///< increases with each operation; the same in `before` and `after`
  const char* operation = "";  ///< the operation's name, as in error texts: "copy"
  std::uint64_t stream = 0;    ///< id of the stream; 0: none
  const char* stream_name = "";    ///< StreamOptions::name
  std::uint64_t other_stream = 0;  ///< id of the stream that is waited for
  int device = -1;                 ///< -1: none, or unknown
  native::stream native_stream{};  ///< the vendor's handle of the stream
  native::event event{};           ///< the vendor's handle of the event
  const void* to = nullptr;  ///< the memory that is written, allocated or freed; for an allocation
                             ///< only with `after`
  const void* from = nullptr;  ///< the memory that a copy reads
  std::size_t bytes = 0;       ///< 0: none, or unknown
  std::optional<MemoryKind>
      to_kind{};  ///< the kind of memory, if the caller or the type of the memory states it
  std::optional<MemoryKind> from_kind{};  ///< likewise
  const std::exception_ptr*
      exception{};      ///< of `lost_exception`; valid during the call of the hook
  SourcePlace where{};  ///< the innermost HookLocation of the thread; line 0: there is none
};

/// A hook is called on the thread that calls the library, also on several threads at a time, and
/// for `host_function_run` on the runtime's thread. It must not use the library: operations throw
/// errc::not_permitted in a hook. It is not called for operations that are part of another
/// operation, such as the copies that make up a fill.
using Hook = void (*)(const HookEvent&) noexcept;

/// Sets the hook, and returns the previous one; null means no hook. Streams and memory may exist
/// already. Operations that are in progress on other threads may still call the old hook for a
/// moment.
Hook set_hook(Hook hook) noexcept;

/// While it lives, the thread's hook events have this source location.
class [[nodiscard]] HookLocation {
 public:
  /// Requires: the guards of one thread are destroyed in reverse order.
  [[nodiscard]] explicit HookLocation(const char* file = __builtin_FILE(),
                                      const char* function = __builtin_FUNCTION(),
                                      unsigned line = __builtin_LINE()) noexcept;
  HookLocation(const HookLocation&) = delete;
  HookLocation& operator=(const HookLocation&) = delete;
  ~HookLocation();

 private:
  SourcePlace here_;
  const SourcePlace* outer_;
};

}  // namespace runnel::inline RUNNEL_ABI
