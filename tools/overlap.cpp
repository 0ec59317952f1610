// SPDX-License-Identifier: Apache-2.0
#include "overlap.hpp"

#include "byte_map.hpp"
#include "failure.hpp"
#include "files.hpp"
#include "histogram.hpp"
#include "lanes.hpp"
#include "launch_byte_kernel.hpp"
#include "progress.hpp"
#include "size.hpp"
#include "streaming.hpp"
#include "timeline.hpp"
#include "trace.hpp"

#include <runnel/config.hpp>
#include <runnel/copy.hpp>
#include <runnel/device.hpp>
#include <runnel/memory.hpp>
#include <runnel/overlap.hpp>
#include <runnel/stream.hpp>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <optional>
#include <string_view>

namespace tool {

namespace {

/// Maps every byte of the file on the device, and counts the bytes.
runnel::OverlapResult map_file(InputFile& input, OutputFile& output, const ByteMap& map,
                               const runnel::OverlapOptions& options, Histogram& histogram) try {
  // Each chunk buffer has counters of its own, because chunks in different buffers may be computed
  // at the same time.
  const runnel::Stream stream{options.devices[0]};
  runnel::DeviceBuffer<ByteCount> counts(256 * options.in_flight, stream);
  // The first launch may compile the kernel, which would be shown as a chunk's computing.
  runnel::DeviceBuffer<unsigned char> byte(1, stream);
  runnel::fill(stream, byte, 0);
  launch_map_and_count(stream, byte.span(), byte.span(), map, counts.span().first(256));
  runnel::fill(stream, counts, 0);
  stream.synchronize();
  runnel::OverlapResult result = runnel::overlap(
      runnel::from_source<unsigned char>(
          [&](std::span<unsigned char> bytes) { return input.read(bytes); }),
      runnel::to_sink<unsigned char>(
          [&](std::span<const unsigned char> bytes) { output.write(bytes); }),
      options,
      [&](runnel::StreamRef in_order, runnel::DeviceSpan<const unsigned char> in,
          runnel::DeviceSpan<unsigned char> out, const runnel::OverlapChunk& chunk) {
        launch_map_and_count(in_order, in, out, map,
                             counts.span().subspan(256 * chunk.buffer, 256));
      });

  std::vector<ByteCount> counted(counts.size());
  runnel::copy(stream, counted, counts);
  stream.synchronize();
  for (std::size_t i = 0; i < counted.size(); ++i) histogram[i % 256] += counted[i];
  return result;
} catch (const runnel::OverlapError& error) {
  throw_cause(error);
}

/// Shortens a long name to its beginning and its end, so that a title has room for the result.
std::string shortened(const std::string& name) {
  constexpr std::size_t most = 40, side = (most - 3) / 2;
  return name.size() <= most ? name
                             : name.substr(0, side) + "..." + name.substr(name.size() - side);
}

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...) {
  char buffer[256];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

/// The files that the command writes. They replace existing files only at commit().
struct Outputs {
  Outputs(const OverlapCommand& command, const InputFile& input) : result{command.out, input} {
    open(timeline, command.timeline, input, "timeline");
    open(trace, command.trace, input, "trace");
    if (timeline && trace && trace->is_same(*timeline))
      throw Failure("the trace and the timeline would be the same file; give one another name");
  }

  void commit() {
    result.commit();
    if (timeline) timeline->commit();
    if (trace) trace->commit();
  }

  OutputFile result;
  std::optional<OutputFile> timeline, trace;

 private:
  void open(std::optional<OutputFile>& file, const std::string& name, const InputFile& input,
            const char* what) {
    if (name.empty()) return;
    file.emplace(name, input);
    if (file->is_same(result))
      throw Failure(std::string{"the "} + what +
                    " and the result would be the same file; give one another name");
  }
};

/// The report of a run.
struct Summary {
  std::size_t bytes;
  double seconds;
  double rate;  ///< in GB/s
  runnel::OverlapMeasure measured;
  std::size_t streams;
  std::vector<Lane> lanes;
  std::string slowest;  ///< the step that limits the speed, as text
  std::string hidden;   ///< how much of the transfer time was hidden, as text
  std::string how;      ///< sizes, strategy and device, as text
};

/// A text with the slowest step, and the rate of the run if the other steps took no time. Empty if
/// no times are known.
std::string slowest_step(std::span<const Lane> lanes, double bytes) {
  double most = 0;
  Step slowest{};
  for (std::size_t i = 0; i < step_count; ++i) {
    const auto step = static_cast<Step>(i);
    if (const double busy = busy_ms(lanes, step); busy > most) {
      most = busy;
      slowest = step;
    }
  }
  return most > 0 ? text("; slowest step: %s, %.2f GB/s", name_of(slowest), bytes / 1e6 / most)
                  : "";
}

Summary summarize(const runnel::OverlapResult& result, const runnel::OverlapOptions& options) {
  Summary s{};
  s.bytes = result.items;
  s.seconds = milliseconds(result.time) / 1000;
  s.rate = s.seconds > 0 ? static_cast<double>(s.bytes) / 1e9 / s.seconds : 0;
  s.measured = runnel::measure_overlap(result.times);
  s.streams = result.strategy == runnel::OverlapStrategy::copy_compute_copy
                  ? 3
                  : std::min({options.streams, options.in_flight, result.chunks});
  s.lanes = lanes_of(result.times, result.strategy, s.streams);
  // Times may exist only for the first chunks.
  const double timed = result.chunks > 0 ? static_cast<double>(result.times.size()) /
                                               static_cast<double>(result.chunks)
                                         : 0;
  s.slowest = slowest_step(s.lanes, static_cast<double>(s.bytes) * timed);
  s.hidden =
      text("%.0f %% of the transfer time hidden behind compute", 100 * s.measured.hidden_share());
  s.how = text("%zu %s of %s, at most %zu in flight, %s on %zu %s, %s device %d", result.chunks,
               result.chunks == 1 ? "chunk" : "chunks", to_text(options.chunk).c_str(),
               options.in_flight, name_of(result.strategy), s.streams,
               s.streams == 1 ? "stream" : "streams", RUNNEL_BACKEND, options.devices[0].ordinal());
  return s;
}

void write(OutputFile& file, const std::string& content) {
  file.write({reinterpret_cast<const unsigned char*>(content.data()), content.size()});
  file.close();
}

void write_pictures(Outputs& outputs, const OverlapCommand& command,
                    const runnel::OverlapResult& result, const Summary& summary) {
  if (!outputs.timeline && !outputs.trace) return;
  const std::string file_name = std::filesystem::path{command.in}.filename().native();
  const std::string what = " (" + command.table + "): " + to_text(summary.bytes);
  if (outputs.timeline) {
    const std::string title =
        shortened(file_name) + what + text(" at %.2f GB/s, ", summary.rate) + summary.hidden;
    write(*outputs.timeline, draw_timeline(summary.lanes, result.chunks, {title, summary.how}));
  }
  if (outputs.trace)
    write(*outputs.trace, trace_events(summary.lanes, "runnel overlap: " + file_name + what));
}

void print_summary(std::FILE* to, const OverlapCommand& command,
                   const runnel::OverlapResult& result, const Summary& s) {
  std::fprintf(to, "%s -> %s, %s\n", in_quotes(command.in).c_str(), in_quotes(command.out).c_str(),
               command.table.c_str());
  std::fprintf(to, "  %zu bytes in %.3f s: %.2f GB/s%s\n", s.bytes, s.seconds, s.rate,
               s.slowest.c_str());
  std::fprintf(to, "  %s\n", s.how.c_str());
  std::fprintf(to, "  transfers %.1f ms, compute %.1f ms: %s\n", milliseconds(s.measured.transfer),
               milliseconds(s.measured.compute), s.hidden.c_str());
  if (result.times.size() < result.chunks)
    std::fprintf(to, "  (times of the first %zu chunks)\n", result.times.size());
}

}  // namespace

int overlap(const OverlapCommand& command) {
  const ByteMap map = byte_map(command.table);
  if (const char* why = why_no_byte_kernel()) throw Failure(why);
  const runnel::Device device = chosen_device(command.streaming.device.value_or(0));
  InputFile input{command.in};
  runnel::OverlapOptions options = overlap_options_for(command.streaming, device, input.size());
  options.record_times = true;
  Outputs outputs{command, input};

  Histogram histogram{};
  const runnel::OverlapResult result = [&] {
    Progress bar{input.size()};
    options.progress = [&](const runnel::OverlapProgress& progress) { bar.update(progress.items); };
    return map_file(input, outputs.result, map, options, histogram);
  }();
  outputs.result.close();
  const Summary summary = summarize(result, options);
  write_pictures(outputs, command, result, summary);
  outputs.commit();

  if (summary.bytes == 0) {
    std::fprintf(stderr, "runnel: %s is empty, and so is %s now\n", in_quotes(command.in).c_str(),
                 in_quotes(command.out).c_str());
    return 0;
  }
  // If the result goes to a pipe, a terminal or the standard output, the report goes elsewhere.
  std::FILE* to = outputs.result.is_replaced() ? stdout : stderr;
  print_summary(to, command, result, summary);
  print_most_frequent(to, histogram, summary.bytes);
  if (outputs.timeline) std::fprintf(to, "timeline: %s\n", in_quotes(command.timeline).c_str());
  if (outputs.trace)
    std::fprintf(to, "trace: %s (open it in ui.perfetto.dev or chrome://tracing)\n",
                 in_quotes(command.trace).c_str());
  return 0;
}

}  // namespace tool
