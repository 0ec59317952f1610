// SPDX-License-Identifier: Apache-2.0
/// One device's part of a run of overlap(): its streams, its memory, and the steps of a chunk.
#pragma once

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

/// The host's record of a chunk in flight. A device's places are reused in turn.
struct OverlapPlace {
  std::optional<OverlapChunk> chunk;
  bool by_step = false;  // strategy B: a stream for each step; otherwise one for the chunk
  std::size_t out_elements = 0;
  std::size_t out_first = 0;                // index of the first of them in an output range
  std::vector<PinnedBuffer<std::byte>> in;  // filled by sources; empty for ranges
  PinnedBuffer<std::byte> out;              // for a sink
  PinnedBuffer<std::size_t> count;          // for a filter

  Event arrived, computed, counted, returned;
  struct Marks {
    TimedEvent arriving, arrived, computing, computed, leaving, left;
  };
  std::unique_ptr<Marks> marks;  // null unless times are recorded
  OverlapChunkTimes times;
};

/// Thrown when the memory of a run cannot be allocated; overlap() then tries smaller sizes.
struct OverlapShortage {
  std::exception_ptr cause;  // an Error, or a std::bad_alloc for host memory
};

class DeviceRun {
 public:
  /// Takes streams of the plan's device of this index, and allocates all memory. If the constructor
  /// throws, it has waited for its streams, so that the memory that this or an earlier run freed in
  /// them is available. @throws OverlapShortage, or the errors of creating streams and events
  DeviceRun(const OverlapPlan& plan, std::size_t index, bool record_times,
            OverlapClock::time_point start);
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;
  /// Waits until nothing is in flight, unless the device is lost.
  ~DeviceRun();

  /// Frees the device memory before the destructor runs, which then waits until the memory is free.
  /// Requires: nothing was submitted.
  void free_buffers() noexcept { buffers_.clear(); }

  [[nodiscard]] Device device() const noexcept { return device_; }
  /// The place of this device's n-th chunk.
  [[nodiscard]] OverlapPlace& place(std::size_t n) noexcept { return places_[n % places_.size()]; }

  /// Enqueues all steps of the n-th chunk, which its place describes; for a filter, all but the
  /// copy out of the results.
  void submit(std::size_t n, const OverlapFunction& function);
  /// Waits for the number of a filter's results, and enqueues the copy of the results.
  void submit_filtered(std::size_t n);
  /// Waits until the chunk is finished. @throws the first error of the chunk's own work
  void wait(std::size_t n);
  /// Waits until nothing is in flight. @throws an error that a stream has kept
  void finish();
  /// Stores the times of the chunk's steps in its place, if times are recorded.
  void read_times(OverlapPlace& here) const;

 private:
  /// Device memory for one chunk.
  struct ChunkBuffers {
    std::vector<DeviceBuffer<std::byte>> in;
    std::optional<DeviceBuffer<std::byte>> out;
    std::optional<DeviceBuffer<std::size_t>> count;
  };
  /// The streams of a chunk's three steps.
  struct Steps {
    StreamRef in, compute, out;
  };
  [[nodiscard]] ChunkBuffers& buffers_of(std::size_t n) noexcept {
    return buffers_[n % buffers_.size()];
  }
  [[nodiscard]] Steps steps_of(std::size_t n) const noexcept;
  void make_events(bool record_times);
  void allocate();
  void allocate_on_device();
  void start_copy(std::size_t n) noexcept;
  void allocate_on_host();
  void release() noexcept;
  void match_clocks(OverlapClock::time_point start);
  [[nodiscard]] const OverlapPlace* previous_user(std::size_t n) const noexcept;
  void copy_in(const OverlapPlace& here, ChunkBuffers& buffers, StreamRef stream) const;
  void arrive(OverlapPlace& here, ChunkBuffers& buffers, StreamRef stream) const;
  void compute(OverlapPlace& here, ChunkBuffers& buffers, StreamRef stream,
               const OverlapFunction& function) const;
  void copy_out(OverlapPlace& here, ChunkBuffers& buffers, StreamRef stream) const;
  void submit_copy_out(std::size_t n);
  void deliver_failures(std::size_t n);
  void free_after_all_streams() noexcept;

  const OverlapPlan& plan_;
  std::size_t index_;
  Device device_;
  Pageable policy_;  // the calling thread's
  // declared before the buffers, which are freed in the streams' order
  std::vector<Stream> streams_;
  std::vector<ChunkBuffers> buffers_;
  std::vector<OverlapPlace> places_;
  TimedEvent zero_;
  std::chrono::nanoseconds zero_at_{};  // the host's time of `zero_`, since the start of the run
  std::size_t copies_started_ = 0;      // chunks that start_copy() has enqueued a copy for
  std::exception_ptr start_error_;      // of the last of them; submit() throws it
  bool finished_ = false;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
