// SPDX-License-Identifier: Apache-2.0
#include <runnel/overlap.hpp>

#include "base/announce.hpp"
#include "base/check.hpp"
#include "base/process.hpp"
#include "base/relaxed_capture.hpp"
#include "base/sync.hpp"
#include "capture/open_captures.hpp"
#include "capture/refusals.hpp"
#include "overlap/device_run.hpp"
#include "overlap/error.hpp"
#include "overlap/plan.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace runnel::inline RUNNEL_ABI::detail {
namespace {

// Each takes 150 bytes. The limit bounds the memory of a long run of small chunks.
constexpr size_t max_times_kept = size_t{1} << 20;

/// One call of overlap(). The calling thread reads from sources and enqueues; the finisher waits
/// for the chunks in order and writes to a sink. It is a second thread. Between ranges it is the
/// calling thread, because the host has no work between the steps, and starting a thread takes 0.3
/// ms.
class OverlapRun {
 public:
  /// @throws errc::out_of_memory if not even the smallest sizes that the options permit can be
  /// allocated
  OverlapRun(OverlapPlan plan, const OverlapOptions& options, OverlapFunction function)
      : plan_{std::move(plan)}, options_{options}, function_{function}, read_(plan_.inputs.size()) {
    const OverlapPlan wanted = plan_;
    // The second attempt begins with the same sizes: the first one has waited for its streams, on
    // which an earlier run may have freed memory.
    if (try_runs() || try_sizes()) return;
    // Other streams may free memory when their work completes. Waiting for them is the last resort,
    // because they may be busy for long.
    wait_for_devices();
    plan_ = wanted;
    if (try_sizes()) return;
    throw_shortage();
  }

  OverlapResult run() {
    {
      const bool is_alone = !plan_.needs_host() && !options_.progress;
      const std::jthread finisher = is_alone ? std::jthread{} : start_finisher();
      submit_all(is_alone);
    }
    if (failure_.cause == nullptr) finish_runs();
    runs_.clear();  // After a failure, this waits for the chunks that are still in flight.
    if (failure_.cause != nullptr)
      throw_overlap_error(failure_.chunk, failure_.step, failure_.cause);
    result_.time = OverlapClock::now() - start_;
    result_.strategy = plan_.strategy;
    result_.chunk = plan_.chunk;
    result_.in_flight = plan_.in_flight;
    return std::move(result_);
  }

 private:
  struct Failure {
    size_t chunk = 0;
    const char* step = "";
    std::exception_ptr cause;
  };

  /// Creates the device runs with the plan's sizes, or with the largest smaller sizes that can be
  /// allocated. Returns false if there are none.
  [[nodiscard]] bool try_sizes() {
    do {
      if (try_runs()) return true;
    } while (shrink(plan_, options_));
    return false;
  }
  [[nodiscard]] bool try_runs() try {
    for (size_t i = 0; i < plan_.devices.size(); ++i)
      runs_.push_back(std::make_unique<DeviceRun>(plan_, i, options_.record_times, start_));
    return true;
  } catch (const OverlapShortage& shortage) {
    for (const auto& run : runs_) run->free_buffers();
    runs_.clear();
    shortage_ = shortage;
    return false;
  }
  [[noreturn]] void throw_shortage() const {
    try {
      std::rethrow_exception(shortage_.cause);
    } catch (const Error& error) {
      // throw_error() adds the runtime's reason. A reason of the library, such as a limit, is only
      // in the text.
      throw_shortage(error.native_code() != 0 ? error.operation()
                                              : error.what() + std::strlen("runnel: could not "),
                     error.native_code(), error.native_name());
    } catch (const std::bad_alloc&) {
      throw_shortage("allocate host memory", 0, "");
    }
  }
  [[noreturn]] void throw_shortage(const char* refused, int native_code,
                                   const char* native_name) const {
    const std::string reason = describe_memory(plan_) + " have no room: could not " + refused;
    throw_error(errc::out_of_memory, overlap_operation, reason.c_str(), native_code, native_name);
  }
  /// Waits for the devices, and ignores failures, which the following allocations report. Does
  /// nothing if the process has captured streams, because the wait would break a capture.
  void wait_for_devices() const noexcept {
    if (any_capture_seen()) return;
    for (const Device device : plan_.devices) try {
        device.synchronize();
      } catch (...) {
      }
  }

