// SPDX-License-Identifier: Apache-2.0
/// How often each byte occurs. `runnel histogram` counts the bytes of files, by as many processes
/// as were started.
#pragma once

#include "processes.hpp"
#include "reading.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

namespace tool {

using Histogram = std::array<std::uint64_t, 256>;

/// The eight most frequent bytes, each with a bar.
void print_most_frequent(std::FILE* to, const Histogram& histogram, std::size_t bytes);

/// @throws Failure, or an exception of runnel
void histogram(const ReadingCommand& command, Processes& processes);

}  // namespace tool
