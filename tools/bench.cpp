// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"

#include "backend.hpp"
#include "compare.hpp"
#include "failure.hpp"
#include "json.hpp"
#include "lanes.hpp"
#include "launch_byte_kernel.hpp"
#include "measure.hpp"
#include "size.hpp"
#include "streaming.hpp"
#include "timeline.hpp"

#include <runnel/config.hpp>
#include <runnel/device.hpp>
#include <runnel/staging.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <unistd.h>

namespace tool {

namespace {

struct Results {
  std::string device;
  std::size_t link_bytes;
  OverlapSizes sizes;
  std::vector<LinkRate> links;
  std::vector<OperationCost> operations;
  std::optional<OverlapRates> overlaps;
  std::optional<RangeRate> range;
};

/// Prints a line that replaces the previous one, if standard error is a terminal.
void announce(const std::string& what) {
  if (::isatty(STDERR_FILENO) == 1)
    std::fprintf(stderr, "\r\033[K%s", what.empty() ? "" : ("measuring: " + what + " ...").c_str());
}

OverlapSizes chosen_sizes(const BenchCommand& command) {
  OverlapSizes sizes{};
  for (const int ordinal : command.devices) {
    const runnel::Device device = chosen_device(ordinal);
    if (std::count(command.devices.begin(), command.devices.end(), ordinal) > 1)
      throw Misuse("--device " + std::to_string(ordinal) +
                   " is there twice; name each device once");
    sizes.devices.push_back(device);
  }
  sizes.in_flight = static_cast<std::size_t>(command.in_flight);
  sizes.bytes = static_cast<std::size_t>(
      parse_size("--size", command.size.empty() ? (host_backend ? "256M" : "2G") : command.size));
  sizes.chunk = static_cast<std::size_t>(
      parse_size("--chunk", command.chunk.empty() ? (host_backend ? "4M" : "64M") : command.chunk));
  // Each device gets as many bytes as the others, and at least one.
  sizes.bytes -= sizes.bytes % sizes.devices.size();
  sizes.bytes = std::max(sizes.bytes, sizes.devices.size());
  sizes.chunk = std::min(sizes.chunk, sizes.bytes);
  // The measurements need memory for input and output, both pinned and pageable; on the host
  // backend also for the device's memory. This is checked before any allocation, because a system
  // may grant more memory than it has, and then kill the process.
  const std::uint64_t room = available_memory();
  if (sizes.bytes > room / (host_backend ? 8 : 4))
    throw Failure("--size " + to_text(sizes.bytes) +
                  " needs four to eight times that much memory, and " + to_text(room) +
                  " are free; choose a smaller one");
  for (const runnel::Device device : sizes.devices)
    if (const std::uint64_t free = device.memory_info().free; 2 * sizes.bytes > free)
      throw Failure("--size " + to_text(sizes.bytes) +
                    " needs twice that much memory of the device, of which " + to_text(free) +
                    " are free; choose a smaller one");
  return sizes;
}

void print_bound(const HostBound& bound) {
  std::printf("bound of the host's memory, %zu %s both ways at once: %.2f GB/s each way",
              bound.threads, bound.threads == 1 ? "thread copies" : "threads copy", bound.alone);
  if (!host_backend) std::printf(", %.2f beside the device's copies", bound.beside_devices);
  std::printf("\n");
}

std::string of_bound_text(const OverlapRate& rate) {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.2f", rate.of_bound);
  return rate.of_bound > 0 ? digits : "-";
}

void print_table(const Results& r) {
  std::printf("runnel %s, %s backend, %s\n", RUNNEL_VERSION, RUNNEL_BACKEND, r.device.c_str());
  std::printf("host processors: %u, staging workers: %d\n", std::thread::hardware_concurrency(),
              runnel::Staging::options().workers);

  std::printf("\ncopies of %s      pinned memory                 pageable memory\n",
              to_text(r.link_bytes).c_str());
  std::printf("%-22s %10s %16s %13s %16s\n", "", "GB/s", "caller held, us", "GB/s",
              "caller held, us");
  for (const char* direction : {"in", "out", "both"}) {
    std::printf("  %-20s",
                std::string_view{direction} == "both" ? "both ways, together" : direction);
    for (const LinkRate& link : r.links)
      if (link.direction == direction)
        std::printf(" %10.2f %16.1f  ", link.gigabytes_per_s, link.call_us);
    std::printf("\n");
  }

  std::printf("\n%-34s ns of the calling thread\n", "operation");
  for (const OperationCost& operation : r.operations)
    std::printf("  %-32s %10.1f\n", operation.operation.c_str(), operation.ns);

  if (r.overlaps) {
    std::printf("\n2x + 1 of every byte of %s in chunks of %s, %zu in flight%s\n",
                to_text(r.sizes.bytes).c_str(), to_text(r.sizes.chunk).c_str(), r.sizes.in_flight,
                r.sizes.devices.size() > 1 ? " on each device" : "");
    if (host_backend)
      std::printf("(rounds: %u, so that computing lasts about as long as the transfers)\n",
                  r.overlaps->rounds);
    else
      std::printf("limit, both ways at once from pinned memory: %.2f GB/s each way\n",
                  r.overlaps->limit);
    print_bound(r.overlaps->bound);
    std::printf("  %-10s %-22s %10s %10s %10s %10s\n", "memory", "strategy", "GB/s", "of limit",
                "of bound", "speed-up");
    for (const OverlapRate& rate : r.overlaps->rates)
      std::printf("  %-10s %-22s %10.2f %10.2f %10s %10.2f%s\n", rate.memory.c_str(),
                  rate.strategy.c_str(), rate.gigabytes_per_s, rate.of_limit,
                  of_bound_text(rate).c_str(), rate.speedup,
                  rate.strategy == "automatic" ? ("  (" + rate.chosen + ")").c_str() : "");
  }
  if (r.range)
    std::printf(
        "\n%s in pageable memory, in place, through %s of device memory: %.2f s, %.2f GB/s, every "
        "byte right\n",
        to_text(r.range->bytes).c_str(), to_text(r.range->device_bytes).c_str(), r.range->seconds,
        r.range->gigabytes_per_s);
}

Json copies_json(const std::vector<LinkRate>& links) {
  Json all = Json::array();
  for (const LinkRate& link : links)
    all.push_back({{"direction", link.direction},
                   {"memory", link.memory},
                   {"gigabytes_per_s", link.gigabytes_per_s},
                   {"held_us", link.call_us}});
  return all;
}

Json operations_json(const std::vector<OperationCost>& operations) {
  Json all = Json::array();
  for (const OperationCost& operation : operations)
    all.push_back({{"operation", operation.operation}, {"ns", operation.ns}});
  return all;
}

Json overlap_json(const OverlapSizes& sizes, const OverlapRates& overlaps) {
  Json rates = Json::array();
  for (const OverlapRate& rate : overlaps.rates) {
    Json& one = rates.emplace_back(Json{{"memory", rate.memory},
                                        {"strategy", rate.strategy},
                                        {"chosen", rate.chosen},
                                        {"gigabytes_per_s", rate.gigabytes_per_s},
                                        {"of_limit", rate.of_limit}});
    if (rate.of_bound > 0) one["of_bound"] = rate.of_bound;
    one["speedup"] = rate.speedup;
  }
  return {{"bytes", sizes.bytes},
          {"chunk", sizes.chunk},
          {"in_flight", sizes.in_flight},
          {"rounds", overlaps.rounds},
          {"limit_gigabytes_per_s", overlaps.limit},
          {"bound_threads", overlaps.bound.threads},
          {"bound_gigabytes_per_s", overlaps.bound.alone},
          {"bound_beside_devices_gigabytes_per_s", overlaps.bound.beside_devices},
          {"rates", std::move(rates)}};
}

Json to_json(const Results& r) {
  Json json{{"version", RUNNEL_VERSION},
            {"backend", RUNNEL_BACKEND},
            {"device", r.device},
            {"devices", r.sizes.devices.size()},
            {"host_processors", std::thread::hardware_concurrency()},
            {"copy_bytes", r.link_bytes},
            {"copies", copies_json(r.links)},
            {"operations", operations_json(r.operations)}};
  if (r.overlaps) json["overlap"] = overlap_json(r.sizes, *r.overlaps);
  if (r.range)
    json["range"] = {{"bytes", r.range->bytes},
                     {"device_bytes", r.range->device_bytes},
                     {"seconds", r.range->seconds},
                     {"gigabytes_per_s", r.range->gigabytes_per_s}};
  return json;
}

/// Draws a timeline for each strategy and kind of memory, into files such as
/// "pinned-stream-per-chunk.svg".
void draw_timelines(const Results& r, const std::filesystem::path& folder) {
  for (const OverlapRate& rate : r.overlaps->rates) {
    if (rate.strategy == "automatic") continue;  // It is the same as one of the other strategies.
    const bool by_step = rate.chosen == name_of(runnel::OverlapStrategy::copy_compute_copy);
    const std::size_t in_flight = rate.strategy == "one after the other" ? 1 : r.sizes.in_flight;
    const auto lanes = lanes_of(rate.times,
                                by_step ? runnel::OverlapStrategy::copy_compute_copy
                                        : runnel::OverlapStrategy::stream_per_chunk,
                                in_flight);
    char title[200];
    std::snprintf(title, sizeof title,
                  "%s, %s memory: %.1f GB/s each way, %.2f of what the link carries",
                  rate.strategy.c_str(), rate.memory.c_str(), rate.gigabytes_per_s, rate.of_limit);
    const std::string how = to_text(r.sizes.bytes) + " in chunks of " + to_text(r.sizes.chunk) +
                            ", " + std::to_string(in_flight) + " in flight, " + RUNNEL_BACKEND +
                            ", " + r.device;
    std::string name = rate.memory + "-" + rate.strategy + ".svg";
    std::erase(name, ',');
    std::ranges::replace(name, ' ', '-');
    std::ofstream file{folder / name};
    file << draw_timeline(lanes, rate.times.size(), {title, how});
    if (!file.flush())
      throw Failure("cannot write " + in_quotes((folder / name).native()) +
                    "; check the name of the folder");
  }
}

/// The results before any measurement: the device and the sizes.
Results describe(const BenchCommand& command) {
  Results results{};
  results.sizes = chosen_sizes(command);
  results.sizes.record_times = !command.timelines.empty();
  if (results.sizes.record_times && !std::filesystem::is_directory(command.timelines))
    throw Failure("--timelines " + in_quotes(command.timelines) +
                  " is no folder; name an existing folder");
  if (results.sizes.record_times && results.sizes.devices.size() > 1)
    throw Misuse("--timelines draws one device; name one with --device");
  results.device = results.sizes.devices[0].name();
  if (results.sizes.devices.size() > 1)
    results.device = std::to_string(results.sizes.devices.size()) + " x " + results.device;
  results.link_bytes = std::min<std::size_t>(results.sizes.bytes, std::size_t{512} << 20);
  return results;
}

void measure(Results& results, const std::optional<OverlapSizes>& range) {
  const runnel::Device device = results.sizes.devices[0];
  results.links = measure_links(device, results.link_bytes, announce);
  results.operations = measure_operations(device, announce);
  if (const char* why = why_no_byte_kernel()) {
    std::fprintf(stderr, "runnel: overlap is not measured: %s\n", why);
  } else {
    results.overlaps = measure_overlaps(results.sizes, announce);
    if (range) results.range = measure_range(*range, announce);
  }
  announce("");
}

std::optional<OverlapSizes> chosen_range(const BenchCommand& command, OverlapSizes sizes) {
  if (command.range.empty()) return std::nullopt;
  sizes.bytes = static_cast<std::size_t>(parse_size("--range", command.range));
  if (sizes.bytes > available_memory())
    throw Failure("--range " + command.range + " does not fit into the " +
                  to_text(available_memory()) + " of memory that are free; choose a smaller one");
  return sizes;
}

/// The earlier results, if the command names a file. Results that cannot be compared are refused
/// before the measurements, which take a minute.
std::optional<Json> earlier_results(const BenchCommand& command, Results results) {
  if (command.compare.empty()) return std::nullopt;
  Json before = read_results(command.compare);
  results.overlaps.emplace();
  require_comparable(before, to_json(results));
  return before;
}

}  // namespace

int bench(const BenchCommand& command) {
  Results results = describe(command);
  const std::optional<OverlapSizes> range = chosen_range(command, results.sizes);
  const std::optional<Json> before = earlier_results(command, results);
  measure(results, range);
  if (results.overlaps && results.sizes.record_times) draw_timelines(results, command.timelines);
  const Json json = to_json(results);
  command.json ? static_cast<void>(std::printf("%s\n", to_line(json).c_str()))
               : print_table(results);
  if (!before) return 0;
  if (!command.json) std::printf("\n");
  return print_comparison(command.json ? stderr : stdout, *before, json, command.threshold) == 0
             ? 0
             : slower_status;
}

}  // namespace tool
