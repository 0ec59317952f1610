// SPDX-License-Identifier: Apache-2.0
/// The options of a command that streams a file through a device, and their checks.
#pragma once

#include "backend.hpp"

#include <runnel/device.hpp>
#include <runnel/overlap.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace tool {

/// The options as typed.
struct StreamingOptions {
  /// Large chunks use the full bandwidth of the link to a device. On the host backend small chunks
  /// are faster, because they fit into the processor's caches.
  std::string chunk = host_backend ? "2M" : "16M";
  int in_flight = host_backend ? 8 : 4;
  int streams = 4;  ///< for the strategy with a stream for each chunk
  std::string strategy = "automatic";
  std::optional<int> device = {};
};

/// @throws Failure if there is no such device
[[nodiscard]] runnel::Device chosen_device(int ordinal);

/// The options for overlap(), with the chunk size in bytes. Checks the sizes before any allocation,
/// because a system may grant more memory than it has, and then kill the process. If `size` is
/// empty or 0, the chunks have the requested size.
/// @throws Failure
[[nodiscard]] runnel::OverlapOptions overlap_options_for(const StreamingOptions& given,
                                                         runnel::Device device,
                                                         std::optional<std::uint64_t> size);

/// Throws the nested Failure of a file, without the number of the chunk, or rethrows any other
/// error. Requires: called in the handler of `error`.
[[noreturn]] void throw_cause(const runnel::OverlapError& error);

}  // namespace tool
