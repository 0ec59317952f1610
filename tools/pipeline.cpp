// SPDX-License-Identifier: Apache-2.0
#include "pipeline.hpp"

#include "launch_byte_kernel.hpp"

#include <runnel/copy.hpp>
#include <runnel/event.hpp>
#include <runnel/memory.hpp>
#include <runnel/stream.hpp>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace tool {

namespace {

using clock = std::chrono::steady_clock;

// 100 bytes each: so that the memory of a long run of small chunks stays bounded too.
constexpr std::size_t most_times_kept = std::size_t{1} << 20;

/// The place of one chunk in flight: its memory on both sides and the marks around its steps. Used again when the chunk is written.
struct Place {
  Place(std::size_t chunk, runnel::StreamRef stream) : host{chunk}, device{chunk, stream}, counts{256, stream} {
    runnel::fill(stream, counts, 0);
  }

  runnel::PinnedBuffer<unsigned char> host;
  runnel::DeviceBuffer<unsigned char> device;
  runnel::DeviceBuffer<ByteCount> counts;  // of all chunks that were here
  runnel::TimedEvent arriving, arrived, computed, returned;
  std::size_t bytes = 0;
  ChunkTimes times{};
};

class Pipeline {
 public:
  Pipeline(runnel::Device device, InputFile& input, OutputFile& output, const ByteMap& map, const PipelineOptions& options,
           const std::function<void(std::uint64_t)>& progress)
      : input_{input}, output_{output}, map_{map}, options_{options}, progress_{progress} {
    streams_.reserve(options.streams);
    for (std::size_t i = 0; i < options.streams; ++i) streams_.emplace_back(device);
    places_.resize(options.in_flight);
    match_clocks();
  }
  ~Pipeline() {
    // Pinned memory must not go while a copy is on its way.
    for (const runnel::Stream& stream : streams_) try {
        stream.synchronize();
      } catch (...) {  // an error that already made its way to the caller, or came too late to matter
      }
  }

  PipelineResult run() {
    std::thread writer{[this] { write_all(); }};
    std::exception_ptr failure;
    try {
      submit_all();
    } catch (...) {
      failure = std::current_exception();
    }
    finish_submitting(failure != nullptr);
    writer.join();
    if (write_failure_) std::rethrow_exception(write_failure_);  // first: submitting may have stopped because of it
    if (failure) std::rethrow_exception(failure);
    result_.seconds = since_start() / 1000;
    collect_counts();
    return std::move(result_);
  }

 private:
  [[nodiscard]] double since_start() const { return std::chrono::duration<double, std::milli>(clock::now() - start_).count(); }
  [[nodiscard]] Place& place(std::size_t chunk) { return *places_[chunk % places_.size()]; }

  /// Finds a mark in a stream and the host's time of it, so that both kinds of times fit into one picture. The mark lies between the
  /// two looks at the clock, which a busy machine may hold far apart: so the closest of some tries.
  void match_clocks() {
    using namespace std::chrono_literals;
    auto closest = clock::duration::max();
    for (int i = 0; i < 20 && closest > 30us; ++i) {
      runnel::TimedEvent mark;
      const auto before = clock::now();
      mark.record(streams_[0]);
      mark.synchronize();
      const auto apart = clock::now() - before;
      if (apart >= closest) continue;
      closest = apart;
      start_ = before + apart / 2;
      start_mark_ = std::move(mark);
    }
  }

  /// In the calling thread: reads chunk i + 1 while the device works on chunk i.
  void submit_all() {
    for (std::size_t chunk = 0; wait_for_place(chunk); ++chunk) {
      const std::size_t lane = chunk % streams_.size();
      const runnel::StreamRef stream = streams_[lane];
      if (chunk < places_.size()) places_[chunk] = std::make_unique<Place>(options_.chunk, stream);
      Place& here = place(chunk);

      const double reading = since_start();
      here.bytes = input_.read({here.host.data(), here.host.size()});
      if (here.bytes == 0) return;
      here.times = {.chunk = chunk, .stream = lane, .read = {reading, since_start()}, .in = {}, .compute = {}, .out = {}, .write = {}};
      submit(here, stream);
      publish(chunk);
      if (here.bytes < options_.chunk) return;
    }
  }

