// SPDX-License-Identifier: Apache-2.0
/// \file
/// \ingroup topic_observing
/// The race checker finds missing waits while a program runs: two unordered operations on the same
/// bytes, at least one of which writes; use of memory that was freed; host accesses before the work
/// that uses the memory is complete. docs/race-checker.md shows how to use it.
#pragma once

#include <runnel/stream.hpp>

namespace runnel::inline RUNNEL_ABI {

/// Switches the race checker on and off, and declares accesses and waits that it cannot see. The
/// environment variable `RUNNEL_CHECK=1` switches it on from the first use of the library;
/// `RUNNEL_CHECK=abort` also ends the process at the first report. While it is off, every member
/// but `start` does nothing.
///
/// The checker sees streams, events, waits, copies, fills, allocations and frees that go through
/// this library. It does not see kernels and host functions: `StreamRef::declare_reads()` and
/// `StreamRef::declare_writes()` declare what they use. It assumes that every thread is ordered
/// after a wait by any host thread, because it does not see how threads synchronize with each
/// other.
class RaceChecker {
 public:
  RaceChecker() = delete;  ///< there is one checker; its functions are static

  /// Whether the checker is on.
  [[nodiscard]] static bool is_on() noexcept { return detail::is_checking(); }
  /// Switches the checker on. Work submitted before is treated as complete.
  static void start();
  /// Switches the checker off, and discards its state except the number of reports.
  static void stop();

  /// The number of reports so far.
  [[nodiscard]] static std::size_t reports() noexcept;
  /// A function that receives every report, as text of several lines. It may be called on any
  /// thread, and must not use the library.
  using Handler = void (*)(const char* report, void* data);
  /// Sets the handler of reports. Null, the initial value: reports are written to stderr.
  static void set_handler(Handler handler, void* data = nullptr);

  /// @{ Declares that the calling thread is about to read, or write, `bytes` bytes. Inside a host
  /// function the access is treated as work of its stream, at the place where the function was
  /// launched. Ignored inside a host function of a graph.
  static void host_reads(const void* pointer, std::size_t bytes);
  static void host_writes(const void* pointer, std::size_t bytes);
  ///@}
  ///@{ The same for all elements of a vector, a span or a buffer.
  template <class R>
  static void host_reads(const R& range) {
    if (is_on()) host_reads(range.data(), detail::size_in_bytes(range));
  }
  template <class R>
  static void host_writes(const R& range) {
    if (is_on()) host_writes(range.data(), detail::size_in_bytes(range));
  }
  ///@}

  /// Declares that the work submitted to the stream so far is complete, because the program has
  /// waited for it without this library, for example by cudaStreamSynchronize or Kokkos::fence.
  static void assume_complete(StreamRef stream);
  /// Declares that later work of `waiting` runs after the work submitted to `awaited` so far,
  /// because the program has ordered them without this library.
  static void assume_wait(StreamRef waiting, StreamRef awaited);
};

}  // namespace runnel::inline RUNNEL_ABI
