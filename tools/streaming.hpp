// SPDX-License-Identifier: Apache-2.0
/// What the commands that stream files through a device have in common: the options, and how they
/// are checked.
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
  /// On a device large chunks fill the link. The host backend moves bytes through the processor's
  /// caches, which hold small ones.
  std::string chunk = host_backend ? "2M" : "16M";
  int in_flight = host_backend ? 8 : 4;
  int streams = 4;  ///< for the strategy with a stream for each chunk
  std::string strategy = "automatic";
  std::optional<int> device = {};
};

/// @throws Failure if there is no such device
[[nodiscard]] runnel::Device chosen_device(int ordinal);

/// The options for overlap(), with a chunk in bytes: whole items of `width` bytes, at least one.
/// Checks the sizes before anything is allocated, because a system may promise more memory than it
/// has, and then kill the process. Without a size, or with size 0, the chunks are as large as asked
/// for. @throws Failure
[[nodiscard]] runnel::OverlapOptions fitted(const StreamingOptions& given, runnel::Device device,
                                            std::optional<std::uint64_t> size,
                                            std::size_t width = 1);

/// Throws the failure of a file without the number of the chunk, and any other error as it is.
/// Requires: the error is being handled.
[[noreturn]] void throw_cause(const runnel::OverlapError& error);

}  // namespace tool
