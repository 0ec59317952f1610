// SPDX-License-Identifier: Apache-2.0
/// One device's part of overlap(): its streams, its memory, and the steps of a chunk as the streams are told of them.
#pragma once

#include "overlap/plan.hpp"

#include <runnel/copy.hpp>
#include <runnel/event.hpp>
#include <runnel/memory.hpp>
#include <runnel/overlap.hpp>
#include <runnel/stream.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace runnel::inline RUNNEL_ABI::detail {

using OverlapClock = std::chrono::steady_clock;

/// A chunk on its way: what belongs to it on the host's side.
struct OverlapPlace {
  std::optional<OverlapChunk> chunk;
  std::size_t out_elements = 0;
  std::size_t out_first = 0;                // where in an output range they go
  std::vector<PinnedBuffer<std::byte>> in;  // of sources
  PinnedBuffer<std::byte> out;              // for a sink
  PinnedBuffer<std::size_t> count;          // of a filter

  Event arrived, computed, counted, returned;
  struct Marks {
    TimedEvent arriving, arrived, computing, computed, leaving, left;
  };
  std::unique_ptr<Marks> marks;  // if times are recorded
  OverlapChunkTimes times;
};

/// Thrown where a lane's memory cannot be allocated; overlap() then tries smaller sizes. The texts are literals.
struct OverlapShortage {
  const char* operation = "allocate host memory";
  int native_code = 0;
  const char* native_name = "";
};

class OverlapLane {
 public:
  /// If it throws, its streams have been waited for, and the memory that it or an earlier run freed in them is free.
  /// @throws OverlapShortage, or what making streams and events throws
  OverlapLane(const OverlapPlan& plan, Device device, bool record_times, OverlapClock::time_point start);
  OverlapLane(const OverlapLane&) = delete;
  OverlapLane& operator=(const OverlapLane&) = delete;
  /// Nothing is in flight afterwards, unless the device is lost.
  ~OverlapLane();

  /// Drops the memory before the lane goes, so that the end of the lane waits until it is free. Requires: nothing was submitted.
  void drop_memory() noexcept { slots_.clear(); }

  [[nodiscard]] Device device() const noexcept { return device_; }
  /// The place of this lane's n-th chunk.
  [[nodiscard]] OverlapPlace& place(std::size_t n) noexcept { return places_[n % places_.size()]; }

  /// Tells the streams to do the n-th chunk, which its place describes, but for the copy out of a filter's result.
  void submit(std::size_t n, const OverlapFunction& function);
  /// What the filter found, which this waits for, is told to come back.
  void submit_filtered(std::size_t n);
  /// Waits until the chunk is all done, and throws what it left behind.
  void wait(std::size_t n);
  /// Waits until nothing is in flight. @throws what a stream has to say at the end
  void finish();
  /// When its steps were.
  void read_times(OverlapPlace& here) const;

 private:
  struct Slot {
    std::vector<DeviceBuffer<std::byte>> in;
    std::optional<DeviceBuffer<std::byte>> out;
    std::optional<DeviceBuffer<std::size_t>> count;
  };
  struct Steps {
    StreamRef in, compute, out;
  };
  [[nodiscard]] Slot& slot(std::size_t n) noexcept { return slots_[n % slots_.size()]; }
  [[nodiscard]] Steps steps(std::size_t n) const noexcept;
  void make_events(bool record_times);
  void allocate();
  void allocate_on_device();
  void allocate_on_host();
  void release() noexcept;
  void match_clocks(OverlapClock::time_point start);
  void copy_in(const OverlapPlace& here, Slot& memory, StreamRef stream) const;
  void compute(OverlapPlace& here, Slot& memory, StreamRef stream, const OverlapFunction& function) const;
  void copy_out(OverlapPlace& here, Slot& memory, StreamRef stream) const;
  void deliver_failures(std::size_t n);
  void free_after_all_streams() noexcept;

  const OverlapPlan& plan_;
  Device device_;
  Pageable policy_;              // the calling thread's
  bool by_step_;                 // streams are one for each step, not one for each slot
  std::vector<Stream> streams_;  // before the memory, which is freed in their order
  std::vector<Slot> slots_;
  std::vector<OverlapPlace> places_;
  TimedEvent zero_;
  std::chrono::nanoseconds zero_at_{};  // since the start of the run
  bool finished_ = false;
};

}  // namespace runnel::inline RUNNEL_ABI::detail
