// SPDX-License-Identifier: Apache-2.0
/// The unfinished writers of host memory in this process: work that may still write memory which
/// the host can read. A copy asks them whether it may read its pageable source at once. What else
/// is ahead in the copy's stream, and who has its handle, does not matter: kernels, fills and
/// copies of a device cannot write pageable memory, and the runtime's own copies to it are complete
/// when their call returns.
///
/// An entry begins before the runtime's call that enqueues the writer, so that whoever has seen the
/// writer run finds the entry. It ends after the last byte is written.
#pragma once

#include "base/not_copied.hpp"
#include "base/spin_lock.hpp"
#include "base/sync.hpp"
#include "slot/point.hpp"

#include <runnel/config.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {

class HostWriters {
 public:
  /// @{ Host functions: each may write any memory.
  void begin_functions(size_t count) noexcept;
  void end_functions(size_t count) noexcept;
  ///@}
  /// Whether an unfinished writer may write the bytes.
  bool may_write(const void* begin, size_t bytes) noexcept {
    return unfinished_.load(std::memory_order_acquire) != 0 && look(begin, bytes);
  }

 private:
  friend class RangeWriter;
  friend class OutsideWait;
  struct Range {
    uintptr_t begin = 0, end = 0;  // empty: unused
  };
  // One number counts the host functions (below), and the ranges.
  static constexpr uint64_t one_function = 1, one_listed = uint64_t{1} << 32;
  static constexpr size_t max_ranges = 64;

  [[nodiscard]] bool look(const void* pointer, size_t bytes) noexcept;
  [[nodiscard]] Range* begin_range(const void* begin, size_t bytes) noexcept;
  void end_range(Range* range) noexcept;
  [[nodiscard]] std::list<Point> take_wait() noexcept;
  void end_passed_waits() noexcept;

  sync::Atomic<uint64_t> unfinished_{0};
  SpinLock lock_;  // guards the rest
  // Points behind waits for something outside, one for each stream. Each counts as a function. A
  // thread takes an element out while it queries that stream.
  std::list<Point> waits_;
  std::array<Range, max_ranges> ranges_{};
};
[[nodiscard]] HostWriters& host_writers() noexcept;

/// A writer of one range, from its construction until end().
class RangeWriter {
 public:
  RangeWriter() noexcept = default;
  RangeWriter(const void* begin, size_t bytes, HostWriters& of = host_writers()) noexcept;
  RangeWriter(RangeWriter&& other) noexcept
      : of_{std::exchange(other.of_, nullptr)}, range_{other.range_} {}
  RangeWriter& operator=(RangeWriter&&) = delete;
  ~RangeWriter() { end(); }
  void end() noexcept;

 private:
  HostWriters* of_ = nullptr;            // null: ended
  HostWriters::Range* range_ = nullptr;  // null: counted as a function, because the list is full
};

/// Around the call that lets a stream wait for something outside of the library, such as another
/// process, which may write shared memory before that. It is an unfinished writer until the stream
/// has passed the wait.
class OutsideWait : NotCopied {
 public:
  /// @throws std::bad_alloc
  explicit OutsideWait(StreamRef stream, HostWriters& of = host_writers());
  ~OutsideWait();

 private:
  HostWriters& of_;
  std::list<Point> wait_;  // empty: not counted
};

}  // namespace runnel::inline RUNNEL_ABI::detail