  [[nodiscard]] DeviceRun& run_of(size_t chunk) noexcept { return *runs_[chunk % runs_.size()]; }
  size_t index_in_run(size_t chunk) const noexcept { return chunk / runs_.size(); }
  ChunkRecord& record(size_t chunk) noexcept { return run_of(chunk).record(index_in_run(chunk)); }
  std::chrono::nanoseconds since_start() const { return OverlapClock::now() - start_; }

  // The following functions run on the calling thread.
  void submit_all(bool is_alone) {
    const char* step = "reading";
    size_t chunk = 0;
    try {
      for (;; ++chunk) {
        if (is_alone && chunk - finished_ == max_enqueued() && !finish_next()) return;
        if (!wait_for_record(chunk)) break;
        step = "reading";
        if (!begin(chunk)) break;
        step = "enqueueing";
        run_of(chunk).submit(index_in_run(chunk), function_);
        pass_record(submitted_);
      }
    } catch (...) {
      fail(chunk, step, std::current_exception());
    }
    {
      const std::lock_guard lock{mutex_};
      all_submitted_ = true;
      changed_.notify_all();
    }
    if (is_alone) finish_all();
  }

  /// Waits for the streams. An exception that is thrown only here, such as one of a function of
  /// `on_complete()`, is assigned to the last chunk.
  void finish_runs() {
    try {
      for (const auto& run : runs_) run->finish();
    } catch (...) {
      fail(std::max<size_t>(result_.chunks, 1) - 1, "computing", std::current_exception());
    }
  }

  /// Fills in the chunk's record, and reads the chunk from the sources. Returns false at the end of
  /// the input.
  [[nodiscard]] bool begin(size_t chunk) {
    ChunkRecord& here = record(chunk);
    here.times = {.chunk = chunk,
                  .buffer = index_in_run(chunk) % plan_.buffers,
                  .device = run_of(chunk).device().ordinal()};
    const std::chrono::nanoseconds reading = since_start();
    const size_t first = next_item_;
    const size_t before = std::min(plan_.halo, first);
    // The end of the chunk's items, including the halo, if known.
    std::optional<size_t> end = plan_.items;
    if (end) end = std::min(*end, first + plan_.chunk + plan_.halo);
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (plan_.inputs[i].kind != OverlapEnd::Kind::function) continue;
      const size_t here_end =
          read(i, chunk, first - before, end.value_or(first + plan_.chunk + plan_.halo));
      if (end && (plan_.items || i > 0) && here_end != *end)
        throw_invalid_argument(overlap_operation,
                               "the inputs do not have the same number of items");
      end = here_end;
    }
    if (*end == first) return false;
    if (plan_.has_source()) here.times.read = {reading, since_start()};
    next_item_ = first + here.chunk.emplace(plan_.describe(chunk, first, *end)).count;
    assign_output(here);
    return true;
  }

