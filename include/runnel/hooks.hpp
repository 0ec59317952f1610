// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_observing
/// One function of the program that the library calls for what it does: streams, events, waits,
/// copies, allocations, as they happen. While no hook is set this costs nothing. `runnel.hpp` does
/// not include this header. docs/tracing.md shows how to use it.
#pragma once

#include <runnel/memory_kind.hpp>
#include <runnel/native.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>

namespace runnel::inline RUNNEL_ABI {

/// What a hook is called for.
enum class HookKind : unsigned char {
  stream_made,     ///< a stream was created, or a native stream wrapped
  stream_ended,    ///< no Stream owns it any more, and its id is never used again
  event_recorded,  ///< an event was recorded on `stream`
  event_waited,    ///< `stream` waits for an event
  stream_waited,   ///< `stream` waits for `other_stream`
  copy,            ///< `bytes` bytes from `from` to `to`; a batch is one copy, and has no addresses
  fill,            ///< `bytes` bytes at `to`
  host_function,   ///< a host function was enqueued
  host_function_run,  ///< a host function runs: the hook is called on that thread, with the number
                      ///< of its `host_function`
  graph_launch,       ///< a graph was launched
  allocation,         ///< `bytes` bytes of memory of the kind `to_kind` at `to`
  deallocation,       ///< the memory at `to` was given back
  host_wait,          ///< the host waits for a stream, an event or a device
  range,              ///< a TraceRange (trace.hpp)
  lost_exception,  ///< `exception` has left a function of `stream`, which has ended: no wait will
                   ///< throw it
};
/// As in "graph launch".
[[nodiscard]] const char* to_string(HookKind kind) noexcept;

/// For copies, fills, host functions and their runs, graph launches, allocations, waits of the host
/// and ranges the hook is called before and after the call, with the same number. For all else it
/// is called once that has happened, with `after`.
enum class HookPhase : unsigned char { before, after };

/// A place in the source. (`std::source_location` is missing for clang 14.)
struct SourcePlace {
  const char* file = "";      ///< as the compiler was given it
  const char* function = "";  ///< its name
  unsigned line = 0;          ///< 0: no place
};

/// What happened. Its texts are valid while the hook runs; those of `operation` for ever, except
/// for ranges.
struct HookEvent {
  HookKind kind{};                     ///< what it is
  HookPhase phase = HookPhase::after;  ///< before the call or after it
  bool failed = false;    ///< in `after`: an exception ended the call, or leaves the host function
  bool captured = false;  ///< the work goes into a graph, and does not run now
  std::uint64_t number = 0;        ///< counts up; the same in `before` and `after`
  const char* operation = "";      ///< in the words of errors, as in "copy"
  std::uint64_t stream = 0;        ///< id of the stream; 0: none
  const char* stream_name = "";    ///< as in `StreamOptions::name`
  std::uint64_t other_stream = 0;  ///< id of a stream that is waited for
  int device = -1;                 ///< -1: none, or not known
  native::stream native_stream{};  ///< the vendor's handle of the stream
  native::event event{};           ///< the vendor's handle of the event
  const void* to =
      nullptr;  ///< what is written, allocated or freed; known after an allocation only
  const void* from = nullptr;             ///< what a copy reads
  std::size_t bytes = 0;                  ///< 0: none, or not known
  std::optional<MemoryKind> to_kind{};    ///< where the caller or the type of the memory says it
  std::optional<MemoryKind> from_kind{};  ///< likewise
  const std::exception_ptr* exception{};  ///< of `lost_exception`; valid while the hook runs
  SourcePlace where{};  ///< of the innermost HookLocation of the thread; line 0: there is none
};

/// The hook is called on the thread that makes the call (by several threads at once), and for
/// `host_function_run` on the runtime's thread. It must not use the library: operations throw
/// errc::not_permitted there. What the library does for itself within a call, as the copies of
/// which a fill consists, calls no hook.
using Hook = void (*)(const HookEvent&) noexcept;

/// Sets the hook, and returns the one that was set before; null: there is none. Streams and memory
/// may exist already. Calls that are under way on other threads may go to the old hook for a
/// moment.
Hook set_hook(Hook hook) noexcept;

/// The events of what the thread does in its scope have this place in the source.
class [[nodiscard]] HookLocation {
 public:
  /// Requires: guards of one thread end in the reverse order.
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