  /// The main job: in, compute, out, one after the other in the chunk's stream and beside other chunks in theirs.
  void submit(Place& here, runnel::StreamRef stream) {
    const runnel::DeviceSpan<unsigned char> bytes = here.device.span().subspan(0, here.bytes);
    stream.record_event(here.arriving);
    runnel::copy_bytes(stream, bytes.data(), here.host.data(), here.bytes);
    stream.record_event(here.arrived);
    launch_byte_kernel(stream, bytes, map_, here.counts);
    stream.record_event(here.computed);
    runnel::copy_bytes(stream, here.host.data(), bytes.data(), here.bytes);
    stream.record_event(here.returned);
  }

  /// In a thread of its own: waits for each chunk in order and writes it.
  void write_all() try {
    for (std::size_t chunk = 0; wait_for_chunk(chunk); ++chunk) {
      Place& here = place(chunk);
      here.returned.synchronize();
      const double writing = since_start();
      output_.write({here.host.data(), here.bytes});
      here.times.write = {writing, since_start()};

      result_.bytes += here.bytes;
      ++result_.chunks;
      if (result_.times.size() < most_times_kept) result_.times.push_back(measured(here));
      progress_(result_.bytes);
      give_back_place(chunk);
    }
  } catch (...) {
    const std::lock_guard lock{mutex_};
    write_failure_ = std::current_exception();
    stopped_ = true;
    changed_.notify_all();
  }

  [[nodiscard]] ChunkTimes measured(const Place& here) const {
    const auto at = [&](const runnel::TimedEvent& mark) { return std::chrono::duration<double, std::milli>(mark - start_mark_).count(); };
    ChunkTimes times = here.times;
    times.in = {at(here.arriving), at(here.arrived)};
    times.compute = {times.in.stop, at(here.computed)};
    times.out = {times.compute.stop, at(here.returned)};
    return times;
  }

  void collect_counts() {
    runnel::PinnedBuffer<ByteCount> counts{256};
    for (const auto& used : places_) {
      if (!used) continue;
      runnel::copy(streams_[0], counts, used->counts);
      streams_[0].synchronize();
      for (std::size_t byte = 0; byte < 256; ++byte) result_.histogram[byte] += counts[byte];
    }
  }

  // How the two threads hand places to each other.
  bool wait_for_place(std::size_t chunk) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return stopped_ || chunk - written_ < places_.size(); });
    return !stopped_;
  }
  void publish(std::size_t chunk) {
    const std::lock_guard lock{mutex_};
    submitted_ = chunk + 1;
    changed_.notify_all();
  }
  void finish_submitting(bool failed) {
    const std::lock_guard lock{mutex_};
    all_submitted_ = true;
    stopped_ = stopped_ || failed;
    changed_.notify_all();
  }
  bool wait_for_chunk(std::size_t chunk) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return stopped_ || chunk < submitted_ || all_submitted_; });
    return !stopped_ && chunk < submitted_;
  }
  void give_back_place(std::size_t chunk) {
    const std::lock_guard lock{mutex_};
    written_ = chunk + 1;
    changed_.notify_all();
  }

  InputFile& input_;
  OutputFile& output_;
  const ByteMap& map_;
  const PipelineOptions& options_;
  const std::function<void(std::uint64_t)>& progress_;

  std::vector<runnel::Stream> streams_;         // before the places, whose memory is freed in their order
  std::vector<std::unique_ptr<Place>> places_;  // made when first needed: a short file needs few
  runnel::TimedEvent start_mark_;
  clock::time_point start_;
  PipelineResult result_;  // the writer's, until it is joined

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::size_t submitted_ = 0;
  std::size_t written_ = 0;
  bool all_submitted_ = false;
  bool stopped_ = false;
  std::exception_ptr write_failure_;
};

}  // namespace

PipelineResult run_pipeline(runnel::Device device, InputFile& input, OutputFile& output, const ByteMap& map, const PipelineOptions& options,
                            const std::function<void(std::uint64_t)>& progress) {
  return Pipeline{device, input, output, map, options, progress}.run();
}

}  // namespace tool
