// SPDX-License-Identifier: Apache-2.0
/// One device's part of a run of overlap(): its streams, its memory, and the steps of a chunk.
#pragma once

#include "base/not_copied.hpp"
#include "overlap/plan.hpp"

#include <runnel/copy.hpp>
#include <runnel/event.hpp>
#include <runnel/memory.hpp>
#include <runnel/overlap.hpp>
#include <runnel/stream.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

using OverlapClock = std::chrono::steady_clock;

/// The host's record of a chunk in flight. The records of a device are reused in turn.
struct ChunkRecord {
  std::optional<OverlapChunk> chunk;
  size_t out_elements = 0;
  size_t out_first = 0;                     // The index of the first of them in an output range.
  std::vector<PinnedBuffer<std::byte>> in;  // Filled by sources; empty for ranges.
  PinnedBuffer<std::byte> out;              // For a sink.
  PinnedBuffer<size_t> count;               // For a filter.

  Event copied_in, computed, counted, copied_out;
  struct Timestamps {
    TimedEvent copy_in_begin, copy_in_end, compute_begin, compute_end, copy_out_begin, copy_out_end;
  };
  std::unique_ptr<Timestamps> timestamps;  // Null unless times are recorded.
  OverlapChunkTimes times;

  void record_time(TimedEvent Timestamps::* which, StreamRef stream) {
    if (timestamps != nullptr) stream.record_event((*timestamps).*which);
  }
};

/// Thrown if the memory of a run cannot be allocated; overlap() then tries smaller sizes.
struct OverlapShortage {
  std::exception_ptr cause;  // An Error, or a std::bad_alloc for host memory.
};

class DeviceRun : NotCopied {
 public:
  /// Acquires streams of the plan's device with this index, and allocates all memory. If the
  /// constructor throws, it has waited for its streams, so that memory that this or an earlier run
  /// has freed on them is available. @throws OverlapShortage, or the errors of creating streams and
  /// events
  DeviceRun(const OverlapPlan& plan, size_t index, bool record_times,
            OverlapClock::time_point start);
  /// Waits until no chunk is in flight, unless the device is lost.
  ~DeviceRun();

  /// Enqueues the frees of the device memory. The destructor then waits for them. Requires: no
  /// chunk was submitted.
  void free_buffers() noexcept { buffers_.clear(); }

  Device device() const noexcept { return device_; }
  /// The record of this device's n-th chunk.
  ChunkRecord& record(size_t n) noexcept { return records_[n % records_.size()]; }

  /// Enqueues all steps of the n-th chunk, as its record describes it; for a filter, all steps
  /// except the copy of the results to the host.
  void submit(size_t n, const OverlapFunction& function);
  /// Waits for the number of a filter's results, and enqueues the copy of the results to the host.
  void submit_filtered(size_t n);
  /// Waits until the chunk is finished. @throws the first error of the chunk's own work
  void wait(size_t n);
  /// Waits until no chunk is in flight. @throws an error that a stream has stored
  void finish();
  /// Stores the times of the chunk's steps in its record, if times are recorded.
  void read_times(ChunkRecord& here) const;

 private:
  /// Device memory for one chunk.
  struct ChunkBuffers {
    std::vector<DeviceBuffer<std::byte>> in;
    std::optional<DeviceBuffer<std::byte>> out;
    std::optional<DeviceBuffer<size_t>> count;
  };
  /// The streams of a chunk's three steps.
  struct Steps {
    StreamRef in, compute, out;
  };
  [[nodiscard]] ChunkBuffers& buffers_of(size_t n) noexcept {
    return buffers_[n % buffers_.size()];
  }
  [[nodiscard]] Steps steps_of(size_t n) const noexcept;
  void allocate();
  void allocate_on_device();
  void start_copy(size_t n) noexcept;
  void allocate_on_host();
  void release() noexcept;
  void match_clocks(OverlapClock::time_point start);
  const ChunkRecord* previous_user(size_t n) const noexcept;
  void copy_in(ChunkRecord& here, ChunkBuffers& buffers, StreamRef stream) const;
  void compute(ChunkRecord& here, ChunkBuffers& buffers, StreamRef stream,
               const OverlapFunction& function) const;
  void copy_out(size_t n);
  void deliver_failures(size_t n);
  void record_all_streams() noexcept;

  const OverlapPlan& plan_;
  const bool stream_per_step_;  // Strategy B. Otherwise each chunk has one stream.
  size_t index_;
  Device device_;
  Pageable policy_;  // Of the calling thread.
  // Declared before the buffers, which are freed in the order of the streams.
  std::vector<Stream> streams_;
  std::vector<ChunkBuffers> buffers_;
  std::vector<ChunkRecord> records_;
  TimedEvent origin_;
  std::chrono::nanoseconds
      origin_time_{};               // The host's time of `origin_`, since the start of the run.
  size_t copies_started_ = 0;       // The number of chunks whose copy start_copy() has enqueued.
  std::exception_ptr start_error_;  // The error of the last of these copies; submit() throws it.
  bool finished_ = false;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
