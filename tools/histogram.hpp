// SPDX-License-Identifier: Apache-2.0
/// `runnel histogram` counts how often each byte occurs in files. All processes that were started
/// share the work.
#pragma once

#include "processes.hpp"
#include "reading.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

namespace tool {

using Histogram = std::array<std::uint64_t, 256>;

/// Prints the eight most frequent bytes, each with a bar.
void print_most_frequent(std::FILE* to, const Histogram& histogram, std::size_t bytes);

/// @throws Failure, or an exception of runnel
void histogram(const ReadingCommand& command, Processes& processes);

}  // namespace tool