  /// Reads a source's items from `first` up to `end`, or up to the source's own end, into the
  /// chunk's record. Returns the end that was reached.
  size_t read(size_t input, size_t chunk, size_t first, size_t end) {
    const OverlapEnd& source = plan_.inputs[input];
    const size_t item = source.width * source.element_bytes;
    std::byte* to = record(chunk).in[input].data();
    auto& [until, ended] = read_[input];
    // The items that the halo shares with the previous chunk were read with that chunk.
    if (until > first) {
      const OverlapChunk& last = *record(chunk - 1).chunk;
      std::memmove(to,
                   record(chunk - 1).in[input].data() + (first - (last.first - last.before)) * item,
                   (until - first) * item);
    }
    if (ended || end <= until) return std::min(until, end);
    const size_t asked = (end - until) * source.width;
    std::byte* next = to + (until - first) * item;
    size_t got = 0;
    while (got < asked && !ended) {
      const size_t part = source.read(source.function, next, asked - got);
      if (part > asked - got)
        throw_invalid_argument(overlap_operation,
                               "the source says that it wrote more than there was room for");
      ended = part == 0;
      got += part;
      next += part * source.element_bytes;
    }
    if (got % source.width != 0)
      throw_invalid_argument(overlap_operation, "the source ended within an item");
    until += got / source.width;
    return until;
  }

  void assign_output(ChunkRecord& here) {
    const OverlapEnd& out = plan_.output;
    if (!plan_.has_output() || out.filtered) return;
    here.out_elements = plan_.output_elements(here.chunk->count);
    here.out_first = out_submitted_;
    if (!plan_.has_sink() && here.out_elements > out.size - here.out_first)
      throw_invalid_argument(overlap_operation,
                             "the output is too small for what the source brings");
    out_submitted_ += here.out_elements;
  }

  // The following functions belong to the finisher.
  [[nodiscard]] std::jthread start_finisher() try {
    return std::jthread{[this] { finish_all(); }};
  } catch (const std::system_error&) {
    throw_error(errc::out_of_memory, overlap_operation,
                "the system has no thread to wait for the chunks");
  }
  void finish_all() {
    size_t counted = 0;
    while (const std::optional<size_t> submitted = wait_for_chunk(finished_)) {
      // One filtered chunk is copied to the host while the finisher waits for the next one.
      const bool counts = plan_.output.filtered && counted < *submitted && counted - finished_ < 2;
      if (!(counts ? submit_filtered(counted++) : finish_next())) return;
    }
  }
  /// Calls `f(step)`, which sets the name of the phase. Returns false if it throws: then the chunk
  /// has failed.
  template <class F>
  bool succeeds(size_t chunk, F f) {
    const char* step = "computing";
    try {
      sync::happens_after(&record(chunk));
      f(step);
      return true;
    } catch (...) {
      fail(chunk, step, std::current_exception());
      return false;
    }
  }
  /// Finishes the earliest chunk in flight.
  [[nodiscard]] bool finish_next() {
    return succeeds(finished_, [&](const char*& step) {
      finish(finished_, step);
      pass_record(finished_);
    });
  }

  [[nodiscard]] bool submit_filtered(size_t chunk) {
    return succeeds(chunk, [&](const char*&) {
      ChunkRecord& here = record(chunk);
      here.out_first = out_submitted_;
      run_of(chunk).submit_filtered(index_in_run(chunk));
      out_submitted_ += here.out_elements;
    });
  }

  /// Waits for the chunk, writes its result to a sink, and counts it. `step` is set to the phase
  /// name for error messages.
  void finish(size_t chunk, const char*& step) {
    ChunkRecord& here = record(chunk);
    run_of(chunk).wait(index_in_run(chunk));
    step = "writing";
    run_of(chunk).read_times(here);
    if (plan_.has_sink()) {
      const std::chrono::nanoseconds writing = since_start();
      write(here.out.data(), here.out_elements);
      here.times.write = {writing, since_start()};
    }
    ++result_.chunks;
    result_.items += here.chunk->count;
    result_.written += here.out_elements;
    if (options_.record_times && result_.times.size() < max_times_kept)
      result_.times.push_back(here.times);
    step = "reporting progress";
    if (options_.progress) options_.progress({result_.chunks, result_.items, plan_.items});
  }

