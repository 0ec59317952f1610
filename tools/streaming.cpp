// SPDX-License-Identifier: Apache-2.0
#include "streaming.hpp"

#include "failure.hpp"
#include "info.hpp"
#include "size.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <string_view>

namespace tool {

namespace {

// The kernel's counters have 32 bits.
constexpr std::uint64_t largest_chunk = std::numeric_limits<std::uint32_t>::max();

runnel::OverlapStrategy chosen_strategy(std::string_view name) {
  using enum runnel::OverlapStrategy;
  if (name == "automatic") return automatic;
  if (name == "A" || name == "stream-per-chunk") return stream_per_chunk;
  if (name == "B" || name == "copy-compute-copy") return copy_compute_copy;
  throw Misuse(
      "--strategy " + in_quotes(name) +
      " is not known; choose one of automatic, A (stream-per-chunk), B (copy-compute-copy)");
}

}  // namespace

runnel::Device chosen_device(int ordinal) {
  const int count = runnel::Device::count();
  if (count == 0) throw Failure(why_no_device());
  if (ordinal < 0 || ordinal >= count)
    throw Failure("there is no device " + std::to_string(ordinal) +
                  (count == 1 ? "; the only one is 0"
                              : "; choose one from 0 to " + std::to_string(count - 1)));
  return runnel::Device{ordinal};
}

runnel::OverlapOptions overlap_options_for(const StreamingOptions& given, runnel::Device device,
                                           std::optional<std::uint64_t> size) {
  std::uint64_t chunk = parse_size("--chunk", given.chunk);
  // A chunk needs memory for its input and its output, on the host and on the device. On the host
  // backend both are host memory.
  const std::uint64_t on_device = device.memory_info().free / 2;
  const std::uint64_t on_host = available_memory() / 2;
  const std::uint64_t room = std::min(on_device, host_backend ? on_host / 2 : on_host);
  if (chunk > room)
    throw Failure("--chunk " + given.chunk + " does not fit into the " + to_text(room) +
                  " of memory that a chunk may take here; choose a smaller one");
  if (chunk > largest_chunk)
    throw Misuse("--chunk " + given.chunk + " is too large; choose one below 4G");

  auto in_flight = static_cast<std::uint64_t>(given.in_flight);
  if (size.value_or(0) > 0) {
    chunk = std::min(chunk, *size);
    in_flight = std::min(in_flight, (*size + chunk - 1) / chunk);
  }
  // A chunk also needs its counters, and allocators round sizes up.
  constexpr std::uint64_t beside = 64 << 10;
  if (chunk > room / in_flight || in_flight * (chunk + beside) > room)
    throw Failure(std::to_string(in_flight) + " chunks of " + to_text(chunk) +
                  " do not fit into the " + to_text(room) +
                  " of memory that are free; choose a smaller --chunk or --in-flight");
  return {.chunk = static_cast<std::size_t>(chunk),
          .in_flight = static_cast<std::size_t>(in_flight),
          .strategy = chosen_strategy(given.strategy),
          .streams = static_cast<std::size_t>(given.streams),
          .devices = {device}};
}

void throw_cause(const runnel::OverlapError& error) {
  try {
    std::rethrow_if_nested(error);
  } catch (const Failure&) {
    throw;
  } catch (...) {
  }
  throw;
}

}  // namespace tool
