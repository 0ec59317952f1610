// SPDX-License-Identifier: Apache-2.0
/// Chunks of a file through the device and back, several at once, in bounded memory.
#pragma once

#include "byte_map.hpp"
#include "chunk_times.hpp"
#include "files.hpp"

#include <runnel/device.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tool {

struct PipelineOptions {
  std::size_t chunk;      ///< bytes
  std::size_t in_flight;  ///< chunks at most between the file read and the file written
  std::size_t streams;
};

struct PipelineResult {
  std::uint64_t bytes = 0;
  std::size_t chunks = 0;
  double seconds = 0;
  std::array<std::uint64_t, 256> histogram{};
  /// In order. Of very long runs only the first chunks: `times.size() < chunks`.
  std::vector<ChunkTimes> times;
};

/// Reads all of `input`, maps each byte, writes the result in order. `progress` hears how many bytes are written.
/// @throws Failure or what runnel throws; then nothing is in flight any more.
[[nodiscard]] PipelineResult run_pipeline(runnel::Device device, InputFile& input, OutputFile& output, const ByteMap& map,
                                          const PipelineOptions& options, const std::function<void(std::uint64_t)>& progress);

}  // namespace tool