  /// Passes a chunk's result to the sink, which may take it in parts.
  void write(const std::byte* from, size_t elements) const {
    const OverlapEnd& sink = plan_.output;
    while (elements != 0) {
      const size_t part = sink.write(sink.function, from, elements);
      if (part == 0 || part > elements)
        throw_invalid_argument(
            overlap_operation,
            part == 0 ? "the sink took none of the elements that it was given"
                      : "the sink returned a negative number, or more elements than it was "
                        "given");
      from += part * sink.element_bytes;
      elements -= part;
    }
  }

  /// On all devices together.
  size_t max_enqueued() const noexcept { return plan_.max_enqueued() * plan_.devices.size(); }

  /// Whether a stop was requested. Sets result_.stopped, except if the request came after the last
  /// chunk.
  bool is_stopped() {
    if (!options_.stop.stop_requested()) return false;
    const bool sources_ended =
        std::ranges::any_of(read_, [&](const Read& r) { return r.ended && r.until == next_item_; });
    result_.stopped = plan_.items ? next_item_ < *plan_.items : !sources_ended;
    return true;
  }

  // The following functions pass records from one thread to the other.
  [[nodiscard]] bool wait_for_record(size_t chunk) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, options_.stop,
                  [&] { return failure_.cause != nullptr || chunk - finished_ < max_enqueued(); });
    if (is_stopped()) return false;
    if (chunk >= max_enqueued()) sync::happens_after(&record(chunk));
    return failure_.cause == nullptr;
  }
  /// Passes on the record of the next chunk. `count`: `submitted_` or `finished_`.
  void pass_record(size_t& count) {
    sync::happens_before(&record(count));
    const std::lock_guard lock{mutex_};
    ++count;
    changed_.notify_all();
  }
  /// Waits until the chunk is submitted. Returns the number of chunks submitted so far; empty if
  /// the chunk will not be submitted.
  [[nodiscard]] std::optional<size_t> wait_for_chunk(size_t chunk) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return chunk < submitted_ || all_submitted_; });
    return chunk < submitted_ ? std::optional{submitted_} : std::nullopt;
  }
  /// Stores the failure, unless an earlier chunk has failed.
  void fail(size_t chunk, const char* step, std::exception_ptr cause) {
    const std::lock_guard lock{mutex_};
    if (failure_.cause == nullptr || chunk < failure_.chunk)
      failure_ = {chunk, step, std::move(cause)};
    changed_.notify_all();
  }

  OverlapPlan plan_;  // The device runs refer to it.
  const OverlapOptions& options_;
  const OverlapFunction function_;
  const OverlapClock::time_point start_ = OverlapClock::now();

  // Used by the calling thread only.
  size_t next_item_ = 0;
  struct Read {
    size_t until = 0;  // In items.
    bool ended = false;
  };
  std::vector<Read> read_;  // For each input.

  // In elements. Used by the thread that enqueues the copies to the host: the finisher for filters,
  // otherwise the calling thread.
  size_t out_submitted_ = 0;
  // Used by the finisher until it is joined; `stopped` is used by the calling thread.
  OverlapResult result_;

  sync::Mutex mutex_;  // Guards the members from here to `failure_`.
  sync::ConditionVariableAny changed_;
  size_t submitted_ = 0;
  size_t finished_ = 0;
  bool all_submitted_ = false;
  Failure failure_;

  std::vector<std::unique_ptr<DeviceRun>> runs_;
  OverlapShortage shortage_;  // The reason why the last attempt to allocate failed.
};

}  // namespace

OverlapResult run_overlap(const OverlapEnd* inputs, size_t input_count, const OverlapEnd& output,
                          const OverlapOptions& options, OverlapFunction function) {
  enter(overlap_operation);
  if (own_capture()) throw_error(errc::capture, overlap_operation, refusal::overlap);
  OverlapPlan plan = plan_overlap(inputs, input_count, output, options);
  // There are no chunks.
  if (plan.buffers == 0)
    return {.strategy = plan.strategy, .chunk = plan.chunk, .in_flight = plan.in_flight};
  return OverlapRun{std::move(plan), options, function}.run();
}

}  // namespace runnel::inline RUNNEL_ABI::detail
