// SPDX-License-Identifier: Apache-2.0
/// How often each byte occurs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace tool {

using Histogram = std::array<std::uint64_t, 256>;

/// Prints the eight most frequent bytes, each with a bar.
void print_most_frequent(std::FILE* to, const Histogram& histogram, std::size_t bytes);

}  // namespace tool
