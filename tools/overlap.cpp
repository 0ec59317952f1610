// SPDX-License-Identifier: Apache-2.0
#include "overlap.hpp"

#include "byte_map.hpp"
#include "failure.hpp"
#include "files.hpp"
#include "launch_byte_kernel.hpp"
#include "pipeline.hpp"
#include "progress.hpp"
#include "size.hpp"
#include "timeline.hpp"

#include <runnel/config.hpp>
#include <runnel/device.hpp>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

namespace tool {

namespace {

constexpr bool host_backend = std::string_view{RUNNEL_BACKEND} == "host";
// The kernel's counters have 32 bits.
constexpr std::uint64_t largest_chunk = std::numeric_limits<std::uint32_t>::max();

runnel::Device chosen_device(int ordinal) {
  const int count = runnel::Device::count();
  if (count == 0) throw Failure(runnel::Device::why_none());
  if (ordinal < 0 || ordinal >= count)
    throw Failure("there is no device " + std::to_string(ordinal) + "; choose one from 0 to " + std::to_string(count - 1));
  return runnel::Device{ordinal};
}

/// Asked before anything is allocated: memory that a machine promises and does not have ends in the process being killed.
PipelineOptions fitted(const OverlapCommand& command, runnel::Device device, std::optional<std::uint64_t> file_size) {
  std::uint64_t chunk = parse_size("--chunk", command.chunk);
  const std::uint64_t on_device = device.memory_info().free;
  const std::uint64_t on_host = available_memory();
  // On the host backend the device's memory is the host's too.
  const std::uint64_t room = std::min(on_device, host_backend ? on_host / 2 : on_host);
  if (chunk > room)
    throw Failure("--chunk " + command.chunk + " does not fit into the " + to_text(room) +
                  " of memory that are free; choose a smaller one, as in 16M");
  if (chunk > largest_chunk) throw Failure("--chunk " + command.chunk + " is too large; choose one below 4G");

  auto in_flight = static_cast<std::uint64_t>(command.in_flight);
  if (file_size) {
    chunk = std::min(chunk, *file_size);
    in_flight = std::min(in_flight, (*file_size + chunk - 1) / chunk);
  }
  // Beside a chunk's bytes lie its counters, and allocators round up.
  constexpr std::uint64_t beside = 64 << 10;
  if (chunk > room / in_flight || in_flight * (chunk + beside) > room)
    throw Failure(std::to_string(in_flight) + " chunks of " + to_text(chunk) + " do not fit into the " + to_text(room) +
                  " of memory that are free; choose a smaller --chunk or --in-flight");
  return {static_cast<std::size_t>(chunk), static_cast<std::size_t>(in_flight), static_cast<std::size_t>(command.streams)};
}

std::string name_of_byte(std::size_t byte) {
  switch (byte) {
    case '\0':
      return "\\0";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case ' ':
      return "space";
    default:
      break;
  }
  char text[8];
  std::snprintf(text, sizeof text, byte > 0x20 && byte < 0x7f ? "'%c'" : "0x%02x", static_cast<unsigned>(byte));
  return text;
}

void print_histogram(std::FILE* to, const PipelineResult& result) {
  std::array<std::size_t, 256> order;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return result.histogram[a] > result.histogram[b]; });
  std::fprintf(to, "most frequent bytes of the input\n");
  const auto most = static_cast<double>(result.histogram[order[0]]);
  for (std::size_t i = 0; i < 8 && result.histogram[order[i]] > 0; ++i) {
    const auto count = static_cast<double>(result.histogram[order[i]]);
    const std::string bar(static_cast<std::size_t>(30 * count / most), '#');
    std::fprintf(to, "  %-6s %15llu  %5.1f %%  %s\n", name_of_byte(order[i]).c_str(),
                 static_cast<unsigned long long>(result.histogram[order[i]]), 100 * count / static_cast<double>(result.bytes), bar.c_str());
  }
}

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...) {
  char buffer[256];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

}  // namespace

int overlap(const OverlapCommand& command) {
  const ByteMap map = byte_map(command.table);
  if (const char* why = why_no_byte_kernel()) throw Failure(why);
  const runnel::Device device = chosen_device(command.device);
  InputFile input{command.in};
  const PipelineOptions options = fitted(command, device, input.size());
  OutputFile output{command.out, input};
  std::optional<OutputFile> timeline;
  if (!command.timeline.empty()) {
    timeline.emplace(command.timeline, input);
    if (timeline->target() == output.target() ||
        (output.is_regular() && std::filesystem::weakly_canonical(command.timeline) == std::filesystem::weakly_canonical(command.out)))
      throw Failure("the timeline and the result would be the same file; give --timeline another name");
  }

  const PipelineResult result = [&] {
    Progress bar{input.size()};
    return run_pipeline(device, input, output, map, options, [&](std::uint64_t bytes) { bar.update(bytes); });
  }();
  output.close();

  const Overlap measured = measure_overlap(result.times);
  const double rate = result.seconds > 0 ? static_cast<double>(result.bytes) / 1e9 / result.seconds : 0;
  const std::string hidden = text("%.0f %% of the transfer time hidden behind compute", 100 * measured.hidden_share());
  const std::string how = text("%zu %s of %s, at most %zu in flight, %zu %s, %s device %d", result.chunks,
                               result.chunks == 1 ? "chunk" : "chunks", to_text(options.chunk).c_str(), options.in_flight, options.streams,
                               options.streams == 1 ? "stream" : "streams", RUNNEL_BACKEND, device.ordinal());
  if (timeline) {
    const std::string name = std::filesystem::path{command.in}.filename().native();
    const std::string svg =
        draw_timeline(result.times, result.chunks,
                      {name + " (" + command.table + "): " + to_text(result.bytes) + text(" at %.2f GB/s, ", rate) + hidden, how});
    timeline->write({reinterpret_cast<const unsigned char*>(svg.data()), svg.size()});
    timeline->close();
  }
  output.commit();
  if (timeline) timeline->commit();

  // A result that goes to a pipe or a terminal stays alone there.
  std::FILE* to = output.is_regular() ? stdout : stderr;
  if (result.bytes == 0) {
    std::fprintf(stderr, "runnel: %s is empty, and so is %s now\n", in_quotes(command.in).c_str(), in_quotes(command.out).c_str());
    return 0;
  }
  std::fprintf(to, "%s -> %s, %s\n", in_quotes(command.in).c_str(), in_quotes(command.out).c_str(), command.table.c_str());
  std::fprintf(to, "  %llu bytes in %.3f s: %.2f GB/s\n", static_cast<unsigned long long>(result.bytes), result.seconds, rate);
  std::fprintf(to, "  %s\n", how.c_str());
  std::fprintf(to, "  transfers %.1f ms, compute %.1f ms: %s\n", measured.transfer_ms, measured.compute_ms, hidden.c_str());
  if (result.times.size() < result.chunks) std::fprintf(to, "  (times of the first %zu chunks)\n", result.times.size());
  print_histogram(to, result);
  if (timeline) std::fprintf(to, "timeline: %s\n", in_quotes(command.timeline).c_str());
  return 0;
}

}  // namespace tool
